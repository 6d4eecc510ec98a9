# SPDX-License-Identifier: Apache-2.0
"""Attention of a few new tokens against a cache."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from . import _docs, _frameworks, _missing
from ._binding import operator
from ._wrappers._memory import _get_range_buf  # noqa: F401  (engines look for it here)
from ._wrappers.cudnn import cudnn_batch_decode_with_kv_cache  # noqa: F401
from ._wrappers.decode import (  # noqa: F401
    BatchDecodeWithPagedKVCacheWrapper, CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    fast_decode_plan)
from ._wrappers.mla import BatchDecodeMlaWithPagedKVCacheWrapper  # noqa: F401
from ._wrappers.mla_calls import (  # noqa: F401
    trtllm_batch_decode_with_kv_cache_mla, xqa_batch_decode_with_kv_cache_mla, xqa_mla)
from ._wrappers.mla_lists import (  # noqa: F401
    get_batch_decode_metadata_mla, trtllm_batch_decode_sparse_mla_dsv4)
from ._wrappers.trtllm_decode import (  # noqa: F401
    trtllm_batch_decode_with_kv_cache, xqa_batch_decode_with_kv_cache)
from .jit.batch import gen_batch_decode_module  # noqa: F401
from ._wrappers.ts_decode import (  # noqa: F401
    get_prims_ts_batch_decode_workspace_size, prims_ts_batch_decode_with_kv_cache)
from .jit.modules import gen_single_decode_module  # noqa: F401

Tensor = Any

_single = operator(
    "single_decode_with_kv_cache",
    "q k v kv_layout pos_encoding_mode window_left logits_soft_cap sm_scale rope_scale rope_theta "
    "q_scale k_scale v_scale out lse")


def single_decode_with_kv_cache(
    q: Tensor, k: Tensor, v: Tensor, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False, q_scale: Optional[float] = None,
    k_scale: Optional[float] = None, v_scale: Optional[float] = None, window_left: int = -1,
    logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
    rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
    return_lse: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Attention of one token against one request's keys and values.

    :param q: ``[h_q, d]`` float16, bfloat16, float32 or fp8.
    :param k: ``[s, h_kv, d]`` (NHD) or ``[h_kv, s, d]`` (HND); h_kv divides h_q.
    :param v: likewise.
    :param pos_encoding_mode: "NONE", "ROPE_LLAMA" (rotation inside the kernel, in halves) or
        "ALIBI".
    :param use_tensor_cores: a hint.
    :param q_scale: with k_scale multiplies the logits, v_scale the output: numbers or tensors.
    :param window_left: keys visible before the last one; -1 is no limit.
    :param logits_soft_cap: ``cap * tanh(s / cap)`` of the scaled logits; None and 0 are off.
    :param sm_scale: ``1 / sqrt(d)`` by default.
    :param kv_layout: "NHD" or "HND", the order of k and v.
    :param rope_scale: positions are divided by it with "ROPE_LLAMA"; 1 by default. :param rope_theta:
        base of its frequencies; 10000 by default.
    :returns: ``[h_q, d_v]`` of q's dtype (bfloat16 for fp8), and with return_lse the logarithm to
        base 2 of each head's sum, ``[h_q]`` float32.
    """
    dtype = q.dtype if _frameworks.itemsize(q) > 1 else "bfloat16"
    out = _frameworks.empty(q, (q.shape[0], v.shape[-1]), dtype)
    lse = _single(q, k, v, kv_layout, pos_encoding_mode, window_left, logits_soft_cap, sm_scale,
                  rope_scale, rope_theta, q_scale, k_scale, v_scale, out, return_lse)
    return (out, lse) if return_lse else out


def single_decode_with_kv_cache_with_jit_module(
    jit_module: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, kv_layout: str = "NHD",
    window_left: int = -1, return_lse: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """:func:`single_decode_with_kv_cache` with a custom variant.

    :param jit_module: of :func:`bolide.jit.gen_customize_single_decode_module`, loaded.
    :param q: ``[h_q, d]``. :param k: with v ``[s, h_kv, d]`` (NHD) or ``[h_kv, s, d]`` (HND).
    :param args: the variant's tensors and numbers, in the order that the module was made with.
    :param window_left: keys visible before the last one; -1 is no limit.
    :returns: ``[h_q, d_v]`` of q's dtype, and with return_lse ``[h_q]`` float32, to base 2.
    """
    out = _frameworks.empty(q, (q.shape[0], v.shape[-1]), q.dtype)
    lse = _frameworks.empty(q, (q.shape[0],), "float32") if return_lse else None
    jit_module.run(q, k, v, None, out, lse, ("NHD", "HND").index(kv_layout), window_left, *args)
    return (out, lse) if return_lse else out


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
