# SPDX-License-Identifier: Apache-2.0
"""What the arguments of FlashInfer's entry points of the families trtllm, xqa, cuDNN and FMHA v2 have
in common. They bring block tables and lengths with every call and have no plan of their own; the
call itself is :func:`bolide._wrappers.once.once`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

from .. import _dtypes, _frameworks
from .._arguments import later, split_paged
from .._binding import compiling
from .._library import torch
from . import _memory
from ._base import refuse
from .once import MANY_ROWS, Own, looked_at, once  # noqa: F401

Tensor = Any
LN2 = math.log(2)

_UINT32 = _dtypes.BY_NAME["uint32"].bit
_WORDS = _UINT32 | sum(_dtypes.BY_NAME[n].bit for n in ("uint16", "int16", "int32"))


# ---- arguments -------------------------------------------------------------------------------


def expect(name: str, argument: str, expected: Any, got: Any) -> ValueError:
    """An error in the form of the library's."""
    return ValueError(f"{name}: {argument}: expected {expected}; got {got}")


def is_fp4(value: Any) -> bool:
    """Whether an output or its dtype is FlashInfer's NVFP4."""
    return (value == "nvfp4" if isinstance(value, str)
            else value is not None and type(value).__name__ == "FP4Tensor")


def output(name: str, like: Tensor, shape: tuple, out: Any, out_dtype: Any, default: Any,
           argument: str = "out_dtype") -> Tensor:
    """The output as given, or a new one of out_dtype; default is the dtype where none is said."""
    for value, its_name in ((out, "out"), (out_dtype, argument)):
        if is_fp4(value):
            raise NotImplementedError(f"{name}: {its_name}: NVFP4 is not supported by this version")
    if out is None:
        return _frameworks.empty(like, shape, default if out_dtype is None else out_dtype)
    if out_dtype is not None and _dtypes.of(out_dtype).bit != _frameworks.dtype_bit(out):
        raise expect(name, argument, f"{_dtypes.of(out.dtype).name}, the dtype of out",
                     _dtypes.of(out_dtype).name)
    return out


def flat(tensor: Any) -> Any:
    """A tensor with one dimension; None and numbers as they are."""
    return tensor.reshape(-1) if _frameworks.is_tensor(tensor) and tensor.ndim != 1 else tensor


def int32(tensor: Any) -> Any:
    """Lengths as one row of int32; unsigned ones are looked at as signed ones."""
    if tensor is None:
        return None
    return table(flat(tensor))


def table(tensor: Any) -> Any:
    """Page ids, unsigned ones looked at as signed ones."""
    if not _frameworks.is_tensor(tensor) or _frameworks.dtype_bit(tensor) != _UINT32:
        return tensor
    return tensor.view(torch.int32 if _frameworks.is_torch(tensor) else "int32")


def pool(name: str, argument: str, cache: Any, shape: tuple) -> Any:
    """A cache, also as a pool of ``[rows, d]`` whose pages have this shape."""
    if cache.ndim != 2:
        return cache
    try:
        return _frameworks.view(cache, (-1, *shape, cache.shape[1]))
    except (AttributeError, RuntimeError, ValueError):
        raise expect(name, argument, f"rows of whole pages of {list(shape)}",
                     f"shape {list(cache.shape)}") from None


def one_sink(name: str, sinks: Any) -> Any:
    """The sinks of all heads: a tensor, or a list with that tensor."""
    if isinstance(sinks, (list, tuple)):
        if len(sinks) != 1:
            raise expect(name, "sinks", "one tensor with a value for each head", len(sinks))
        sinks = sinks[0]
    return flat(sinks)


def scale(value: Any) -> Any:
    """A number, or a tensor of one element or of one for each head."""
    return flat(value) if _frameworks.is_tensor(value) else float(value)


def product(a: Any, b: Any) -> Any:
    """Of two scales, on the device of a tensor among them; None is 1."""
    return b if a is None else a if b is None else a * b


def rows_of_mask(mask: Any) -> Any:
    """A packed mask as rows of bytes: one row for each query token."""
    if mask is None:
        return None
    mask = mask.reshape(-1, mask.shape[-1])
    if not _frameworks.dtype_bit(mask) & _WORDS:
        return mask
    return mask.view(torch.uint8 if _frameworks.is_torch(mask) else "uint8")


def pages(cache: Any, kv_layout: str) -> tuple[Tensor, Tensor]:
    """Keys and values of a paged cache. One tensor whose second axis is 1 is both."""
    if not isinstance(cache, (tuple, list)) and cache.ndim == 4 and cache.shape[1] == 1:
        return cache, cache
    return split_paged(cache, kv_layout)


def check_layout(name: str, kv_layout: Any) -> str:
    """ "NHD" or "HND"."""
    if kv_layout not in ("NHD", "HND"):
        raise expect(name, "kv_layout", "NHD or HND", repr(kv_layout))
    return kv_layout


def check_batch(name: str, batch_size: int, lengths: Tensor, argument: str = "seq_lens") -> None:
    """batch_size repeats what the lengths say."""
    if batch_size != lengths.shape[0]:
        raise expect(name, "batch_size", f"{lengths.shape[0]}, the entries of {argument}",
                     batch_size)


class Cache(NamedTuple):
    """A paged cache and where its pages are named."""

    k: Tensor
    v: Tensor
    tables: Tensor
    v_tables: Optional[Tensor]
    layout: str

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return self.k.shape[1 if self.layout == "NHD" else 2]

    @property
    def heads(self) -> int:
        """Heads of keys and values."""
        return self.k.shape[2 if self.layout == "NHD" else 1]


def cache_of(name: str, kv_cache: Any, kv_layout: str, block_tables: Tensor,
             uses_shared_paged_kv_idx: bool = True) -> Cache:
    """The cache of a call, with one table for keys and values or with one for each."""
    k, v = pages(kv_cache, check_layout(name, kv_layout))
    block_tables = table(block_tables)
    if uses_shared_paged_kv_idx:
        return Cache(k, v, block_tables, None, kv_layout)
    if block_tables.ndim != 3 or block_tables.shape[1] != 2:
        raise expect(name, "block_tables", "[b, 2, pages] without uses_shared_paged_kv_idx",
                     list(block_tables.shape))
    return Cache(k, v, block_tables[:, 0], block_tables[:, 1], kv_layout)


def cache_of_one_memory(name: str, k: Any, v: Any, kv_layout: str, block_tables: Tensor) -> Cache:
    """Caches apart in one memory, whose tables ``[b, 2, m]`` count pages from the first of k."""
    if compiling() or _frameworks.dispatches(k):
        raise NotImplementedError(f"{name}: block_tables: expected [b, m] while torch traces; got "
                                  f"{list(block_tables.shape)}")
    looked_at()  # at addresses
    page = math.prod(k.shape[1:]) * k.dtype.itemsize
    apart = _memory.distance(k, v)
    if block_tables.shape[1] != 2 or k.shape != v.shape or not page or apart % page:
        raise expect(name, "block_tables", "[b, 2, pages] with two caches of one shape in one "
                     "memory, whole pages apart", f"{list(block_tables.shape)}, {apart} bytes")
    return Cache(k, v, block_tables[:, 0], block_tables[:, 1] - apart // page, kv_layout)


def no_nvfp4(name: str, **arguments: Any) -> None:
    """Arguments of NVFP4 caches and outputs: refused where given."""
    later(name, **arguments)


def no_spcompress(name: str, uses_spcompress: Any) -> None:
    """Refused where asked for."""
    refuse(name, uses_spcompress=uses_spcompress)
