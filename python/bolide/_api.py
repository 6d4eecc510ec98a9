# SPDX-License-Identifier: Apache-2.0
"""The public names of the package, gathered from its modules; :mod:`bolide` asks for them when the
first one is used. Importing this loads the library."""

from __future__ import annotations

from . import _dtypes, _library
from ._alias import flashinfer_path, install_as_flashinfer
from ._binding import batch_invariant
from ._coverage import coverage
from ._library import BusyError
from .attention import BatchAttention, BatchAttentionWithAttentionSinkWrapper
from .activation import gelu_and_mul, gelu_tanh_and_mul, silu_and_mul
from .cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper, BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
    MultiLevelCascadeAttentionWrapper, merge_state, merge_state_in_place, merge_states)
from .decode import (
    BatchDecodeMlaWithPagedKVCacheWrapper, BatchDecodeWithPagedKVCacheWrapper,
    CUDAGraphBatchDecodeWithPagedKVCacheWrapper, cudnn_batch_decode_with_kv_cache,
    fast_decode_plan, single_decode_with_kv_cache, xqa_mla)
from .gemm import bmm_bf16, mm_bf16, tgv_gemm_sm100
from .mla import BatchMLAPagedAttentionWrapper
from .norm import (
    fused_add_rmsnorm, fused_add_rmsnorm_quant, fused_dit_gate_residual_layernorm_gamma_beta,
    fused_dit_gate_residual_layernorm_scale_shift, fused_dit_residual_layernorm_scale_shift,
    fused_qk_rmsnorm_rope, fused_rmsnorm_silu, gemma_fused_add_rmsnorm, gemma_rmsnorm, layernorm,
    layernorm_quant, rmsnorm, rmsnorm_quant)
from .page import (
    append_paged_kv_cache, append_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens)
from .pod import BatchPODWithPagedKVCacheWrapper, PODWithPagedKVCacheWrapper
from .prefill import (
    BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper,
    single_prefill_with_kv_cache, single_prefill_with_kv_cache_return_lse, trtllm_fmha_v2_prefill)
from .quantization import packbits, segment_packbits
from .rope import (
    apply_llama31_rope, apply_llama31_rope_inplace, apply_llama31_rope_pos_ids,
    apply_llama31_rope_pos_ids_inplace, apply_rope, apply_rope_inplace, apply_rope_pos_ids,
    apply_rope_pos_ids_inplace, apply_rope_with_cos_sin_cache,
    apply_rope_with_cos_sin_cache_inplace)
from .sampling import (
    chain_speculative_sampling, min_p_sampling_from_probs, sampling_from_logits,
    sampling_from_probs, softmax, top_k_mask_logits, top_k_renorm_probs, top_k_sampling_from_probs,
    top_k_top_p_sampling_from_logits, top_k_top_p_sampling_from_probs, top_p_renorm_probs,
    top_p_sampling_from_probs)
from .sparse import BlockSparseAttentionWrapper, VariableBlockSparseAttentionWrapper
from .tllm_enums import ActivationType, RoutingMethodType, SfLayout, is_gated_activation
from .topk import TopKTieBreak, top_k, top_k_page_table_transform, top_k_ragged_transform
from .topk_varlen import top_k_varlen
from .utils import next_positive_power_of_2


__version__ = _library.version()
__git_version__ = __git_commit__ = "unknown"

# bolide.float16 and its like; a name of Python itself stays out.
_DTYPES = {name: d for name, d in _dtypes.BY_NAME.items() if name != "bool"}
globals().update(_DTYPES)

__all__ = [
    "ActivationType", "append_paged_kv_cache", "append_paged_mla_kv_cache", "apply_llama31_rope",
    "apply_llama31_rope_inplace", "apply_llama31_rope_pos_ids",
    "apply_llama31_rope_pos_ids_inplace", "apply_rope", "apply_rope_inplace", "apply_rope_pos_ids",
    "apply_rope_pos_ids_inplace", "apply_rope_with_cos_sin_cache",
    "apply_rope_with_cos_sin_cache_inplace", "batch_invariant", "BatchAttention",
    "BatchAttentionWithAttentionSinkWrapper", "BatchDecodeMlaWithPagedKVCacheWrapper",
    "BatchDecodeWithPagedKVCacheWrapper", "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchMLAPagedAttentionWrapper", "BatchPODWithPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper", "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "BlockSparseAttentionWrapper",
    "bmm_bf16", "BusyError", "chain_speculative_sampling", "coverage",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper", "cudnn_batch_decode_with_kv_cache",
    "fast_decode_plan", "flashinfer_path",
    "fused_add_rmsnorm", "fused_add_rmsnorm_quant", "fused_dit_gate_residual_layernorm_gamma_beta",
    "fused_dit_gate_residual_layernorm_scale_shift", "fused_dit_residual_layernorm_scale_shift",
    "fused_qk_rmsnorm_rope", "fused_rmsnorm_silu", "gelu_and_mul", "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm", "gemma_rmsnorm", "get_batch_indices_positions", "get_seq_lens",
    "install_as_flashinfer", "is_gated_activation", "layernorm", "layernorm_quant", "merge_state",
    "merge_state_in_place", "merge_states", "min_p_sampling_from_probs", "mm_bf16",
    "MultiLevelCascadeAttentionWrapper", "next_positive_power_of_2", "packbits",
    "PODWithPagedKVCacheWrapper", "rmsnorm",
    "rmsnorm_quant", "RoutingMethodType", "sampling_from_logits", "sampling_from_probs",
    "segment_packbits", "SfLayout", "silu_and_mul", "single_decode_with_kv_cache",
    "single_prefill_with_kv_cache", "single_prefill_with_kv_cache_return_lse", "softmax",
    "tgv_gemm_sm100", "top_k", "top_k_mask_logits", "top_k_page_table_transform",
    "top_k_ragged_transform", "top_k_renorm_probs", "top_k_sampling_from_probs",
    "top_k_top_p_sampling_from_logits", "top_k_top_p_sampling_from_probs", "top_k_varlen",
    "top_p_renorm_probs", "top_p_sampling_from_probs", "TopKTieBreak",
    "VariableBlockSparseAttentionWrapper",
    "trtllm_fmha_v2_prefill", "xqa_mla", *_DTYPES]
