# SPDX-License-Identifier: Apache-2.0
"""Dtypes without a framework: objects that compare equal to torch's and NumPy's of the same name.

They are the defaults of FlashInfer's signatures, where FlashInfer itself has torch's, so that the
package does not need torch to be imported.
"""

from __future__ import annotations

from typing import Any

# name: bit of the library, code and bits of DLPack, name in torch, name in NumPy or ml_dtypes
_TABLE = {
    "float64": (1 << 0, 2, 64),
    "float32": (1 << 1, 2, 32),
    "float16": (1 << 2, 2, 16),
    "bfloat16": (1 << 3, 4, 16),
    "float8_e4m3fn": (1 << 4, 10, 8),
    "float8_e5m2": (1 << 5, 12, 8),
    "float8_e8m0fnu": (1 << 6, 14, 8),
    "float4_e2m1fn": (1 << 7, 17, 4),
    "bool": (1 << 8, 6, 8),
    "uint8": (1 << 9, 1, 8),
    "int8": (1 << 10, 0, 8),
    "uint16": (1 << 11, 1, 16),
    "int16": (1 << 12, 0, 16),
    "uint32": (1 << 13, 1, 32),
    "int32": (1 << 14, 0, 32),
    "uint64": (1 << 15, 1, 64),
    "int64": (1 << 16, 0, 64),
}


class dtype:
    """One dtype; ``bolide.float16 == torch.float16`` and ``== numpy.dtype("float16")``."""

    __slots__ = ("name", "bit", "code", "bits")

    def __init__(self, name: str):
        self.name = name
        self.bit, self.code, self.bits = _TABLE[name]

    @property
    def itemsize(self) -> int:
        return max(self.bits // 8, 1)

    def __tvm_ffi_int__(self) -> int:
        return self.bit

    def __eq__(self, other: Any) -> bool:
        try:
            return self.name == name_of(other)
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"bolide.{self.name}"


BY_NAME = {name: dtype(name) for name in _TABLE}
BY_BIT = {d.bit: d for d in BY_NAME.values()}
_ALIASES = {
    "half": "float16", "float": "float32", "double": "float64", "fp16": "float16",
    "bf16": "bfloat16", "fp32": "float32", "long": "int64", "int": "int32",
    "float4_e2m1fn_x2": "float4_e2m1fn",
}
# Names once found: of torch's dtypes and words, which torch.compile traces, and of all others, of which
# releases of torch refuse NumPy's as keys of a dictionary that they trace.
_cache: dict[Any, str] = {}
_others: dict[Any, str] = {}


def name_of(value: Any) -> str:
    """The name of any framework's dtype; TypeError if it is none that the library has."""
    if isinstance(value, dtype):
        return value.name
    try:
        return _cache[value]
    except (KeyError, TypeError):
        pass
    other = isinstance(value, type) or getattr(value, "newbyteorder", None) is not None
    if other and value in _others:
        return _others[value]
    text = value if isinstance(value, str) else getattr(value, "name", None) or str(value)
    if isinstance(value, type):
        text = value.__name__
    text = text.rsplit(".", 1)[-1]
    text = _ALIASES.get(text, text)
    if text not in BY_NAME:
        raise TypeError(f"no dtype of this library: {value!r}")
    try:
        (_others if other else _cache)[value] = text
    except TypeError:
        pass
    return text


def of(value: Any) -> dtype:
    """Our dtype object for any framework's."""
    return BY_NAME[name_of(value)]


def bit_of(value: Any) -> int | None:
    """The library's bit for a dtype argument; None stays None."""
    return None if value is None else of(value).bit
