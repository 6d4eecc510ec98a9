# SPDX-License-Identifier: Apache-2.0
"""What several of FlashInfer's functions share before the library is called: arguments that have no
row there. Each is honoured, is a hint that changes no result, or is refused by name."""

from __future__ import annotations

import functools
from typing import Any, Callable

from . import _frameworks


def check_backend(name: str, backend: Any, allowed: tuple[str, ...]) -> None:
    """A backend's name chooses an implementation of the same contract; unknown ones are refused."""
    if backend not in allowed:
        raise ValueError(f"{name}: backend: expected one of {', '.join(allowed)}; got {backend!r}")


def with_backends(*names: str) -> Callable:
    """A function whose backends are names of one implementation. It gains what FlashInfer's have:
    ``skip_check=False``, which changes nothing since the library checks every call, and predicates.
    Each name runs on every GPU that the library knows, and on the CPU."""
    def decorate(fn: Callable) -> Callable:
        @functools.wraps(fn)
        def wrapper(*args: Any, skip_check: bool = False, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        def is_compute_capability_supported(cc: int) -> bool:
            return cc >= 75

        def is_backend_supported(backend: str, cc: Any = None) -> bool:
            return backend in names and (cc is None or is_compute_capability_supported(cc))

        wrapper.is_compute_capability_supported = is_compute_capability_supported
        wrapper.is_backend_supported = is_backend_supported
        wrapper.has_backend = lambda backend: backend in names
        wrapper.has_backend_choices = lambda: True
        return wrapper

    return decorate


def later(name: str, **arguments: Any) -> None:
    """Arguments of quantised formats that the library does not have yet: refused where given."""
    for argument, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{name}: {argument}: not supported by this version")


def split_paged(cache: Any, kv_layout: str) -> tuple[Any, Any]:
    """Keys and values of a paged cache: a pair of 4-D tensors, or one 5-D tensor with both on its
    second axis. Where the page axis was dropped, since a page has one token, it is put back."""
    pair = isinstance(cache, (tuple, list))
    if len(cache) != 2 if pair else not _frameworks.is_tensor(cache) or (
            cache.ndim not in (4, 5) or cache.shape[1] != 2):
        got = f"{len(cache)} of them" if pair else list(getattr(cache, "shape", ())) or (
            type(cache).__name__)
        raise ValueError("paged_kv_cache: expected keys and values, as a pair of tensors or as the 2 of "
                         f"a tensor's second axis; got {got}")
    if pair:
        k, v = cache
    elif _frameworks.is_torch(cache):
        k, v = cache.unbind(1)
    else:
        k, v = cache[:, 0], cache[:, 1]
    if k.ndim == 3:
        axis = 1 if kv_layout == "NHD" else 2
        k, v = expand(k, axis), expand(v, axis)
    return k, v


def expand(tensor: Any, axis: int) -> Any:
    """A view with one more axis of size 1."""
    if _frameworks.is_torch(tensor):
        return tensor.unsqueeze(axis)
    index: list[Any] = [slice(None)] * tensor.ndim
    index.insert(axis, None)
    return tensor[tuple(index)]


def transposed(tensor: Any) -> Any:
    """A view with the last two axes exchanged."""
    return tensor.swapaxes(-1, -2)
