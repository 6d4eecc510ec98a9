# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention in one call, without an object that keeps a plan.

Over all keys of a request a call plans from its lengths and runs, both in the caller's workspace:
lengths on the host cost no wait, lengths on a GPU one copy and one wait. Over lists of keys there
is no plan (:mod:`bolide._wrappers.mla_lists`).
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

from .. import _dtypes, _frameworks
from .._arguments import check_backend
from .._binding import Plan, Workspace, _place
from .._library import torch
from . import _memory
from ._base import bind, outputs_bit
from .mla_lists import DecodeMetadata, sparse_call

Tensor = Any

BACKENDS = ("auto", "xqa", "trtllm-gen", "cute-dsl", "sparse")

_OPERATORS = bind(
    "batch_mla",
    "qo_indptr kv_indptr kv_len_arr num_heads head_dim_ckv head_dim_kpe page_size q_data_type "
    "kv_data_type o_data_type causal sm_scale use_custom_mask",
    "q_nope q_pe ckv_cache kpe_cache block_tables custom_mask sinks q_scale o_scale out lse")

# Pinned staging of plans on a GPU, one a device and stream, and the event behind its last copy.
_staging: dict[Any, tuple] = {}


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


def one_sink(name: str, sinks: Any) -> Any:
    """FlashInfer's list of one tensor, or the tensor."""
    if isinstance(sinks, (list, tuple)):
        if len(sinks) != 1:
            raise wrong(name, "sinks", "one tensor", f"{len(sinks)} of them")
        return sinks[0]
    return sinks


def without_head_axis(name: str, argument: str, cache: Tensor, axes: Sequence[int]) -> Tensor:
    """A cache of 3 dimensions, also where the one head has an axis of its own."""
    if cache.ndim == 3:
        return cache
    for axis in axes:
        if cache.ndim == 4 and cache.shape[axis] == 1:
            return cache[:, 0] if axis == 1 else cache[:, :, 0]
    raise wrong(name, argument, "[pages, page_size, d] with at most one axis of size 1 more",
                list(cache.shape))


def as_bytes(buffer: Tensor) -> Tensor:
    """A workspace of any dtype as a row of bytes."""
    if _frameworks.is_torch(buffer):
        return buffer.reshape(-1).view(torch.uint8)
    return buffer.reshape(-1).view("uint8")


def scale(value: Any) -> Any:
    """A number or a tensor of one element."""
    return value if _frameworks.is_tensor(value) else float(value)


def _inverse(value: Any) -> Any:
    """What an output is divided by, from what it is multiplied by."""
    if _frameworks.is_tensor(value):
        return 1.0 / value
    return 1.0 / value if value else float("inf")


# ---- a plan and its run ------------------------------------------------------------------------


def _pinned(buffer: Tensor, size: int) -> tuple:
    """Staging on the host that no copy reads any more, and the event for the next one."""
    if not _memory.on_gpu(buffer):
        return None, None
    key = (buffer.device, _frameworks.current_stream(buffer.device.index))
    staging, event = _staging.get(key, (None, None))
    if event is not None:
        event.synchronize()
    if staging is None or staging.shape[0] < size:
        staging, event = _memory.pinned(max(size, 1 << 20)), torch.cuda.Event()
        _staging[key] = staging, event
    return staging, event


def _plan(name: str, values: list, buffer: Tensor) -> Tuple[Workspace, Plan]:
    """A plan in a caller's buffer: its live part in front, the scratch of the run behind it."""
    if _memory.capturing(_memory.device_of(buffer)):
        raise RuntimeError(f"{name}: no plan can be made while a graph is captured; "
                           "BatchMLAPagedAttentionWrapper plans ahead")
    whole = as_bytes(buffer)
    space = Workspace(whole)
    sizes = _OPERATORS.sizes(*values, space.address)
    start = -_place(whole)[0] % 16
    first = start + -(-sizes.device_int // 128) * 128
    if whole.shape[0] < first + sizes.device:
        raise wrong(name, "workspace_buffer", f"at least {first + sizes.device} bytes",
                    whole.shape[0])
    staging, event = _pinned(whole, sizes.pinned)
    space, plan = Workspace(whole[first:], whole[start:first], staging), Plan(sizes.plan)
    _OPERATORS.plan(*values, space.address, plan.address, space.stream)
    if event is not None:
        event.record(torch.cuda.current_stream(whole.device))
    return space, plan


def _shared_tables(name: str, block_tables: Tensor, shared: bool) -> Tensor:
    """Pages of keys, which are those of the values too."""
    if shared:
        return block_tables
    if block_tables.ndim != 3 or block_tables.shape[1] != 2:
        raise wrong(name, "block_tables", "[b, 2, m] without uses_shared_paged_kv_idx",
                    list(block_tables.shape))
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
               kv_lora_rank: int, qk_rope_head_dim: int, block_tables: Tensor, seq_lens: Tensor,
               q_lens: Sequence[int], out: Tensor, lse: Any, bmm1_scale: Any, bmm2_scale: Any,
               sinks: Any, causal: bool = True, ranks: Any = None,
               longest: Optional[int] = None) -> None:
    """Attention of ``query [n, h, d]``, q_lens of each request, over all keys of its pages."""
    cache = without_head_axis(name, "kv_cache", kv_cache, (1,))
    d = kv_lora_rank + qk_rope_head_dim
    for argument, tensor in (("query", query), ("kv_cache", cache)):
        if tensor.shape[-1] != d:
            raise wrong(name, argument, f"{d} elements in the last dimension, kv_lora_rank + "
                        "qk_rope_head_dim", tensor.shape[-1])
    lens = _memory.to_host(seq_lens)[0].reshape(-1)
    if lens.shape[0] != len(q_lens):
        raise wrong(name, "seq_lens", f"[{len(q_lens)}]", list(seq_lens.shape))
    lens = _memory.int32s([int(x) for x in lens], lens)
    most = int(lens.max()) if len(q_lens) else 0
    if longest is not None and most > longest:
        raise wrong(name, "max_seq_len", f"at least {most}, the longest of seq_lens", longest)
    starts = [0]
    for n in q_lens:
        starts.append(starts[-1] + n)
    mask = None
    if ranks is not None:
        mask = _mask_of_ranks(name, q_lens, [int(x) for x in lens], *ranks, query)
    values = [_memory.int32s(starts, lens), None, lens, query.shape[1], kv_lora_rank,
              qk_rope_head_dim, cache.shape[1], _dtypes.of(query.dtype).bit,
              _dtypes.of(cache.dtype).bit, _dtypes.of(out.dtype).bit, causal, 1.0,
              mask is not None]
    space, plan = _plan(name, values, workspace_buffer)
    tail = qk_rope_head_dim > 0
    _OPERATORS.run(
        query[..., :kv_lora_rank], query[..., kv_lora_rank:] if tail else None,
        cache[..., :kv_lora_rank], cache[..., kv_lora_rank:] if tail else None, block_tables, mask,
        one_sink(name, sinks), scale(bmm1_scale), _inverse(bmm2_scale), out, lse, space.address,
        plan.address)


# ---- shapes of queries and results ---------------------------------------------------------------


def query_lengths(name: str, query: Tensor, indptr: Any, longest: Optional[int]) -> list:
    """Tokens of each request: of ``[b, q_len, h, d]``, or of ``[n, h, d]`` cut by an indptr."""
    if indptr is None:
        if query.ndim != 4:
            raise wrong(name, "query", "[b, q_len, h, d], or [n, h, d] with cum_seq_lens_q",
                        list(query.shape))
        return [query.shape[1]] * query.shape[0]
    if query.ndim != 3:
        raise wrong(name, "query", "[n, h, d] with cum_seq_lens_q", list(query.shape))
    at = [int(x) for x in _memory.to_host(indptr)[0]]
    lens = [b - a for a, b in zip(at, at[1:])]
    if not at or at[0] != 0 or at[-1] != query.shape[0] or min(lens, default=0) < 0:
        raise wrong(name, "cum_seq_lens_q", f"rising from 0 to {query.shape[0]}", at)
    if longest is not None and lens and max(lens) > longest:
        raise wrong(name, "max_q_len", f"at least {max(lens)}, the longest of cum_seq_lens_q",
                    longest)
    return lens


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
                    cum_seq_lens_q, rows, row_sums, scale(bmm1_scale), scale(bmm2_scale),
                    one_sink(name, sinks))
        return (result, sums) if return_lse else result
    for argument, value in (("sparse_mla_top_k_lens", sparse_mla_top_k_lens),
                            ("metadata", metadata)):
        if value is not None:
            raise wrong(name, argument, "None without sparse_mla_top_k", "one")
    if seq_lens is None:
        raise wrong(name, "seq_lens", "a tensor", None)
    q_lens = query_lengths(name, query, cum_seq_lens_q, max_q_len)
    ranks = (causal_seqlens_kv_global, cp_world, cp_rank) if enable_dcp else None
    dense_call(name, q, kv_cache, workspace_buffer, kv_lora_rank, qk_rope_head_dim,
               _shared_tables(name, block_tables, uses_shared_paged_kv_idx), seq_lens, q_lens,
               rows, row_sums, bmm1_scale, bmm2_scale, sinks, ranks=ranks, longest=max_seq_len)
    return (result, sums) if return_lse else result


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


def xqa_mla(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, page_table: Tensor, seq_lens: Tensor,
    output: Tensor, workspace_buffer: Tensor, semaphores: Tensor, page_size: int,
    q_scale: Union[float, Tensor] = 1.0, kv_scale: Union[float, Tensor] = 1.0,
    sm_count: Optional[int] = None, enable_pdl: Optional[bool] = None,
) -> None:
    """Multi-head latent attention of one token of each request, into output.

    The logits are ``q . k * q_scale * kv_scale / sqrt(d)``, the result is multiplied by kv_scale.

    :param q: ``[b, 1, h, d]``, latent part first. :param k_cache: ``[pages, page_size, d]``, with
        an axis of size 1 more or without.
    :param v_cache: the latent part of k_cache, ``[pages, page_size, d_v]``, or all of k_cache: the
        same memory; others are refused.
    :param page_table: ``[b, m]`` int32. :param seq_lens: ``[b]`` or ``[b, 1]`` int32 or uint32.
    :param output: ``[b, 1, h, d_v]``. :param page_size: that of k_cache.
    :param semaphores: a hint, as are sm_count and enable_pdl: a call needs none.
    """
    name = "xqa_mla"
    keys = without_head_axis(name, "k_cache", k_cache, (1, 2))
    values = without_head_axis(name, "v_cache", v_cache, (1, 2))
    if keys.shape[1] != page_size:
        raise wrong(name, "page_size", keys.shape[1], page_size)
    if not _memory.same_place(keys, values) or values.shape[:2] != keys.shape[:2]:
        raise wrong(name, "v_cache", "the latent part of k_cache, the same memory", "another")
    d, latent = q.shape[-1], output.shape[-1]
    n, heads = q.shape[0] * (q.shape[1] if q.ndim == 4 else 1), q.shape[-2]
    if q.ndim == 4 and q.shape[1] != 1:
        raise wrong(name, "q", "[b, 1, h, d]", list(q.shape))
    dense_call(name, flat(name, "q", q, (n, heads, d)), keys, workspace_buffer, latent, d - latent,
               page_table, seq_lens, [1] * n, flat(name, "output", output, (n, heads, latent)),
               None, q_scale * kv_scale * d ** -0.5, kv_scale, None)
