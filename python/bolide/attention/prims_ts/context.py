# SPDX-License-Identifier: Apache-2.0
"""Task-scheduled prefill."""

from ... import _docs, _missing
from ..._wrappers.ts_prefill import (  # noqa: F401
    BatchPrefillPagedTSWrapper, BatchPrefillTSWrapper, batch_prefill,
    batch_prefill_with_paged_kv_cache)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
