# SPDX-License-Identifier: Apache-2.0
"""The k largest elements of rows of different lengths."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from .. import _docs, _missing
from .._binding import operator

Tensor = Any

_varlen = operator("top_k_varlen",
                   "logits seq_lens top_k pre_idx compress_ratio next_n backend out_indices "
                   "out_values")


def top_k_varlen(
    logits: Tensor, seq_lens: Tensor, top_k: int, pre_idx: Optional[Tensor] = None,
    compress_ratio: int = 1, next_n: int = 1, return_values: bool = False,
    out_indices: Optional[Tensor] = None, out_values: Optional[Tensor] = None,
    backend: str = "auto", load_balance: bool = True, workspace: Optional[Tensor] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """The top_k largest of each row up to its request's length.

    :param seq_lens: ``[n / next_n]`` int32.
    :param next_n: rows of a request.
    :param compress_ratio: tokens that one element stands for.
    :param workspace: not needed; a given one is left alone.
    :returns: indices ``[n, top_k]`` int32, -1 behind the last; and the values, or None without
        return_values.
    """
    values = out_values if out_values is not None else return_values
    made = _varlen(logits, seq_lens, top_k, pre_idx, compress_ratio, next_n, backend, out_indices,
                   values)
    made = () if made is None else made if isinstance(made, tuple) else (made,)
    made = list(made)
    indices = out_indices if out_indices is not None else made.pop(0)
    if not return_values:
        return indices, None
    return indices, out_values if out_values is not None else made.pop(0)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
