# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's task-scheduled latent decode."""

from __future__ import annotations

from typing import Any, Optional

from .. import _dtypes, _frameworks
from . import _memory
from . import contracts as c
from . import ts
from .mla import BatchMLAPagedAttentionWrapper
from .mla_calls import dense_call, without_head_axis
from .remembered import remembered

Tensor = Any
_MLA_LATENT_DIM = 512
_MLA_ROPE_DIM = 64


@remembered
def prims_ts_batch_decode_with_kv_cache_mla(
    query: Tensor, kv_cache: Tensor, workspace_buffer: Tensor, kv_lora_rank: int,
    qk_rope_head_dim: int, block_tables: Tensor, seq_lens: Tensor, max_seq_len: int, *,
    qo_indptr: Optional[Tensor] = None, max_seq_len_q: Optional[int] = None,
    out: Optional[Tensor] = None, bmm1_scale: float = 1.0, bmm2_scale: float = 1.0,
    mask_type: str = "causal", out_dtype: Any = ts.BFLOAT16,
) -> Tensor:
    """Latent attention of the newest tokens of each request, in one call and in the caller's
    workspace. With lengths on the GPU a CUDA graph may hold it.

    :param query: ``[b, q_len, h, kv_lora_rank + qk_rope_head_dim]``, or with qo_indptr ``[n, h,
        …]``.
    :param kv_cache: ``[pages, page_size, kv_lora_rank + qk_rope_head_dim]``, also with an axis of
        1 in the second place.
    :param workspace_buffer: of any content; see
        :func:`get_prims_ts_batch_decode_mla_workspace_size`.
    :param block_tables: ``[b, m]`` int32 page ids. :param seq_lens: ``[b]`` int32, keys.
    :param max_seq_len: their bound.
    :param qo_indptr: ``[b + 1]`` int32: request i owns rows qo_indptr[i] on; max_seq_len_q bounds
        them.
    :param bmm1_scale: of the logits. :param bmm2_scale: of the result.
    :param mask_type: "dense", or "causal": row i sees keys up to ``seq_len - q_len + i``.
    :param out_dtype: of the result, bfloat16 by default.
    :returns: out ``[…, h, kv_lora_rank]``.
    """
    return _latent("prims_ts_batch_decode_with_kv_cache_mla", query, kv_cache, workspace_buffer,
                   kv_lora_rank, qk_rope_head_dim, block_tables, c.int32(seq_lens), max_seq_len,
                   qo_indptr, max_seq_len_q, out, bmm1_scale, bmm2_scale, mask_type, out_dtype)


def _latent(name: str, query: Tensor, kv_cache: Tensor, workspace: Any, ckv: int, kpe: int,
            tables: Tensor, lens: Tensor, longest: Optional[int], qo_indptr: Any, longest_q: Any,
            out: Any, bmm1_scale: Any, bmm2_scale: Any, mask_type: str, out_dtype: Any) -> Tensor:
    causal = ts.causal(name, mask_type)
    packed = qo_indptr is not None
    q_len = 0 if packed else query.shape[1] if query.ndim == 4 else 1
    rows = ts.as_rows(name, "query", query, lens.shape[0], q_len, packed)
    ts.bound(name, longest_q, q_len)
    starts = c.int32(qo_indptr) if packed else _memory.counted(lens.shape[0] + 1, lens, q_len)
    out = c.output(name, query, (*query.shape[:-1], ckv), out,
                   None if out is not None else out_dtype, None)
    dense_call(name, rows, kv_cache, workspace, ckv, kpe, tables, lens, starts,
               ts.joined(name, "out", out), None, ts.positive(name, "bmm1_scale", bmm1_scale),
               ts.positive(name, "bmm2_scale", bmm2_scale), None, longest=longest, causal=causal)
    return out


def get_prims_ts_batch_decode_mla_workspace_size(
    batch_size: int, num_heads: int, kv_lora_rank: int, qk_rope_head_dim: int, page_size: int,
    max_seq_len: int, *, seq_len_q: Optional[int] = None, max_seq_len_q: Optional[int] = None,
    q_dtype: Any = ts.BFLOAT16, kv_dtype: Any = None, out_dtype: Any = ts.BFLOAT16,
    mask_type: str = "causal", device: Any = None,
) -> int:
    """Bytes of the workspace of :func:`prims_ts_batch_decode_with_kv_cache_mla` for up to
    batch_size requests.

    :param seq_len_q: rows of a request, or max_seq_len_q their bound; 1 by default.
    :param q_dtype: of queries; kv_dtype is like it by default.
    :param device: a GPU or "cpu"; torch's current GPU by default.

    Other arguments as there: num_heads, kv_lora_rank, qk_rope_head_dim, page_size, max_seq_len,
    out_dtype, mask_type.
    """
    q_len = max(seq_len_q or 0, max_seq_len_q or 0, 1)
    q = _dtypes.of(q_dtype).bit
    return ts.size({
        "qo_indptr": ts.int32s(batch_size + 1), "kv_len_arr": ts.int32s(batch_size),
        "num_heads": num_heads, "head_dim_ckv": kv_lora_rank, "head_dim_kpe": qk_rope_head_dim,
        "page_size": page_size, "q_data_type": q,
        "kv_data_type": q if kv_dtype is None else _dtypes.of(kv_dtype).bit,
        "o_data_type": _dtypes.of(out_dtype).bit, "sm_scale": 1.0, "use_custom_mask": False,
        "causal": ts.causal("get_prims_ts_batch_decode_mla_workspace_size", mask_type),
        "max_num_rows": batch_size * q_len, "max_sequence_kv": max_seq_len}, "batch_mla", device)


@remembered
def batch_decode_mla_with_paged_kv_cache(
    query: Tensor, kv_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, *,
    qo_indptr: Optional[Tensor] = None, max_seq_len_q: Optional[int] = None,
    kv_lora_rank: int = _MLA_LATENT_DIM, qk_rope_head_dim: int = _MLA_ROPE_DIM,
    mask_type: str = "causal", max_kv_len: Optional[int] = None, bmm1_scale: float = 1.0,
    bmm2_scale: float = 1.0, out: Optional[Tensor] = None, out_dtype: Any = ts.BFLOAT16,
) -> Tensor:
    """:func:`prims_ts_batch_decode_with_kv_cache_mla` in memory of its own.

    :param max_kv_len: bounds the keys of a request, max_seq_len_q its rows.
    """
    return _latent("batch_decode_mla_with_paged_kv_cache", query, kv_cache, c.Own(query),
                   kv_lora_rank, qk_rope_head_dim, block_tables, c.int32(seq_lens), max_kv_len,
                   qo_indptr, max_seq_len_q, out, bmm1_scale, bmm2_scale, mask_type, out_dtype)


class BatchMLADecodePagedTSWrapper:
    """Latent attention of the newest tokens of each request, planned once."""

    def __init__(self) -> None:
        self._inner: Optional[BatchMLAPagedAttentionWrapper] = None

    def plan(
        self, block_tables: Tensor, seq_lens: Tensor, num_heads: int, kv_lora_rank: int,
        qk_rope_head_dim: int, page_size: int, *, seq_len_q: Optional[int] = None,
        qo_indptr: Optional[Tensor] = None, max_seq_len_q: Optional[int] = None,
        q_data_type: Any = ts.BFLOAT16, kv_data_type: Any = None,
        o_data_type: Any = ts.BFLOAT16, mask_type: str = "causal",
        max_kv_len: Optional[int] = None,
    ) -> None:
        """Prepares runs for the lengths at hand.

        :param seq_len_q: rows of each request, 1 by default, in the place of qo_indptr.
        :param q_data_type: of queries; kv_data_type is like it by default, o_data_type bfloat16.
        :param max_kv_len: a bound of the keys of a request.

        Other arguments as in :func:`prims_ts_batch_decode_with_kv_cache_mla`: block_tables,
        seq_lens, num_heads, kv_lora_rank, qk_rope_head_dim, page_size, max_seq_len_q, mask_type.
        """
        name = f"{type(self).__name__}.plan"
        causal = ts.causal(name, mask_type)
        b, pages = block_tables.shape
        self._packed = qo_indptr is not None
        self._b, self._q_len = b, 0 if self._packed else 1 if seq_len_q is None else seq_len_q
        ts.bound(name, max_seq_len_q, self._q_len)
        lens = _memory.to_host(c.int32(seq_lens))[0]
        longest = int(lens.max()) if b else 0
        if max_kv_len is not None and longest > max_kv_len:
            raise c.expect(name, "seq_lens", f"at most {max_kv_len}, max_kv_len", longest)
        starts = qo_indptr if self._packed else _memory.int32s(
            [i * self._q_len for i in range(b + 1)], block_tables)
        if self._inner is None:
            space = _frameworks.empty(block_tables, (16,), "uint8")
            self._inner = BatchMLAPagedAttentionWrapper(space)
        self._inner._o_data_type = o_data_type
        self._inner.plan(
            c.int32(starts), _memory.int32s([i * pages for i in range(b + 1)], block_tables),
            block_tables.reshape(-1), lens, num_heads, kv_lora_rank, qk_rope_head_dim, page_size,
            causal, 1.0, q_data_type, q_data_type if kv_data_type is None else kv_data_type)
        self._o = o_data_type
        self._ckv, self._kpe = kv_lora_rank, qk_rope_head_dim

    def run(self, query: Tensor, kv_cache: Tensor, *, bmm1_scale: float = 1.0,
            bmm2_scale: float = 1.0, out: Optional[Tensor] = None) -> Tensor:
        """Latent attention as planned.

        :param query: of the planned shape. :param kv_cache: the cache.
        :param bmm1_scale: of the logits. :param bmm2_scale: of the result.
        :returns: out ``[…, h, kv_lora_rank]``.
        """
        name = f"{type(self).__name__}.run"
        if self._inner is None:
            raise RuntimeError(f"{name}: plan() must come before run()")
        d = self._ckv + self._kpe
        if query.shape[-1] != d:
            raise c.expect(name, "query", f"{d} elements in the last dimension", query.shape[-1])
        rows = ts.as_rows(name, "query", query, self._b, self._q_len, self._packed)
        cache = without_head_axis(name, "kv_cache", kv_cache, (1,))
        out = c.output(name, query, (*query.shape[:-1], self._ckv), out,
                       None if out is not None else self._o, None)
        self._inner._sm_scale = ts.positive(name, "bmm1_scale", bmm1_scale)
        self._inner._run_latents(
            rows[..., :self._ckv], rows[..., self._ckv:], cache[..., :self._ckv],
            cache[..., self._ckv:], None, None, None,
            1.0 / ts.positive(name, "bmm2_scale", bmm2_scale), False,
            ts.joined(name, "out", out), None, False)
        return out
