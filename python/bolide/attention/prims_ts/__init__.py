# SPDX-License-Identifier: Apache-2.0
"""Task-scheduled attention: decode, latent decode and prefill, dense or causal. The operators are
those of the other names; these have FlashInfer's signatures of its experimental kernels."""

from ... import _docs, _missing
from .context import (  # noqa: F401
    BatchPrefillPagedTSWrapper, BatchPrefillTSWrapper, batch_prefill,
    batch_prefill_with_paged_kv_cache)
from .decode import (  # noqa: F401
    BatchDecodePagedTSWrapper, batch_decode_with_paged_kv_cache,
    get_prims_ts_batch_decode_workspace_size, prims_ts_batch_decode_with_kv_cache)
from .mla_decode import (  # noqa: F401
    BatchMLADecodePagedTSWrapper, batch_decode_mla_with_paged_kv_cache,
    get_prims_ts_batch_decode_mla_workspace_size, prims_ts_batch_decode_with_kv_cache_mla)

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
