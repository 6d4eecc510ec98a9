# SPDX-License-Identifier: Apache-2.0
"""silu_and_mul with scales of its input and output."""

from __future__ import annotations

from typing import Any, Optional

from .. import _docs, _dtypes, _frameworks
from .._binding import operator

Tensor = Any

_scaled = operator("silu_and_mul_scaled", "x x_scale o_scale out")


def silu_and_mul(x: Tensor, x_scale: Optional[Tensor] = None, o_scale: Optional[Tensor] = None,
                 dtype: Any = None) -> Tensor:
    """``silu(a) * b * o_scale`` for the halves a and b of ``x * x_scale``.

    :param dtype: of the result; x's by default.
    """
    kind = x.dtype if dtype is None else _dtypes.of(dtype)
    out = _frameworks.empty(x, (*x.shape[:-1], x.shape[-1] // 2), kind)
    _scaled(x, x_scale, o_scale, out)
    return out


_docs.complete(globals())
