# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's modules, for programs that call their functions themselves: through tvm-ffi from JAX,
say. Arguments stand in FlashInfer's order, outputs among them; tensors are those of any framework
that speaks DLPack, and of tvm-ffi. A function runs on the stream that tvm-ffi knows of.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .. import _dtypes, _library
from .core import JitSpec

_POS_ENCODING = ("NONE", "ROPE_LLAMA", "ALIBI")
_MASKS = ("NON_CAUSAL", "CAUSAL", "CUSTOM")


def bound(**functions: str) -> Callable[[], dict[str, Callable]]:
    """Functions of the library by name; ``-`` is an argument that is a hint."""
    return lambda: {name: _library.bind(name, "run", names) for name, names in functions.items()}


@functools.lru_cache(maxsize=None)
def gen_act_and_mul_module(act_func_name: str) -> JitSpec:
    """``{silu,gelu,gelu_tanh}_and_mul(out, input, enable_pdl)``, by act_func_name."""
    if act_func_name not in ("silu", "gelu", "gelu_tanh"):
        raise NotImplementedError(f"gen_act_and_mul_module: act_func_name: expected silu, gelu or "
                                  f"gelu_tanh; got {act_func_name}")
    name = f"{act_func_name}_and_mul"
    return JitSpec(name, bound(**{name: "out input -"}))


@functools.lru_cache(maxsize=None)
def gen_norm_module() -> JitSpec:
    """``rmsnorm(out, input, weight, eps, enable_pdl)``, its Gemma form, both with a residual
    ``(input, residual, weight, eps, enable_pdl)``, and ``layernorm(out, input, gamma, beta, eps)``."""
    return JitSpec("norm", bound(
        rmsnorm="out input weight eps -", gemma_rmsnorm="out input weight eps -",
        fused_add_rmsnorm="input residual weight eps -",
        gemma_fused_add_rmsnorm="input residual weight eps -",
        layernorm="out input gemma beta eps"))


@functools.lru_cache(maxsize=None)
def gen_rope_module() -> JitSpec:
    """``apply_rope(q, k, q_rope, k_rope, indptr, offsets, rotary_dim, interleave, rope_scale,
    rope_theta)`` and ``apply_rope_pos_ids``, with pos_ids in the place of indptr and offsets."""
    tail = "rotary_dim interleave rope_scale rope_theta"
    return JitSpec("rope", bound(
        apply_rope="q k q_rope_out k_rope_out indptr offsets " + tail,
        apply_rope_pos_ids="q k q_rope_out k_rope_out pos_ids " + tail))


def get_single_decode_uri(
    dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim_qk: int, head_dim_vo: int,
    pos_encoding_mode: int, use_sliding_window: bool, use_logits_soft_cap: bool,
) -> str:
    """FlashInfer's name of the module of :func:`gen_single_decode_module`."""
    return "single_decode_with_kv_cache_" + _uri(
        dtype_q, dtype_kv, dtype_o, head_dim_qk, head_dim_vo, pos_encoding_mode,
        use_sliding_window, use_logits_soft_cap)


def get_single_prefill_uri(
    backend: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim_qk: int, head_dim_vo: int,
    pos_encoding_mode: int, use_sliding_window: bool, use_logits_soft_cap: bool,
    use_fp16_qk_reduction: bool,
) -> str:
    """FlashInfer's name of the module of :func:`gen_single_prefill_module`."""
    return "single_prefill_with_kv_cache_" + _uri(
        dtype_q, dtype_kv, dtype_o, head_dim_qk, head_dim_vo, pos_encoding_mode,
        use_sliding_window, use_logits_soft_cap) + (
        f"_f16qk_{use_fp16_qk_reduction}" + ("_sm90" if backend == "fa3" else ""))


def gen_single_decode_module(
    dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim_qk: int, head_dim_vo: int,
    pos_encoding_mode: int, use_sliding_window: bool, use_logits_soft_cap: bool,
) -> JitSpec:
    """``run(q, k, v, tmp, out, lse, kv_layout, window_left, alibi_slopes, logits_soft_cap, sm_scale,
    rope_rcp_scale, rope_rcp_theta)``: tmp is scratch on a GPU, and on the CPU, which has its own, it
    may be None or of any size; lse may be None; kv_layout is 0 for NHD, 1 for HND; the last two are
    reciprocals. alibi_slopes has to be None, the slopes follow from the number of heads. Window and
    soft cap count as they are given to run, whatever was said here; dtypes and head sizes are those
    of the tensors.
    """
    mode = _POS_ENCODING[pos_encoding_mode]

    def functions() -> dict[str, Callable]:
        call = _library.bind(
            "single_decode_with_kv_cache", "run",
            "q k v workspace out lse kv_layout window_left logits_soft_cap sm_scale rope_scale "
            "rope_theta pos_encoding_mode")

        def run(q, k, v, tmp, out, lse, kv_layout, window_left, alibi_slopes, logits_soft_cap,
                sm_scale, rope_rcp_scale, rope_rcp_theta):
            _no_slopes("single_decode_with_kv_cache", alibi_slopes)
            call(q, k, v, _scratch(q, tmp), out, lse, kv_layout, window_left, logits_soft_cap,
                 sm_scale, 1 / rope_rcp_scale, 1 / rope_rcp_theta, mode)

        return {"run": run}

    return JitSpec(get_single_decode_uri(
        dtype_q, dtype_kv, dtype_o, head_dim_qk, head_dim_vo, pos_encoding_mode,
        use_sliding_window, use_logits_soft_cap), functions)


def gen_single_prefill_module(
    backend: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim_qk: int, head_dim_vo: int,
    pos_encoding_mode: int, use_sliding_window: bool, use_logits_soft_cap: bool,
    use_fp16_qk_reduction: bool,
) -> JitSpec:
    """``run(q, k, v, tmp, out, lse, mask_mode, kv_layout, window_left, packed_custom_mask,
    alibi_slopes, logits_soft_cap, sm_scale, rope_rcp_scale, rope_rcp_theta)``: mask_mode is 0 for
    none, 1 causal, 2 packed_custom_mask; the others as in :func:`gen_single_decode_module`. backend
    and use_fp16_qk_reduction are hints.
    """
    mode = _POS_ENCODING[pos_encoding_mode]

    def functions() -> dict[str, Callable]:
        call = _library.bind(
            "single_prefill_with_kv_cache", "run",
            "q k v workspace out lse causal kv_layout window_left packed_custom_mask "
            "logits_soft_cap sm_scale rope_scale rope_theta pos_encoding_mode")

        def run(q, k, v, tmp, out, lse, mask_mode, kv_layout, window_left, packed_custom_mask,
                alibi_slopes, logits_soft_cap, sm_scale, rope_rcp_scale, rope_rcp_theta):
            _no_slopes("single_prefill_with_kv_cache", alibi_slopes)
            mask = _MASKS[mask_mode]
            if (mask == "CUSTOM") != (packed_custom_mask is not None):
                raise ValueError("single_prefill_with_kv_cache: packed_custom_mask: expected with "
                                 f"mask_mode 2 and with no other; got mask_mode {mask_mode}")
            call(q, k, v, _scratch(q, tmp), out, lse, mask == "CAUSAL", kv_layout, window_left,
                 packed_custom_mask, logits_soft_cap, sm_scale, 1 / rope_rcp_scale,
                 1 / rope_rcp_theta, mode)

        return {"run": run}

    return JitSpec(get_single_prefill_uri(
        backend, dtype_q, dtype_kv, dtype_o, head_dim_qk, head_dim_vo, pos_encoding_mode,
        use_sliding_window, use_logits_soft_cap, use_fp16_qk_reduction), functions)


SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "e4m3",
          "float8_e5m2": "e5m2"}


def _uri(dtype_q, dtype_kv, dtype_o, head_dim_qk, head_dim_vo, pos_encoding_mode,
         use_sliding_window, use_logits_soft_cap) -> str:
    q, kv, o = (SHORT[_dtypes.name_of(d)] for d in (dtype_q, dtype_kv, dtype_o))
    return (f"dtype_q_{q}_dtype_kv_{kv}_dtype_o_{o}_head_dim_qk_{head_dim_qk}_"
            f"head_dim_vo_{head_dim_vo}_posenc_{pos_encoding_mode}_use_swa_{use_sliding_window}_"
            f"use_logits_cap_{use_logits_soft_cap}")


def _scratch(q: Any, tmp: Any) -> Any:
    """The scratch of a call: programs size it for FlashInfer, and on the CPU, where a thread's share
    of it can be more, the library brings its own."""
    device = getattr(q, "__dlpack_device__", None)
    return None if device is not None and device()[0] == 1 else tmp


def _no_slopes(name: str, slopes: Any) -> None:
    if slopes is not None:
        raise NotImplementedError(f"{name}: alibi_slopes: expected None; the slopes follow from the "
                                  "number of heads")
