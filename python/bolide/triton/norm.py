# SPDX-License-Identifier: Apache-2.0
"""RMS norm with scales of its input and output."""

from __future__ import annotations

from typing import Any, Optional

from .. import _docs
from .._binding import operator

Tensor = Any

_norm = operator("rms_norm", "x weight out eps in_scale out_scale")
_add = operator("rms_norm_add_residual", "x residual weight x_out eps x_in_scale x_out_scale")


def rms_norm(x: Tensor, weight: Tensor, out: Tensor, eps: float, in_scale: Optional[Tensor] = None,
             out_scale: Optional[Tensor] = None) -> None:
    """``out = rmsnorm(x * in_scale, weight) * out_scale``; out may be fp8.

    :param in_scale: a number or a float32 tensor of one element; likewise out_scale.
    """
    _norm(x, weight, out, eps, in_scale, out_scale)


def rms_norm_add_residual(x: Tensor, residual: Tensor, weight: Tensor, eps: float,
                          x_out: Optional[Tensor] = None, x_in_scale: Optional[Tensor] = None,
                          x_out_scale: Optional[Tensor] = None) -> None:
    """``residual += x * x_in_scale`` in place, then
    ``x_out = rmsnorm(residual, weight) * x_out_scale``; x_out is x itself if it is not given."""
    _add(x, residual, weight, x if x_out is None else x_out, eps, x_in_scale, x_out_scale)


_docs.complete(globals())
