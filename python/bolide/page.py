# SPDX-License-Identifier: Apache-2.0
"""Paged caches of keys and values: lengths, positions, appending.

A page table is (indptr, indices, last_page_len), all int32: request i owns the pages
``indices[indptr[i]:indptr[i + 1]]``, whose last one holds ``last_page_len[i]`` tokens. A cache is
a pair of 4-D tensors, ``[page, token, head, dim]`` (NHD) or ``[page, head, token, dim]`` (HND), or
one 5-D tensor with keys and values on its second axis. Strides are honoured.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from . import _docs, _frameworks, _missing
from ._arguments import split_paged
from ._binding import operator
from .jit.batch import gen_page_module  # noqa: F401

Tensor = Any

_seq_lens = operator("get_seq_lens", "kv_indptr kv_last_page_len page_size out")
_positions = operator("get_batch_indices_positions",
                      "append_indptr seq_lens batch_indices positions")
_append = operator("append_paged_kv_cache",
                   "append_key append_value batch_indices positions k_cache v_cache kv_indices "
                   "kv_indptr kv_last_page_len kv_layout")
_append_mla = operator("append_paged_mla_kv_cache",
                       "batch_indices positions append_ckv append_kpe ckv_cache kpe_cache "
                       "kv_indices kv_indptr kv_last_page_len")


def get_seq_lens(kv_indptr: Tensor, kv_last_page_len: Tensor, page_size: int) -> Tensor:
    """Tokens of each request, ``[b]`` int32: ``(pages - 1) * page_size + last_page_len``, and 0
    without pages. Of arguments in int64 copies are made."""
    return _seq_lens(*map(_frameworks.narrowed, (kv_indptr, kv_last_page_len)), page_size, None)


def get_batch_indices_positions(append_indptr: Tensor, seq_lens: Tensor, nnz: int,
                                batch_indices: Optional[Tensor] = None,
                                positions: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """Request and position of each of nnz appended tokens, the last ones of their requests.

    :param append_indptr: ``[b + 1]`` int32: request i appends rows ``append_indptr[i]`` to
        ``append_indptr[i + 1]``.
    :param seq_lens: ``[b]`` int32, or int64, of which a copy is made; lengths behind the append.
    :returns: batch_indices and positions, ``[nnz]`` int32; what no request owns is -1 and 0.
    """
    if batch_indices is None:
        batch_indices = _frameworks.empty(append_indptr, (nnz,), "int32")
    if positions is None:
        positions = _frameworks.empty(append_indptr, (nnz,), "int32")
    _positions(*map(_frameworks.narrowed, (append_indptr, seq_lens)), batch_indices, positions)
    return batch_indices, positions


def append_paged_kv_cache(append_key: Tensor, append_value: Tensor, batch_indices: Tensor,
                          positions: Tensor, paged_kv_cache: Union[Tensor, Tuple[Tensor, Tensor]],
                          kv_indices: Tensor, kv_indptr: Tensor, kv_last_page_len: Tensor,
                          kv_layout: str = "NHD") -> None:
    """Writes new keys and values into a paged cache, in place.

    :param append_key: ``[nnz, h_kv, d]``, of the cache's dtype or converted to it.
    :param batch_indices: ``[nnz]`` int32; a negative one skips its token.
    :param positions: ``[nnz]`` int32, from :func:`get_batch_indices_positions`. Of indices in int64
        copies are made.
    """
    k, v = split_paged(paged_kv_cache, kv_layout)
    rows, at, *table = map(_frameworks.narrowed, (batch_indices, positions, kv_indices, kv_indptr,
                                                  kv_last_page_len))
    _append(append_key, append_value, rows, at, k, v, *table, kv_layout)


def append_paged_mla_kv_cache(append_ckv: Optional[Tensor], append_kpe: Optional[Tensor],
                              batch_indices: Tensor, positions: Tensor,
                              ckv_cache: Optional[Tensor], kpe_cache: Optional[Tensor],
                              kv_indices: Tensor, kv_indptr: Tensor,
                              kv_last_page_len: Tensor) -> None:
    """Writes compressed keys and rotary parts into the paged caches of MLA, in place.

    :param append_ckv: ``[nnz, 512]`` for ``ckv_cache [page, token, 512]``; both may be None.
    :param append_kpe: ``[nnz, 64]`` for ``kpe_cache [page, token, 64]``; both may be None.
    """
    rows, at, *table = map(_frameworks.narrowed, (batch_indices, positions, kv_indices, kv_indptr,
                                                  kv_last_page_len))
    _append_mla(rows, at, append_ckv, append_kpe, ckv_cache, kpe_cache, *table)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
