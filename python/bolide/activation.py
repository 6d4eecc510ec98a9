# SPDX-License-Identifier: Apache-2.0
"""Gated activations: ``f(input[..., :d]) * input[..., d:]``, in float32 with one rounding."""

from __future__ import annotations

from typing import Any, Optional

from . import _docs, _frameworks, _missing
from ._binding import operator
from .jit.modules import gen_act_and_mul_module  # noqa: F401

Tensor = Any

_silu = operator("silu_and_mul", "input out")
_gelu = operator("gelu_and_mul", "input out")
_gelu_tanh = operator("gelu_tanh_and_mul", "input out")


def _gated(op, input, out):
    if input.ndim in (2, 3):
        made = op(input, out)
        return made if out is None else out
    # Other ranks are rows all the same; a view where the strides allow it.
    if out is None:
        out = _frameworks.empty(input, (*input.shape[:-1], input.shape[-1] // 2), input.dtype)
    op(input.reshape(-1, input.shape[-1]), _frameworks.view(out, (-1, out.shape[-1])))
    return out


def silu_and_mul(input: Tensor, out: Optional[Tensor] = None,
                 enable_pdl: Optional[bool] = None) -> Tensor:
    """``silu(input[..., :d]) * input[..., d:]`` with ``silu(x) = x / (1 + exp(-x))``.

    :param input: ``[..., 2 * d]``, float16, bfloat16 or float32.
    :param out: ``[..., d]`` of input's dtype; allocated if it is not given.
    :returns: out.
    """
    return _gated(_silu, input, out)


def gelu_and_mul(input: Tensor, out: Optional[Tensor] = None,
                 enable_pdl: Optional[bool] = None) -> Tensor:
    """:func:`silu_and_mul` with the exact GELU, ``x / 2 * (1 + erf(x / sqrt(2)))``."""
    return _gated(_gelu, input, out)


def gelu_tanh_and_mul(input: Tensor, out: Optional[Tensor] = None,
                      enable_pdl: Optional[bool] = None) -> Tensor:
    """:func:`silu_and_mul` with the tanh form of GELU,
    ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``."""
    return _gated(_gelu_tanh, input, out)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
