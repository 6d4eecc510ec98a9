# SPDX-License-Identifier: Apache-2.0
"""Loads the two libraries, through tvm-ffi, and names the errors that come out of them.

An installed package has both libraries in its folder ``lib``; in a checkout they are taken from the
build folder. Nothing is compiled here: where torch lacks the exchange interface that tvm-ffi would
build an extension for, tvm-ffi is told not to, and tensors are packed by :mod:`bolide._frameworks`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path


def _find(name: str) -> str:
    here = Path(__file__).resolve().parent
    for folder in (here / "lib", here.parent.parent / "build"):
        if (folder / name).exists():
            return str(folder / name)
    raise ImportError(f"bolide: {name} is not in {here / 'lib'}; was the package built?")


def _import_torch():
    """torch if it is installed; tvm-ffi would import it anyway."""
    if "torch" in sys.modules:
        return sys.modules["torch"]
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch


torch = _import_torch()
if torch is not None and not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    if importlib.util.find_spec("torch_c_dlpack_ext") is None:
        os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")

import tvm_ffi  # noqa: E402  (the line above must come first)


class BusyError(RuntimeError):
    """Every staging slot of a workspace is still in use: wait for the stream and plan again."""


tvm_ffi.register_error("NotImplementedError", NotImplementedError)
tvm_ffi.register_error("bolide.BusyError", BusyError)

# The library first, so that the binding finds it in the process.
core = ctypes.CDLL(_find("libbolide.so.0"))
core.bolide_version.restype = ctypes.c_char_p
module = tvm_ffi.load_module(_find("libbolide_python.so"))
bind = module["bind"]
set_batch_invariant = module["set_batch_invariant"]
set_grow = module["set_grow"]

# Whether tensors of torch go to the binding as they are, without a line of Python.
torch_is_direct = torch is not None and hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def version() -> str:
    """The version of the C library."""
    return core.bolide_version().decode()
