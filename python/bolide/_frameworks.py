# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and NumPy as the binding takes them, and memory from both.

torch's tensors go to the binding as they are where torch has the DLPack exchange interface. All
others are packed into bytes here: address, device, dtype, shape, strides, current stream. That
needs no export by the framework, so fp8, bf16 and unsigned dtypes pass on every version of torch,
and NumPy arrays of ml_dtypes as well.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

from . import _dtypes
from ._library import set_grow, torch

_HEADS = [struct.Struct(f"=QQiiBBHi{2 * n}q") for n in range(9)]
PLACE = struct.Struct("=QQ")  # what such a description begins with: address and stream
_CPU, _CUDA = 1, 2

if torch is not None:
    _Tensor = torch.Tensor
    _torch_dtypes = {getattr(torch, d.name): d for d in _dtypes.BY_NAME.values()
                     if hasattr(torch, d.name)}
    _from_torch = {k: (d.code, d.bits, 1) for k, d in _torch_dtypes.items()}
    if hasattr(torch, "float4_e2m1fn_x2"):
        _from_torch[torch.float4_e2m1fn_x2] = (17, 4, 2)
    _torch_bits = {k: d.bit for k, d in _torch_dtypes.items()}
    _to_torch = {d.bit: k for k, d in _torch_dtypes.items()}
    _torch_by_name = {d.name: k for k, d in _torch_dtypes.items()}
else:
    _Tensor = ()


def is_torch(value: Any) -> bool:
    return torch is not None and isinstance(value, _Tensor)


def dispatches(value: Any) -> bool:
    """Whether a tensor is of a type that sees torch's operators itself, as fake ones do."""
    return torch is not None and isinstance(value, _Tensor) and (
        type(value).__torch_dispatch__ is not _Tensor.__torch_dispatch__)


def is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of a framework, not a number, name or None."""
    if isinstance(value, (int, float, str)):  # torch.compile knows no attributes of its numbers
        return False
    return is_torch(value) or is_numpy(value) or hasattr(value, "__dlpack__")


def current_stream(index: int) -> int:
    """The framework's current stream on a GPU, as an address."""
    return torch._C._cuda_getCurrentRawStream(index)


def stream_of(value: Any) -> int | None:
    """The current stream of the device that a tensor lies on; None on the host."""
    if is_torch(value) and value.is_cuda:
        return current_stream(value.device.index)
    return None


def unlike(t) -> str | None:
    """What makes a tensor of torch one that the library cannot read; None for all others."""
    if t.device.type not in ("cpu", "cuda"):
        return f"device: expected a CPU or CUDA tensor; got {t.device}"
    if t.layout is not torch.strided or t.is_quantized:
        return f"layout: expected strided; got {'quantized' if t.is_quantized else t.layout}"
    if torch._C._functorch.is_functorch_wrapped_tensor(t):
        return "value: expected a tensor; got one of a transform of torch.func, such as vmap"
    return None


def _pack_torch(t) -> bytes:
    code, bits, lanes = _from_torch[t.dtype]
    shape = tuple(t.shape)
    if t.is_cuda:
        index = t.device.index
        return _HEADS[len(shape)].pack(t.data_ptr(), current_stream(index), _CUDA, index, code,
                                       bits, lanes, len(shape), *shape, *t.stride())
    if t.device.type != "cpu":
        raise ValueError(unlike(t))
    return _HEADS[len(shape)].pack(t.data_ptr(), 0, _CPU, 0, code, bits, lanes, len(shape), *shape,
                                   *t.stride())


def _pack_numpy(a, written: bool) -> bytes:
    if written and not a.flags.writeable:
        raise ValueError("value: expected an array that may be written; got a read-only one")
    if not a.dtype.isnative:
        raise ValueError(f"dtype: expected the machine's order of bytes; got {a.dtype.str}")
    size = a.itemsize
    if any(s % size for s in a.strides):
        raise ValueError(f"strides: expected multiples of {size} bytes; got {a.strides}")
    d = _dtypes.of(a.dtype)
    strides = [s // size for s in a.strides]
    return _HEADS[a.ndim].pack(a.__array_interface__["data"][0], 0, _CPU, 0, d.code, d.bits, 1,
                               a.ndim, *a.shape, *strides)


def pack(value: Any, written: bool = False) -> Any:
    """A tensor as bytes; anything else as it is."""
    if is_torch(value):
        return _pack_torch(value)
    if is_numpy(value):
        return _pack_numpy(value, written)
    if isinstance(value, (list, tuple)):
        return tuple(pack(v, written) for v in value)
    return value


def empty(like: Any, shape, dtype: Any):
    """Memory of the framework and device of another tensor. dtype is any framework's, or a bit."""
    if is_torch(like):
        if dispatches(like):
            return like.new_empty(tuple(shape), dtype=torch_dtype(dtype))
        return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=like.device)
    d = _dtypes.BY_BIT[dtype] if isinstance(dtype, int) else _dtypes.of(dtype)
    numpy = sys.modules["numpy"]
    return numpy.empty(tuple(shape), dtype=numpy_dtype(d))


def as_float32(value: Any):
    """float16, bfloat16 and float64 in float32; any other tensor, or a number, as it is."""
    return _in_float32(value, ("float16", "bfloat16", "float64"))


def single(value: Any):
    """float64 in float32; the rest as it is."""
    return _in_float32(value, ("float64",))


def real(value: Any):
    """A parameter of each row in float32, whatever it came in; a number as it is."""
    if not is_tensor(value) or _dtypes.name_of(value.dtype) == "float32":
        return value
    return value.float() if is_torch(value) else value.astype("float32")


def whole(value: Any):
    """A parameter of each row in int32 where it is neither that nor int64; a number as it is."""
    if not is_tensor(value) or _dtypes.name_of(value.dtype) in ("int32", "int64"):
        return value
    return value.to(torch.int32) if is_torch(value) else value.astype("int32")


def _in_float32(value: Any, names: tuple):
    if not is_tensor(value) or _dtypes.name_of(value.dtype) not in names:
        return value
    return value.float() if is_torch(value) else value.astype("float32")


def number(value: Any):
    """A number of each row in float32, as the library takes it; any other number as it is."""
    if is_torch(value):
        return value if value.dtype == torch.float32 or not value.is_floating_point() else (
            value.float())
    if is_numpy(value) and value.dtype.kind in "fV":
        return value.astype("float32")
    return value


def narrowed(tensor: Any):
    """int64 in int32; any other tensor as it is."""
    if _dtypes.name_of(tensor.dtype) != "int64":
        return tensor
    return tensor.to(torch.int32) if is_torch(tensor) else tensor.astype("int32")


def full(like: Any, shape, dtype: Any, value):
    """The same, filled."""
    out = empty(like, shape, dtype)
    if is_torch(out):
        return out.fill_(value)
    out[...] = value
    return out


def itemsize(tensor: Any) -> int:
    """Bytes of an element."""
    return tensor.element_size() if is_torch(tensor) else tensor.itemsize


def view(tensor: Any, shape):
    """The same memory in another shape; an error where the strides do not allow it."""
    if is_torch(tensor):
        return tensor.view(shape)
    out = tensor.view()
    out.shape = shape
    return out


def numpy_dtype(d):
    """NumPy's dtype for one of ours; those that NumPy lacks come from ml_dtypes."""
    import numpy

    try:
        return numpy.dtype(d.name)
    except TypeError:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, d.name))


def torch_dtype(value: Any):
    """torch's dtype for any framework's, or for a bit. The tables that are asked first never change,
    so that torch.compile can trace them."""
    if isinstance(value, torch.dtype):
        return value
    if isinstance(value, int):
        return _to_torch[value]
    if isinstance(value, _dtypes.dtype):
        return _to_torch[value.bit]
    if isinstance(value, str) and value in _torch_by_name:
        return _torch_by_name[value]
    return _to_torch[_dtypes.of(value).bit]


def dtype_bit(value: Any) -> int:
    """The library's bit for the dtype of a tensor."""
    if is_torch(value) and value.dtype in _torch_bits:
        return _torch_bits[value.dtype]
    return _dtypes.of(value.dtype).bit


# ---- scratch of functions whose FlashInfer form has no workspace ------------------------------

_scratch: dict[tuple[int, int], list] = {}


def _grow(device: int, stream: int, size: int) -> int:
    """At least size bytes on a GPU for one stream. What was given out before stays alive, since a
    captured graph may hold its address."""
    kept = _scratch.setdefault((device, stream), [])
    if kept and kept[-1].numel() >= size:
        return kept[-1].data_ptr()
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"scratch: {size} bytes were first needed during stream capture; run the call once "
            "before capturing it")
    size = max(size, 1 << 25, 2 * (kept[-1].numel() if kept else 0))
    kept.append(torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}"))
    return kept[-1].data_ptr()


if torch is not None:
    set_grow(_grow)
