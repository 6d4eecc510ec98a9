# SPDX-License-Identifier: Apache-2.0
"""Attention of mixed batches, and with sinks."""

from .. import _missing
from .._wrappers.attention import (  # noqa: F401
    BatchAttention, BatchAttentionWithAttentionSinkWrapper)

__getattr__ = _missing.lookup(__name__)
