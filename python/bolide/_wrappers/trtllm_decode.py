# SPDX-License-Identifier: Apache-2.0
"""Decoding against block tables in one call: FlashInfer's trtllm and xqa entry points."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple, Union

from .. import _frameworks
from .._arguments import check_backend
from .._library import torch
from . import contracts as c
from .remembered import remembered

Tensor = Any


def _decode(name: str, query: Tensor, cache: c.Cache, workspace_buffer: Tensor, lengths: Tensor,
            q_lens: tuple, plan: dict[str, Any], run: dict[str, Any], mask: Any,
            spelled: dict[str, str]) -> None:
    """The call. q_lens is (tokens of every request, None, None), or (None, cumulative tokens, their
    bound)."""
    per_request, starts, most = q_lens
    draft = c.rows_of_mask(mask)
    plan = {
        "num_qo_heads": query.shape[1], "num_kv_heads": cache.heads, "page_size": cache.page_size,
        "head_dim_vo": cache.v.shape[-1], "kv_layout": cache.layout, "seq_lens": c.int32(lengths),
        "q_data_type": _frameworks.dtype_bit(query), "causal": draft is None,
        "kv_data_type": _frameworks.dtype_bit(cache.k),
        "o_data_type": _frameworks.dtype_bit(run["out"]), **plan}
    run = {"q": query, "k_cache": cache.k, "v_cache": cache.v, "block_tables": cache.tables,
           "v_block_tables": cache.v_tables, "draft_mask": draft, **run}
    names = {"q": "query", "k_cache": "kv_cache", "v_cache": "kv_cache", "draft_mask": "mask",
             "max_sequence_kv": "max_seq_len", "v_block_tables": "block_tables",
             "head_dim": "query", "head_dim_vo": "kv_cache", "num_qo_heads": "query", **spelled}
    if starts is None:
        plan.update(head_dim=query.shape[-1], q_len_per_req=per_request)
        c.once(name, "batch_decode", workspace_buffer, plan, run, names)
    else:
        plan.update(head_dim_qk=query.shape[-1], qo_indptr=c.int32(starts),
                    max_token_per_sequence=most, max_num_rows=query.shape[0])
        c.once(name, "batch_prefill_paged", workspace_buffer, plan, run,
               {"head_dim_qk": "query", **names})


def _per_request(name: str, query: Tensor, lengths: Tensor, q_len_per_req: Optional[int],
                 starts: Any, max_q_len: Optional[int], argument: str) -> tuple:
    """Tokens of every request, or where each begins and their bound."""
    if starts is not None:
        return None, starts, max_q_len
    if q_len_per_req is None:
        q_len_per_req = max(query.shape[0] // max(lengths.shape[0], 1), 1)
    if max_q_len is not None and max_q_len < q_len_per_req:
        raise c.expect(name, "max_q_len", f"at least {q_len_per_req}, {argument}", max_q_len)
    return q_len_per_req, None, None


# ---- pages for each head of the cache --------------------------------------------------------


def _restrided(tensor: Tensor, shape: tuple, strides: tuple) -> Tensor:
    """The memory of a tensor seen with other strides, in elements."""
    if _frameworks.is_torch(tensor):
        return tensor.as_strided(shape, strides)
    from numpy.lib.stride_tricks import as_strided

    return as_strided(tensor, shape, tuple(s * tensor.itemsize for s in strides))


def _strides(tensor: Tensor) -> tuple:
    if _frameworks.is_torch(tensor):
        return tensor.stride()
    return tuple(s // tensor.itemsize for s in tensor.strides)


def _one_head(name: str, tensor: Tensor, layout: str) -> tuple[Tensor, int]:
    """A cache as one of pages of a single head, and the pages of that kind from one page to the
    next: those of head h of page p are ``p * step + h``."""
    token, head = (1, 2) if layout == "NHD" else (2, 1)
    pages, strides = tensor.shape[0], _strides(tensor)
    step = strides[0] // strides[head] if strides[head] else 0
    many = (pages - 1) * step + tensor.shape[head]
    if step < 1 or strides[0] % strides[head] or many >= 2**31:
        raise NotImplementedError(
            f"{name}: kv_cache: strides: expected pages that lie a multiple of the heads' distance "
            f"apart, fewer than 2^31 in all; got strides {list(strides)}")
    one = _restrided(tensor, (many if pages else 0, 1, tensor.shape[token], tensor.shape[-1]),
                     (strides[head], strides[head], strides[token], strides[-1]))
    return one, step


def _own_tables(tables: Tensor, step: int) -> Tensor:
    """``[h_kv, b, m]`` page ids as ``[b * h_kv, m]`` ids of pages of single heads. Entries that
    nobody reads may overflow."""
    heads, b, m = tables.shape
    like = _frameworks.empty(tables, (heads,), "int32")
    if _frameworks.is_torch(like):
        torch.arange(heads, out=like)
    else:
        like[:] = range(heads)
    own = tables.swapaxes(0, 1) * step + like[None, :, None]
    return own.reshape(b * heads, m)


def _by_heads(tensor: Tensor, b: int, q_len: int, heads: int) -> Tensor:
    """``[b * q_len, h_q, d]`` with the rows of each request and head of the cache together:
    ``[b * heads * q_len, h_q / heads, d]``. A copy only with several tokens a request."""
    group = tensor.shape[1] // heads
    d = tensor.shape[-1]
    return tensor.reshape(b, q_len, heads, group, d).swapaxes(1, 2).reshape(
        b * heads * q_len, group, d)


def _block_sparse(name: str, query: Tensor, cache: c.Cache, workspace_buffer: Tensor,
                  lengths: Tensor, q_len: int, plan: dict[str, Any], run: dict[str, Any]) -> None:
    """Each head of the cache has a list of pages and a length of its own, so each of a request's
    heads is a request on pages of one head."""
    heads = cache.heads
    if lengths.ndim != 2 or lengths.shape[0] != heads or cache.tables.ndim != 3:
        raise c.expect(
            name, "seq_lens", f"[{heads}, b], and block_tables [{heads}, b, pages], with "
            "enable_block_sparse_attention", f"{list(lengths.shape)}, {list(cache.tables.shape)}")
    b = lengths.shape[1]
    if query.shape[0] != b * q_len:
        raise c.expect(name, "query", f"{b * q_len} rows", query.shape[0])
    if cache.v_tables is not None:
        raise NotImplementedError(f"{name}: uses_shared_paged_kv_idx: expected True with "
                                  "enable_block_sparse_attention; got False")
    k, k_step = _one_head(name, cache.k, cache.layout)
    v, v_step = _one_head(name, cache.v, cache.layout)
    tables = _own_tables(cache.tables, k_step)
    v_tables = None if v_step == k_step else _own_tables(cache.tables, v_step)
    sinks, out, lse = run["sinks"], run["out"], run["lse"]
    if sinks is not None or any(_frameworks.is_tensor(run[s]) and run[s].shape[0] > 1
                                for s in ("q_scale", "v_scale")):
        raise NotImplementedError(f"{name}: sinks: and scales of each head: not supported with "
                                  "enable_block_sparse_attention")
    part = _by_heads(query, b, q_len, heads)
    group = part.shape[1]
    own = {"out": _frameworks.empty(out, (*part.shape[:2], out.shape[-1]), out.dtype)}
    own["lse"] = None if lse is None else _frameworks.empty(lse, part.shape[:2], "float32")
    lens = lengths.swapaxes(0, 1).reshape(-1)
    _decode(name, part, c.Cache(k, v, tables, v_tables, "HND"), workspace_buffer, lens,
            (q_len, None, None), plan, {**run, **own}, None,
            {"q_scale": "bmm1_scale", "v_scale": "bmm2_scale"})
    for mine, theirs in ((own["out"], out), (own["lse"], lse)):
        if theirs is not None:
            back = mine.reshape(b, heads, q_len, group, *theirs.shape[2:]).swapaxes(1, 2)
            theirs[:] = back.reshape(theirs.shape)


# ---- FlashInfer's names ----------------------------------------------------------------------


@remembered
def trtllm_batch_decode_with_kv_cache(
    query: Tensor, kv_cache: Union[Tensor, Tuple[Tensor, Tensor]], workspace_buffer: Tensor,
    block_tables: Tensor, seq_lens: Tensor, max_seq_len: int,
    bmm1_scale: Union[float, Tensor] = 1.0, bmm2_scale: Union[float, Tensor] = 1.0,
    window_left: int = -1, out: Optional[Tensor] = None, out_dtype: Any = None,
    o_sf_scale: Optional[float] = None, o_sf_vec_size: Optional[int] = None,
    sinks: Optional[List[Tensor]] = None, kv_layout: str = "HND",
    enable_pdl: Optional[bool] = None, backend: str = "auto", q_len_per_req: Optional[int] = 1,
    o_scale: Optional[float] = 1.0, mask: Optional[Tensor] = None,
    max_q_len: Optional[int] = None, cum_seq_lens_q: Optional[Tensor] = None,
    skip_softmax_threshold_scale_factor: Optional[float] = None,
    kv_cache_sf: Optional[Tuple[Tensor, Tensor]] = None, uses_shared_paged_kv_idx: bool = True,
    lse: Optional[Tensor] = None, return_lse: bool = False,
    bmm1_scale_log2: Optional[Tensor] = None,
    multi_ctas_kv_counter_buffer: Optional[Tensor] = None,
    enable_block_sparse_attention: bool = False,
    bf16q_fp8kv_transform_mode: Optional[str] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Attention of the newest tokens of each request against its pages, in one call.

    Each call plans anew, on the host from lengths that lie there, else on the GPU, where a CUDA
    graph may hold the call. Neither waits.

    :param query: ``[rows, h_q, d]`` float16, bfloat16, float32 or fp8; the rows of a request are
        its last tokens and see no key behind their own.
    :param kv_cache: a pair ``[pages, h_kv, page_size, d]`` (HND; NHD ``[pages, page_size, h_kv,
        d]``), or one tensor with both on its second axis; where that axis is 1, it is keys and
        values. Any page size.
    :param workspace_buffer: memory on the same device, of any content; 128 MiB is customary.
    :param block_tables: ``[b, m]`` int32 page ids; ``[b, 2, m]`` without
        uses_shared_paged_kv_idx: those of keys, and those of values.
    :param seq_lens: ``[b]`` int32, keys of each request. :param max_seq_len: their bound.
    :param bmm1_scale: of the logits, bmm2_scale of the result: numbers or float32 tensors.
    :param bmm1_scale_log2: a tensor in the place of bmm1_scale, ``bmm1_scale * log2(e)``.
    :param o_scale: what is stored is the result divided by it.
    :param window_left: keys visible before a query's own; -1 is no limit.
    :param out: ``[rows, h_q, d_v]``. :param out_dtype: of the result: out's, else query's.
    :param sinks: ``[h_q]`` float32, or a list with that tensor.
    :param q_len_per_req: tokens of each request; None: as many as there are.
    :param cum_seq_lens_q: ``[b + 1]`` int32: request i owns rows ``cum_seq_lens_q[i]`` on, in the
        place of q_len_per_req; max_q_len bounds them.
    :param mask: ``[b, q_len, words]`` uint16, uint32 or uint8 (``[rows, words]`` with
        cum_seq_lens_q): bit i of a token's row, the lowest first, says whether it sees token i of
        its request's new ones; the keys before these are all visible.
    :param lse: ``[rows, h_q]`` float32, to base 2.
    :param enable_block_sparse_attention: block_tables are ``[h_kv, b, m]`` and seq_lens ``[h_kv,
        b]``: pages and keys of each head of the cache. No sinks, no mask.
    :param backend: "auto", "xqa" or "trtllm-gen": one implementation.
    :param enable_pdl: a hint, as are skip_softmax_threshold_scale_factor,
        multi_ctas_kv_counter_buffer and bf16q_fp8kv_transform_mode.
    :param kv_cache_sf: of NVFP4 caches; refused, as are o_sf_scale and o_sf_vec_size.
    :returns: out, or (out, lse) with return_lse.
    :raises ValueError: of an argument that does not fit; NotImplementedError of NVFP4.
    """
    name = "trtllm_batch_decode_with_kv_cache"
    check_backend(name, backend, ("auto", "xqa", "trtllm-gen"))
    c.no_nvfp4(name, kv_cache_sf=kv_cache_sf, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size)
    cache = c.cache_of(name, kv_cache, kv_layout, block_tables, uses_shared_paged_kv_idx)
    out = c.output(name, query, (*query.shape[:-1], cache.v.shape[-1]), out, out_dtype, query.dtype)
    if lse is None and return_lse:
        lse = _frameworks.empty(query, query.shape[:2], "float32")
    log2 = bmm1_scale_log2 is not None
    plan = {"window_left": window_left, "sm_scale": 1.0, "max_sequence_kv": max_seq_len}
    run = {"sinks": c.one_sink(name, sinks),
           "q_scale": c.scale(bmm1_scale_log2 if log2 else bmm1_scale),
           "k_scale": c.LN2 if log2 else None, "v_scale": c.scale(bmm2_scale),
           "o_scale": 1.0 if o_scale is None else o_scale, "out": out, "lse": lse}
    if enable_block_sparse_attention:
        for argument, value in (("mask", mask), ("cum_seq_lens_q", cum_seq_lens_q)):
            if value is not None:
                raise NotImplementedError(f"{name}: {argument}: not supported with "
                                          "enable_block_sparse_attention")
        q_len = 1 if q_len_per_req is None else q_len_per_req
        _block_sparse(name, query, cache, workspace_buffer, seq_lens, q_len, plan, run)
    else:
        q_lens = _per_request(name, query, seq_lens, q_len_per_req, cum_seq_lens_q, max_q_len,
                              "q_len_per_req")
        _decode(name, query, cache, workspace_buffer, seq_lens, q_lens, plan, run, mask, {
            "qo_indptr": "cum_seq_lens_q", "max_token_per_sequence": "max_q_len",
            "q_scale": "bmm1_scale_log2" if log2 else "bmm1_scale", "v_scale": "bmm2_scale"})
    return (out, lse) if return_lse else out


@remembered
def xqa_batch_decode_with_kv_cache(
    query: Tensor, kv_cache: Union[Tensor, Tuple[Tensor, Tensor]], workspace_buffer: Tensor,
    block_tables: Tensor, seq_lens: Tensor, max_seq_len: int,
    bmm1_scale: Union[float, Tensor] = 1.0, bmm2_scale: Union[float, Tensor] = 1.0,
    window_left: int = -1, out: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
    kv_layout: str = "NHD", enable_pdl: Optional[bool] = None, q_len_per_req: Optional[int] = 1,
    o_scale: Optional[float] = 1.0, mask: Optional[Tensor] = None, kv_cache_sf: Any = None,
    q_cu_seq_lens: Optional[Tensor] = None,
) -> Tensor:
    """:func:`trtllm_batch_decode_with_kv_cache` with fewer arguments, and NHD by default.

    :param query: ``[rows, h_q, d]``. :param kv_cache: a pair, or one tensor with both.
    :param workspace_buffer: of any content; nothing of it must be zero.
    :param q_cu_seq_lens: ``[b + 1]`` int32, in the place of q_len_per_req: where each request's
        rows begin.
    :param mask: bits over a request's new tokens: ``[b, q_len, words]``, or ``[rows, words]``.
    :param kv_cache_sf: of NVFP4 caches; refused. :param enable_pdl: a hint.
    :returns: ``[rows, h_q, d_v]`` of query's dtype, or out.
    """
    name = "xqa_batch_decode_with_kv_cache"
    c.no_nvfp4(name, kv_cache_sf=kv_cache_sf)
    cache = c.cache_of(name, kv_cache, kv_layout, block_tables)
    out = c.output(name, query, (*query.shape[:-1], cache.v.shape[-1]), out, None, query.dtype)
    plan = {"window_left": window_left, "sm_scale": 1.0, "max_sequence_kv": max_seq_len}
    run = {"sinks": c.one_sink(name, sinks), "q_scale": c.scale(bmm1_scale),
           "v_scale": c.scale(bmm2_scale), "o_scale": 1.0 if o_scale is None else o_scale,
           "out": out}
    q_lens = _per_request(name, query, seq_lens, q_len_per_req, q_cu_seq_lens, None,
                          "q_len_per_req")
    _decode(name, query, cache, workspace_buffer, seq_lens, q_lens, plan, run, mask,
            {"qo_indptr": "q_cu_seq_lens", "q_scale": "bmm1_scale", "v_scale": "bmm2_scale"})
    return out


def _tokens(name: str, argument: str, tensor: Tensor) -> Tensor:
    """``[…, h, d]`` as ``[rows, h, d]``, the same memory."""
    try:
        return _frameworks.view(tensor, (-1, *tensor.shape[-2:]))
    except (RuntimeError, AttributeError) as error:
        raise c.expect(name, argument, "rows at one distance, to be seen as [rows, h, d]",
                       f"strides {list(_strides(tensor))}") from error


@remembered
def xqa(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, page_table: Tensor, seq_lens: Tensor,
    output: Tensor, workspace_buffer: Tensor, semaphores: Tensor, num_kv_heads: int,
    page_size: int, sinks: Optional[Tensor] = None, q_scale: Union[float, Tensor] = 1.0,
    kv_scale: Union[float, Tensor] = 1.0, sliding_win_size: int = 0, kv_layout: str = "NHD",
    sm_count: Optional[int] = None, enable_pdl: Optional[bool] = None,
    rcp_out_scale: float = 1.0, q_seq_len: int = 1, mask: Optional[Tensor] = None, *,
    q_cu_seq_lens: Optional[Tensor] = None, k_sf_cache: Optional[Tensor] = None,
    v_sf_cache: Optional[Tensor] = None,
) -> None:
    """Decoding against block tables into output: logits times ``q_scale * kv_scale / sqrt(d)``, the
    result times ``kv_scale * rcp_out_scale``.

    :param q: ``[b, 1, h_q, d]``, with several tokens a request ``[b, 1, q_seq_len, h_q, d]``, with
        q_cu_seq_lens ``[…, h_q, d]``. :param output: of the same shape, any float dtype; written.
    :param k_cache: ``[pages, page_size, h_kv, d]`` (NHD) or ``[pages, h_kv, page_size, d]``, or the
        same as ``[rows, d]``; v_cache likewise. Any page size.
    :param page_table: ``[b, m]`` int32 or uint32. :param seq_lens: ``[b, 1]`` uint32 or int32.
    :param workspace_buffer: of any content. :param semaphores: not needed, and not touched.
    :param sinks: ``[h_kv, h_q / h_kv]`` float32, logits that join each row's sum.
    :param q_scale: with kv_scale numbers or float32 tensors of one element.
    :param sliding_win_size: keys that a query sees, its own included; 0 is no limit.
    :param mask: ``[b, q_seq_len, words]`` uint16: bits over a request's new tokens, the lowest
        first. Without it the order is causal.
    :param sm_count: a hint, as is enable_pdl. :param k_sf_cache: of NVFP4; refused, and v_sf_cache.
    """
    name = "xqa"
    c.no_nvfp4(name, k_sf_cache=k_sf_cache, v_sf_cache=v_sf_cache)
    page = (page_size, num_kv_heads) if kv_layout == "NHD" else (num_kv_heads, page_size)
    cache = c.cache_of(name, (c.pool(name, "k_cache", k_cache, page),
                              c.pool(name, "v_cache", v_cache, page)), kv_layout, page_table)
    for argument, expected, got in (("num_kv_heads", cache.heads, num_kv_heads),
                                    ("page_size", cache.page_size, page_size)):
        if expected != got:
            raise c.expect(name, argument, f"{expected}, as k_cache has", got)
    if sliding_win_size < 0 or rcp_out_scale == 0:
        raise c.expect(name, "sliding_win_size" if sliding_win_size < 0 else "rcp_out_scale",
                       "a size from 0 on" if sliding_win_size < 0 else "a number but 0",
                       min(sliding_win_size, 0))
    rows, out = _tokens(name, "q", q), _tokens(name, "output", output)
    lens = c.int32(seq_lens)
    q_lens = _per_request(name, rows, lens, q_seq_len, q_cu_seq_lens, None, "q_seq_len")
    kv = c.scale(kv_scale)
    plan = {"window_left": sliding_win_size - 1, "sm_scale": 1 / math.sqrt(q.shape[-1])}
    run = {"sinks": c.flat(sinks), "q_scale": c.scale(q_scale), "k_scale": kv, "v_scale": kv,
           "o_scale": 1 / rcp_out_scale, "out": out}
    _decode(name, rows, cache, workspace_buffer, lens, q_lens, plan, run, mask, {
        "q": "q", "k_cache": "k_cache", "v_cache": "v_cache", "block_tables": "page_table",
        "out": "output", "qo_indptr": "q_cu_seq_lens", "k_scale": "kv_scale",
        "v_scale": "kv_scale", "head_dim": "q", "num_qo_heads": "q",
        "q_len_per_req": "q_seq_len"})
