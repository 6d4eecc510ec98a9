# SPDX-License-Identifier: Apache-2.0
"""Normalisation by rows: RMS norm, layer norm, and their fused and quantised forms.

Sums run in float32 and there is one rounding, at the end. Tensors are float16, bfloat16 or float32,
on the GPU or the CPU; rows may be padded (a stride of the first dimensions), columns are contiguous.
``enable_pdl`` is a hint that changes no result.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ._binding import operator

Tensor = Any

_rmsnorm = operator("rmsnorm", "input weight out eps")
_gemma_rmsnorm = operator("gemma_rmsnorm", "input weight out eps")


def rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6, out: Optional[Tensor] = None,
            enable_pdl: Optional[bool] = None) -> Tensor:
    """``out = input / sqrt(mean(input ** 2) + eps) * weight``, row by row.

    :param input: ``[n, d]``, or ``[n, heads, d]`` for a norm of each head.
    :param weight: ``[d]``, of input's dtype.
    :param out: like input; it may be input itself. Allocated if it is not given.
    :returns: out.
    :raises ValueError: a shape, dtype or device does not fit.
    """
    made = _rmsnorm(input, weight, out, eps)
    return made if out is None else out
