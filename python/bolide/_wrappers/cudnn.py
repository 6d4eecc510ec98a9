# SPDX-License-Identifier: Apache-2.0
"""Attention in one call in the form of FlashInfer's cuDNN entry points: lengths of requests, and
where each begins in every tensor, counted in elements or in tokens."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _frameworks
from . import _memory
from . import contracts as c
from .once import derived, looked_at
from .trtllm_decode import _decode, _strides
from .trtllm_prefill import paged, ragged
from .remembered import remembered

Tensor = Any


def _tokens(name: str, argument: str, offsets: Any, batch: int, tensor: Tensor, units: str,
            step: Optional[int] = None) -> Any:
    """Offsets as ``[b + 1]`` rows of a tensor. In elements they count from its beginning, over
    whatever lies between two rows. Without an entry behind the last request the tensor ends it."""
    if offsets is None:
        return None
    offsets = c.int32(offsets)
    if offsets.shape[0] not in (batch, batch + 1):
        raise c.expect(name, argument, f"[{batch + 1}] or [{batch}]", list(offsets.shape))
    if units == "elements":
        step = step or _strides(tensor)[0]
        if not _memory.on_gpu(offsets) and (offsets % step != 0).any():
            raise c.expect(name, argument, f"multiples of {step} elements, a row of the tensor",
                           offsets.tolist())
        offsets = offsets // step
    rows = _frameworks.full(offsets, (batch + 1,), "int32", tensor.shape[0])
    rows[:offsets.shape[0]] = offsets
    return rows


def _lengths(name: str, argument: str, lengths: Any, starts: Any) -> Any:
    """Lengths as given, else what lies between the offsets."""
    if lengths is not None:
        return c.int32(lengths)
    if starts is None:
        raise c.expect(name, argument, "lengths, or offsets in their place", None)
    return starts[1:] - starts[:-1]


def _packed(lengths: Tensor) -> Tensor:
    """``[b + 1]``: requests of these lengths, one behind the other."""
    starts = _frameworks.full(lengths, (lengths.shape[0] + 1,), "int32", 0)
    starts[1:] = lengths.cumsum(0)
    return starts


def _bound(units: str, name: str) -> None:
    if units not in ("elements", "tokens"):
        raise c.expect(name, "batch_offsets_units", "elements or tokens", repr(units))


def _scales(scale: float, q_scale: Any, k_scale: Any) -> dict[str, Any]:
    """The scale of the logits in the plan, those of stored values in the run."""
    return {"q_scale": None if q_scale is None else c.scale(q_scale),
            "k_scale": None if k_scale is None else c.scale(k_scale)}


@remembered
def cudnn_batch_decode_with_kv_cache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float, workspace_buffer: Tensor, *,
    max_sequence_kv: int, actual_seq_lens_kv: Optional[Tensor] = None,
    block_tables: Optional[Tensor] = None, is_cuda_graph_compatible: bool = False,
    batch_offsets_q: Optional[Tensor] = None, batch_offsets_o: Optional[Tensor] = None,
    batch_offsets_k: Optional[Tensor] = None, batch_offsets_v: Optional[Tensor] = None,
    out: Optional[Tensor] = None,
) -> Tensor:
    """Attention of the newest token of each request against its pages, in one call.

    :param q: ``[b, h_q, d]``. :param k_cache: ``[pages, h_kv, page_size, d]``, v_cache likewise,
        any page size. :param scale: of the logits. :param workspace_buffer: of any content.
    :param max_sequence_kv: bound of the keys of a request.
    :param actual_seq_lens_kv: ``[b]`` int32, on the host or the device: keys of each request.
    :param block_tables: ``[b, m]`` int32. Without it page i is request i's: ``[b, h_kv, s, d]``; or
        the caches are packed, ``[keys, h_kv, d]``.
    :param batch_offsets_q: ``[b]`` or ``[b + 1]`` int32, elements before each request's row of q;
        batch_offsets_o of out; without block_tables batch_offsets_k of k_cache, and
        batch_offsets_v of v_cache (k_cache's by default).
    :param is_cuda_graph_compatible: a hint: a graph holds the call where all lengths and offsets lie
        on the GPU.
    :returns: ``[b, h_q, d_v]`` of q's dtype, or out.
    """
    name = "cudnn_batch_decode_with_kv_cache"
    k_starts = batch_offsets_k
    if block_tables is not None and (k_starts is not None or batch_offsets_v is not None):
        raise c.expect(name, "batch_offsets_k", "None with block_tables, and batch_offsets_v",
                       "a tensor")
    out = c.output(name, q, (*q.shape[:-1], v_cache.shape[-1]), out, None, q.dtype)
    names = {"seq_lens": "actual_seq_lens_kv", "q_scale": "scale", "q": "q", "k": "k_cache",
             "v": "v_cache", "k_cache": "k_cache", "v_cache": "v_cache", "o_indptr":
             "batch_offsets_o", "max_sequence_kv": "max_sequence_kv", "qo_indptr":
             "batch_offsets_q", "kv_indptr": "batch_offsets_k", "v_indptr": "batch_offsets_v"}
    run = {"q_scale": float(scale), "out": out}
    plan = {"sm_scale": 1.0, "window_left": -1, "max_sequence_kv": max_sequence_kv}
    packed = k_cache.ndim == 3
    if packed:
        b = q.shape[0] if actual_seq_lens_kv is None else c.int32(actual_seq_lens_kv).shape[0]
        kv = derived(_tokens, name, "batch_offsets_k", k_starts, b, k_cache, "elements")
        lens = derived(_lengths, name, "actual_seq_lens_kv", actual_seq_lens_kv, kv)
        plan.update(kv_indptr=derived(_packed, lens) if kv is None else kv, v_indptr=derived(
            _tokens, name, "batch_offsets_v", batch_offsets_v, b, v_cache, "elements"))
    else:
        if k_starts is not None or batch_offsets_v is not None:
            block_tables, v_tables = _page_of_each(name, k_cache, v_cache, k_starts,
                                                   batch_offsets_v)
        else:
            v_tables = None
        cache, lens = _pages(name, q, k_cache, v_cache, block_tables, actual_seq_lens_kv)
        cache = cache._replace(v_tables=v_tables)
        b = lens.shape[0]
    starts = derived(_tokens, name, "batch_offsets_q", batch_offsets_q, b, q, "elements")
    ends = derived(_tokens, name, "batch_offsets_o", batch_offsets_o, b, out, "elements")
    if starts is None and ends is None and not packed:
        _decode(name, q, cache, workspace_buffer, lens, (1, None, None), plan, run, None, names)
        return out
    plan.update(qo_indptr=_memory.counted(b + 1, lens) if starts is None else starts,
                seq_lens=lens, seq_lens_q=_frameworks.full(lens, (b,), "int32", 1), o_indptr=ends,
                causal=True)
    if packed:
        ragged(name, q, k_cache, v_cache, workspace_buffer, plan, run, names)
    else:
        paged(name, q, cache, workspace_buffer, plan, run, names)
    return out


def _page_of_each(name: str, k_cache: Tensor, v_cache: Tensor, k_starts: Any, v_starts: Any
                  ) -> tuple[Tensor, Any]:
    """The page of each request from what lies before it in the caches, in elements."""
    if k_starts is None:
        raise c.expect(name, "batch_offsets_k", "a tensor with batch_offsets_v", None)
    found = []
    for argument, starts, cache in (("batch_offsets_k", k_starts, k_cache),
                                    ("batch_offsets_v", v_starts, v_cache)):
        if starts is None:
            found.append(None)
            continue
        starts, step = c.int32(starts)[:k_cache.shape[0]], _strides(cache)[0]
        if not _memory.on_gpu(starts) and (starts % step != 0).any():
            raise c.expect(name, argument, f"multiples of {step} elements, a request's page",
                           starts.tolist())
        found.append((starts // step).reshape(-1, 1))
    return found[0], found[1]


def _pages(name: str, q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Any,
           lengths: Any) -> tuple[c.Cache, Tensor]:
    """A cache in pages, and the keys of each request; without tables a page is a request."""
    if k_cache.ndim != 4:
        raise c.expect(name, "k_cache", "[pages, h_kv, page_size, d]", list(k_cache.shape))
    if block_tables is None:
        b = k_cache.shape[0]
        block_tables = _memory.counted(b, k_cache).reshape(b, 1)
    if lengths is None:
        if block_tables.shape[1] != 1:
            raise c.expect(name, "actual_seq_lens_kv", "a tensor with block_tables", None)
        lengths = _frameworks.full(q, (block_tables.shape[0],), "int32", k_cache.shape[2])
    return c.Cache(k_cache, v_cache, c.table(block_tables), None, "HND"), c.int32(lengths)


def _lse(q: Tensor, lens_q: Tensor, most: int, lse: Any, name: str, stats: Any,
         return_lse: bool) -> tuple[Any, Any]:
    """The lse that the caller gets and the one that is written: rows as in q. Without
    batch_offsets_stats the caller's is ``[b, most, h_q]``."""
    if not return_lse and lse is None:
        return None, None
    if stats is not None:
        rows = _frameworks.empty(q, q.shape[:2], "float32") if lse is None else lse
        return rows, rows
    shape = (lens_q.shape[0], most, q.shape[1])
    if lse is None:
        lse = _frameworks.full(q, shape, "float32", float("-inf"))
    elif tuple(lse.shape) != shape:
        raise c.expect(name, "lse", list(shape), list(lse.shape))
    return lse, _frameworks.empty(q, q.shape[:2], "float32")


def _spread(lse: Tensor, rows: Tensor, starts: Tensor, lens_q: Tensor) -> None:
    """Rows of requests to ``[b, most, h_q]``. Rows that no request has keep what they hold."""
    b, most = lse.shape[:2]
    place = _memory.counted(most, rows)
    starts, lens_q = (_memory.to_device(t, _memory.device_of(rows)) for t in (starts, lens_q))
    own = (starts[:b, None] + place[None]).clip(0, max(rows.shape[0] - 1, 0))
    used = place[None] < lens_q[:, None]
    if rows.shape[0]:
        found = rows[own.reshape(-1)].reshape(lse.shape)
        wanted = used[..., None]
        lse[:] = found.where(wanted, lse) if _frameworks.is_torch(lse) else _numpy_where(
            wanted, found, lse)


def _numpy_where(*values: Any) -> Any:
    import numpy

    return numpy.where(*values)


@remembered
def cudnn_batch_prefill_with_kv_cache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, scale: float, workspace_buffer: Tensor, *,
    max_token_per_sequence: int, max_sequence_kv: int, actual_seq_lens_q: Optional[Tensor] = None,
    actual_seq_lens_kv: Optional[Tensor] = None, block_tables: Optional[Tensor] = None,
    causal: bool, return_lse: bool, q_scale: Optional[Tensor] = None,
    k_scale: Optional[Tensor] = None, v_scale: Optional[Tensor] = None,
    batch_offsets_q: Optional[Tensor] = None, batch_offsets_o: Optional[Tensor] = None,
    batch_offsets_k: Optional[Tensor] = None, batch_offsets_v: Optional[Tensor] = None,
    batch_offsets_stats: Optional[Tensor] = None, batch_offsets_units: str = "elements",
    out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
    is_cuda_graph_compatible: bool = False, backend: Optional[str] = None,
    o_data_type: Any = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Attention of any number of new tokens of each request over pages or packed keys, in one
    call.

    :param q: ``[rows, h_q, d]``.
    :param k_cache: with block_tables ``[pages, h_kv, page_size, d]``, any page size; else packed
        ``[keys, h_kv, d]``. v_cache likewise, its own head size.
    :param scale: of the logits. :param workspace_buffer: of any content.
    :param max_token_per_sequence: bound of the rows, max_sequence_kv of the keys of a request.
    :param actual_seq_lens_q: ``[b]`` int32 (any shape of b elements), on the host or the device:
        rows of each request, actual_seq_lens_kv its keys. Where they are left out, offsets in their
        place say it.
    :param causal: request i's queries are its last tokens and see no key behind their own.
    :param q_scale: with k_scale multiplies the logits, v_scale the result: float32 tensors of one
        element, or numbers.
    :param batch_offsets_q: ``[b]`` or ``[b + 1]`` int32, what lies before each request's rows of q;
        _o of out (q's by default), _k and _v of packed keys and values (v's are k's by default),
        _stats of lse. Left out, requests lie one behind the other.
    :param batch_offsets_units: "elements", from the beginning of the tensor; or "tokens", rows.
    :param lse: float32, to base 2: ``[b, max_token_per_sequence, h_q]``, of which rows behind a
        request's own are -inf in a new one and left alone in a given one; with batch_offsets_stats
        ``[rows, h_q]``, whose offsets must be those of q.
    :param out: ``[rows, h_q, d_v]``. :param o_data_type: of the result: out's, else q's.
    :param backend: None or "cubin": one implementation. :param is_cuda_graph_compatible: a hint:
        a graph holds the call where all lengths and offsets lie on the GPU.
    :returns: (out, lse), of which lse is None without return_lse.
    """
    name = "cudnn_batch_prefill_with_kv_cache"
    if backend not in (None, "cubin"):
        raise c.expect(name, "backend", "None or cubin", repr(backend))
    _bound(batch_offsets_units, name)
    units = batch_offsets_units
    out = c.output(name, q, (*q.shape[:-1], v_cache.shape[-1]), out, o_data_type, q.dtype,
                   "o_data_type")
    given = actual_seq_lens_q if actual_seq_lens_q is not None else batch_offsets_q
    if given is None:
        raise c.expect(name, "actual_seq_lens_q", "lengths, or batch_offsets_q", None)
    b = c.int32(given).shape[0] - (actual_seq_lens_q is None)
    starts = derived(_tokens, name, "batch_offsets_q", batch_offsets_q, b, q, units)
    lens_q = derived(_lengths, name, "actual_seq_lens_q", actual_seq_lens_q, starts)
    starts = derived(_packed, lens_q) if starts is None else starts
    plan = {"qo_indptr": starts, "seq_lens_q": lens_q, "causal": bool(causal), "sm_scale": scale,
            "window_left": -1, "max_sequence_kv": max_sequence_kv,
            "max_token_per_sequence": max_token_per_sequence,
            "o_indptr": derived(_tokens, name, "batch_offsets_o", batch_offsets_o, b, out, units)}
    if batch_offsets_stats is not None:
        _same_stats(name, batch_offsets_stats, b, q, units, starts)
    whole, rows = _lse(q, lens_q, max_token_per_sequence, lse, name, batch_offsets_stats,
                       return_lse)
    run = {**_scales(scale, q_scale, k_scale), "out": out, "lse": rows,
           "v_scale": None if v_scale is None else c.scale(v_scale)}
    names = {"qo_indptr": "batch_offsets_q", "o_indptr": "batch_offsets_o", "sm_scale": "scale",
             "kv_indptr": "batch_offsets_k", "v_indptr": "batch_offsets_v", "k": "k_cache",
             "v": "v_cache", "seq_lens": "actual_seq_lens_kv", "seq_lens_q": "actual_seq_lens_q"}
    if block_tables is not None or k_cache.ndim == 4:
        if batch_offsets_k is not None or batch_offsets_v is not None:
            raise c.expect(name, "batch_offsets_k", "None with pages, and batch_offsets_v",
                           "a tensor")
        cache, plan["seq_lens"] = _pages(name, q, k_cache, v_cache, block_tables,
                                         actual_seq_lens_kv)
        paged(name, q, cache, workspace_buffer, plan, run, names)
    else:
        kv = derived(_tokens, name, "batch_offsets_k", batch_offsets_k, b, k_cache, units)
        lens = derived(_lengths, name, "actual_seq_lens_kv", actual_seq_lens_kv, kv)
        plan.update(kv_indptr=derived(_packed, lens) if kv is None else kv, seq_lens=lens,
                    v_indptr=derived(_tokens, name, "batch_offsets_v", batch_offsets_v, b, v_cache,
                                     units))
        ragged(name, q, k_cache, v_cache, workspace_buffer, plan, run, names)
    if whole is not rows:
        _spread(whole, rows, starts, lens_q)
    return out, whole if return_lse else None


def _same_stats(name: str, offsets: Any, b: int, q: Tensor, units: str, starts: Tensor) -> None:
    """lse lies as q does. Offsets on a device are taken to say so."""
    rows = _tokens(name, "batch_offsets_stats", offsets, b, q, units, q.shape[1])
    if _memory.on_gpu(rows) or _memory.on_gpu(starts):
        return
    looked_at()
    if (rows[:b] != starts[:b]).any():
        raise NotImplementedError(f"{name}: batch_offsets_stats: expected rows "
                                  f"{starts[:b].tolist()}, as q has; got {rows[:b].tolist()}")
