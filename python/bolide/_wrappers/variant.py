# SPDX-License-Identifier: Apache-2.0
"""Custom attention, as the wrappers' ``jit_args`` ask for it.

FlashInfer's list is ``(uri, dtype_q, dtype_kv, dtype_o, idtype, head_dim_qk, head_dim_vo, names and
dtypes of more tensors, names and dtypes of more numbers, variant_name, variant_decl)``; those tensors
and numbers follow the cache in ``run``, in that order. Here variant_decl is a dictionary of texts of
C, which compile for the GPU and for the CPU::

    {"logits": "return x + slope[head] * (key - position);", "mask": "return key % step == 0;"}

Its keys are ``logits mask query key value output`` and ``no_softmax``; ``bolide_variant`` in
``<bolide/attention.h>`` says what each text is and which names it sees. FlashInfer's own form, a
struct in CUDA C++ as a string, is refused.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from .. import _dtypes, _frameworks

_DTYPES = {"float": "float32", "int": "int32", "int32_t": "int32"}
_TEXTS = ("logits", "mask", "query", "key", "value", "output")
_LENGTH = 13


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class _Param(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("number", ctypes.c_double),
                ("tensor", ctypes.POINTER(_Tensor))]


class _Struct(ctypes.Structure):
    _fields_ = [("size", ctypes.c_int64)] + [(t, ctypes.c_char_p) for t in _TEXTS] + [
        ("no_softmax", ctypes.c_int64), ("params", ctypes.POINTER(_Param)),
        ("param_count", ctypes.c_int64)]


def _describe(tensor: Any) -> tuple[_Tensor, Any]:
    """A tensor of torch or NumPy as the library takes it, and what has to stay alive."""
    gpu = _frameworks.is_torch(tensor) and tensor.is_cuda
    d = _dtypes.of(tensor.dtype)
    size = tensor.ndim
    shape = (ctypes.c_int64 * max(size, 1))(*tensor.shape)
    if _frameworks.is_torch(tensor):
        steps, data = tensor.stride(), tensor.data_ptr()
    else:
        steps = [s // tensor.itemsize for s in tensor.strides]
        data = tensor.__array_interface__["data"][0]
    strides = (ctypes.c_int64 * max(size, 1))(*steps)
    where = (2, tensor.device.index) if gpu else (1, 0)
    return _Tensor(data, *where, size, d.code, d.bits, 1, shape, strides, 0), (tensor, shape, strides)


class Variant:
    """The texts of a wrapper's ``jit_args``, and the parameters of a run."""

    def __init__(self, name: str, jit_args: Any):
        if len(jit_args) != _LENGTH:
            raise ValueError(f"{name}: jit_args: expected {_LENGTH} of them; got {len(jit_args)}")
        self._name = name
        kinds, sizes = jit_args[1:5], jit_args[5:7]
        tensors, tensor_dtypes, numbers, number_dtypes, _, texts = jit_args[7:]
        if isinstance(texts, str):
            raise NotImplementedError(
                f"{name}: jit_args: variant_decl: a struct in CUDA C++ is not supported; a "
                "dictionary of texts of C is")
        unknown = sorted(set(texts) - {*_TEXTS, "no_softmax"})
        if unknown:
            raise ValueError(f"{name}: jit_args: variant_decl: expected keys of "
                             f"{', '.join(_TEXTS)} and no_softmax; got {unknown[0]}")
        for given, allowed in ((tensor_dtypes, _DTYPES), (number_dtypes, ("float", "double"))):
            for kind in given:
                if kind not in allowed:
                    raise NotImplementedError(f"{name}: jit_args: dtypes: expected "
                                              f"{', '.join(allowed)}; got {kind}")
        if len(tensors) != len(tensor_dtypes) or len(numbers) != len(number_dtypes):
            raise ValueError(f"{name}: jit_args: expected a dtype for each name")
        self._made_for = {
            **{f"{x}_data_type": _dtypes.of(k).bit for x, k in zip(("q", "kv", "o"), kinds)},
            "head_dim": sizes[0], "head_dim_qk": sizes[0], "head_dim_vo": sizes[1]}
        self._kinds = tuple(_DTYPES[k] for k in tensor_dtypes)
        self._tensors, self._numbers = tuple(tensors), tuple(numbers)
        count = len(self._tensors) + len(self._numbers)
        self._params = (_Param * max(count, 1))()
        for param, title in zip(self._params, self._tensors + self._numbers):
            param.name = title.encode()
        self._alive: list = []
        self._struct = _Struct(
            ctypes.sizeof(_Struct),
            *(None if texts.get(t) is None else texts[t].encode() for t in _TEXTS),
            bool(texts.get("no_softmax")), self._params, count)
        self.address = ctypes.addressof(self._struct)

    def check(self, arguments: dict[str, Any]) -> None:
        """A plan has to be of the dtypes and head sizes in jit_args."""
        for key, value in self._made_for.items():
            if key in arguments and arguments[key] != value:
                show = (lambda x: _dtypes.BY_BIT[x].name) if key.endswith("data_type") else str
                raise ValueError(f"{self._name}.plan: {key}: expected {show(value)}, as in jit_args; "
                                 f"got {show(arguments[key])}")

    def fill(self, values: tuple) -> None:
        """The tensors and numbers of a run."""
        names = self._tensors + self._numbers
        if len(values) != len(names):
            raise ValueError(f"{self._name}.run: expected {len(names)} more positional arguments, "
                             f"{', '.join(names) or 'none'}; got {len(values)}")
        alive = []
        for param, value, i in zip(self._params, values, range(len(names))):
            if i >= len(self._tensors):
                param.number = float(value)
                continue
            if _dtypes.name_of(value.dtype) != self._kinds[i]:
                raise ValueError(f"{self._name}.run: {names[i]}: dtype: expected {self._kinds[i]}; "
                                 f"got {_dtypes.name_of(value.dtype)}")
            tensor, kept = _describe(value)
            alive += [tensor, kept]
            param.tensor = ctypes.pointer(tensor)
        self._alive = alive


def made(name: str, jit_args: Any) -> Optional[Variant]:
    """The variant of a wrapper, if it was given one."""
    return None if jit_args is None else Variant(name, jit_args)
