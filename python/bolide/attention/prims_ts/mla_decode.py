# SPDX-License-Identifier: Apache-2.0
"""Task-scheduled latent decode."""

from ... import _docs, _missing
from ..._wrappers.ts_mla import (  # noqa: F401
    BatchMLADecodePagedTSWrapper, batch_decode_mla_with_paged_kv_cache,
    get_prims_ts_batch_decode_mla_workspace_size, prims_ts_batch_decode_with_kv_cache_mla)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
