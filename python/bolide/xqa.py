# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's ``xqa`` functions."""

from __future__ import annotations

from . import _missing
from ._wrappers.mla_calls import xqa_mla  # noqa: F401

__getattr__ = _missing.lookup(__name__)
