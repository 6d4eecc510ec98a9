# SPDX-License-Identifier: Apache-2.0
"""Copies between host and device that plans need, for torch and NumPy alike.

Lengths on a GPU come back together, with one copy and one wait. Lengths on the host are copied,
too, so that a caller may write over his arrays after a plan.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from .. import _dtypes, _frameworks
from .._binding import compiling
from .._library import BusyError, torch


def device_of(buffer: Any) -> Any:
    """The device of a buffer; "cpu" for NumPy."""
    return buffer.device if _frameworks.is_torch(buffer) else "cpu"


def on_gpu(tensor: Any) -> bool:
    return _frameworks.is_torch(tensor) and tensor.is_cuda


def _copy(tensor: Any) -> Any:
    if tensor is None:
        return None
    return tensor.clone() if _frameworks.is_torch(tensor) else tensor.copy()


def to_host(*tensors: Any) -> list:
    """Copies on the host, None for None."""
    away = [t for t in tensors if on_gpu(t)]
    for t in tensors:
        if t is not None and not _frameworks.is_tensor(t):
            raise ValueError(f"plan: expected tensors as lengths and offsets; got {type(t).__name__}")
    if not away:
        return [_copy(t) for t in tensors]
    if len(away) == 1 or any(t.dtype != away[0].dtype for t in away):
        return [t.cpu() if on_gpu(t) else _copy(t) for t in tensors]
    parts = torch.cat([t.reshape(-1) for t in away]).cpu().split([t.numel() for t in away])
    back = iter(zip(away, parts))
    return [next(back)[1].reshape(t.shape) if on_gpu(t) else _copy(t) for t in tensors]


def to_device(tensor: Any, device: Any) -> Any:
    """The tensor on a device; itself if it is there."""
    if tensor is None or not _frameworks.is_torch(tensor) or tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=True)


def page_ids(name: str, tensor: Any) -> Any:
    """Page ids that runs read where they lie: a copy where they do not lie in a row; ValueError,
    already at the plan, where they are not int32."""
    if tensor is None:
        return None
    if not _frameworks.is_tensor(tensor):
        raise ValueError(f"{name}: expected a tensor; got {type(tensor).__name__}")
    kind = _dtypes.name_of(tensor.dtype)
    if kind != "int32":
        raise ValueError(f"{name}: dtype: expected int32; got {kind}")
    if _frameworks.is_torch(tensor):
        return tensor.contiguous()
    return tensor if tensor.flags.c_contiguous else tensor.copy()


def _followed(tensor: Any) -> Any:
    """The tensor, or a copy of it if torch does not count what is written to it: one that was made
    in its inference mode."""
    if not _frameworks.is_torch(tensor) or not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


class OnDevice:
    """An attribute for an index array that no run reads: a copy on the wrapper's device is made
    when somebody looks at it. He may write to it: see :meth:`Planned._follow_buffers`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._public, self._name = name, name + "_kept"

    def __get__(self, wrapper: Any, owner: Any = None) -> Any:
        if wrapper is None:
            return self
        found = _followed(to_device(wrapper.__dict__.get(self._name), wrapper.device))
        wrapper.__dict__[self._name] = found
        wrapper._lend(self._public, found)
        return found

    def __set__(self, wrapper: Any, value: Any) -> None:
        wrapper.__dict__[self._name] = value


def address_of(tensor: Any) -> int:
    """Where a tensor begins."""
    if _frameworks.is_torch(tensor):
        return tensor.data_ptr()
    return tensor.__array_interface__["data"][0]


def is_dense(tensor: Any) -> bool:
    """Whether a tensor's elements lie in a row."""
    if _frameworks.is_torch(tensor):
        return tensor.is_contiguous()
    return tensor.flags.c_contiguous


def same_place(a: Any, b: Any) -> bool:
    """Whether two tensors begin at the same address."""
    return _frameworks.is_torch(a) == _frameworks.is_torch(b) and distance(a, b) == 0


def distance(a: Any, b: Any) -> int:
    """Bytes from the beginning of a tensor to that of another."""
    if _frameworks.is_torch(a):
        return b.data_ptr() - a.data_ptr()
    return b.__array_interface__["data"][0] - a.__array_interface__["data"][0]


def write(buffer: Any, tensor: Any) -> None:
    """Copies a tensor to the beginning of a buffer, on the current stream."""
    n = tensor.shape[0]
    if n == 0 or (buffer.shape[0] >= n and same_place(buffer, tensor)):
        return
    if _frameworks.is_torch(buffer):
        buffer[:n].copy_(tensor, non_blocking=True)
    else:
        buffer[:n] = tensor


def int32s(values: Any, like: Any) -> Any:
    """A list of integers as an int32 tensor on the host, of the framework of another."""
    if _frameworks.is_torch(like):
        return torch.tensor(values, dtype=torch.int32)
    import numpy

    return numpy.array(values, dtype=numpy.int32)


_counted: dict[tuple[int, int, Any], Any] = {}


def counted(n: int, like: Any, step: int = 1) -> Any:
    """0, step, 2 * step, … (n of them) in int32, where another tensor lies. Those of torch are kept,
    and nobody writes to them."""
    if not _frameworks.is_torch(like):
        import numpy

        return numpy.arange(n, dtype=numpy.int32) * numpy.int32(step)
    if compiling():
        return torch.arange(n, dtype=torch.int32, device=like.device) * step
    key = (n, step, like.device)
    found = _counted.get(key)
    if found is None:
        found = torch.arange(n, dtype=torch.int32, device=like.device) * step
        if not capturing(like.device):
            if len(_counted) >= 1024:
                _counted.clear()
            if like.is_cuda:
                torch.cuda.current_stream(like.device).synchronize()  # for other streams, too
            _counted[key] = found
    return found


def is_counted(tensor: Any) -> bool:
    """Whether a tensor is one of those that are kept."""
    return any(tensor is t for t in _counted.values())


_cache_buf: dict[tuple[str, Any], Any] = {}


def _ceil_pow2(x: int) -> int:
    return 1 << max(x - 1, 0).bit_length()


def _get_range_buf(seq_len: int, device: Any) -> Any:
    """0, 1, 2, … in int32, out of a cache that engines look into. Its keys are FlashInfer's."""
    key = (f"range_{_ceil_pow2(seq_len)}", device)
    if key not in _cache_buf:
        _cache_buf[key] = torch.arange(_ceil_pow2(seq_len), dtype=torch.int32, device=device)
    return _cache_buf[key][:seq_len]


def planned(plan: Callable, values: list, space: Any, memory: Any) -> None:
    """Makes a plan in a workspace. Two slots of pinned staging are taken in turn; where the copy
    out of the next one has not ended, which a program sees that plans far ahead of its GPU, this
    waits for that copy."""
    stream, end = space.stream, None
    while True:
        try:
            plan(*values, space.address, memory.address, stream)
            return
        except BusyError:
            now = time.monotonic()
            end = now + 1.0 if end is None else end
            if now > end:  # not a matter of microseconds
                torch.cuda.current_stream(space.device).synchronize()
            time.sleep(2e-5)


def pinned(size: int) -> Any:
    """Bytes on the host that a GPU reads without help."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def capturing(device: Any) -> bool:
    """Whether the current stream is being captured."""
    return (getattr(device, "type", "cpu") == "cuda" and not compiling()
            and torch.cuda.is_current_stream_capturing())
