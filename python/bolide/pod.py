# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode in one call."""

from __future__ import annotations

from . import _docs, _missing
from ._wrappers.pod import (  # noqa: F401
    BatchPODWithPagedKVCacheWrapper, PODWithPagedKVCacheWrapper)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
