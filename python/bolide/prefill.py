# SPDX-License-Identifier: Apache-2.0
"""Attention of any number of new tokens against their keys and values."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple, Union

from . import _docs, _frameworks, _missing
from ._arguments import check_backend, later
from ._binding import operator
from ._wrappers.cudnn import cudnn_batch_prefill_with_kv_cache  # noqa: F401
from ._wrappers.prefill import BatchPrefillWithPagedKVCacheWrapper  # noqa: F401
from ._wrappers.ragged import BatchPrefillWithRaggedKVCacheWrapper  # noqa: F401
from ._wrappers.trtllm_prefill import (  # noqa: F401
    fmha_v2_prefill_deepseek, fmha_v2_prefill_sm120, trtllm_batch_context_with_kv_cache,
    trtllm_fmha_v2_prefill, trtllm_ragged_attention_deepseek)
from .jit.batch import gen_batch_prefill_module  # noqa: F401
from .jit.modules import gen_single_prefill_module  # noqa: F401
from .utils import MaskMode

Tensor = Any

_single = operator(
    "single_prefill_with_kv_cache",
    "q k v custom_mask packed_custom_mask causal kv_layout pos_encoding_mode window_left "
    "logits_soft_cap sm_scale rope_scale rope_theta q_scale k_scale v_scale out lse")
_BACKENDS = ("auto", "fa2", "fa3")


def _both(name, first, second):
    """FlashInfer has two spellings of a scale; one may be given."""
    if first is not None and second is not None:
        raise ValueError(f"{name}: expected one of both spellings")
    return first if first is not None else second


def _as_rows(mask: Tensor, n: int, s: int) -> Tensor:
    """The mask of one request, which FlashInfer takes in any shape."""
    if tuple(mask.shape) == (n, s):
        return mask
    elements = math.prod(mask.shape)
    if elements != n * s:
        raise ValueError(f"single_prefill_with_kv_cache: custom_mask: expected [{n}, {s}], or as many "
                         f"elements; got {list(mask.shape)}")
    return mask.reshape((n, s))


def single_prefill_with_kv_cache(
    q: Tensor, k: Tensor, v: Tensor, scale_q: Optional[Tensor] = None,
    scale_k: Optional[Tensor] = None, scale_v: Optional[Tensor] = None, o_dtype: Any = None,
    custom_mask: Optional[Tensor] = None, packed_custom_mask: Optional[Tensor] = None,
    causal: bool = False, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None, window_left: int = -1,
    logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
    rope_theta: Optional[float] = None, backend: str = "auto", return_lse: bool = False,
    kv_cache_sf: Any = None, k_scale: Any = None, v_scale: Any = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Attention of one request's tokens against its keys and values.

    :param q: ``[n, h_q, d]``: the last n tokens of the request.
    :param k: ``[s, h_kv, d]`` (NHD) or ``[h_kv, s, d]`` (HND). :param v: likewise, its own d.
    :param scale_q: with scale_k and scale_v: what a stored 1.0 stands for, a number, a tensor of
        one element or one for each head. k_scale and v_scale are the same under another name.
    :param o_dtype: of the result; q's by default, bfloat16 where q is fp8.
    :param custom_mask: ``[n, s]`` bool, or flat, True is seen; it replaces causal.
    :param packed_custom_mask: the same in bits, the lowest first, uint8.
    :param causal: query i sees keys up to ``s - n + i``.
    :param backend: "auto", "fa2" or "fa3". :param use_fp16_qk_reduction: a hint.
    :param kv_cache_sf: of NVFP4 caches, which this version does not have; it is refused.
    :returns: ``[n, h_q, d_v]``, and with return_lse ``[n, h_q]`` float32, to base 2. Other
        arguments as in :func:`bolide.decode.single_decode_with_kv_cache`.
    """
    check_backend("single_prefill_with_kv_cache", backend, _BACKENDS)
    later("single_prefill_with_kv_cache", kv_cache_sf=kv_cache_sf)
    if custom_mask is not None:
        custom_mask = _as_rows(custom_mask, q.shape[0], k.shape[0 if kv_layout == "NHD" else 1])
    if o_dtype is None:
        o_dtype = q.dtype if _frameworks.itemsize(q) > 1 else "bfloat16"
    out = _frameworks.empty(q, (*q.shape[:-1], v.shape[-1]), o_dtype)
    lse = _single(q, k, v, custom_mask, packed_custom_mask, causal, kv_layout, pos_encoding_mode,
                  window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta, scale_q,
                  _both("k_scale, scale_k", scale_k, k_scale),
                  _both("v_scale, scale_v", scale_v, v_scale), out, return_lse)
    return (out, lse) if return_lse else out


def single_prefill_with_kv_cache_return_lse(
    q: Tensor, k: Tensor, v: Tensor, scale_q: Optional[Tensor] = None,
    scale_k: Optional[Tensor] = None, scale_v: Optional[Tensor] = None, o_dtype: Any = None,
    custom_mask: Optional[Tensor] = None, packed_custom_mask: Optional[Tensor] = None,
    causal: bool = False, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None, window_left: int = -1,
    logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
    rope_theta: Optional[float] = None, backend: str = "auto", return_lse: bool = True,
    kv_cache_sf: Any = None, k_scale: Any = None, v_scale: Any = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """:func:`single_prefill_with_kv_cache` with its lse."""
    return single_prefill_with_kv_cache(
        q, k, v, scale_q, scale_k, scale_v, o_dtype, custom_mask, packed_custom_mask, causal,
        kv_layout, pos_encoding_mode, use_fp16_qk_reduction, sm_scale, window_left, logits_soft_cap,
        rope_scale, rope_theta, backend, return_lse, kv_cache_sf, k_scale, v_scale)


def single_prefill_with_kv_cache_with_jit_module(
    jit_module: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, kv_layout: str = "NHD",
    mask_mode: int = MaskMode.NON_CAUSAL.value, window_left: int = -1, return_lse: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """:func:`single_prefill_with_kv_cache` with a custom variant.

    :param jit_module: of :func:`bolide.jit.gen_customize_single_prefill_module`, loaded.
    :param q: ``[n, h_q, d]``. :param k: with v ``[s, h_kv, d]`` (NHD) or ``[h_kv, s, d]`` (HND).
    :param args: the variant's tensors and numbers, in the order that the module was made with.
    :param mask_mode: 0 for none, 1 for causal.
    :param window_left: keys visible before a query's own; -1 is no limit.
    :returns: ``[n, h_q, d_v]`` of q's dtype, and with return_lse ``[n, h_q]`` float32, to base 2.
    """
    out = _frameworks.empty(q, (*q.shape[:-1], v.shape[-1]), q.dtype)
    lse = _frameworks.empty(q, q.shape[:-1], "float32") if return_lse else None
    jit_module.run(q, k, v, None, out, lse, mask_mode, ("NHD", "HND").index(kv_layout), window_left,
                   *args)
    return (out, lse) if return_lse else out


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
