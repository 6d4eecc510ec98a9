# SPDX-License-Identifier: Apache-2.0
"""Specs of modules. FlashInfer compiles a module of functions before it can be loaded; here the
functions lie in the library, and a kernel is compiled when a GPU first needs it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional

from .. import _library, _missing


class MissingJITCacheError(RuntimeError):
    """FlashInfer raises it where a module was not built ahead and may not be built now. Here nothing
    raises it; programs that catch it find it.

    :param spec: the spec in question.
    """

    def __init__(self, message: str, spec: Any = None):
        super().__init__(message)
        self.spec = spec


class JitSpec:
    """A module of functions, in the order of arguments of FlashInfer's own.

    :param name: FlashInfer's name of the module.
    :param functions: what it holds, by name.
    """

    def __init__(self, name: str, functions: Callable[[], dict[str, Callable]]):
        self.name = name
        self._functions = functions
        self._module: Optional[SimpleNamespace] = None

    def __repr__(self) -> str:
        return f"JitSpec({self.name!r})"

    @property
    def is_compiled(self) -> bool:
        """True: there is nothing to compile."""
        return True

    def get_library_path(self) -> Path:
        """The library that the functions lie in."""
        return Path(_library.core._name)

    def build(self) -> None:
        """Does nothing."""

    def load(self) -> Any:
        """The functions, as attributes of one object."""
        if self._module is None:
            self._module = SimpleNamespace(**self._functions())
        return self._module

    def try_load(self) -> Optional[Any]:
        """As :meth:`load`."""
        return self.load()

    def build_and_load(self) -> Any:
        """As :meth:`load`."""
        return self.load()


def build_jit_specs(specs: List[JitSpec], verbose: bool = False,
                    skip_prebuilt: bool = True) -> None:
    """Builds modules ahead; there is nothing to build. verbose and skip_prebuilt are hints."""
    for spec in specs:
        spec.build()


__getattr__ = _missing.lookup(__name__)
