# SPDX-License-Identifier: Apache-2.0
"""Attention in one call in the form of FlashInfer's cuDNN entry points. cuDNN itself is not used."""

from __future__ import annotations

from . import _missing
from ._wrappers.cudnn import (  # noqa: F401
    cudnn_batch_decode_with_kv_cache, cudnn_batch_prefill_with_kv_cache)

__getattr__ = _missing.lookup(__name__)
