# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention (DeepSeek), with the projections absorbed."""

from __future__ import annotations

from dataclasses import dataclass

from . import _docs, _missing
from ._wrappers.mla import BatchMLAPagedAttentionWrapper  # noqa: F401
from ._wrappers.mla_calls import (  # noqa: F401
    trtllm_batch_decode_with_kv_cache_mla, xqa_batch_decode_with_kv_cache_mla)
from ._wrappers.mla_lists import (  # noqa: F401
    DSV4HCAMetadata, convert_compressed_page_aligned_sparse_indices_to_hca_metadata,
    trtllm_batch_decode_sparse_mla_dsv4)
from ._wrappers.ts_mla import (  # noqa: F401
    get_prims_ts_batch_decode_mla_workspace_size, prims_ts_batch_decode_with_kv_cache_mla)


@dataclass(frozen=True)
class MLAHeadDimensions:
    """Head sizes of a model: before absorption, and of what the caches hold."""

    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    kv_lora_rank: int


@dataclass(frozen=True)
class MLALayerDimensions:
    """Head sizes and heads of a layer."""

    head_dimensions: MLAHeadDimensions
    num_heads: int


deepseek_mla_dimensions = MLAHeadDimensions(128, 64, 128, 512)
smaller_mla_dimensions = MLAHeadDimensions(64, 64, 128, 256)
nope_mla_dimensions = MLAHeadDimensions(256, 0, 256, 512)
supported_mla_head_dimensions = [
    deepseek_mla_dimensions, smaller_mla_dimensions, nope_mla_dimensions]

batch_decode_sparse_mla_dsv4 = trtllm_batch_decode_sparse_mla_dsv4

_docs.complete(globals())
__getattr__ = _missing.lookup(__name__)
