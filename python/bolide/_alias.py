# SPDX-License-Identifier: Apache-2.0
"""Bolide under the name ``flashinfer``, for programs that cannot change their imports.

Under the alias a module holds what FlashInfer's module of that name has and Bolide, too, and nothing
else: what is missing is absent, so that ``hasattr``, ``from flashinfer import …`` and
``importlib.util.find_spec`` say so and a program takes its own way round. A module of which nothing
is there cannot be found.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import re
import sys
from enum import EnumMeta
from types import ModuleType
from typing import Any, Iterator, Optional

from ._alias_names import NAMES

VERSION = "0.6.18"

# Names outside of the list: private ones of engines, which tests/data/engine_names.txt has with
# their places.
PRIVATE = {
    "cudnn.decode": "cudnn_batch_decode_with_kv_cache",  # FlashInfer's files behind its cudnn
    "cudnn.prefill": "cudnn_batch_prefill_with_kv_cache",
    "decode": "_get_range_buf",
    "jit.attention":  # examples of custom attention import them from there
        "gen_batch_attention_module gen_batch_decode_mla_module gen_batch_decode_module "
        "gen_batch_mla_module gen_batch_pod_module gen_batch_prefill_attention_sink_module "
        "gen_batch_prefill_module gen_customize_single_decode_module "
        "gen_customize_single_prefill_module gen_pod_module gen_single_decode_module "
        "gen_single_prefill_module",
    "jit.attention.utils": "generate_additional_params",  # the tutorial for JAX
    "jit.attention.variants": "attention_sink_decl",  # jit_args with sinks name it
    "jit.rope": "gen_rope_module",  # the tutorial for JAX imports it from there
    "jit.utils":  # programs build names of modules from the first
        "filename_safe_dtype_map write_if_different",
    "utils": "_cache_buf _ceil_pow2 _get_range_buf",
}

METADATA = f"""Metadata-Version: 2.1
Name: flashinfer-python
Version: {VERSION}
Summary: Bolide under the name of FlashInfer
"""


def _has(module: str) -> dict[str, Any]:
    """The names of a module of FlashInfer that Bolide has."""
    names = f"{NAMES.get(module, '')} {PRIVATE.get(module, '')}".split()
    try:
        source = importlib.import_module(f"bolide.{module}" if module else "bolide")
    except ModuleNotFoundError:
        return {}
    found = {}
    for name in names:
        value = getattr(source, name, None)
        here = value is not None and (not isinstance(value, ModuleType) or callable(value))
        if here and not getattr(value, "__bolide_missing__", False):
            found[name] = value
    # Enums alone, of another module, do not make a module: a program would take it for an operator.
    lent = all(isinstance(v, EnumMeta) and v.__module__ != source.__name__ for v in found.values())
    return {} if module and lent else found


class _Modules:
    """What there is under the alias, found once."""

    contents: Optional[dict[str, dict[str, Any]]] = None

    @classmethod
    def all(cls) -> dict[str, dict[str, Any]]:
        if cls.contents is None:
            cls.contents = {m: found for m in {**NAMES, **PRIVATE} if m and (found := _has(m))}
            for module in list(cls.contents):
                while "." in module:
                    module = module.rpartition(".")[0]
                    cls.contents.setdefault(module, {})
            top = _has("")
            cls.contents[""] = {**top, "__version__": VERSION, "__git_version__": "unknown"}
        return cls.contents


class _Distribution(importlib.metadata.Distribution):
    """The metadata of ``flashinfer-python``."""

    def read_text(self, filename: str) -> Optional[str]:
        return METADATA if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"flashinfer-python is an alias and has no file {path}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of the alias. It stands first, so that an installed FlashInfer is not met."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None):
        root, _, module = fullname.partition(".")
        if fullname == "flashinfer_cubin":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if root != "flashinfer" or module not in _Modules.all():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "flashinfer_cubin":
            module.__doc__ = "Bolide's kernels are compiled from its own sources; nothing is here."
            module.__version__ = VERSION
            return
        name = module.__name__.partition(".")[2]
        source = sys.modules[f"bolide.{name}" if name else "bolide"]
        module.__doc__ = source.__doc__
        module.__file__ = getattr(source, "__file__", None)
        vars(module).update(_Modules.all()[name])
        if not name:
            for other in _Modules.all():
                if other:
                    importlib.import_module(f"flashinfer.{other}")
            for other, contents in _Modules.all().items():  # what hides a module of its name
                where = sys.modules[f"flashinfer.{other}"] if other else module
                vars(where).update(contents)

    def find_distributions(self, context: Any = None) -> Iterator[_Distribution]:
        name = getattr(context, "name", None)
        if name is None or re.sub(r"[-_.]+", "-", name).lower() == "flashinfer-python":
            yield _Distribution()


_FINDER = _Finder()


def install_as_flashinfer() -> None:
    """From here on ``import flashinfer`` and its submodules mean Bolide, in this process.

    What Bolide lacks is absent there: an attribute, a name to import, or a whole module. The
    distribution ``flashinfer-python`` has the version 0.6.18, and ``flashinfer_cubin`` can be found.
    RuntimeError if another ``flashinfer`` has been imported before.
    """
    if _FINDER in sys.meta_path:
        return
    other = [m for m in sys.modules if m.partition(".")[0] == "flashinfer"]
    if other:
        raise RuntimeError(f"install_as_flashinfer: {other[0]} has been imported before")
    sys.meta_path.insert(0, _FINDER)


def flashinfer_path() -> str:
    """A directory for PYTHONPATH in which ``flashinfer`` is Bolide, for programs that cannot call
    :func:`install_as_flashinfer` first."""
    from pathlib import Path

    return str(Path(__file__).resolve().parent / "compat")
