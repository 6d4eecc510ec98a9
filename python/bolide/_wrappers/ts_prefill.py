# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's task-scheduled prefill, over packed keys and values and against pages."""

from __future__ import annotations

from typing import Any, Optional

from .. import _frameworks
from ..page import get_seq_lens
from . import _memory
from . import contracts as c
from . import ts
from .prefill import BatchPrefillWithPagedKVCacheWrapper
from .ragged import BatchPrefillWithRaggedKVCacheWrapper
from .trtllm_prefill import paged, ragged
from .remembered import remembered

Tensor = Any
_DEFAULT_PAGED_KV_PAGE_SIZE = 32


def _check_packed(name: str, q: Tensor, k: Tensor, qo_indptr: Any, kv_indptr: Any) -> bool:
    """Whether requests are packed: with both offsets, else ``[b, s, h, d]``."""
    if (qo_indptr is None) != (kv_indptr is None):
        raise c.expect(name, "kv_indptr", "with qo_indptr, or neither", "one of them")
    packed = qo_indptr is not None
    for argument, tensor in (("q", q), ("k", k)):
        if tensor.ndim != (3 if packed else 4):
            raise c.expect(name, argument, "[n, h, d] with qo_indptr, else [b, s, h, d]",
                           list(tensor.shape))
    if not packed and k.shape[0] != q.shape[0]:
        raise c.expect(name, "k", f"{q.shape[0]} requests, as in q", k.shape[0])
    return packed


def _even(b: int, n: int, like: Tensor) -> Tensor:
    """The offsets of b requests of n tokens, on the host."""
    return _memory.int32s([i * n for i in range(b + 1)], like)


def _out(name: str, q: Tensor, v: Tensor, out: Any, out_dtype: Any) -> Tensor:
    return c.output(name, q, (*q.shape[:-1], v.shape[-1]), out, out_dtype, q.dtype)


@remembered
def batch_prefill(
    q: Tensor, k: Tensor, v: Tensor, *, qo_indptr: Optional[Tensor] = None,
    kv_indptr: Optional[Tensor] = None, mask_type: str = "dense", window_left: int = -1,
    sm_scale: Optional[float] = None, output_scale: float = 1.0, out_dtype: Any = None,
    out: Optional[Tensor] = None,
) -> Tensor:
    """Attention of requests over their own keys and values, in one call.

    :param q: ``[b, s_q, h_q, d]``, or with both offsets ``[n, h_q, d]``. :param k: ``[b, s_k,
        h_kv, d]`` or ``[m, h_kv, d]``; v likewise.
    :param qo_indptr: ``[b + 1]`` int32: request i owns rows qo_indptr[i] on of q, and kv_indptr[i]
        on of k and v.
    :param mask_type: "dense", or "causal": row i sees keys up to ``k_len - q_len + i``.
    :param window_left: keys before that one; -1 is no limit.
    :param sm_scale: ``1 / sqrt(d)`` by default. :param output_scale: of the result.
    :param out_dtype: q's by default.
    :returns: out, of q's shape.
    """
    name = "batch_prefill"
    causal = ts.causal(name, mask_type, window_left)
    packed = _check_packed(name, q, k, qo_indptr, kv_indptr)
    if not packed:
        qo_indptr = _memory.counted(q.shape[0] + 1, q, q.shape[1])
        kv_indptr = _memory.counted(q.shape[0] + 1, q, k.shape[1])
    out = _out(name, q, v, out, out_dtype)
    plan = {"qo_indptr": c.int32(qo_indptr), "kv_indptr": c.int32(kv_indptr), "causal": causal,
            "window_left": window_left, "sm_scale": 1.0}
    run = {"q_scale": ts.positive(name, "sm_scale", sm_scale, q.shape[-1] ** -0.5),
           "v_scale": ts.positive(name, "output_scale", output_scale),
           "out": ts.joined(name, "out", out)}
    ragged(name, *(ts.joined(name, n, t) for n, t in (("q", q), ("k", k), ("v", v))), c.Own(q),
           plan, run, {"q_scale": "sm_scale", "v_scale": "output_scale", "num_qo_heads": "q",
                       "head_dim_qk": "q", "head_dim_vo": "v"})
    return out


class BatchPrefillTSWrapper:
    """Attention of requests over their own keys and values, planned once."""

    def __init__(self) -> None:
        self._inner: Optional[BatchPrefillWithRaggedKVCacheWrapper] = None

    def plan(
        self, q: Tensor, k: Tensor, v: Tensor, *, qo_indptr: Optional[Tensor] = None,
        kv_indptr: Optional[Tensor] = None, mask_type: str = "dense", window_left: int = -1,
        sm_scale: Optional[float] = None, output_scale: float = 1.0, out_dtype: Any = None,
    ) -> None:
        """Prepares runs for tensors of these shapes and dtypes; their values do not matter.

        Arguments as in :func:`batch_prefill`: q, k, v, qo_indptr, kv_indptr, mask_type,
        window_left, sm_scale, output_scale, out_dtype.
        """
        name = f"{type(self).__name__}.plan"
        causal = ts.causal(name, mask_type, window_left)
        if not _check_packed(name, q, k, qo_indptr, kv_indptr):
            qo_indptr = _even(q.shape[0], q.shape[1], q)
            kv_indptr = _even(q.shape[0], k.shape[1], q)
        self._shapes = tuple(q.shape[:-2]), tuple(k.shape[:-2])
        self._output_scale = ts.positive(name, "output_scale", output_scale)
        if self._inner is None:
            space = _frameworks.empty(q, (16,), "uint8")
            self._inner = BatchPrefillWithRaggedKVCacheWrapper(space, "NHD")
        self._inner.plan(
            qo_indptr, kv_indptr, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1],
            causal=causal, window_left=window_left, q_data_type=q.dtype, kv_data_type=k.dtype,
            o_data_type=q.dtype if out_dtype is None else out_dtype,
            sm_scale=ts.positive(name, "sm_scale", sm_scale, q.shape[-1] ** -0.5))

    def run(self, q: Tensor, k: Tensor, v: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
        """Attention as planned, of tensors of the planned shapes: q, k, v.

        :returns: out, of q's shape.
        """
        name = f"{type(self).__name__}.run"
        if self._inner is None:
            raise RuntimeError(f"{name}: plan() must come before run()")
        for argument, tensor, shape in (("q", q, self._shapes[0]), ("k", k, self._shapes[1])):
            if tuple(tensor.shape[:-2]) != shape:
                raise c.expect(name, argument, f"{[*shape]} tokens, as planned",
                               list(tensor.shape[:-2]))
        out = _out(name, q, v, out, None if out is not None else self._inner._cached_o_data_type)
        self._inner.run(*(ts.joined(name, n, t) for n, t in (("q", q), ("k", k), ("v", v))),
                        out=ts.joined(name, "out", out), v_scale=self._output_scale)
        return out


def batch_prefill_with_paged_kv_cache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, paged_kv_indptr: Tensor,
    paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor, *,
    page_size: int = _DEFAULT_PAGED_KV_PAGE_SIZE, kv_layout: str = "HND",
    mask_type: str = "dense", window_left: int = -1, sm_scale: Optional[float] = None,
    output_scale: float = 1.0, out_dtype: Any = None, out: Optional[Tensor] = None,
) -> Tensor:
    """Attention of requests against their pages, in one call.

    :param q: ``[n, h_q, d]``; request i owns rows ``qo_indptr[i]`` on. :param qo_indptr: ``[b +
        1]`` int32.
    :param k_cache: ``[pages, h_kv, page_size, d]``; v_cache likewise.
    :param paged_kv_indptr: ``[b + 1]`` int32: and the pages
        ``paged_kv_indices[paged_kv_indptr[i]:paged_kv_indptr[i + 1]]``.
    :param paged_kv_last_page_len: ``[b]`` int32, tokens in the last one.
    :param page_size: of k_cache. :param kv_layout: "HND".

    Other arguments as in :func:`batch_prefill`: mask_type, window_left, sm_scale, output_scale,
    out_dtype.
    """
    name = "batch_prefill_with_paged_kv_cache"
    causal = _check_pages(name, k_cache, page_size, kv_layout, mask_type, window_left)
    out = _out(name, q, v_cache, out, out_dtype)
    lens = get_seq_lens(paged_kv_indptr, paged_kv_last_page_len, page_size)
    plan = {"qo_indptr": c.int32(qo_indptr), "paged_kv_indptr": paged_kv_indptr, "seq_lens": lens,
            "causal": causal, "window_left": window_left, "sm_scale": 1.0}
    run = {"paged_kv_indices": paged_kv_indices, "out": out,
           "q_scale": ts.positive(name, "sm_scale", sm_scale, q.shape[-1] ** -0.5),
           "v_scale": ts.positive(name, "output_scale", output_scale)}
    paged(name, q, c.Cache(k_cache, v_cache, None, None, "HND"), c.Own(q), plan, run,
          {"q_scale": "sm_scale", "v_scale": "output_scale", "num_qo_heads": "q",
           "head_dim_qk": "q", "head_dim_vo": "v_cache"})
    return out


def _check_pages(name: str, k_cache: Tensor, page_size: int, kv_layout: str, mask_type: str,
                 window_left: int) -> bool:
    """Whether the mask is causal; page_size repeats what the cache says."""
    ts.hnd(name, kv_layout)
    if k_cache.ndim != 4 or k_cache.shape[2] != page_size:
        raise c.expect(name, "k_cache", f"[pages, h_kv, {page_size}, d], by page_size",
                       list(k_cache.shape))
    return ts.causal(name, mask_type, window_left)


class BatchPrefillPagedTSWrapper:
    """Attention of requests against their pages, planned once.

    :param kv_layout: "HND".
    """

    def __init__(self, kv_layout: str = "HND"):
        ts.hnd(type(self).__name__, kv_layout)
        self._kv_layout = kv_layout
        self._inner: Optional[BatchPrefillWithPagedKVCacheWrapper] = None

    def plan(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor,
        paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor, *,
        page_size: int = _DEFAULT_PAGED_KV_PAGE_SIZE, mask_type: str = "dense",
        window_left: int = -1, sm_scale: Optional[float] = None, output_scale: float = 1.0,
        out_dtype: Any = None,
    ) -> None:
        """Prepares runs for these lengths and tensors of these shapes and dtypes.

        Arguments as in :func:`batch_prefill_with_paged_kv_cache`: q, k_cache, v_cache, qo_indptr,
        paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, mask_type,
        window_left, sm_scale, output_scale, out_dtype.
        """
        name = f"{type(self).__name__}.plan"
        causal = _check_pages(name, k_cache, page_size, self._kv_layout, mask_type, window_left)
        self._output_scale = ts.positive(name, "output_scale", output_scale)
        if self._inner is None:
            space = _frameworks.empty(q, (16,), "uint8")
            self._inner = BatchPrefillWithPagedKVCacheWrapper(space, "HND")
        self._inner.plan(
            qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, q.shape[1],
            k_cache.shape[1], q.shape[2], page_size, v_cache.shape[-1], causal=causal,
            window_left=window_left, q_data_type=q.dtype, kv_data_type=k_cache.dtype,
            o_data_type=q.dtype if out_dtype is None else out_dtype,
            sm_scale=ts.positive(name, "sm_scale", sm_scale, q.shape[-1] ** -0.5))

    def run(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, *,
            out: Optional[Tensor] = None) -> Tensor:
        """Attention as planned: q, k_cache, v_cache.

        :returns: out, of q's shape.
        """
        if self._inner is None:
            raise RuntimeError(f"{type(self).__name__}.run: plan() must come before run()")
        return self._inner.run(q, (k_cache, v_cache), out=out, v_scale=self._output_scale)
