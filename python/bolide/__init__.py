# SPDX-License-Identifier: Apache-2.0
"""Bolide: FlashInfer's operators in C, on CUDA and on the CPU, under FlashInfer's names.

Functions take tensors of torch on either device, and NumPy arrays on the CPU. What Bolide does not
have yet is there by name and raises NotImplementedError.

Importing the package loads nothing: neither the library nor a framework. The first use of a name
does, and modules are imported when they are first named.
"""

from __future__ import annotations

import importlib

from . import _missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._api import *  # noqa: F403

_OF_THE_API = ("__all__", "__version__", "__git_version__", "__git_commit__")
_stub = _missing.lookup(__name__)


def __getattr__(name: str):
    if name.startswith("_") and name not in _OF_THE_API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    api = vars(importlib.import_module(f"{__name__}._api"))
    if "__all__" in api:  # else it is being imported, further up the stack
        for each in (*_OF_THE_API, *api["__all__"]):
            globals().setdefault(each, api[each])
        if name in globals():
            return globals()[name]
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
    return _stub(name)


def __dir__():
    return sorted({*globals(), *__getattr__("__all__")})
