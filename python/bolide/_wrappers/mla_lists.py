# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention over lists of keys, as the indexers of DeepSeek V3.2 and V4 make them.

Everything is one call of the library's ``sparse_mla``: it reads the lists and their lengths where
they lie, so nothing is planned, copied or waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Union

from .. import _dtypes, _frameworks
from .._arguments import check_backend
from .._binding import operator
from .._library import torch
from . import _memory

Tensor = Any

SWA = 128  # entries of the sliding window in a list of DeepSeek V4

_sparse = operator(
    "sparse_mla",
    "q kv_cache kv_format indices topk_lens seq_lens qo_indptr extra_kv_cache extra_indices "
    "extra_block_tables extra_topk_lens extra_topk_lens_offset sinks bmm1_scale bmm2_scale out lse "
    "workspace")


def _wrong(name: str, argument: str, expected: Any, got: Any) -> ValueError:
    return ValueError(f"{name}: {argument}: expected {expected}; got {got}")


def _format_of(name: str, argument: str, cache: Tensor, widths: dict) -> str:
    """How a cache holds its keys: bytes of a known width, or elements."""
    if _dtypes.of(cache.dtype).name != "uint8":
        return "PLAIN"
    if cache.shape[-1] not in widths:
        raise _wrong(name, argument, f"rows of {' or '.join(map(str, widths))} bytes in uint8",
                     cache.shape[-1])
    return widths[cache.shape[-1]]


def _rows(name: str, argument: str, tensor: Any, n: int, lead: tuple, dims: int) -> Any:
    """A list for each query: ``[n, …]`` or ``[b, q_len, …]``."""
    if tensor is None or (tensor.ndim == dims and tensor.shape[0] == n):
        return tensor
    if tensor.ndim != dims + 1 or tuple(tensor.shape[:2]) != lead:
        raise _wrong(name, argument, f"[{n}{', k' if dims == 2 else ''}], a list for each query",
                     list(tensor.shape))
    return tensor.reshape((n, *tensor.shape[2:]))


def _bytes(buffer: Tensor) -> Tensor:
    if _frameworks.is_torch(buffer):
        return buffer.reshape(-1).view(torch.uint8)
    return buffer.reshape(-1).view("uint8")


def sparse_call(name: str, q: Tensor, query: Tensor, kv_cache: Tensor, workspace: Tensor,
                kv_lora_rank: int, qk_rope_head_dim: int, indices: Tensor, seq_lens: Any,
                top_k: int, top_k_lens: Any, cum_seq_lens_q: Any, out: Tensor, lse: Any,
                bmm1: Any, bmm2: Any, sinks: Any) -> None:
    """Attention of ``q [n, h, d]``, query without its shape, over one list for each token."""
    cache = kv_cache[:, 0] if kv_cache.ndim == 4 and kv_cache.shape[1] == 1 else kv_cache
    if cache.ndim != 3:
        raise _wrong(name, "kv_cache", "[pages, page_size, d] or [pages, 1, page_size, d]",
                     list(kv_cache.shape))
    if q.shape[-1] != kv_lora_rank + qk_rope_head_dim:
        raise _wrong(name, "query", f"{kv_lora_rank + qk_rope_head_dim} elements in the last "
                     "dimension, kv_lora_rank + qk_rope_head_dim", q.shape[-1])
    n = q.shape[0]
    lead = tuple(query.shape[:2]) if query.ndim == 4 else (n, 1)
    lists = _rows(name, "block_tables", indices, n, lead, 2)
    if lists.shape[1] != top_k:
        raise _wrong(name, "sparse_mla_top_k", f"{lists.shape[1]}, as block_tables has", top_k)
    lens = _rows(name, "sparse_mla_top_k_lens", top_k_lens, n, lead, 1)
    requests = lead[0] if cum_seq_lens_q is None else cum_seq_lens_q.shape[0] - 1
    if seq_lens is not None and (seq_lens.ndim == 2 or seq_lens.shape[0] != requests):
        if lens is not None:
            raise _wrong(name, "seq_lens", f"[{requests}] beside sparse_mla_top_k_lens",
                         list(seq_lens.shape))
        lens, seq_lens = _rows(name, "seq_lens", seq_lens, n, lead, 1), None
    _sparse(q, cache, _format_of(name, "kv_cache", cache, {656: "FP8_656"}), lists, lens, seq_lens,
            None if seq_lens is None else cum_seq_lens_q, None, None, None, None, 0, sinks, bmm1,
            bmm2, out, lse, _bytes(workspace))


# ---- metadata of a decode ------------------------------------------------------------------------


@dataclass(frozen=True)
class DecodeMetadata:
    """What a sparse decode was prepared for."""

    shape: tuple
    sparse_mla_top_k: int

    def check(self, name: str, query: Tensor, top_k: int) -> None:
        """Refuses a call of other shapes."""
        found = (tuple(query.shape), top_k)
        if found != (self.shape, self.sparse_mla_top_k):
            raise _wrong(name, "metadata",
                         f"one made for query {list(query.shape)} and sparse_mla_top_k {top_k}",
                         f"query {list(self.shape)} and {self.sparse_mla_top_k}")


def get_batch_decode_metadata_mla(query: Tensor, seq_lens: Tensor,
                                  sparse_mla_top_k: int) -> DecodeMetadata:
    """What :func:`trtllm_batch_decode_with_kv_cache_mla` takes as ``metadata``.

    A call reads its lists when it executes, so there is nothing to prepare: the metadata holds the
    shapes, and a call of others is refused.

    :param query: ``[b, q_len, h, d]``. :param seq_lens: ``[b]`` or ``[b, 1]`` int32.
    :param sparse_mla_top_k: entries of each list.
    """
    name = "get_batch_decode_metadata_mla"
    if query.ndim != 4:
        raise _wrong(name, "query", "[b, q_len, h, d]", list(query.shape))
    if sparse_mla_top_k <= 0:
        raise _wrong(name, "sparse_mla_top_k", "at least 1", sparse_mla_top_k)
    if tuple(seq_lens.shape) not in ((query.shape[0],), (query.shape[0], 1)):
        raise _wrong(name, "seq_lens", [query.shape[0]], list(seq_lens.shape))
    return DecodeMetadata(tuple(query.shape), sparse_mla_top_k)


# ---- DeepSeek V4 ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class DSV4HCAMetadata:
    """The lists of a decode of DeepSeek V4 with its compressed keys by pages.

    ``hca_swa_indices [n, 128]`` rows of the flattened window cache, ``hca_compressed_block_tables
    [n, m]`` pages of the compressed cache, ``hca_seq_lens [b]`` slots behind a request,
    ``swa_topk_lens [n]`` entries of the window that count; all int32.
    """

    hca_swa_indices: Any
    hca_compressed_block_tables: Any
    hca_seq_lens: Any
    swa_topk_lens: Any
    hca_is_causal: bool = True


def _cache_of(name: str, argument: str, cache: Tensor, kv_layout: str) -> Tensor:
    """``[pages, page_size, d]``, from the layouts that FlashInfer takes."""
    if kv_layout not in ("HND", "NHD"):
        raise _wrong(name, "kv_layout", "HND or NHD", repr(kv_layout))
    axis = 1 if kv_layout == "HND" else 2
    if cache.ndim == 3:
        return cache
    if cache.ndim != 4 or cache.shape[axis] != 1:
        raise _wrong(name, argument, f"3 dimensions, or 4 with size 1 on axis {axis}",
                     list(cache.shape))
    return cache[:, 0] if axis == 1 else cache[:, :, 0]


def _need(name: str, form: str, **tensors: Any) -> None:
    for argument, value in tensors.items():
        if value is None:
            raise _wrong(name, argument, f"a tensor {form}", None)


def _none(name: str, form: str, **tensors: Any) -> None:
    for argument, value in tensors.items():
        if value is not None:
            raise _wrong(name, argument, f"None {form}", "one")


def trtllm_batch_decode_sparse_mla_dsv4(
    query: Tensor, swa_kv_cache: Tensor, workspace_buffer: Tensor,
    sparse_indices: Optional[Tensor] = None, compressed_kv_cache: Optional[Tensor] = None,
    sparse_topk_lens: Optional[Tensor] = None, seq_lens: Optional[Tensor] = None,
    out: Optional[Tensor] = None, bmm1_scale: Union[float, Tensor] = 1.0,
    bmm2_scale: Union[float, Tensor] = 1.0, sinks: Optional[Tensor] = None, kv_layout: str = "HND",
    cum_seq_lens_q: Optional[Tensor] = None, max_q_len: Optional[int] = None,
    enable_pdl: Optional[bool] = None, swa_topk_lens: Optional[Tensor] = None,
    extra_sparse_indices: Optional[Tensor] = None,
    extra_sparse_topk_lens: Optional[Tensor] = None, backend: str = "auto",
    hca_swa_indices: Optional[Tensor] = None,
    hca_compressed_block_tables: Optional[Tensor] = None, hca_seq_lens: Optional[Tensor] = None,
    hca_is_causal: bool = True, hca_use_persistent: bool = False,
    hca_sparse_indices_format: Optional[str] = None,
) -> Tensor:
    """Sparse attention of DeepSeek V4: each query token over a sliding window and over compressed
    keys, which lie in two caches and join one softmax.

    The lists come in one of three forms, each with every backend's name:

    - joined: the first 128 columns of sparse_indices are rows of swa_kv_cache, the others of
      compressed_kv_cache; sparse_topk_lens counts both, seq_lens cuts the window at each query's
      position. With ``hca_sparse_indices_format="compressed-page-aligned"`` likewise.
    - apart: sparse_indices with swa_topk_lens for the window, extra_sparse_indices with
      extra_sparse_topk_lens for the compressed keys, which may be absent.
    - by pages: hca_swa_indices with swa_topk_lens, hca_compressed_block_tables, hca_seq_lens, and
      sparse_topk_lens, which counts the 128 of the window as well.

    :param query: ``[b, q_len, h, 512]``, or ``[n, h, 512]``. float16, bfloat16, float32 or fp8.
    :param swa_kv_cache: ``[pages, page_size, 512]``, HND ``[pages, 1, page_size, 512]``, NHD
        ``[pages, page_size, 1, 512]``; or uint8 with 584 in place of 512, whose pages hold rows of
        448 float8_e4m3fn and 64 bfloat16 and behind these, for each row, 7 scales of 64 values as
        powers of two and an unused byte. :param compressed_kv_cache: likewise.
    :param workspace_buffer: of any dtype, need not be zero.
    :param sparse_indices: ``[n, k]`` int32; a negative entry, anywhere, is none. :param
        sparse_topk_lens: ``[n]`` int32, as are the other lens. :param seq_lens: ``[b]`` int32 keys
        of each request.
    :param bmm1_scale: multiplies the logits, bmm2_scale the result: numbers, or float32 tensors of
        one element. :param sinks: ``[h]`` float32, natural logits.
    :param cum_seq_lens_q: ``[b + 1]`` int32, first query of each request. :param max_q_len: of a
        request; nothing depends on it.
    :param hca_seq_lens: ``[b]`` int32 slots behind a request, the 128 of the window first: no query
        counts one behind them, nor with hca_is_causal behind its own position among them.
    :param enable_pdl: a hint, as is hca_use_persistent.
    :returns: out, of query's shape; bfloat16 for fp8 by default, else query's dtype.
    """
    name = "trtllm_batch_decode_sparse_mla_dsv4"
    check_backend(name, backend, ("auto", "trtllm-gen", "cute-dsl", "sparse"))
    if query.ndim not in (3, 4):
        raise _wrong(name, "query", "[b, q_len, h, 512] or [n, h, 512]", list(query.shape))
    if hca_sparse_indices_format not in (None, "compressed-page-aligned"):
        raise _wrong(name, "hca_sparse_indices_format", "None or compressed-page-aligned",
                     repr(hca_sparse_indices_format))
    swa = _cache_of(name, "swa_kv_cache", swa_kv_cache, kv_layout)
    extra = None
    if compressed_kv_cache is not None:
        extra = _cache_of(name, "compressed_kv_cache", compressed_kv_cache, kv_layout)
    n = query.shape[0] * (query.shape[1] if query.ndim == 4 else 1)
    lead = tuple(query.shape[:2]) if query.ndim == 4 else (n, 1)
    rows = {key: _rows(name, key, value, n, lead, dims) for key, value, dims in (
        ("sparse_indices", sparse_indices, 2), ("sparse_topk_lens", sparse_topk_lens, 1),
        ("swa_topk_lens", swa_topk_lens, 1), ("extra_sparse_indices", extra_sparse_indices, 2),
        ("extra_sparse_topk_lens", extra_sparse_topk_lens, 1),
        ("hca_swa_indices", hca_swa_indices, 2),
        ("hca_compressed_block_tables", hca_compressed_block_tables, 2))}
    if hca_swa_indices is not None or hca_compressed_block_tables is not None:
        lists = _by_pages(name, rows, extra, seq_lens, cum_seq_lens_q, hca_seq_lens, hca_is_causal)
    elif swa_topk_lens is not None:
        lists = _apart(name, rows, extra, seq_lens, hca_seq_lens)
    else:
        lists = _joined(name, rows, extra, seq_lens, hca_seq_lens)
    if cum_seq_lens_q is None and max_q_len is not None and max_q_len != lead[1]:
        raise _wrong(name, "max_q_len", lead[1], max_q_len)
    return _run_dsv4(name, query, n, swa, lists, seq_lens, cum_seq_lens_q, sinks, bmm1_scale,
                     bmm2_scale, out, workspace_buffer)


def _cut(lens: Tensor, slots: Tensor, causal: bool) -> Tensor:
    """Lens ``[n]`` of queries that count no slot of their request behind a bound."""
    q_len = lens.shape[0] // slots.shape[0] if slots.shape[0] else 1
    if _frameworks.is_torch(lens):
        last = torch.arange(1 - q_len, 1, dtype=torch.int32, device=lens.device)
        bound = slots[:, None] + (last if causal else 0 * last)
        return torch.minimum(lens, bound.reshape(-1))
    import numpy

    last = numpy.arange(1 - q_len, 1, dtype=numpy.int32)
    return numpy.minimum(lens, (slots[:, None] + (last if causal else 0 * last)).reshape(-1))


def _by_pages(name: str, rows: dict, extra: Any, seq_lens: Any, indptr: Any, slots: Any,
              causal: bool) -> tuple:
    _need(name, "with hca_swa_indices and hca_compressed_block_tables",
          hca_swa_indices=rows["hca_swa_indices"],
          hca_compressed_block_tables=rows["hca_compressed_block_tables"], hca_seq_lens=slots,
          swa_topk_lens=rows["swa_topk_lens"], sparse_topk_lens=rows["sparse_topk_lens"],
          compressed_kv_cache=extra)
    _none(name, "with hca_swa_indices", sparse_indices=rows["sparse_indices"], seq_lens=seq_lens,
          cum_seq_lens_q=indptr, extra_sparse_indices=rows["extra_sparse_indices"],
          extra_sparse_topk_lens=rows["extra_sparse_topk_lens"])
    n = rows["swa_topk_lens"].shape[0]
    if slots.ndim != 1 or (n % slots.shape[0] if slots.shape[0] else n):
        raise _wrong(name, "hca_seq_lens", f"[b] with b a divisor of {n}", list(slots.shape))
    return (rows["hca_swa_indices"], _cut(rows["swa_topk_lens"], slots, causal), extra, None,
            rows["hca_compressed_block_tables"], _cut(rows["sparse_topk_lens"], slots, causal),
            SWA)


def _apart(name: str, rows: dict, extra: Any, seq_lens: Any, slots: Any) -> tuple:
    _need(name, "with swa_topk_lens", sparse_indices=rows["sparse_indices"])
    _none(name, "without hca_swa_indices", hca_seq_lens=slots)
    _none(name, "with swa_topk_lens, which counts the window alone",
          sparse_topk_lens=rows["sparse_topk_lens"])
    indices, lens = rows["extra_sparse_indices"], rows["extra_sparse_topk_lens"]
    if (indices is None) != (lens is None):
        raise _wrong(name, "extra_sparse_topk_lens", "a tensor with extra_sparse_indices, and none "
                     "without", None if lens is None else "one")
    if indices is not None:
        _need(name, "with extra_sparse_indices", compressed_kv_cache=extra)
    return (rows["sparse_indices"], rows["swa_topk_lens"], None if indices is None else extra,
            indices, None, lens, 0)


def _joined(name: str, rows: dict, extra: Any, seq_lens: Any, slots: Any) -> tuple:
    lists, lens = rows["sparse_indices"], rows["sparse_topk_lens"]
    form = "without swa_topk_lens and hca_swa_indices"
    _need(name, form, sparse_indices=lists, compressed_kv_cache=extra, sparse_topk_lens=lens,
          seq_lens=seq_lens)
    _none(name, form, hca_seq_lens=slots, extra_sparse_indices=rows["extra_sparse_indices"],
          extra_sparse_topk_lens=rows["extra_sparse_topk_lens"])
    if lists.shape[1] < SWA:
        raise _wrong(name, "sparse_indices", f"at least {SWA} columns", lists.shape[1])
    return lists[:, :SWA], None, extra, lists[:, SWA:], None, lens, SWA


def _run_dsv4(name: str, query: Tensor, n: int, swa: Tensor, lists: tuple, seq_lens: Any,
              indptr: Any, sinks: Any, bmm1: Any, bmm2: Any, out: Any, workspace: Tensor) -> Tensor:
    indices, lens, extra, extra_indices, tables, extra_lens, offset = lists
    kind = _format_of(name, "swa_kv_cache", swa, {584: "FP8_584"})
    if out is None:
        dtype = query.dtype if _frameworks.itemsize(query) > 1 else "bfloat16"
        out = _frameworks.empty(query, (*query.shape[:-1], 512), dtype)
    heads = query.shape[-2]
    if tuple(out.shape) not in ((*query.shape[:-1], 512), (n, heads, 512)):
        raise _wrong(name, "out", [*query.shape[:-1], 512], list(out.shape))
    _sparse(query.reshape((n, heads, query.shape[-1])), swa, kind, indices, lens, seq_lens,
            None if seq_lens is None else indptr, extra, extra_indices, tables, extra_lens, offset,
            sinks, bmm1, bmm2, _frameworks.view(out, (n, heads, 512)), None, _bytes(workspace))
    return out


def cute_dsl_hca_decode(
    query: Tensor, window_kv_cache: Tensor, compressed_kv_cache: Tensor, workspace_buffer: Tensor,
    window_indices: Tensor, compressed_block_tables: Tensor, hca_seq_lens: Tensor,
    sparse_topk_lens: Tensor, window_valid_lens: Tensor, softmax_scale: float,
    output_scale: float = 1.0, sinks: Optional[Tensor] = None, out: Optional[Tensor] = None,
    is_causal: bool = True, is_persistent: bool = False,
) -> Tensor:
    """:func:`trtllm_batch_decode_sparse_mla_dsv4` with lists by pages, under other names.

    :param query: ``[b, q_len, h, 512]``. :param window_kv_cache: ``[rows, 512]``.
    :param compressed_kv_cache: ``[pages, page_size, 512]``.
    :param workspace_buffer: of any dtype, need not be zero.
    :param window_indices: ``[b * q_len, 128]`` int32 rows of window_kv_cache.
    :param compressed_block_tables: ``[b * q_len, m]`` int32 pages of compressed_kv_cache.
    :param hca_seq_lens: ``[b]`` int32 slots behind a request, the 128 of the window first.
    :param sparse_topk_lens: ``[b * q_len]`` int32, of both lists, the 128 of the window included.
    :param window_valid_lens: ``[b * q_len]`` int32 entries of the window that count.
    :param softmax_scale: of the logits, output_scale of the result.
    :param sinks: ``[h]`` float32, natural logits.
    :param is_causal: no query counts a slot behind its own position among hca_seq_lens.
    :param is_persistent: a hint.
    :returns: out, of query's shape; bfloat16 for fp8 by default, else query's dtype.
    """
    name = "cute_dsl_hca_decode"
    if query.ndim != 4:
        raise _wrong(name, "query", "[b, q_len, h, 512]", list(query.shape))
    if window_kv_cache.ndim != 2:
        raise _wrong(name, "window_kv_cache", "[rows, 512]", list(window_kv_cache.shape))
    if compressed_kv_cache.ndim != 3:
        raise _wrong(name, "compressed_kv_cache", "[pages, page_size, 512]",
                     list(compressed_kv_cache.shape))
    lead = tuple(query.shape[:2])
    n = lead[0] * lead[1]
    given = {"hca_swa_indices": ("window_indices", window_indices, 2),
             "hca_compressed_block_tables": (
                 "compressed_block_tables", compressed_block_tables, 2),
             "sparse_topk_lens": ("sparse_topk_lens", sparse_topk_lens, 1),
             "swa_topk_lens": ("window_valid_lens", window_valid_lens, 1)}
    rows = {key: _rows(name, argument, value, n, lead, dims)
            for key, (argument, value, dims) in given.items()}
    rows.update(sparse_indices=None, extra_sparse_indices=None, extra_sparse_topk_lens=None)
    lists = _by_pages(name, rows, compressed_kv_cache, None, None, hca_seq_lens, is_causal)
    return _run_dsv4(name, query, n, window_kv_cache[None], lists, None, None, sinks,
                     softmax_scale, output_scale, out, workspace_buffer)


def convert_compressed_page_aligned_sparse_indices_to_hca_metadata(
    sparse_indices: Tensor, sparse_topk_lens: Tensor, seq_lens: Tensor, swa_kv_cache: Tensor,
    compressed_kv_cache: Tensor, *, q_len: int, kv_layout: str = "HND",
) -> DSV4HCAMetadata:
    """Joined lists as lists by pages. It looks at the values, so it waits for the GPU.

    :param sparse_indices: ``[b * q_len, k]`` int32, 128 rows of the window first; behind them the
        rows of whole pages of the compressed cache, one after the other: anything else is refused.
    :param sparse_topk_lens: ``[b * q_len]`` int32, the window's 128 included. :param seq_lens:
        ``[b]`` int32.
    :param q_len: query tokens of each request.
    """
    import numpy

    name = "convert_compressed_page_aligned_sparse_indices_to_hca_metadata"
    swa = _cache_of(name, "swa_kv_cache", swa_kv_cache, kv_layout)
    size = _cache_of(name, "compressed_kv_cache", compressed_kv_cache, kv_layout).shape[1]
    lists, lens, total = (numpy.asarray(x) for x in
                          _memory.to_host(sparse_indices, sparse_topk_lens, seq_lens))
    n, b = lists.shape[0], total.shape[0]
    if lists.ndim != 2 or lists.shape[1] < SWA or lens.shape != (n,) or n != b * q_len:
        raise _wrong(name, "sparse_indices", f"[{b * q_len}, at least {SWA}] and as many "
                     "sparse_topk_lens", list(lists.shape))
    if (lens < SWA).any() or (lens > lists.shape[1]).any():
        raise _wrong(name, "sparse_topk_lens", f"{SWA} to {lists.shape[1]}", lens.tolist())
    step = numpy.arange(q_len)[None]
    seen = numpy.clip(total[:, None] - q_len + step + 1, 0, SWA).reshape(-1)
    window = lists[:, :SWA]
    counts = numpy.arange(SWA)[None] < seen[:, None]
    if (counts & ((window < 0) | (window >= swa.shape[0] * swa.shape[1]))).any():
        raise _wrong(name, "sparse_indices", "rows of swa_kv_cache where they count", "others")
    rest = lists[:, SWA:]
    place = numpy.arange(rest.shape[1])
    counts = place[None] < (lens - SWA)[:, None]
    pages = -(-rest.shape[1] // size)
    firsts = rest[:, ::size] if rest.shape[1] else numpy.zeros((n, 0), lists.dtype)
    tables = firsts // size
    if (counts & (rest != tables[:, place // size] * size + place % size)).any():
        raise _wrong(name, "sparse_indices", "whole pages of compressed_kv_cache where they count",
                     "others")
    tables = numpy.where(firsts < 0, 0, tables).reshape(n, pages)
    slots = (lens.reshape(b, q_len) + (q_len - 1 - step)).max(1, initial=0)

    def made(values: Any) -> Tensor:
        return _like(numpy.ascontiguousarray(values, dtype=numpy.int32), sparse_indices)

    return DSV4HCAMetadata(made(numpy.where(window < 0, 0, window)), made(tables), made(slots),
                           made(seen))


def _like(array: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device) if _frameworks.is_torch(like) else array
