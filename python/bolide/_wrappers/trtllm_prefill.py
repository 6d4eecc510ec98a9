# SPDX-License-Identifier: Apache-2.0
"""Prefill in one call: FlashInfer's trtllm and FMHA v2 entry points."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple, Union

from .. import _frameworks
from .._arguments import check_backend
from . import _memory
from . import contracts as c
from ._base import refuse
from .remembered import remembered

Tensor = Any
Result = Union[Tensor, Tuple[Tensor, Tensor]]
_NAMES = {"max_sequence_kv": "max_kv_len", "max_token_per_sequence": "max_q_len",
          "qo_indptr": "cum_seq_lens_q", "kv_indptr": "cum_seq_lens_kv", "q_scale": "bmm1_scale",
          "v_scale": "bmm2_scale"}


def paged(name: str, query: Tensor, cache: c.Cache, workspace_buffer: Tensor,
          plan: dict[str, Any], run: dict[str, Any], spelled: dict[str, str]) -> None:
    """Rows of requests against their pages. run has out, plan all lengths."""
    plan = {
        "num_qo_heads": query.shape[1], "num_kv_heads": cache.heads, "page_size": cache.page_size,
        "head_dim_qk": query.shape[-1], "head_dim_vo": cache.v.shape[-1],
        "kv_layout": cache.layout, "q_data_type": _frameworks.dtype_bit(query),
        "kv_data_type": _frameworks.dtype_bit(cache.k),
        "o_data_type": _frameworks.dtype_bit(run["out"]), "max_num_rows": query.shape[0], **plan}
    run = {"q": query, "k_cache": cache.k, "v_cache": cache.v, "block_tables": cache.tables,
           "v_block_tables": cache.v_tables, **run}
    c.once(name, "batch_prefill_paged", workspace_buffer, plan, run, spelled)


def ragged(name: str, q: Tensor, k: Tensor, v: Tensor, workspace_buffer: Tensor,
           plan: dict[str, Any], run: dict[str, Any], spelled: dict[str, str]) -> None:
    """Rows of requests against packed keys and values."""
    plan = {
        "num_qo_heads": q.shape[1], "num_kv_heads": k.shape[1], "head_dim_qk": q.shape[-1],
        "head_dim_vo": v.shape[-1], "kv_layout": "NHD", "q_data_type": _frameworks.dtype_bit(q),
        "kv_data_type": _frameworks.dtype_bit(k),
        "o_data_type": _frameworks.dtype_bit(run["out"]), "max_num_rows": q.shape[0], **plan}
    c.once(name, "batch_prefill_ragged", workspace_buffer, plan,
           {"q": q, "k": k, "v": v, **run}, spelled)


@remembered
def trtllm_batch_context_with_kv_cache(
    query: Tensor, kv_cache: Union[Tensor, Tuple[Tensor, Tensor]], workspace_buffer: Tensor,
    block_tables: Tensor, seq_lens: Tensor, max_q_len: int, max_kv_len: int,
    bmm1_scale: Union[float, Tensor], bmm2_scale: Union[float, Tensor], batch_size: int,
    cum_seq_lens_q: Tensor, cum_seq_lens_kv: Tensor, window_left: int = -1,
    out: Optional[Tensor] = None, out_dtype: Any = None, o_sf_scale: Optional[float] = None,
    o_sf_vec_size: Optional[int] = None, kv_layout: str = "HND",
    enable_pdl: Optional[bool] = None, sinks: Optional[List[Tensor]] = None,
    kv_cache_sf: Any = None, skip_softmax_threshold_scale_factor: Optional[float] = None,
    uses_shared_paged_kv_idx: bool = True, causal: bool = True, lse: Optional[Tensor] = None,
    return_lse: bool = False, multi_ctas_kv_counter_buffer: Optional[Tensor] = None,
    use_fp16_softmax: Optional[bool] = None, uses_spcompress: Optional[bool] = None,
) -> Result:
    """Attention of any number of new tokens of each request against its pages, in one call.

    Each call plans anew, as :func:`bolide.decode.trtllm_batch_decode_with_kv_cache` does; the
    arguments that are not named here are those of that function.

    :param query: ``[rows, h_q, d]``. :param seq_lens: ``[b]`` int32, keys of each request.
    :param cum_seq_lens_q: ``[b + 1]`` int32: request i owns rows ``cum_seq_lens_q[i]`` on, its last
        tokens. :param cum_seq_lens_kv: ``[b + 1]`` or longer, not read, since seq_lens says it.
    :param max_q_len: bound of the rows, max_kv_len of the keys of a request.
    :param batch_size: entries of seq_lens.
    :param causal: no query sees a key behind its own position.
    :param use_fp16_softmax: a hint. :param uses_spcompress: refused.
    :returns: out ``[rows, h_q, d_v]``, or (out, lse ``[rows, h_q]`` to base 2) with return_lse.
    """
    name = "trtllm_batch_context_with_kv_cache"
    c.no_nvfp4(name, kv_cache_sf=kv_cache_sf, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size)
    c.no_spcompress(name, uses_spcompress)
    c.check_batch(name, batch_size, seq_lens)
    if cum_seq_lens_kv is not None and cum_seq_lens_kv.shape[0] <= batch_size:
        raise c.expect(name, "cum_seq_lens_kv", f"at least {batch_size + 1} elements",
                       list(cum_seq_lens_kv.shape))
    cache = c.cache_of(name, kv_cache, kv_layout, block_tables, uses_shared_paged_kv_idx)
    out = c.output(name, query, (*query.shape[:-1], cache.v.shape[-1]), out, out_dtype, query.dtype)
    if lse is None and return_lse:
        lse = _frameworks.empty(query, query.shape[:2], "float32")
    plan = {"qo_indptr": c.int32(cum_seq_lens_q), "seq_lens": c.int32(seq_lens), "sm_scale": 1.0,
            "window_left": window_left, "causal": bool(causal), "max_sequence_kv": max_kv_len,
            "max_token_per_sequence": max_q_len}
    run = {"sinks": c.one_sink(name, sinks), "q_scale": c.scale(bmm1_scale),
           "v_scale": c.scale(bmm2_scale), "out": out, "lse": lse}
    paged(name, query, cache, workspace_buffer, plan, run, {
        **_NAMES, "q": "query", "k_cache": "kv_cache", "v_cache": "kv_cache",
        "v_block_tables": "block_tables", "head_dim_qk": "query", "head_dim_vo": "kv_cache",
        "num_qo_heads": "query"})
    return (out, lse) if return_lse else out


def _starts(starts: Tensor, lengths: Any) -> tuple[Tensor, Any]:
    """Where requests begin, and their lengths: from lengths on the host, where these are given, so
    the host plans. Requests then follow one another without gaps. A graph follows the GPU's."""
    if lengths is not None and _memory.capturing(_memory.device_of(starts)):
        lengths = None
    if lengths is None or not _memory.on_gpu(starts):
        return c.int32(starts), c.int32(lengths)
    ends = lengths.reshape(-1).cumsum(0)
    packed = _memory.int32s([0, *ends.tolist()], lengths)
    return packed, c.int32(lengths)


@remembered
def trtllm_ragged_attention_deepseek(
    query: Tensor, key: Tensor, value: Tensor, workspace_buffer: Tensor, seq_lens: Tensor,
    max_q_len: int, max_kv_len: int, bmm1_scale: Union[float, Tensor],
    bmm2_scale: Union[float, Tensor], o_sf_scale: float, batch_size: int, window_left: int,
    cum_seq_lens_q: Tensor, cum_seq_lens_kv: Tensor, enable_pdl: Optional[bool], is_causal: bool,
    return_lse: bool, attention_sinks: Optional[Tensor] = None,
    skip_softmax_threshold_scale_factor: Optional[float] = None, out: Optional[Tensor] = None,
    lse: Optional[Tensor] = None,
    sage_attn_sfs: Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]] = (
        None, None, None, None),
    num_elts_per_sage_attn_blk: Tuple[int, int, int, int] = (0, 0, 0, 0),
    backend: str = "trtllm-gen", q_seq_lens_cpu: Optional[Tensor] = None,
    kv_seq_lens_cpu: Optional[Tensor] = None, use_fp16_softmax: Optional[bool] = None,
    uses_spcompress: Optional[bool] = None, *, skip_all_rows_active_check: bool = False,
) -> Result:
    """Attention of packed requests over packed keys and values, in one call; any head sizes that
    are multiples of 8.

    :param query: ``[n_q, h_q, d_qk]`` float16, bfloat16, float32 or fp8.
    :param key: ``[n_kv, h_kv, d_qk]``. :param value: ``[n_kv, h_kv, d_vo]``, key's dtype.
    :param workspace_buffer: memory on the same device, of any content.
    :param seq_lens: ``[b]`` int32, keys of each request. :param batch_size: its entries.
    :param cum_seq_lens_q: ``[b + 1]`` int32: where each request's rows begin; cum_seq_lens_kv: its
        keys. :param max_q_len: bound of the rows, max_kv_len of the keys of a request.
    :param q_seq_lens_cpu: ``[b]`` int32 on the host, rows of each request, and kv_seq_lens_cpu its
        keys: with both, the host plans for them.
    :param bmm1_scale: of the logits, bmm2_scale of the result: numbers or float32 tensors.
    :param o_sf_scale: of NVFP4 results; 1 and -1 say that there are none.
    :param window_left: keys visible before a query's own; -1 is no limit.
    :param is_causal: request i's queries are its last tokens and see no key behind their own.
    :param attention_sinks: ``[h_q]`` float32, logits that join each row's sum.
    :param out: ``[n_q, h_q, d_vo]``; by default of query's dtype, bfloat16 where that is fp8.
    :param lse: ``[n_q, h_q]`` float32, to base 2.
    :param backend: "trtllm-gen" or "cute-dsl": one implementation.
    :param enable_pdl: a hint, as are skip_softmax_threshold_scale_factor and use_fp16_softmax.
    :param skip_all_rows_active_check: later releases' word that every request has rows and keys,
        which need not be so here.
    :param sage_attn_sfs: refused, with num_elts_per_sage_attn_blk and uses_spcompress.
    :returns: out, or (out, lse) with return_lse.
    """
    name = "trtllm_ragged_attention_deepseek"
    check_backend(name, backend, ("trtllm-gen", "cute-dsl"))
    refuse(name, sage_attn_sfs=any(s is not None for s in sage_attn_sfs),
           num_elts_per_sage_attn_blk=any(num_elts_per_sage_attn_blk))
    c.no_spcompress(name, uses_spcompress)
    if o_sf_scale not in (None, 1, -1):
        raise NotImplementedError(f"{name}: o_sf_scale: expected 1 or -1, as there are no NVFP4 "
                                  f"results; got {o_sf_scale}")
    c.check_batch(name, batch_size, seq_lens)
    default = query.dtype if _frameworks.itemsize(query) > 1 else "bfloat16"
    out = c.output(name, query, (*query.shape[:-1], value.shape[-1]), out, None, default)
    if lse is None and return_lse:
        lse = _frameworks.empty(query, query.shape[:2], "float32")
    q_starts, q_lens = _starts(cum_seq_lens_q, q_seq_lens_cpu)
    kv_starts, kv_lens = _starts(cum_seq_lens_kv, kv_seq_lens_cpu)
    plan = {"qo_indptr": q_starts, "seq_lens_q": q_lens, "kv_indptr": kv_starts,
            "seq_lens": c.int32(seq_lens) if kv_lens is None else kv_lens, "sm_scale": 1.0,
            "window_left": window_left, "causal": bool(is_causal), "max_sequence_kv": max_kv_len,
            "max_token_per_sequence": max_q_len}
    run = {"sinks": c.one_sink(name, attention_sinks), "q_scale": c.scale(bmm1_scale),
           "v_scale": c.scale(bmm2_scale), "out": out, "lse": lse}
    ragged(name, query, key, value, workspace_buffer, plan, run, {
        **_NAMES, "q": "query", "k": "key", "v": "value", "sinks": "attention_sinks",
        "head_dim_qk": "query", "head_dim_vo": "value", "num_qo_heads": "query",
        "seq_lens_q": "q_seq_lens_cpu", "seq_lens": "seq_lens" if kv_lens is None
        else "kv_seq_lens_cpu"})
    return (out, lse) if return_lse else out


# ---- FMHA v2 ---------------------------------------------------------------------------------

_LAYOUTS = ("PACKED_QKV", "CONTIGUOUS_Q_KV", "SEPARATE_Q_K_V", "Q_PAGED_KV_NHD", "Q_PAGED_KV_HND")
_MASKS = ("causal", "sliding_window", "chunked", "padding")


def _parts(name: str, qkv: Any, layout: str) -> tuple:
    """Queries, keys and values of a layout without pages."""
    if layout == "PACKED_QKV":
        if isinstance(qkv, (tuple, list)) or qkv.ndim != 4 or qkv.shape[1] != 3:
            raise c.expect(name, "qkv", "one tensor [rows, 3, h, d] with PACKED_QKV",
                           getattr(qkv, "shape", f"{len(qkv)} tensors"))
        return qkv[:, 0], qkv[:, 1], qkv[:, 2]
    wanted = 2 if layout == "CONTIGUOUS_Q_KV" else 3
    if not isinstance(qkv, (tuple, list)) or len(qkv) != wanted:
        raise c.expect(name, "qkv", f"{wanted} tensors with {layout}",
                       len(qkv) if isinstance(qkv, (tuple, list)) else "one tensor")
    if wanted == 3:
        return tuple(qkv)
    q, kv = qkv
    if kv.ndim != 4 or kv.shape[1] != 2:
        raise c.expect(name, "qkv", "[rows, 2, h_kv, d] behind the queries with CONTIGUOUS_Q_KV",
                       list(kv.shape))
    return q, kv[:, 0], kv[:, 1]


def _mask_of(name: str, mask_mode: str, chunked_attention_size: int) -> dict[str, Any]:
    """What a mode of masking is in the plan."""
    mode = mask_mode.lower()
    if mode not in _MASKS:
        raise c.expect(name, "mask_mode", f"one of {', '.join(_MASKS)}", repr(mask_mode))
    if (mode == "chunked") != (chunked_attention_size > 0):
        raise c.expect(name, "chunked_attention_size",
                       "a positive size" if mode == "chunked" else
                       "0 unless mask_mode is chunked", chunked_attention_size)
    return {"causal": mode != "padding", "chunked_attention_size": chunked_attention_size}


def _statistics(lse: Tensor, stats: Any) -> Tensor:
    """Softmax statistics from natural logarithms of the rows' sums: pairs (m, l) with ``m + ln(l)``
    that logarithm, of which m is all of it and l is 1."""
    if stats is None:
        stats = _frameworks.empty(lse, (*lse.shape, 2), "float32")
    stats[..., 0] = lse
    stats[..., 1] = 1.0
    return stats


@remembered
def trtllm_fmha_v2_prefill(
    qkv: Union[Tensor, Tuple[Tensor, Tensor], Tuple[Tensor, Tensor, Tensor]], input_layout: str,
    workspace_buffer: Tensor, seq_lens: Tensor, max_q_len: int, max_kv_len: int,
    bmm1_scale: float, bmm2_scale: float, batch_size: int, cum_seq_lens_q: Tensor,
    cum_seq_lens_kv: Tensor, block_tables: Optional[Tensor] = None, out: Optional[Tensor] = None,
    out_dtype: Any = None, sinks: Optional[List[Tensor]] = None,
    pos_encoding_mode: Optional[str] = None, logits_soft_cap_scale: Optional[float] = None,
    mask_mode: str = "causal", window_left: int = -1, chunked_attention_size: int = 0,
    save_softmax_stats: bool = False, skip_softmax_threshold_scale_factor: float = 0,
) -> Result:
    """Prefill of requests with queries, keys and values in one of five layouts, in one call.

    :param qkv: by input_layout: "PACKED_QKV" ``[rows, 3, h, d]``; "CONTIGUOUS_Q_KV" (``[rows, h_q,
        d]``, ``[keys, 2, h_kv, d]``); "SEPARATE_Q_K_V" (q, k, v), the head size of v its own;
        "Q_PAGED_KV_NHD" (q, ``[pages, 2, page_size, h_kv, d]``) and "Q_PAGED_KV_HND" (q, ``[pages,
        2, h_kv, page_size, d]``), or a pair of caches. Any page size.
    :param workspace_buffer: memory on the same device, of any content.
    :param seq_lens: ``[b]`` int32, keys of each request. :param batch_size: its entries.
    :param cum_seq_lens_q: ``[b + 1]`` int32: where each request's rows begin, its last tokens;
        cum_seq_lens_kv: its keys, read without pages.
    :param max_q_len: bound of the rows, max_kv_len of the keys of a request.
    :param bmm1_scale: of the logits, bmm2_scale of the result: numbers or float32 tensors.
    :param block_tables: ``[b, m]`` int32 page ids, of the layouts with pages; with a pair of caches
        in one memory also ``[b, 2, m]``, those of keys and of values, counted from the first key's.
    :param out: ``[rows, h_q, d_v]``. :param out_dtype: of the result: out's, else q's.
    :param sinks: ``[h_q]`` float32, or a list with that tensor.
    :param pos_encoding_mode: None, "NONE", "ROPE_LLAMA" or "ALIBI".
    :param logits_soft_cap_scale: ``cap * tanh(s / cap)`` of the scaled logits; None and 0 are off.
    :param mask_mode: "causal"; "sliding_window", causal with window_left; "chunked", causal and no
        key before the query's own chunk of chunked_attention_size; "padding", all keys of the
        request. :param window_left: keys visible before a query's own, whatever the
        mode; -1 is no limit.
    :param save_softmax_stats: also return ``[rows, h_q, 2]`` float32, pairs (m, l) of which ``m +
        ln(l)`` is the natural logarithm of the row's sum of exp.
    :param skip_softmax_threshold_scale_factor: a hint.
    :returns: out, or (out, statistics).
    """
    name = "trtllm_fmha_v2_prefill"
    layout = input_layout.upper()
    if layout not in _LAYOUTS:
        raise c.expect(name, "input_layout", f"one of {', '.join(_LAYOUTS)}", repr(input_layout))
    c.check_batch(name, batch_size, seq_lens)
    mode = str(pos_encoding_mode or "NONE").upper()
    plan = {"qo_indptr": c.int32(cum_seq_lens_q), "seq_lens": c.int32(seq_lens), "sm_scale": 1.0,
            "window_left": window_left, "max_sequence_kv": max_kv_len,
            "max_token_per_sequence": max_q_len, "pos_encoding_mode": mode,
            "logits_soft_cap": logits_soft_cap_scale or None,
            **_mask_of(name, mask_mode, chunked_attention_size)}
    run = {"sinks": c.one_sink(name, sinks), "q_scale": c.scale(bmm1_scale),
           "v_scale": c.scale(bmm2_scale), "return_lse_base_on_e": True}
    names = {**_NAMES, "q": "qkv", "logits_soft_cap": "logits_soft_cap_scale",
             "num_qo_heads": "qkv", "head_dim_qk": "qkv", "head_dim_vo": "qkv"}
    if layout.startswith("Q_PAGED"):
        if not isinstance(qkv, (tuple, list)) or len(qkv) not in (2, 3) or block_tables is None:
            raise c.expect(name, "qkv", f"queries and a cache, and block_tables, with {layout}",
                           "no block_tables" if block_tables is None else "another form")
        q, kv = qkv[0], qkv[1] if len(qkv) == 2 else tuple(qkv[1:])
        if isinstance(kv, (tuple, list)) and block_tables.ndim == 3:
            cache = c.cache_of_one_memory(name, *kv, layout[-3:], block_tables)
        else:
            cache = c.cache_of(name, kv, layout[-3:], block_tables)
        q_v = cache.v
    else:
        q, k, v = _parts(name, qkv, layout)
        q_v = v
    out = c.output(name, q, (*q.shape[:-1], q_v.shape[-1]), out, out_dtype, q.dtype)
    lse = _frameworks.empty(q, q.shape[:2], "float32") if save_softmax_stats else None
    run.update(out=out, lse=lse)
    if layout.startswith("Q_PAGED"):
        paged(name, q, cache, workspace_buffer, plan, run,
              {**names, "k_cache": "qkv", "v_cache": "qkv"})
    else:
        plan["kv_indptr"] = c.int32(cum_seq_lens_kv)
        ragged(name, q, k, v, workspace_buffer, plan, run, {**names, "k": "qkv", "v": "qkv"})
    return (out, _statistics(lse, None)) if save_softmax_stats else out


def _dense(name: str, query: Tensor, key: Tensor, value: Tensor, out: Tensor, num_heads: int,
           head_dim: int, seq_len: int, scale_softmax: float, scale_bmm1: Any, scale_bmm2: Any,
           causal: bool, return_lse: bool, lse: Optional[Tensor], scale_bmm1_d: Any,
           scale_bmm2_d: Any) -> Result:
    """Requests of one length, ``[b, s, h, d]``; each is a request of its own length here."""
    b = query.shape[0]
    if not math.isfinite(scale_softmax):
        raise c.expect(name, "scale_softmax", "a finite number", scale_softmax)
    for argument, expected, got in (("num_heads", query.shape[2], num_heads),
                                    ("head_dim", query.shape[3], head_dim),
                                    ("seq_len", query.shape[1], seq_len)):
        if expected != got:
            raise c.expect(name, argument, f"{expected}, as query has", got)
    packed = [_rows(name, argument, t) for argument, t in (
        ("query", query), ("key", key), ("value", value), ("out", out))]
    q, k, v, o = packed
    if lse is not None and tuple(lse.shape) != (*query.shape[:3], 2):
        raise c.expect(name, "lse", list((*query.shape[:3], 2)), list(lse.shape))
    wanted = return_lse or lse is not None
    rows = _frameworks.empty(query, q.shape[:2], "float32") if wanted else None
    many = q.shape[0] >= c.MANY_ROWS and not _memory.capturing(_memory.device_of(query))
    starts, kv_starts = (
        _memory.int32s([i * n for i in range(b + 1)], query) if many
        else _memory.counted(b + 1, query, n) for n in (seq_len, key.shape[1]))
    plan = {"qo_indptr": starts, "kv_indptr": kv_starts, "causal": causal, "window_left": -1,
            "sm_scale": query.shape[-1] ** -0.5 if scale_bmm1 is None and scale_bmm1_d is None
            else 1.0}
    run = {"q_scale": c.scale(scale_bmm1_d) if scale_bmm1_d is not None else scale_bmm1,
           "v_scale": c.scale(scale_bmm2_d) if scale_bmm2_d is not None else scale_bmm2,
           "out": o, "lse": rows, "return_lse_base_on_e": True}
    ragged(name, q, k, v, c.Own(query), plan, run, {
        "q": "query", "k": "key", "v": "value", "q_scale": "scale_bmm1", "v_scale": "scale_bmm2",
        "num_qo_heads": "num_heads", "head_dim_qk": "head_dim", "head_dim_vo": "value"})
    if wanted:
        lse = _statistics(rows.reshape(query.shape[:3]), lse)
    return (out, lse) if return_lse else out


def _rows(name: str, argument: str, tensor: Tensor) -> Tensor:
    """``[b, s, …]`` as ``[b * s, …]``, the same memory."""
    try:
        return _frameworks.view(tensor, (-1, *tensor.shape[2:]))
    except (RuntimeError, AttributeError) as error:
        raise c.expect(name, argument, "requests that lie behind one another",
                       f"shape {list(tensor.shape)} with other strides") from error


@remembered
def fmha_v2_prefill_deepseek(
    query: Tensor, key: Tensor, value: Tensor, out: Tensor, num_heads: int, head_dim: int,
    seq_len: int, scale_softmax: float, scale_bmm1: Optional[float] = None,
    scale_bmm2: Optional[float] = None, return_lse: bool = False, lse: Optional[Tensor] = None,
    scale_bmm1_d: Optional[Tensor] = None, scale_bmm2_d: Optional[Tensor] = None,
) -> Result:
    """Causal prefill of requests of one length, into out.

    :param query: ``[b, seq_len, num_heads, head_dim]`` float16, bfloat16, float32 or fp8.
    :param key: ``[b, s, h_kv, head_dim]``. :param value: ``[b, s, h_kv, d_vo]``.
    :param out: ``[b, seq_len, num_heads, d_vo]``, any float dtype; written.
    :param scale_bmm1: of the logits, ``1 / sqrt(head_dim)`` by default; scale_bmm2 of the result.
    :param scale_bmm1_d: a float32 tensor of one element in the place of scale_bmm1, and
        scale_bmm2_d in that of scale_bmm2.
    :param scale_softmax: what other kernels scale 8-bit weights by on their way; it cancels.
    :param lse: ``[b, seq_len, num_heads, 2]`` float32, pairs (m, l) of which ``m + ln(l)`` is the
        natural logarithm of the row's sum of exp.
    :returns: out, or (out, lse) with return_lse.
    """
    return _dense("fmha_v2_prefill_deepseek", query, key, value, out, num_heads, head_dim, seq_len,
                  scale_softmax, scale_bmm1, scale_bmm2, True, return_lse, lse, scale_bmm1_d,
                  scale_bmm2_d)


@remembered
def fmha_v2_prefill_sm120(
    query: Tensor, key: Tensor, value: Tensor, out: Tensor, num_heads: int, head_dim: int,
    seq_len: int, scale_softmax: float, scale_bmm1: Optional[float] = None,
    scale_bmm2: Optional[float] = None, causal: bool = True, return_lse: bool = False,
    lse: Optional[Tensor] = None, scale_bmm1_d: Optional[Tensor] = None,
    scale_bmm2_d: Optional[Tensor] = None,
) -> Result:
    """:func:`fmha_v2_prefill_deepseek`, causal or not, on every GPU and on the CPU.

    :param causal: no query sees a key behind its own position.
    """
    return _dense("fmha_v2_prefill_sm120", query, key, value, out, num_heads, head_dim, seq_len,
                  scale_softmax, scale_bmm1, scale_bmm2, bool(causal), return_lse, lse,
                  scale_bmm1_d, scale_bmm2_d)
