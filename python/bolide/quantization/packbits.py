# SPDX-License-Identifier: Apache-2.0
"""Packing of bits."""

from __future__ import annotations

from typing import Any, Tuple

from .. import _docs, _dtypes, _frameworks, _missing
from .._binding import operator

Tensor = Any

_pack = operator("packbits", "x bitorder out")
_segments = operator("segment_packbits", "x indptr bitorder out out_indptr")


def _flags(x: Tensor) -> Tensor:
    """Elements of a byte, as the library reads them."""
    return x if _dtypes.of(x.dtype).name in ("bool", "uint8") else x != 0


def packbits(x: Tensor, bitorder: str = "big") -> Tensor:
    """Eight elements to a byte; an element other than 0 is a 1.

    :param x: ``[n]`` of any dtype.
    :param bitorder: "big" has the first element in the highest bit.
    :returns: ``[ceil(n / 8)]`` uint8.
    """
    return _pack(_flags(x), bitorder, None)


def segment_packbits(x: Tensor, indptr: Tensor, bitorder: str = "big") -> Tuple[Tensor, Tensor]:
    """:func:`packbits` of each segment ``x[indptr[i]:indptr[i + 1]]``, from a new byte each.

    The size of the result depends on indptr's values, so an indptr on the GPU is read back and the
    call waits for it.

    :returns: the bytes and their own indptr, ``[b + 1]`` of indptr's dtype.
    """
    lengths = (indptr[1:] - indptr[:-1] + 7) // 8
    size = int(lengths.sum()) if lengths.shape[0] else 0
    out = _frameworks.empty(x, (size,), "uint8")
    out_indptr = _frameworks.empty(indptr, indptr.shape, indptr.dtype)
    _segments(_flags(x), indptr, bitorder, out, out_indptr)
    return out, out_indptr


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
