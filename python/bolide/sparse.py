# SPDX-License-Identifier: Apache-2.0
"""Attention over some blocks of the matrix of queries and keys."""

from __future__ import annotations

from . import _docs, _missing
from ._wrappers.sparse import (  # noqa: F401
    BlockSparseAttentionWrapper, VariableBlockSparseAttentionWrapper, convert_bsr_mask_layout)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
