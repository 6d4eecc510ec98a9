# SPDX-License-Identifier: Apache-2.0
"""Attention of mixed batches, and with sinks."""

from .. import _docs, _missing
from .._wrappers.attention import (  # noqa: F401
    BatchAttention, BatchAttentionWithAttentionSinkWrapper)
from ..jit.batch import gen_batch_attention_module  # noqa: F401

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
