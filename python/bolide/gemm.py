# SPDX-License-Identifier: Apache-2.0
"""Matrix products of 16-bit and 32-bit operands.

The second operand is ``[k, n]`` by its strides, usually column-major (``w.T`` of a weight
``[n, k]``). Sums run in float32. Backends are names of implementations with the same contract.
"""

from __future__ import annotations

from typing import Any, Optional

from . import _docs, _dtypes, _missing
from ._arguments import check_backend, transposed, with_backends
from ._binding import operator

Tensor = Any

_mm = operator("mm_bf16", "a b bias out_dtype out")
_bmm = operator("bmm_bf16", "A B out_dtype out")
_MM = ("cudnn", "cutlass", "tgv", "cublaslt", "tinygemm", "cutile", "cute-dsl", "auto")
_BMM = ("cutlass", "cudnn", "cutile", "tgv", "auto")


@with_backends(*_MM)
def mm_bf16(a: Tensor, b: Tensor, bias: Optional[Tensor] = None, pdl: bool = False,
            out: Optional[Tensor] = None, out_dtype: Any = _dtypes.BY_NAME["bfloat16"],
            backend: str = "cudnn") -> Tensor:
    """``a @ b + bias``.

    :param a: ``[m, k]`` bfloat16 or float16.
    :param b: ``[k, n]`` of a's dtype, any strides.
    :param bias: ``[n]``.
    :param out_dtype: bfloat16, float16 or float32; that of out if it is given
        must be the same.
    :returns: ``[m, n]``.
    """
    check_backend("mm_bf16", backend, _MM)
    made = _mm(a, b, bias, _dtypes.bit_of(out_dtype), out)
    return made if out is None else out


@with_backends(*_BMM)
def bmm_bf16(A: Tensor, B: Tensor, out: Optional[Tensor] = None,
             out_dtype: Any = _dtypes.BY_NAME["bfloat16"], backend: str = "cudnn") -> Tensor:
    """``A @ B`` for each of a batch: ``[b, m, k]`` and ``[b, k, n]`` give ``[b, m, n]``."""
    check_backend("bmm_bf16", backend, _BMM)
    made = _bmm(A, B, _dtypes.bit_of(out_dtype), out)
    return made if out is None else out


def tinygemm_bf16(input: Tensor, weight: Tensor, out: Tensor, bias: Optional[Tensor] = None,
                  use_pdl: bool = False) -> None:
    """``out = input @ weight.T + bias`` for few rows, ``weight [n, k]``."""
    _mm(input, transposed(weight), bias, _dtypes.bit_of(out.dtype), out)


def tgv_gemm_sm100(a: Tensor, b: Tensor, bias: Tensor, pdl: bool = False,
                   out: Optional[Tensor] = None) -> Tensor:
    """``a @ b + bias`` in a's dtype, for few rows."""
    made = _mm(a, b, bias, _dtypes.bit_of(a.dtype), out)
    return made if out is None else out


def _router(name, mat_a, mat_b, out, k, n):
    if mat_b.shape[0] != k or mat_b.shape[1] != n or not 1 <= mat_a.shape[0] <= 16:
        raise ValueError(f"{name}: shape: expected [1 to 16, {k}] and [{k}, {n}]; got "
                         f"{list(mat_a.shape)} and {list(mat_b.shape)}")
    _mm(mat_a, mat_b, None, _dtypes.bit_of(out.dtype), out)


def mm_M1_16_K6144_N256(mat_a: Tensor, mat_b: Tensor, out: Tensor,
                        launch_with_pdl: bool = True) -> None:
    """The router's product of up to 16 tokens: ``[m, 6144] @ [6144, 256]`` into out."""
    _router("mm_M1_16_K6144_N256", mat_a, mat_b, out, 6144, 256)


def mm_M1_16_K7168_N128(mat_a: Tensor, mat_b: Tensor, out: Tensor,
                        launch_with_pdl: bool = True) -> None:
    """The router's product of up to 16 tokens: ``[m, 7168] @ [7168, 128]`` into out."""
    _router("mm_M1_16_K7168_N128", mat_a, mat_b, out, 7168, 128)


def mm_M1_16_K7168_N256(mat_a: Tensor, mat_b: Tensor, out: Tensor,
                        launch_with_pdl: bool = True) -> None:
    """The router's product of up to 16 tokens: ``[m, 7168] @ [7168, 256]`` into out."""
    _router("mm_M1_16_K7168_N256", mat_a, mat_b, out, 7168, 256)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
