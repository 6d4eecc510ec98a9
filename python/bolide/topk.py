# SPDX-License-Identifier: Apache-2.0
"""The k largest elements of each row, exact, and their forms for sparse attention.

Results are deterministic, so ``deterministic`` changes nothing; ``tie_break`` says which of equal
elements at the threshold are taken. ``dsa_graph_safe``, ``pdl`` and ``load_balance`` are hints.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Optional, Tuple

from . import _docs, _dtypes, _missing
from ._binding import operator

Tensor = Any


class TopKTieBreak(IntEnum):
    """Which of equal elements are taken: any, those of the lowest or of the highest indices."""

    NONE = 0
    SMALL = 1
    LARGE = 2


_INT64 = _dtypes.BY_NAME["int64"].bit
_top_k = operator("top_k", "input k sorted deterministic tie_break out_dtype values indices")
_pages = operator("top_k_page_table_transform",
                  "input src_page_table lengths k row_to_batch deterministic tie_break row_starts "
                  "page_table_row_starts page_size out out_raw_indices")
_ragged = operator("top_k_ragged_transform",
                   "input offsets lengths k deterministic tie_break row_starts out")
_clusters = operator("topk_clusters_exact", "logits top_k out_dtype indices values")
_clusters_pages = operator("topk_clusters_page_table_transform",
                           "logits seq_lens src_page_table top_k out")
_clusters_ragged = operator("topk_clusters_ragged_transform", "logits seq_lens offsets top_k out")


def top_k(input: Tensor, k: int, sorted: bool = False, deterministic: bool = False,
          tie_break: TopKTieBreak = TopKTieBreak.NONE,
          dsa_graph_safe: bool = False) -> Tuple[Tensor, Tensor]:
    """The k largest elements of each row of ``input [n, v]``.

    :param sorted: in descending order; otherwise in any.
    :returns: values of input's dtype and indices, int64, both ``[n, k]``.
    """
    return _top_k(input, k, sorted, deterministic, int(tie_break), _INT64, None, None)


topk = top_k


def top_k_page_table_transform(
    input: Tensor, src_page_table: Tensor, lengths: Tensor, k: int,
    row_to_batch: Optional[Tensor] = None, deterministic: bool = False,
    tie_break: TopKTieBreak = TopKTieBreak.NONE, dsa_graph_safe: bool = False,
    row_starts: Optional[Tensor] = None, page_table_row_starts: Optional[Tensor] = None,
    *, page_size: int = 1, out: Optional[Tensor] = None, out_raw_indices: Optional[Tensor] = None,
) -> Tensor:
    """The k largest of the first ``lengths[i]`` elements of each row, mapped through a page table.

    A row of at most k elements gives all of them in order. Unused places are -1.

    :param src_page_table: ``[b, pages]`` int32.
    :param lengths: ``[n]`` int32.
    :param row_to_batch: ``[n]`` int32: the table's row for each input row.
    :param row_starts: ``[n]`` int32: where each row begins.
    :param page_size: tokens of a page.
    :param out_raw_indices: ``[n, k]`` int32: also gets the indices before the mapping.
    :returns: ``[n, k]`` int32.
    """
    made = _pages(input, src_page_table, lengths, k, row_to_batch, deterministic, int(tie_break),
                  row_starts, page_table_row_starts, page_size, out, out_raw_indices)
    return made if out is None else out


def top_k_ragged_transform(input: Tensor, offsets: Tensor, lengths: Tensor, k: int,
                           deterministic: bool = False,
                           tie_break: TopKTieBreak = TopKTieBreak.NONE,
                           dsa_graph_safe: bool = False,
                           row_starts: Optional[Tensor] = None) -> Tensor:
    """The k largest of the first ``lengths[i]`` elements of each row, plus ``offsets[i]``;
    ``[n, k]`` int32, unused places -1."""
    return _ragged(input, offsets, lengths, k, deterministic, int(tie_break), row_starts, None)


def topk_clusters_exact(logits: Tensor, top_k: int, output_values: bool = False,
                        out_dtype: Any = _dtypes.BY_NAME["int32"], pdl: bool = False):
    """The top_k largest of each row: indices of out_dtype (int32 or int64), and with output_values
    the values, too."""
    return _clusters(logits, top_k, _dtypes.bit_of(out_dtype), None, output_values)


def topk_clusters_page_table_transform(logits: Tensor, seq_lens: Tensor, src_page_table: Tensor,
                                       top_k: int, pdl: bool = False) -> Tensor:
    """:func:`top_k_page_table_transform` with one row of the table for each input row."""
    return _clusters_pages(logits, seq_lens, src_page_table, top_k, None)


def topk_clusters_ragged_transform(logits: Tensor, seq_lens: Tensor, offsets: Tensor, top_k: int,
                                   pdl: bool = False) -> Tensor:
    """:func:`top_k_ragged_transform` in the order of the clusters interface."""
    return _clusters_ragged(logits, seq_lens, offsets, top_k, None)


def can_implement_filtered_topk() -> bool:
    """Whether the exact filtered algorithm is there: always."""
    return True


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
