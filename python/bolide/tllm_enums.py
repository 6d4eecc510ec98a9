# SPDX-License-Identifier: Apache-2.0
"""Enumerations of FlashInfer's interface, with its values. Their repr can be evaluated."""

from __future__ import annotations

from enum import IntEnum
from typing import Union

from . import _docs, _missing


class _Readable(IntEnum):
    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class ActivationType(_Readable):
    """Activation of a mixture-of-experts layer."""

    Gelu = 0
    Relu = 1
    Silu = 2
    Swiglu = 3
    Geglu = 4
    SwigluBias = 5
    Relu2 = 6
    SwigluStep = 7
    GegluTanh = 8
    Identity = 9
    Situ = 10
    InvalidType = 11

    @property
    def is_gated(self) -> bool:
        return is_gated_activation(self)


_GATED = {ActivationType.Swiglu, ActivationType.Geglu, ActivationType.SwigluBias,
          ActivationType.SwigluStep, ActivationType.GegluTanh, ActivationType.Situ}


class RoutingMethodType(_Readable):
    """How tokens are given to experts."""

    Default = 0
    Renormalize = 1
    DeepSeekV3 = 2
    Llama4 = 3
    RenormalizeNaive = 4
    TopK = 5
    SigmoidRenorm = 6
    MiniMax2 = 7
    Sigmoid = 8
    TopKSigmoid = 9
    Unspecified = 10


class RoutingInputMode(_Readable):
    """What a mixture-of-experts call gets in place of router logits."""

    FromLogits = 0
    PackedPrecomputed = 1
    UnpackedPrecomputed = 2


class WeightLayout(_Readable):
    """Order of a weight matrix."""

    MajorK = 0
    MajorMn = 1
    BlockMajorK = 2


class Fp8QuantizationType(_Readable):
    """Scales of fp8 weights and activations."""

    NoneFp8 = 0
    DeepSeekFp8 = 1
    MxFp8 = 2


class GatedActType(_Readable):
    """Gated activations under their older names."""

    SwiGlu = 0
    GeGlu = 1


class WeightLayout(_Readable):
    """How the weights of a mixture of experts lie."""

    MajorK = 0
    MajorMn = 1
    BlockMajorK = 2


class SfLayout(_Readable):
    """Order of block scales in memory."""

    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2


def _code(block: int, signed: int, integer: int, bits: int, uid: int) -> int:
    return uid | bits << 8 | integer << 16 | signed << 20 | block << 24


class DtypeTrtllmGen(_Readable):
    """Element types by code: number, bits, whether integer, signed, with block scales."""

    Bfloat16 = _code(0, 1, 0, 16, 0)
    Bool = _code(0, 0, 1, 1, 1)
    E2m1 = _code(1, 1, 0, 4, 2)
    E2m3 = _code(1, 1, 0, 6, 3)
    E3m2 = _code(1, 1, 0, 6, 4)
    E4m3 = _code(0, 1, 0, 8, 5)
    E5m2 = _code(0, 1, 0, 8, 6)
    Fp16 = _code(0, 1, 0, 16, 7)
    Fp32 = _code(0, 1, 0, 32, 8)
    Int8 = _code(0, 1, 1, 8, 9)
    Int32 = _code(0, 1, 1, 32, 10)
    Int64 = _code(0, 1, 1, 64, 11)
    MxE2m1 = _code(1, 1, 0, 4, 12)
    MxE4m3 = _code(1, 1, 0, 8, 13)
    MxInt4 = _code(1, 1, 1, 4, 14)
    UE8m0 = _code(0, 0, 0, 8, 15)
    UInt8 = _code(0, 0, 1, 8, 16)
    UInt16 = _code(0, 0, 1, 16, 17)
    UInt32 = _code(0, 0, 1, 32, 18)
    UInt64 = _code(0, 0, 1, 64, 19)
    UInt128 = _code(0, 0, 1, 128, 20)
    Void = _code(0, 1, 0, 0, 21)


DEFAULT_SWIGLU_ALPHA = 1.0
DEFAULT_SWIGLU_BETA = 0.0
DEFAULT_SWIGLU_LIMIT = 3.4028234663852886e38  # the largest float32
DEFAULT_SITU_BETA = 4.0
DEFAULT_SITU_LINEAR_BETA = 25.0


def is_gated_activation(activation_type: Union[int, ActivationType]) -> bool:
    """Whether the activation multiplies one half of its input by a function of the other."""
    return ActivationType(activation_type) in _GATED


def normalize_activation_type(activation_type: Union[int, ActivationType]) -> ActivationType:
    """The member for a member or its value; ValueError for anything else."""
    return ActivationType(activation_type)


def trtllm_gen_dtype_has_scale(dtype: DtypeTrtllmGen) -> bool:
    """Whether the element type comes with block scales."""
    return dtype in (DtypeTrtllmGen.E2m1, DtypeTrtllmGen.MxE2m1, DtypeTrtllmGen.MxE4m3,
                     DtypeTrtllmGen.MxInt4)


_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
