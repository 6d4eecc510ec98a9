# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention in one call, without an object that keeps a plan.

Over all keys of a request a call plans from its lengths and runs, both in the caller's workspace, as
the other attention in one call does (:mod:`bolide._wrappers.contracts`). Over lists of keys there is
no plan (:mod:`bolide._wrappers.mla_lists`).
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

from .. import _frameworks
from .._arguments import check_backend
from .._binding import compiling
from .._library import torch
from . import _memory
from . import contracts as c
from ._base import outputs_bit
from .mla_lists import DecodeMetadata, sparse_call
from .remembered import remembered

Tensor = Any

BACKENDS = ("auto", "xqa", "trtllm-gen", "cute-dsl", "sparse")
_NAMES = {"qo_indptr": "cum_seq_lens_q", "kv_len_arr": "seq_lens", "max_sequence_kv": "max_seq_len",
          "num_heads": "query", "head_dim_ckv": "kv_lora_rank", "head_dim_kpe": "qk_rope_head_dim",
          "q_nope": "query", "q_pe": "query", "ckv_cache": "kv_cache", "kpe_cache": "kv_cache",
          "custom_mask": "enable_dcp", "q_scale": "bmm1_scale", "o_scale": "bmm2_scale"}

def wrong(name: str, argument: str, expected: str, got: Any) -> ValueError:
    """The error of an argument."""
    return ValueError(f"{name}: {argument}: expected {expected}; got {got}")


def flat(name: str, argument: str, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The same memory with its first dimensions joined."""
    try:
        return _frameworks.view(tensor, tuple(shape))
    except (AttributeError, RuntimeError, ValueError):
        raise wrong(name, argument, "a tensor whose first dimensions can be joined",
                    f"shape {tuple(tensor.shape)} with such strides") from None


def without_head_axis(name: str, argument: str, cache: Tensor, axes: Sequence[int]) -> Tensor:
    """A cache of 3 dimensions, also where the one head has an axis of its own."""
    if cache.ndim == 3:
        return cache
    for axis in axes:
        if cache.ndim == 4 and cache.shape[axis] == 1:
            return cache[:, 0] if axis == 1 else cache[:, :, 0]
    raise wrong(name, argument, "[pages, page_size, d] with at most one axis of size 1 more",
                list(cache.shape))


def _inverse(value: Any) -> Any:
    """What an output is divided by, from what it is multiplied by."""
    if _frameworks.is_tensor(value):
        return 1.0 / value
    return 1.0 / value if value else float("inf")


# ---- the call -----------------------------------------------------------------------------------


def _not_captured(name: str, argument: str, expected: str, tensor: Tensor) -> None:
    """Refuses what looks at values on the host."""
    if _memory.capturing(_memory.device_of(tensor)):
        raise RuntimeError(f"{name}: {argument}: expected {expected} while a graph is captured, "
                           "since the host looks at values with it")


def _shared_tables(name: str, block_tables: Tensor, shared: bool) -> Tensor:
    """Pages of keys, which are those of the values too."""
    if shared:
        return block_tables
    if block_tables.ndim != 3 or block_tables.shape[1] != 2:
        raise wrong(name, "block_tables", "[b, 2, m] without uses_shared_paged_kv_idx",
                    list(block_tables.shape))
    _not_captured(name, "uses_shared_paged_kv_idx", "True", block_tables)
    keys, values = _memory.to_host(block_tables[:, 0], block_tables[:, 1])
    if not bool((keys == values).all()):
        raise wrong(name, "block_tables", "the same pages of keys and values, which share memory",
                    "others")
    return block_tables[:, 0]


def _mask_of_ranks(name: str, q_lens: Sequence[int], lens: Sequence[int], bounds: Any, world: int,
                   rank: int, like: Tensor) -> Tensor:
    """The custom mask of keys that are dealt to ranks in turn: key j here is key
    j * world + rank of all, and query i of a request stands bounds - q_len + i."""
    import numpy

    if bounds is None or not 0 <= rank < world:
        raise wrong(name, "cp_rank" if bounds is not None else "causal_seqlens_kv_global",
                    f"0 to {world - 1}" if bounds is not None else "a tensor with enable_dcp",
                    rank if bounds is not None else None)
    total = [int(x) for x in _memory.to_host(bounds)[0].reshape(-1)]
    if len(total) != len(lens):
        raise wrong(name, "causal_seqlens_kv_global", f"[{len(lens)}]", [len(total)])
    parts = [(numpy.arange(k) * world + rank)[None] <= numpy.arange(q)[:, None] + (t - q)
             for q, k, t in zip(q_lens, lens, total)]
    mask = numpy.concatenate([p.reshape(-1) for p in parts] or [numpy.zeros(0, bool)])
    if _frameworks.is_torch(like):
        return torch.from_numpy(mask).to(like.device)
    return mask


def dense_call(name: str, query: Tensor, kv_cache: Tensor, workspace_buffer: Tensor,
               kv_lora_rank: int, qk_rope_head_dim: int, block_tables: Tensor, lens: Tensor,
               starts: Tensor, out: Tensor, lse: Any, bmm1_scale: Any, bmm2_scale: Any,
               sinks: Any, ranks: Any = None, longest: Optional[int] = None, values: Any = None,
               spelled: Optional[dict[str, str]] = None, causal: bool = True) -> None:
    """Attention of ``query [n, h, d]``, of which request i owns rows starts[i] on, over all keys of
    its pages."""
    cache = without_head_axis(name, "kv_cache", kv_cache, (1,))
    d = kv_lora_rank + qk_rope_head_dim
    for argument, tensor in (("query", query), ("kv_cache", cache)):
        if tensor.shape[-1] != d:
            raise wrong(name, argument, f"{d} elements in the last dimension, kv_lora_rank + "
                        "qk_rope_head_dim", tensor.shape[-1])
    mask = None
    if ranks is not None:
        _not_captured(name, "enable_dcp", "False", query)
        lens, starts = _memory.to_host(lens, starts)
        mask = _mask_of_ranks(name, (starts[1:] - starts[:-1]).tolist(), lens.tolist(), *ranks,
                              query)
    tail = qk_rope_head_dim > 0
    plan = {"qo_indptr": starts, "kv_len_arr": lens, "num_heads": query.shape[1],
            "head_dim_ckv": kv_lora_rank, "head_dim_kpe": qk_rope_head_dim,
            "page_size": cache.shape[1], "q_data_type": _frameworks.dtype_bit(query),
            "kv_data_type": _frameworks.dtype_bit(cache), "o_data_type": _frameworks.dtype_bit(out),
            "causal": causal, "sm_scale": 1.0, "use_custom_mask": mask is not None,
            "max_num_rows": query.shape[0], "max_sequence_kv": longest}
    run = {"q_nope": query[..., :kv_lora_rank], "ckv_cache": cache[..., :kv_lora_rank],
           "q_pe": query[..., kv_lora_rank:] if tail else None,
           "kpe_cache": cache[..., kv_lora_rank:] if tail else None, "block_tables": block_tables,
           "custom_mask": mask, "sinks": c.one_sink(name, sinks), "q_scale": c.scale(bmm1_scale),
           "o_scale": _inverse(bmm2_scale), "out": out, "lse": lse, "v_cache": values}
    c.once(name, "batch_mla", workspace_buffer, plan, run, {**_NAMES, **(spelled or {})})


# ---- shapes of queries and results ---------------------------------------------------------------


def query_starts(name: str, query: Tensor, lens: Tensor, indptr: Any,
                 longest: Optional[int]) -> Tensor:
    """Where the rows of each request begin: of ``[b, q_len, h, d]``, or of ``[n, h, d]`` cut by an
    indptr, which is looked at where it lies on the host."""
    b = lens.shape[0]
    if indptr is None:
        if query.ndim != 4:
            raise wrong(name, "query", "[b, q_len, h, d], or [n, h, d] with cum_seq_lens_q",
                        list(query.shape))
        if query.shape[0] != b:
            raise wrong(name, "seq_lens", f"[{query.shape[0]}]", [b])
        return _memory.counted(b + 1, lens, query.shape[1])
    if query.ndim != 3:
        raise wrong(name, "query", "[n, h, d] with cum_seq_lens_q", list(query.shape))
    starts = c.int32(indptr)
    if starts.shape[0] != b + 1:
        raise wrong(name, "cum_seq_lens_q", f"[{b + 1}]", list(indptr.shape))
    if _memory.on_gpu(starts) or compiling():
        return starts
    at = [int(x) for x in starts]
    rows = [y - x for x, y in zip(at, at[1:])]
    if at[0] != 0 or at[-1] != query.shape[0] or min(rows, default=0) < 0:
        raise wrong(name, "cum_seq_lens_q", f"rising from 0 to {query.shape[0]}", at)
    if longest is not None and max(rows, default=0) > longest:
        raise wrong(name, "max_q_len", f"at least {max(rows)}, the longest of cum_seq_lens_q",
                    longest)
    return starts


def results(name: str, query: Tensor, d: int, out: Any, lse: Any, return_lse: bool,
            out_dtype: Any = None) -> Tuple[Tensor, Any, Tensor, Any]:
    """out and lse as the caller sees them, and with their tokens in one dimension."""
    shape = (*query.shape[:-1], d)
    n = query.shape[0] if query.ndim == 3 else query.shape[0] * query.shape[1]
    heads = query.shape[-2]
    if out is None:
        kind = outputs_bit(query.dtype, out_dtype)
        out = _frameworks.empty(query, shape, kind)
    elif tuple(out.shape) not in (shape, (n, heads, d)):
        raise wrong(name, "out", list(shape), list(out.shape))
    if lse is None and return_lse:
        lse = _frameworks.empty(query, (n, heads), "float32")
    if lse is not None and tuple(lse.shape) not in ((n, heads), shape[:-1]):
        raise wrong(name, "lse", [n, heads], list(lse.shape))
    rows = flat(name, "out", out, (n, heads, d))
    sums = None if lse is None else flat(name, "lse", lse, (n, heads))
    return out, lse, rows, sums


# ---- FlashInfer's names --------------------------------------------------------------------------


@remembered
def trtllm_batch_decode_with_kv_cache_mla(
    query: Tensor, kv_cache: Tensor, workspace_buffer: Tensor, qk_nope_head_dim: int,
    kv_lora_rank: int, qk_rope_head_dim: int, block_tables: Tensor, seq_lens: Optional[Tensor],
    max_seq_len: int, sparse_mla_top_k: int = 0, out: Optional[Tensor] = None,
    bmm1_scale: Union[float, Tensor] = 1.0, bmm2_scale: Union[float, Tensor] = 1.0,
    sinks: Any = None, skip_softmax_threshold_scale_factor: Optional[float] = None,
    enable_pdl: Optional[bool] = None, backend: str = "auto", is_var_seq: bool = True,
    uses_shared_paged_kv_idx: bool = True, lse: Optional[Tensor] = None, return_lse: bool = False,
    cute_dsl_impl: str = "auto", kv_scale_format: str = "auto",
    cum_seq_lens_q: Optional[Tensor] = None, max_q_len: Optional[int] = None,
    multi_ctas_kv_counter_buffer: Optional[Tensor] = None,
    sparse_mla_top_k_lens: Optional[Tensor] = None, enable_dcp: bool = False, cp_world: int = 1,
    cp_rank: int = 0, causal_seqlens_kv_global: Optional[Tensor] = None,
    use_fp16_softmax: Optional[bool] = None, *, metadata: Optional[DecodeMetadata] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Multi-head latent attention of the last tokens of each request, over all its keys or over
    lists of them.

    :param query: ``[b, q_len, h, d]``, latent part first, d = kv_lora_rank + qk_rope_head_dim; or
        ``[n, h, d]`` with cum_seq_lens_q. float16, bfloat16, float32 or fp8.
    :param kv_cache: ``[pages, page_size, d]`` or ``[pages, 1, page_size, d]``, any page size; with
        sparse_mla_top_k also uint8 of 656 in place of d: 512 float8_e4m3fn, 4 float32 scales of
        128 of them each, 64 bfloat16.
    :param workspace_buffer: of any dtype, need not be zero; a smaller one than the call needs is
        refused with both sizes.
    :param qk_nope_head_dim: of a head before absorption; the scales are explicit, so nothing
        depends on it.
    :param block_tables: ``[b, m]`` int32 page ids, or ``[b, 2, m]`` with
        ``uses_shared_paged_kv_idx=False``, both rows alike. With sparse_mla_top_k = k > 0 rows of
        the flattened cache, ``[b, q_len, k]`` or ``[n, k]``; a negative one, anywhere, is none.
    :param seq_lens: ``[b]`` int32 keys; query i sees those up to its own position
        ``seq_lens - q_len + i``, and counts no more entries of its list than that. With
        sparse_mla_top_k also None, or ``[b, q_len]`` entries of each list that count.
    :param max_seq_len: no shorter than the longest of seq_lens where there are no lists.
    :param sparse_mla_top_k_lens: ``[n]`` or ``[b, q_len]`` int32: the same, beside seq_lens.
    :param out: ``[b, q_len, h, kv_lora_rank]`` (``[n, h, kv_lora_rank]``); bfloat16 for fp8 by
        default, else query's dtype.
    :param bmm1_scale: multiplies the logits, bmm2_scale the result: numbers, or float32 tensors of
        one element.
    :param sinks: ``[h]`` float32, natural logits that join each row's sum, or a list of it.
    :param lse: ``[n, h]`` or ``[b, q_len, h]`` float32, to base 2.
    :param backend: one of the names of one implementation. :param cute_dsl_impl: likewise.
    :param kv_scale_format: "auto", "pow2_fp32" or "arbitrary_fp32": scales are float32 either way.
    :param cum_seq_lens_q: ``[b + 1]`` int32, first query of each request. :param max_q_len: no
        shorter than the longest.
    :param enable_dcp: keys are dealt to cp_world ranks in turn, this being cp_rank;
        causal_seqlens_kv_global ``[b]`` has the keys of all ranks.
    :param metadata: of :func:`get_batch_decode_metadata_mla`, for the same shapes.
    :param skip_softmax_threshold_scale_factor: a hint, as are enable_pdl, use_fp16_softmax and
        multi_ctas_kv_counter_buffer.
    :returns: out, or (out, lse) with return_lse.
    """
    name = "trtllm_batch_decode_with_kv_cache_mla"
    check_backend(name, backend, BACKENDS)
    if cute_dsl_impl not in ("auto", "monolithic", "modular"):
        raise wrong(name, "cute_dsl_impl", "auto, monolithic or modular", repr(cute_dsl_impl))
    if kv_scale_format not in ("auto", "pow2_fp32", "arbitrary_fp32"):
        raise wrong(name, "kv_scale_format", "auto, pow2_fp32 or arbitrary_fp32",
                    repr(kv_scale_format))
    if max_q_len is not None and cum_seq_lens_q is None:
        raise wrong(name, "max_q_len", "None without cum_seq_lens_q", max_q_len)
    if not enable_dcp and (cp_world != 1 or causal_seqlens_kv_global is not None):
        raise wrong(name, "cp_world", "1, and no causal_seqlens_kv_global, without enable_dcp",
                    cp_world)
    result, sums, rows, row_sums = results(name, query, kv_lora_rank, out, lse, return_lse)
    q = flat(name, "query", query, (rows.shape[0], *query.shape[-2:]))
    if sparse_mla_top_k > 0:
        if enable_dcp or not uses_shared_paged_kv_idx:
            raise wrong(name, "enable_dcp" if enable_dcp else "uses_shared_paged_kv_idx",
                        "False with sparse_mla_top_k" if enable_dcp else
                        "True with sparse_mla_top_k", enable_dcp)
        if metadata is not None:
            metadata.check(name, query, sparse_mla_top_k)
        sparse_call(name, q, query, kv_cache, workspace_buffer, kv_lora_rank, qk_rope_head_dim,
                    block_tables, seq_lens, sparse_mla_top_k, sparse_mla_top_k_lens,
                    cum_seq_lens_q, rows, row_sums, c.scale(bmm1_scale), c.scale(bmm2_scale),
                    c.one_sink(name, sinks))
        return (result, sums) if return_lse else result
    for argument, value in (("sparse_mla_top_k_lens", sparse_mla_top_k_lens),
                            ("metadata", metadata)):
        if value is not None:
            raise wrong(name, argument, "None without sparse_mla_top_k", "one")
    if seq_lens is None:
        raise wrong(name, "seq_lens", "a tensor", None)
    lens = c.int32(seq_lens)
    starts = query_starts(name, query, lens, cum_seq_lens_q, max_q_len)
    ranks = (causal_seqlens_kv_global, cp_world, cp_rank) if enable_dcp else None
    dense_call(name, q, kv_cache, workspace_buffer, kv_lora_rank, qk_rope_head_dim,
               _shared_tables(name, c.table(block_tables), uses_shared_paged_kv_idx), lens, starts,
               rows, row_sums, bmm1_scale, bmm2_scale, sinks, ranks=ranks, longest=max_seq_len)
    return (result, sums) if return_lse else result


@remembered
def xqa_batch_decode_with_kv_cache_mla(
    query: Tensor, kv_cache: Tensor, workspace_buffer: Tensor, qk_nope_head_dim: int,
    kv_lora_rank: int, qk_rope_head_dim: int, block_tables: Tensor, seq_lens: Tensor,
    max_seq_len: int, out: Optional[Tensor] = None, bmm1_scale: Union[float, Tensor] = 1.0,
    bmm2_scale: Union[float, Tensor] = 1.0, sinks: Any = None, enable_pdl: Optional[bool] = None,
) -> Tensor:
    """:func:`trtllm_batch_decode_with_kv_cache_mla` over all keys of each request, with the meaning
    of its arguments.

    :returns: out.
    """
    return trtllm_batch_decode_with_kv_cache_mla(
        query, kv_cache, workspace_buffer, qk_nope_head_dim, kv_lora_rank, qk_rope_head_dim,
        block_tables, seq_lens, max_seq_len, out=out, bmm1_scale=bmm1_scale,
        bmm2_scale=bmm2_scale, sinks=sinks, enable_pdl=enable_pdl, backend="xqa")


@remembered
def xqa_mla(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, page_table: Tensor, seq_lens: Tensor,
    output: Tensor, workspace_buffer: Tensor, semaphores: Tensor, page_size: int,
    q_scale: Union[float, Tensor] = 1.0, kv_scale: Union[float, Tensor] = 1.0,
    sm_count: Optional[int] = None, enable_pdl: Optional[bool] = None,
) -> None:
    """Multi-head latent attention of one token of each request, into output.

    The logits are ``q . k * q_scale * kv_scale``, without a root of d as in FlashInfer's kernel; the
    result is multiplied by kv_scale.

    :param q: ``[b, 1, h, d]``, latent part first. :param k_cache: ``[pages, page_size, d]``, with
        an axis of size 1 more or without, or ``[rows, d]``.
    :param v_cache: of the same pages, of which the first d_v columns count. Where it is the memory
        of k_cache the kernels of latent attention run; while torch compiles it has to be.
    :param page_table: ``[b, m]`` int32 or uint32. :param seq_lens: ``[b]`` or ``[b, 1]`` int32 or
        uint32.
    :param output: ``[b, 1, h, d_v]``. :param page_size: that of k_cache.
    :param semaphores: a hint, as are sm_count and enable_pdl: a call needs none.
    """
    name = "xqa_mla"
    page = (page_size,)
    keys = without_head_axis(name, "k_cache", c.pool(name, "k_cache", k_cache, page), (1, 2))
    values = without_head_axis(name, "v_cache", c.pool(name, "v_cache", v_cache, page), (1, 2))
    if keys.shape[1] != page_size:
        raise wrong(name, "page_size", keys.shape[1], page_size)
    if values.shape[:2] != keys.shape[:2]:
        raise wrong(name, "v_cache", f"{list(keys.shape[:2])} tokens, as k_cache has",
                    list(values.shape[:2]))
    d, latent = q.shape[-1], output.shape[-1]
    n, heads = q.shape[0] * (q.shape[1] if q.ndim == 4 else 1), q.shape[-2]
    if q.ndim == 4 and q.shape[1] != 1:
        raise wrong(name, "q", "[b, 1, h, d]", list(q.shape))
    lens = c.int32(seq_lens)
    if lens.shape[0] != n:
        raise wrong(name, "seq_lens", f"[{n}]", list(seq_lens.shape))
    if values.shape[-1] < latent:
        raise wrong(name, "v_cache", f"at least {latent} columns, as output has", values.shape[-1])
    rows, out = flat(name, "q", q, (n, heads, d)), flat(name, "output", output, (n, heads, latent))
    if not (compiling() or _frameworks.dispatches(out) or _memory.same_place(values, keys)):
        return _values_apart(name, rows, keys, values[..., :latent], workspace_buffer,
                             c.table(page_table), lens, out, q_scale, kv_scale)
    dense_call(name, rows, keys, workspace_buffer, latent, d - latent, c.table(page_table), lens,
               _memory.counted(n + 1, lens), out, None, q_scale * kv_scale, kv_scale, None,
               values=values, spelled={
                   "q_nope": "q", "q_pe": "q", "ckv_cache": "k_cache", "kpe_cache": "k_cache",
                   "block_tables": "page_table", "out": "output", "num_heads": "q",
                   "q_scale": "q_scale", "o_scale": "kv_scale", "head_dim_ckv": "output",
                   "head_dim_kpe": "q"})
    return None


def _values_apart(name: str, query: Tensor, keys: Tensor, values: Tensor, workspace_buffer: Tensor,
                  table: Tensor, lens: Tensor, out: Tensor, q_scale: Any, kv_scale: Any) -> None:
    """Decoding with one head of keys, whose values are other memory."""
    kv = c.scale(kv_scale)
    plan = {"num_qo_heads": query.shape[1], "num_kv_heads": 1, "page_size": keys.shape[1],
            "head_dim": query.shape[-1], "head_dim_vo": values.shape[-1], "kv_layout": "NHD",
            "seq_lens": lens, "q_data_type": _frameworks.dtype_bit(query), "causal": True,
            "kv_data_type": _frameworks.dtype_bit(keys), "q_len_per_req": 1, "window_left": -1,
            "o_data_type": _frameworks.dtype_bit(out), "sm_scale": 1.0}
    run = {"q": query, "k_cache": keys[:, :, None], "v_cache": values[:, :, None],
           "block_tables": table, "q_scale": c.scale(q_scale), "k_scale": kv, "v_scale": kv,
           "o_scale": 1.0, "out": out}
    c.once(name, "batch_decode", workspace_buffer, plan, run, {
        "block_tables": "page_table", "out": "output", "num_qo_heads": "q", "head_dim": "q",
        "head_dim_vo": "output", "k_scale": "kv_scale", "v_scale": "kv_scale"})
