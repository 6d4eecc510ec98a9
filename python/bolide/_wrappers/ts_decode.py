# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's task-scheduled decode against pages."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from .. import _dtypes, _frameworks
from ..page import get_seq_lens
from . import _memory
from . import contracts as c
from . import ts
from .prefill import BatchPrefillWithPagedKVCacheWrapper
from .trtllm_prefill import paged
from .remembered import remembered

Tensor = Any
Cache = Union[Tensor, Tuple[Tensor, Tensor]]


@remembered
def prims_ts_batch_decode_with_kv_cache(
    query: Tensor, kv_cache: Cache, workspace_buffer: Tensor, paged_kv_indptr: Tensor,
    paged_kv_indices: Tensor, seq_lens: Tensor, max_seq_len: int, *, seq_len_q: int = 1,
    qo_indptr: Optional[Tensor] = None, max_seq_len_q: Optional[int] = None,
    bmm1_scale: Optional[float] = None, bmm2_scale: float = 1.0, out: Optional[Tensor] = None,
    out_dtype: Any = None, mask_type: str = "dense", window_left: int = -1,
    kv_layout: str = "HND",
) -> Tensor:
    """Attention of the newest tokens of each request against its pages, in one call and in the
    caller's workspace. With lengths on the GPU a CUDA graph may hold it.

    :param query: ``[b, h_q, d]``, ``[b, seq_len_q, h_q, d]``, or with qo_indptr ``[n, h_q, d]``.
    :param kv_cache: ``[pages, 2, h_kv, page_size, d]``, or a pair without that axis.
    :param workspace_buffer: of any content; see :func:`get_prims_ts_batch_decode_workspace_size`.
    :param paged_kv_indptr: ``[b + 1]`` int32: request i owns the pages
        ``paged_kv_indices[paged_kv_indptr[i]:paged_kv_indptr[i + 1]]``.
    :param seq_lens: ``[b]`` int32, keys. :param max_seq_len: their bound.
    :param qo_indptr: ``[b + 1]`` int32: request i owns rows qo_indptr[i] on; max_seq_len_q bounds
        them.
    :param bmm1_scale: of the logits, ``1 / sqrt(d)`` by default. :param bmm2_scale: of the result.
    :param out_dtype: query's by default. :param mask_type: "dense", or "causal": row i sees keys
        up to ``seq_len - q_len + i``. :param window_left: keys before that one; -1 is no limit.
    :param kv_layout: "HND".
    :returns: out, of query's shape.
    """
    name = "prims_ts_batch_decode_with_kv_cache"
    ts.hnd(name, kv_layout)
    return _decode(name, query, kv_cache, workspace_buffer, paged_kv_indptr, paged_kv_indices,
                   c.int32(seq_lens), max_seq_len, seq_len_q, qo_indptr, max_seq_len_q, bmm1_scale,
                   bmm2_scale, out, out_dtype, mask_type, window_left, "query")


def _decode(name: str, q: Tensor, cache: Cache, workspace: Any, indptr: Tensor, indices: Tensor,
            lens: Tensor, longest: Optional[int], q_len: int, qo_indptr: Any, longest_q: Any,
            bmm1_scale: Any, bmm2_scale: Any, out: Any, out_dtype: Any, mask_type: str,
            window_left: int, argument: str) -> Tensor:
    causal = ts.causal(name, mask_type, window_left)
    b, given = lens.shape[0], qo_indptr is not None
    rows = ts.as_rows(name, argument, q, b, q_len, given)
    starts = c.int32(qo_indptr) if given else _memory.counted(b + 1, lens, q_len)
    k, v = c.pages(cache, "HND")
    out = c.output(name, q, tuple(q.shape), out, out_dtype, q.dtype)
    plan = {"qo_indptr": starts, "paged_kv_indptr": indptr, "seq_lens": lens, "causal": causal,
            "window_left": window_left, "sm_scale": 1.0, "max_sequence_kv": longest,
            "max_token_per_sequence": ts.bound(name, longest_q, 0 if given else q_len)}
    run = {"paged_kv_indices": indices, "out": ts.joined(name, "out", out),
           "q_scale": ts.positive(name, "bmm1_scale", bmm1_scale, q.shape[-1] ** -0.5),
           "v_scale": ts.positive(name, "bmm2_scale", bmm2_scale)}
    paged(name, rows, c.Cache(k, v, None, None, "HND"), workspace, plan, run, {
        "q": argument, "head_dim_qk": argument, "num_qo_heads": argument,
        "max_sequence_kv": "max_seq_len", "max_token_per_sequence": "max_seq_len_q",
        "k_cache": "kv_cache", "v_cache": "kv_cache"})
    return out


def get_prims_ts_batch_decode_workspace_size(
    batch_size: int, num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
    max_seq_len: int, *, seq_len_q: int = 1, qo_indptr: Optional[Tensor] = None,
    max_seq_len_q: Optional[int] = None, q_dtype: Any = ts.FLOAT16, kv_dtype: Any = None,
    out_dtype: Any = None, mask_type: str = "dense", window_left: int = -1,
    kv_layout: str = "HND", device: Any = None,
) -> int:
    """Bytes of the workspace of :func:`prims_ts_batch_decode_with_kv_cache` for up to batch_size
    requests.

    :param num_kv_heads: divides num_qo_heads. :param qo_indptr: its last number bounds the rows;
        else there are batch_size times seq_len_q. :param max_seq_len: bounds the keys of a
        request, max_seq_len_q its rows.
    :param q_dtype: of queries; kv_dtype and out_dtype are like it by default.
    :param device: a GPU or "cpu"; torch's current GPU by default.

    Other arguments as there.
    """
    name = "get_prims_ts_batch_decode_workspace_size"
    ts.hnd(name, kv_layout)
    rows = batch_size * seq_len_q if qo_indptr is None else int(
        _memory.to_host(qo_indptr)[0][-1])
    q = _dtypes.of(q_dtype).bit
    return ts.size({
        "num_qo_heads": num_qo_heads, "num_kv_heads": num_kv_heads, "page_size": page_size,
        "head_dim_qk": head_dim, "head_dim_vo": head_dim, "kv_layout": kv_layout, "q_data_type": q,
        "kv_data_type": q if kv_dtype is None else _dtypes.of(kv_dtype).bit,
        "o_data_type": q if out_dtype is None else _dtypes.of(out_dtype).bit,
        "causal": ts.causal(name, mask_type, window_left), "window_left": window_left,
        "sm_scale": 1.0, "max_num_rows": rows, "max_sequence_kv": max_seq_len,
        "max_token_per_sequence": max_seq_len_q, "qo_indptr": ts.int32s(batch_size + 1),
        "paged_kv_indptr": ts.int32s(batch_size + 1), "seq_lens": ts.int32s(batch_size)},
        "batch_prefill_paged", device)


def batch_decode_with_paged_kv_cache(
    q: Tensor, paged_kv_cache: Cache, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
    paged_kv_last_page_len: Tensor, *, seq_len_q: int = 1, qo_indptr: Optional[Tensor] = None,
    max_seq_len_q: Optional[int] = None, mask_type: str = "dense", window_left: int = -1,
    kv_layout: str = "HND", bmm1_scale: Optional[float] = None, bmm2_scale: float = 1.0,
    out: Optional[Tensor] = None, out_dtype: Any = None,
) -> Tensor:
    """:func:`prims_ts_batch_decode_with_kv_cache` in memory of its own.

    :param paged_kv_cache: the cache. :param paged_kv_last_page_len: ``[b]`` int32, tokens in the
        last page of each request. :param seq_len_q: rows of each, in the place of qo_indptr;
        max_seq_len_q bounds them.
    """
    name = "batch_decode_with_paged_kv_cache"
    ts.hnd(name, kv_layout)
    k, _ = c.pages(paged_kv_cache, "HND")
    lens = get_seq_lens(paged_kv_indptr, paged_kv_last_page_len, k.shape[2])
    return _decode(name, q, paged_kv_cache, c.Own(q), paged_kv_indptr, paged_kv_indices, lens,
                   None, seq_len_q, qo_indptr, max_seq_len_q, bmm1_scale, bmm2_scale, out,
                   out_dtype, mask_type, window_left, "q")


class BatchDecodePagedTSWrapper:
    """Attention of the newest tokens of each request against its pages, planned once.

    :param kv_layout: "HND".
    """

    def __init__(self, kv_layout: str = "HND"):
        ts.hnd(type(self).__name__, kv_layout)
        self._inner: Optional[BatchPrefillWithPagedKVCacheWrapper] = None

    def plan(
        self, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor,
        num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int, *, seq_len_q: int = 1,
        qo_indptr: Optional[Tensor] = None, max_seq_len_q: Optional[int] = None,
        q_data_type: Any = ts.FLOAT16, kv_data_type: Any = None, o_data_type: Any = None,
        mask_type: str = "dense", window_left: int = -1, max_kv_len: Optional[int] = None,
    ) -> None:
        """Prepares runs for the lengths at hand.

        :param paged_kv_last_page_len: ``[b]`` int32, tokens in the last page of each request.
        :param num_kv_heads: divides num_qo_heads. :param head_dim: a multiple of 8.
        :param seq_len_q: rows of each request, in the place of qo_indptr; max_seq_len_q bounds them.
        :param q_data_type: of queries; kv_data_type and o_data_type are like it by default.
        :param max_kv_len: a bound of the keys of a request.

        Other arguments as in :func:`prims_ts_batch_decode_with_kv_cache`.
        """
        name = f"{type(self).__name__}.plan"
        causal = ts.causal(name, mask_type, window_left)
        self._b = paged_kv_last_page_len.shape[0]
        self._q_len = seq_len_q if qo_indptr is None else 0
        self._packed = qo_indptr is not None
        if qo_indptr is None:
            qo_indptr = _memory.int32s([i * seq_len_q for i in range(self._b + 1)],
                                       paged_kv_indices)
        if self._inner is None:
            space = _frameworks.empty(paged_kv_indices, (16,), "uint8")
            self._inner = BatchPrefillWithPagedKVCacheWrapper(space, "HND")
        self._inner.plan(
            qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
            num_kv_heads, head_dim, page_size, causal=causal, window_left=window_left,
            q_data_type=q_data_type, kv_data_type=kv_data_type,
            o_data_type=q_data_type if o_data_type is None else o_data_type,
            max_token_per_sequence=ts.bound(name, max_seq_len_q, self._q_len),
            max_sequence_kv=max_kv_len)
        self._default = head_dim ** -0.5

    def run(self, q: Tensor, paged_kv_cache: Cache, *, bmm1_scale: Optional[float] = None,
            bmm2_scale: float = 1.0, out: Optional[Tensor] = None) -> Tensor:
        """Attention as planned.

        :param q: of the planned shape. :param paged_kv_cache: the cache.
        :param bmm1_scale: of the logits. :param bmm2_scale: of the result.
        :returns: out, of q's shape.
        """
        name = f"{type(self).__name__}.run"
        if self._inner is None:
            raise RuntimeError(f"{name}: plan() must come before run()")
        rows = ts.as_rows(name, "q", q, self._b, self._q_len, self._packed)
        out = c.output(name, q, tuple(q.shape), out, None, self._inner._cached_o_data_type)
        self._inner._sm_scale = ts.positive(name, "bmm1_scale", bmm1_scale, self._default)
        self._inner.run(rows, c.pages(paged_kv_cache, "HND"), out=ts.joined(name, "out", out),
                        v_scale=ts.positive(name, "bmm2_scale", bmm2_scale))
        return out
