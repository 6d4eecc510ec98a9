# SPDX-License-Identifier: Apache-2.0
"""Modules of attention with a custom variant, for one request
(:func:`bolide.decode.single_decode_with_kv_cache_with_jit_module` and its like). The batch wrappers
take the same as their ``jit_args``; :mod:`bolide._wrappers.variant` says what a variant is."""

from __future__ import annotations

from typing import Any, Callable, List

from ... import _frameworks
from ..._binding import operator
from ..._wrappers import _memory, variant
from ..batch import (  # noqa: F401  (FlashInfer has them here, too)
    gen_batch_attention_module, gen_batch_decode_mla_module, gen_batch_decode_module,
    gen_batch_mla_module, gen_batch_pod_module, gen_batch_prefill_attention_sink_module,
    gen_batch_prefill_module, gen_pod_module)
from . import variants  # noqa: F401
from ..core import JitSpec
from ..modules import gen_single_decode_module, gen_single_prefill_module  # noqa: F401


def _functions(jit_args: tuple, prefill: bool) -> Callable[[], dict[str, Callable]]:
    op = "single_prefill_with_kv_cache" if prefill else "single_decode_with_kv_cache"
    call = operator(op, "q k v out lse kv_layout window_left sm_scale variant"
                    + (" causal" if prefill else ""))
    made: dict[bool, variant.Variant] = {}

    def run(q, k, v, out, lse, kv_layout, window_left, args, *mask):
        gpu = _memory.on_gpu(q)
        if gpu not in made:
            made[gpu] = variant.Variant(op, jit_args, gpu)
        own = made[gpu]
        own.check({"q_data_type": _frameworks.dtype_bit(q), "kv_data_type": _frameworks.dtype_bit(k),
                   "o_data_type": _frameworks.dtype_bit(out), "head_dim_qk": q.shape[-1],
                   "head_dim_vo": v.shape[-1]})
        own.fill(args, None)
        call(q, k, v, out, lse, kv_layout, window_left, 1.0 if own.is_cpp else None, own.address,
             *mask)

    def run_prefill(q, k, v, tmp, out, lse, mask_mode, kv_layout, window_left, *args):
        if mask_mode not in (0, 1):
            raise NotImplementedError(
                f"{op}: mask_mode: expected 0 or 1; got {mask_mode}; a variant's own mask goes "
                "with 0")
        run(q, k, v, out, lse, kv_layout, window_left, args, mask_mode == 1)

    def run_decode(q, k, v, tmp, out, lse, kv_layout, window_left, *args):
        run(q, k, v, out, lse, kv_layout, window_left, args)

    return lambda: {"run": run_prefill if prefill else run_decode}


def _check(name: str, pos_encoding_mode: int, fp8_enabled: bool = False) -> None:
    if pos_encoding_mode:
        raise NotImplementedError(f"{name}: pos_encoding_mode: expected 0; got {pos_encoding_mode}")
    if fp8_enabled:
        raise NotImplementedError(f"{name}: fp8_enabled: not supported with a variant")


def gen_customize_single_decode_module(
    uri: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim_qk: int, head_dim_vo: int,
    additional_tensor_names: List[str], additional_tensor_dtypes: List[str],
    additional_scalar_names: List[str], additional_scalar_dtypes: List[str], variant_name: str,
    variant_decl: Any, pos_encoding_mode: int = 0, use_sliding_window: bool = False,
    use_logits_soft_cap: bool = False,
) -> JitSpec:
    """``run(q, k, v, tmp, out, lse, kv_layout, window_left, *parameters)``: one token against one
    request's keys and values, changed by a variant. kv_layout is 0 for NHD and 1 for HND, lse may
    be None, tmp is not used.

    :param uri: a name of the module.
    :param dtype_q: with the other dtypes and head sizes what the tensors of the calls have.
    :param additional_tensor_names: tensors and numbers that the variant reads; their values follow
        in the calls, in this order.
    :param variant_decl: a struct in CUDA C++, for the GPU, or a dictionary of texts of C.
    :param use_sliding_window: with use_logits_soft_cap a switch of FlashInfer's compiler that
        changes nothing. :param pos_encoding_mode: 0; others are refused.
    """
    _check("gen_customize_single_decode_module", pos_encoding_mode)
    args = (uri, dtype_q, dtype_kv, dtype_o, "int32", head_dim_qk, head_dim_vo,
            additional_tensor_names, additional_tensor_dtypes, additional_scalar_names,
            additional_scalar_dtypes, variant_name, variant_decl)
    return JitSpec(uri, _functions(args, prefill=False))


def gen_customize_single_prefill_module(
    backend: str, uri: str, dtype_q: Any, dtype_kv: Any, dtype_o: Any, head_dim_qk: int,
    head_dim_vo: int, additional_tensor_names: List[str], additional_tensor_dtypes: List[str],
    additional_scalar_names: List[str], additional_scalar_dtypes: List[str], variant_name: str,
    variant_decl: Any, pos_encoding_mode: int = 0, use_sliding_window: bool = False,
    use_logits_soft_cap: bool = False, use_fp16_qk_reduction: bool = False,
    fp8_enabled: bool = False,
) -> JitSpec:
    """``run(q, k, v, tmp, out, lse, mask_mode, kv_layout, window_left, *parameters)``: any number of
    tokens; mask_mode is 0 for none and 1 for causal. backend and use_fp16_qk_reduction are hints;
    others as in :func:`gen_customize_single_decode_module`."""
    _check("gen_customize_single_prefill_module", pos_encoding_mode, fp8_enabled)
    args = (uri, dtype_q, dtype_kv, dtype_o, "int32", head_dim_qk, head_dim_vo,
            additional_tensor_names, additional_tensor_dtypes, additional_scalar_names,
            additional_scalar_dtypes, variant_name, variant_decl)
    return JitSpec(uri, _functions(args, prefill=True))
