# SPDX-License-Identifier: Apache-2.0
"""Attention in one call in the form of FlashInfer's cuDNN entry points. cuDNN itself is not used."""

from __future__ import annotations

from .. import _docs, _missing
from . import prefill  # noqa: F401
from .decode import cudnn_batch_decode_with_kv_cache  # noqa: F401
from .prefill import cudnn_batch_prefill_with_kv_cache  # noqa: F401

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
