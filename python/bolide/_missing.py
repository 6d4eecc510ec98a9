# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's names that Bolide does not have yet: they exist and raise NotImplementedError.

:mod:`bolide._missing_names` lists the documented names of FlashInfer's modules. A module here ends
with ``__getattr__ = _missing.lookup(__name__)``, which is asked only for what the module itself
lacks; a module of FlashInfer that has no file here at all is made by the finder below. Everything
made here carries ``__bolide_missing__``, so that the ``flashinfer`` alias can leave it out.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Callable

from ._missing_names import NAMES

# Predicates of what is not there: they say so.
_PREDICATES = frozenset((
    "gdn_fused_decode_step_supported", "has_monomoe", "is_cute_dsl_available",
    "supports_packed_kv"))
# Names that FlashInfer also has in modules of which most is not there, and where they are here.
_NORMS = ("fused_dit_gate_residual_layernorm_gamma_beta",
          "fused_dit_gate_residual_layernorm_scale_shift",
          "fused_dit_residual_layernorm_scale_shift", "fused_qk_rmsnorm_rope")
_ENUMS = ("ActivationType", "Fp8QuantizationType", "RoutingInputMode", "RoutingMethodType",
          "WeightLayout")
_CUTE = "cute_dsl.attention.wrappers"
_ELSEWHERE = {
    f"{_CUTE}.batch_decode": dict.fromkeys(
        ("BatchDecodeCuteDSLWrapper", "BatchDecodePagedCuteDSLWrapper"), "_wrappers.cute"),
    f"{_CUTE}.batch_hca": {"cute_dsl_hca_decode": "_wrappers.mla_lists"},
    f"{_CUTE}.batch_mla": {"BatchMLADecodeCuteDSLWrapper": "_wrappers.cute"},
    f"{_CUTE}.batch_prefill": {"BatchPrefillCuteDSLWrapper": "_wrappers.cute"},
    "diffusion_ops": dict.fromkeys(_NORMS, "norm"),
    "dsv3_ops": {"concat_mla_k": "concat_ops", "mm_M1_16_K7168_N128": "gemm",
                 "mm_M1_16_K7168_N256": "gemm"},
    "fused_moe": dict.fromkeys(_ENUMS, "tllm_enums"),
    "jit.core": {"gen_jit_spec": "jit.files"},
    "jit.env": {"has_flashinfer_jit_cache": "utils"},
}


def _sentence(name: str) -> str:
    return f"{name}: not in this version of Bolide; bolide.coverage() lists what is"


def _function(name: str) -> Callable:
    def missing(*args: Any, **kwargs: Any):
        raise NotImplementedError(_sentence(name))

    missing.__name__ = missing.__qualname__ = name.rsplit(".", 1)[-1]
    missing.__doc__ = _sentence(name)
    missing.__bolide_missing__ = True
    return missing


def _predicate(name: str) -> Callable:
    """Whether something is there that is not."""
    def absent(*args: Any, **kwargs: Any) -> bool:
        return False

    absent.__name__ = absent.__qualname__ = name.rsplit(".", 1)[-1]
    absent.__doc__ = f"False: {_sentence(name)}"
    absent.__bolide_missing__ = True
    return absent


class _MissingType(type):
    """Class of classes that are not there: neither an instance nor a member can be had."""

    def __call__(cls, *args: Any, **kwargs: Any):
        raise NotImplementedError(cls.__doc__)

    def __getattr__(cls, member: str):
        if member.startswith("__"):
            raise AttributeError(member)
        raise NotImplementedError(cls.__doc__)


@functools.lru_cache(maxsize=None)
def _stub(module: str, name: str) -> Any:
    full = f"{module}.{name}"
    if name in _PREDICATES:
        return _predicate(full)
    if not name[0].isupper():
        return _function(full)
    return _MissingType(name, (), {"__doc__": _sentence(full), "__module__": module,
                                   "__bolide_missing__": True})


def lookup(module: str) -> Callable[[str], Any]:
    """``__getattr__`` of a module."""
    tail = module.partition(".")[2]
    names = frozenset(NAMES.get(tail, "").split())

    elsewhere = _ELSEWHERE.get(tail, {})

    def __getattr__(name: str) -> Any:
        if name in elsewhere:
            return getattr(importlib.import_module(f"bolide.{elsewhere[name]}"), name)
        if name in names:
            return _stub(module, name)
        below = f"{tail}.{name}" if tail else name
        if below in NAMES or below in _Finder.packages:
            return importlib.import_module(f"{module}.{name}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


class _Finder:
    """Makes the modules that have no file here. It stands last, so that files win."""

    packages = {m.rsplit(".", n)[0] for m in NAMES for n in range(1, m.count(".") + 1)}

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None):
        root, _, tail = fullname.partition(".")
        if root != "bolide" or not (tail in NAMES or tail in cls.packages):
            return None
        return importlib.machinery.ModuleSpec(fullname, cls, is_package=True)

    @staticmethod
    def create_module(spec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.__doc__ = _sentence(module.__name__)
        module.__getattr__ = lookup(module.__name__)
        module.__bolide_missing__ = True


sys.meta_path.append(_Finder)
