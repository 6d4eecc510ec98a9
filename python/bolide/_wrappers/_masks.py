# SPDX-License-Identifier: Apache-2.0
"""Masks of batches in bits: request behind request, each from a new byte, the lowest bit first."""

from __future__ import annotations

from typing import Any, List, Tuple

from .. import _dtypes, _frameworks
from .._binding import operator
from .._library import torch
from . import _memory

_pack = operator("segment_packbits", "x indptr bitorder out out_indptr")


def extents(q_lens: List[int], kv_lens: List[int]) -> Tuple[List[int], List[int]]:
    """Where each request begins, in elements of the mask and in bytes of its bits."""
    elems, starts = [0], [0]
    for q_len, kv_len in zip(q_lens, kv_lens):
        elems.append(elems[-1] + q_len * kv_len)
        starts.append(starts[-1] + (q_len * kv_len + 7) // 8)
    return elems, starts


def pack(bits: Any, elems: List[int], starts: List[int], like: Any, device: Any) -> Any:
    """The bytes of a flat mask of the extents given, on the device. Any number but 0 is seen."""
    if _dtypes.of(bits.dtype).name not in ("bool", "uint8"):
        bits = bits != 0
    packed = _frameworks.empty(like, (starts[-1],), "uint8")
    indptr = _memory.to_device(_memory.int32s(starts, like), device)
    segments = _memory.to_device(_memory.int32s(elems, like), device)
    _pack(_memory.to_device(bits, device), segments, "little", packed, indptr)
    return packed


def joined(flat: List[Any], like: Any) -> Any:
    """Flat masks behind one another, on the host."""
    if _frameworks.is_torch(like):
        return torch.cat(flat or [torch.ones(0, dtype=torch.bool)])
    import numpy

    return numpy.concatenate(flat or [numpy.ones(0, dtype=bool)])


def up_to(right: int, q_len: int, kv_lens: List[int], like: Any) -> Any:
    """The flat mask of queries that see the keys up to ``right`` behind their own, on the host."""
    if _frameworks.is_torch(like):
        return joined([torch.ones(q_len, n, dtype=torch.bool).tril(n - q_len + right).reshape(-1)
                       for n in kv_lens], like)
    import numpy

    return joined([numpy.tri(q_len, n, n - q_len + right, dtype=bool).reshape(-1)
                   for n in kv_lens], like)
