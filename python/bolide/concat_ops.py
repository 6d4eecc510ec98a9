# SPDX-License-Identifier: Apache-2.0
"""Putting the parts of MLA's keys together."""

from __future__ import annotations

from typing import Any

from . import _docs, _missing
from ._binding import operator

Tensor = Any

_concat = operator("concat_mla_k", "k_nope k_rope k")


def concat_mla_k(k: Tensor, k_nope: Tensor, k_rope: Tensor) -> None:
    """``k[..., :d_nope] = k_nope`` and ``k[..., d_nope:] = k_rope``, which all heads share.

    :param k: ``[n, h, d_nope + d_rope]``; written.
    :param k_nope: ``[n, h, d_nope]``.
    :param k_rope: ``[n, 1, d_rope]``.
    """
    _concat(k_nope, k_rope, k)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
