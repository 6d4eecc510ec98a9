# SPDX-License-Identifier: Apache-2.0
"""Custom attention, as the wrappers' ``jit_args`` ask for it.

FlashInfer's list is ``(uri, dtype_q, dtype_kv, dtype_o, idtype, head_dim_qk, head_dim_vo, names and
dtypes of more tensors, names and dtypes of more numbers, variant_name, variant_decl)``; those tensors
and numbers follow the cache in ``run``, in that order. Here variant_decl is a dictionary of texts of
C, which compile for the GPU and for the CPU::

    {"logits": "return x + slope[head] * (key - position);", "mask": "return key % step == 0;"}

Its keys are ``logits mask query key value output`` and ``no_softmax``; ``bolide_variant`` in
``<bolide/attention.h>`` says what each text is and which names it sees. FlashInfer's own form, a
struct in CUDA C++ as a string, compiles for the GPU alone (:mod:`bolide._wrappers.cpp_variant`).
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from .. import _dtypes, _frameworks
from . import cpp_variant

_DTYPES = {"float": "float32", "int": "int32", "int32_t": "int32"}
_TEXTS = ("logits", "mask", "query", "key", "value", "output")
_LENGTH = 13

# Tensors that FlashInfer takes from the wrapper where a run does not bring them.
_OF_THE_WRAPPER = {
    "maybe_custom_mask": "_custom_mask_buf", "maybe_mask_indptr": "_mask_indptr_buf",
    "maybe_prefix_len_ptr": "_prefix_len_ptr",
    "maybe_token_pos_in_items_ptr": "_token_pos_in_items_ptr",
    "maybe_max_item_len_ptr": "_max_item_len_ptr", "maybe_alibi_slopes": "_alibi_slopes",
}
# Switches of FlashInfer's compiler that change nothing in a kernel with a struct of its own.
_SWITCHES = ("use_sliding_window", "use_logits_soft_cap", "use_fp16_qk_reduction")


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
        ("param_count", ctypes.c_int64), ("declarations", ctypes.c_char_p)]


def _describe(tensor: Any, as_bytes: bool) -> tuple[_Tensor, Any]:
    """A tensor of torch or NumPy as the library takes it, and what has to stay alive. C++ has the
    type in its own struct, so there the library is told of bytes."""
    gpu = _frameworks.is_torch(tensor) and tensor.is_cuda
    d = _dtypes.BY_NAME["uint8"] if as_bytes else _dtypes.of(tensor.dtype)
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

    sinks: Any = None
    sm_scale: Optional[float] = None  # what the logits are scaled by in the place of the plan's

    def __init__(self, name: str, jit_args: Any, gpu: bool):
        if len(jit_args) != _LENGTH:
            raise ValueError(f"{name}: jit_args: expected {_LENGTH} of them; got {len(jit_args)}")
        self._name = name
        kinds, sizes = jit_args[1:5], jit_args[5:7]
        tensors, tensor_dtypes, numbers, number_dtypes, variant_name, texts = jit_args[7:]
        if len(tensors) != len(tensor_dtypes) or len(numbers) != len(number_dtypes):
            raise ValueError(f"{name}: jit_args: expected a dtype for each name")
        self.is_cpp = isinstance(texts, str)
        if self.is_cpp:
            self.sm_scale = 1.0  # the struct applies the scale itself
        known = (cpp_variant.TENSORS, cpp_variant.NUMBERS) if self.is_cpp else (
            _DTYPES, ("float", "double"))
        for given, allowed in ((tensor_dtypes, known[0]), (number_dtypes, known[1])):
            for kind in given:
                if kind not in allowed:
                    raise NotImplementedError(f"{name}: jit_args: dtypes: expected "
                                              f"{', '.join(allowed)}; got {kind}")
        if self.is_cpp:
            if not gpu:
                raise NotImplementedError(
                    f"{name}: jit_args: variant_decl: a struct in CUDA C++ is for the GPU; on the "
                    "CPU a dictionary of texts of C is taken")
            texts = cpp_variant.texts(name, variant_name, texts, list(zip(tensor_dtypes, tensors)),
                                      list(zip(number_dtypes, numbers)))
        unknown = sorted(set(texts) - {*_TEXTS, "no_softmax", *(["declarations"] * self.is_cpp)})
        if unknown:
            raise ValueError(f"{name}: jit_args: variant_decl: expected keys of "
                             f"{', '.join(_TEXTS)} and no_softmax; got {unknown[0]}")
        self._made_for = {
            **{f"{x}_data_type": _dtypes.of(k).bit for x, k in zip(("q", "kv", "o"), kinds)},
            "head_dim": sizes[0], "head_dim_qk": sizes[0], "head_dim_vo": sizes[1]}
        self._kinds = tuple(known[0][k] for k in tensor_dtypes)
        self._tensors, self._numbers = tuple(tensors), tuple(numbers)
        count = len(self._tensors) + len(self._numbers)
        self._params = (_Param * max(count, 1))()
        for i, title in enumerate(self._tensors + self._numbers):
            # The struct reads them by number, so its names need not be names of C that are free.
            self._params[i].name = (f"param{i}" if self.is_cpp else title).encode()
        self._alive: list = []
        self._struct = _Struct(
            ctypes.sizeof(_Struct),
            *(None if texts.get(t) is None else texts[t].encode() for t in _TEXTS),
            bool(texts.get("no_softmax")), self._params, count,
            texts["declarations"].encode() if self.is_cpp else None)
        self.address = ctypes.addressof(self._struct)

    def __reduce__(self):
        raise TypeError(f"{self._name}: a wrapper with jit_args cannot be copied; make another")

    def check(self, arguments: dict[str, Any]) -> None:
        """A plan has to be of the dtypes and head sizes in jit_args."""
        for key, value in self._made_for.items():
            if key in arguments and arguments[key] != value:
                show = (lambda x: _dtypes.BY_BIT[x].name) if key.endswith("data_type") else str
                raise ValueError(f"{self._name}: {key}: expected {show(value)}, as in jit_args; "
                                 f"got {show(arguments[key])}")

    def _brought(self, values: tuple, wrapper: Any) -> tuple:
        """The values of a run, with those of the wrapper in their places."""
        names = self._tensors + self._numbers
        known = sum(n in _OF_THE_WRAPPER for n in self._tensors)
        if self.is_cpp and known and len(values) == len(names) - known:
            rest = iter(values)
            return tuple(getattr(wrapper, _OF_THE_WRAPPER[n], None)
                         if n in _OF_THE_WRAPPER else next(rest) for n in names)
        if len(values) != len(names):
            raise ValueError(f"{self._name}.run: expected {len(names)} more positional arguments, "
                             f"{', '.join(names) or 'none'}; got {len(values)}")
        return values

    def fill(self, values: tuple, wrapper: Any) -> None:
        """The tensors and numbers of a run."""
        names = self._tensors + self._numbers
        alive = []
        for i, (param, value) in enumerate(zip(self._params, self._brought(values, wrapper))):
            if i >= len(self._tensors):
                param.number = float(value)
                continue
            if value is None and names[i] in _OF_THE_WRAPPER:
                param.tensor = None
                continue
            if _dtypes.name_of(value.dtype) != self._kinds[i]:
                raise ValueError(f"{self._name}.run: {names[i]}: dtype: expected {self._kinds[i]}; "
                                 f"got {_dtypes.name_of(value.dtype)}")
            tensor, kept = _describe(value, self.is_cpp)
            alive += [tensor, kept]
            param.tensor = ctypes.pointer(tensor)
        self._alive = alive


class _AttentionSink:
    """What FlashInfer's text of the variant AttentionSink stands for here."""

    def __repr__(self) -> str:
        return "ATTENTION_SINK"


ATTENTION_SINK = _AttentionSink()


class Sinks(Variant):
    """``jit_args`` that name ATTENTION_SINK: every run brings the sinks ``[h_q]`` and sm_scale by
    position, and the library's own sinks take them."""

    def __init__(self, name: str, jit_args: Any):
        tensors, numbers = list(jit_args[7]), list(jit_args[9])
        if tensors != ["sink"] or numbers != ["sm_scale"]:
            raise ValueError(f"{name}: jit_args: expected the tensor sink and the number sm_scale "
                             f"with ATTENTION_SINK; got {tensors} and {numbers}")
        super().__init__(name, (*jit_args[:12], {}), gpu=False)
        self.address = None  # the kernels are the ordinary ones

    def fill(self, values: tuple, wrapper: Any) -> None:
        """The sinks and the scale of a run."""
        if len(values) != 2:
            raise ValueError(f"{self._name}.run: expected 2 more positional arguments, sink, "
                             f"sm_scale; got {len(values)}")
        self.sinks, self.sm_scale = values[0], float(values[1])


def check_switches(name: str, jit_kwargs: Any) -> None:
    """``jit_kwargs``: what FlashInfer's compiler may be told besides ``jit_args``."""
    for key, value in (jit_kwargs or {}).items():
        if key in _SWITCHES or (key in ("pos_encoding_mode", "fp8_enabled") and not value):
            continue
        raise NotImplementedError(f"{name}: jit_kwargs: {key}: expected one of "
                                  f"{', '.join(_SWITCHES)}, or pos_encoding_mode 0; got {value!r}")


def made(name: str, jit_args: Any, gpu: bool) -> Optional[Variant]:
    """The variant of a wrapper, if it was given one."""
    if jit_args is None:
        return None
    if len(jit_args) == _LENGTH and jit_args[12] is ATTENTION_SINK:
        return Sinks(name, jit_args)
    return Variant(name, jit_args, gpu)
