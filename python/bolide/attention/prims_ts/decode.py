# SPDX-License-Identifier: Apache-2.0
"""Task-scheduled decode."""

from ... import _docs, _missing
from ..._wrappers.ts_decode import (  # noqa: F401
    BatchDecodePagedTSWrapper, batch_decode_with_paged_kv_cache,
    get_prims_ts_batch_decode_workspace_size, prims_ts_batch_decode_with_kv_cache)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
