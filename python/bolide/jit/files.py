# SPDX-License-Identifier: Apache-2.0
"""Modules that a program makes of FlashInfer's files itself, as its tutorial for JAX does: it renders
templates, copies sources and has them compiled. The templates here say in a few lines what is asked
for, and the spec of those files is that of the library's own functions. Sources of other kinds are
refused, since nothing here compiles CUDA C++.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

from . import env
from .core import JitSpec
from .modules import gen_single_decode_module

_DTYPES = {"half": "float16", "nv_half": "float16", "nv_bfloat16": "bfloat16", "float": "float32",
           "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2"}
_POSITIONS = ("PosEncodingMode::kNone", "PosEncodingMode::kRoPELlama", "PosEncodingMode::kALiBi")
_SOURCES = {"single_decode_kernel.cu": "single_decode_kernel_inst.jinja",
            "single_decode.cu": "single_decode.cu",
            "single_decode_jit_binding.cu": "single_decode_jit_binding.cu"}


def write_if_different(path: Any, content: str) -> None:
    """Writes a file, with the folders above it, unless it has that content.

    :param path: of the file. :param content: its text.
    """
    path = Path(path)
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def generate_additional_params(
    additional_tensor_names: List[str], additional_tensor_dtypes: List[str],
    additional_scalar_names: List[str], additional_scalar_dtypes: List[str],
    is_sm90_template: bool = False,
) -> Tuple[str, str, str]:
    """What a template says of the tensors and numbers that follow the cache in a module's run: their
    declarations, the arguments, and how these are kept. is_sm90_template is a hint."""
    kinds = dict(zip((*additional_tensor_names, *additional_scalar_names),
                     (*(f"{kind}*" for kind in additional_tensor_dtypes), *additional_scalar_dtypes)))
    return ("; ".join(f"{kind} {name}" for name, kind in kinds.items()),
            ", ".join(f"{kind} {name}" for name, kind in kinds.items()),
            "; ".join(f"params.{name} = {name}" for name in kinds))


def _asked(config: Path) -> dict[str, str]:
    """The lines of a rendered template."""
    lines = (line.partition(" = ") for line in config.read_text(encoding="utf-8").splitlines())
    return {key: value.strip() for key, equals, value in lines if equals and key.isidentifier()}


def _refused(argument: str, expected: str, got: Any) -> NotImplementedError:
    return NotImplementedError(f"gen_jit_spec: {argument}: expected {expected}; got {got}")


def gen_jit_spec(name: str, sources: List[Any], extra_cflags: Any = None,
                 extra_cuda_cflags: Any = None, extra_ldflags: Any = None,
                 extra_include_paths: Any = None, needs_device_linking: bool = False) -> JitSpec:
    """The module of one request's decoding that files made of the templates ask for. Others raise
    NotImplementedError.

    :param name: of the module. :param sources: the files. :param extra_cflags: a hint, as are
        extra_cuda_cflags, extra_ldflags, extra_include_paths and needs_device_linking: nothing is
        compiled.
    """
    paths = {Path(source).name: Path(source) for source in sources}
    if set(paths) != set(_SOURCES):
        raise _refused("sources", ", ".join(_SOURCES), ", ".join(sorted(paths)))
    for file, path in paths.items():
        ours = env.FLASHINFER_CSRC_DIR / _SOURCES[file]
        if path.read_text(encoding="utf-8").split() != ours.read_text(encoding="utf-8").split():
            raise _refused(file, "the file of jit.env.FLASHINFER_CSRC_DIR", "another text")
    config = paths["single_decode_kernel.cu"].with_name("single_decode_config.inc")
    asked = _asked(config)
    if not asked.get("variant_name", "").startswith("DefaultAttention<"):
        raise _refused("variant_name", "DefaultAttention, else gen_customize_single_decode_module",
                       asked.get("variant_name"))
    kinds = [_DTYPES.get(asked[f"dtype_{part}"]) for part in ("q", "kv", "o")]
    if None in kinds:
        raise _refused("dtype", ", ".join(_DTYPES),
                       [asked[f"dtype_{part}"] for part in ("q", "kv", "o")][kinds.index(None)])
    wanted = generate_additional_params(
        ["maybe_alibi_slopes"], ["float"],
        ["logits_soft_cap", "sm_scale", "rope_rcp_scale", "rope_rcp_theta"], ["double"] * 4)[1]
    if asked["run"] != wanted:
        raise _refused("additional_func_params", wanted, asked["run"])
    spec = gen_single_decode_module(
        *kinds, int(asked["head_dim_qk"]), int(asked["head_dim_vo"]),
        _POSITIONS.index(asked["pos_encoding_mode"]), asked["use_sliding_window"] == "true",
        asked["use_logits_soft_cap"] == "true")
    return JitSpec(name, spec._functions)
