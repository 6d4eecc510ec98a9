# SPDX-License-Identifier: Apache-2.0
"""Bolide: FlashInfer's operators in C, on CUDA and on the CPU, under FlashInfer's names."""

from __future__ import annotations

from . import _binding, _dtypes, _library, norm
from ._binding import batch_invariant
from ._library import BusyError
from .norm import rmsnorm

__version__ = _library.version()
globals().update({name: d for name, d in _dtypes.BY_NAME.items() if name != "bool"})
