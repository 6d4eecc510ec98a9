# SPDX-License-Identifier: Apache-2.0
"""Documented names of FlashInfer 0.6.18 by module: functions, classes and enums. Capitals are
classes. Those that Bolide has are found before this table is asked; a test keeps it complete."""

NAMES = {
    "cake_sampling": "",
    "trace_apply": "",
    "": (
        "ActivationType B12xMoEWrapper BatchAttention BatchAttentionWithAttentionSinkWrapper "
        "BatchDecodeMlaWithPagedKVCacheWrapper BatchDecodeWithPagedKVCacheWrapper "
        "BatchDecodeWithSharedPrefixPagedKVCacheWrapper BatchMLAPagedAttentionWrapper "
        "BatchPODWithPagedKVCacheWrapper BatchPrefillWithPagedKVCacheWrapper "
        "BatchPrefillWithRaggedKVCacheWrapper BatchPrefillWithSharedPrefixPagedKVCacheWrapper "
        "BlockSparseAttentionWrapper CUDAGraphBatchDecodeWithPagedKVCacheWrapper "
        "CuteDslMoEWrapper CuteDslMxfp8Mxfp4MoEWrapper MultiLevelCascadeAttentionWrapper "
        "PODWithPagedKVCacheWrapper RecurrentKDAPrefillWorkspace RecurrentKDAPrefillWrapper "
        "RoutingMethodType SegmentGEMMWrapper SfLayout TopKTieBreak "
        "VariableBlockSparseAttentionWrapper add_rmsnorm_fp4quant append_paged_kv_cache "
        "append_paged_mla_kv_cache apply_llama31_rope apply_llama31_rope_inplace "
        "apply_llama31_rope_pos_ids apply_llama31_rope_pos_ids_inplace apply_rope "
        "apply_rope_inplace apply_rope_pos_ids apply_rope_pos_ids_inplace "
        "apply_rope_with_cos_sin_cache apply_rope_with_cos_sin_cache_inplace autotune "
        "b12x_fused_moe block_scale_interleave bmm_bf16 bmm_fp8 bmm_mxfp8 "
        "chain_speculative_sampling chunk_gated_delta_rule cudnn_batch_decode_with_kv_cache "
        "cute_dsl_fused_moe_mxfp8_mxfp4 cute_dsl_fused_moe_nvfp4 cutlass_fused_moe "
        "e2m1_and_ufp8sf_scale_to_float fast_decode_plan fi_trace fp4_paged_mqa_logits "
        "fp4_quantize fp8_paged_mqa_logits fused_add_rmsnorm fused_add_rmsnorm_quant "
        "fused_dit_gate_residual_layernorm_gamma_beta "
        "fused_dit_gate_residual_layernorm_scale_shift fused_dit_residual_layernorm_scale_shift "
        "fused_kda_decode fused_qk_rmsnorm_rope fused_rmsnorm_silu gdn_fused_decode_step "
        "gdn_fused_decode_step_supported gelu_and_mul gelu_tanh_and_mul gemma_fused_add_rmsnorm "
        "gemma_rmsnorm get_batch_indices_positions get_fp4_quantization_module get_seq_lens "
        "grouped_mm_bf16 grouped_mm_fp4 grouped_mm_fp8 grouped_mm_mxfp8 is_gated_activation "
        "layernorm layernorm_quant merge_state merge_state_in_place merge_states "
        "min_p_sampling_from_probs mm_bf16 mm_bf16_fp4 mm_fp4 mm_fp8 mm_mxfp8 mm_nvfp4_svdquant "
        "mxfp4_dequantize mxfp4_dequantize_host mxfp4_quantize mxfp8_dequantize_host "
        "mxfp8_grouped_quantize mxfp8_quantize next_positive_power_of_2 "
        "nvfp4_attention_sm120_fwd nvfp4_attention_sm120_quantize_qkv nvfp4_batched_quantize "
        "nvfp4_block_scale_interleave nvfp4_kv_dequantize nvfp4_kv_dequantize_paged "
        "nvfp4_kv_quantize nvfp4_quantize nvfp4_quantize_append_paged_kv_cache "
        "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping nvfp4_quantize_paged_kv_cache "
        "nvfp4_quantize_smooth packbits packed_kda_decode prepare_bf16_fp4_weights "
        "prepare_low_latency_gemm_weights recurrent_kda reorder_rows_for_gated_act_gemm rmsnorm "
        "rmsnorm_fp4quant rmsnorm_quant sampling_from_logits sampling_from_probs "
        "scaled_fp4_grouped_quantize segment_packbits shuffle_matrix_a shuffle_matrix_sf_a "
        "silu_and_mul silu_and_mul_nvfp4_quantize silu_and_mul_scaled_nvfp4_experts_quantize "
        "single_decode_with_kv_cache single_prefill_with_kv_cache "
        "single_prefill_with_kv_cache_return_lse softmax svdquant_linear tgv_gemm_sm100 top_k "
        "top_k_mask_logits top_k_page_table_transform top_k_ragged_transform top_k_renorm_probs "
        "top_k_sampling_from_probs top_k_top_p_sampling_from_logits "
        "top_k_top_p_sampling_from_probs top_k_varlen top_p_renorm_probs "
        "top_p_sampling_from_probs trtllm_bf16_moe trtllm_bf16_routed_moe trtllm_fmha_v2_prefill "
        "trtllm_fp4_block_scale_moe trtllm_fp4_block_scale_routed_moe trtllm_fp8_block_scale_moe "
        "trtllm_fp8_block_scale_routed_moe trtllm_fp8_per_tensor_scale_moe "
        "trtllm_fp8_per_tensor_scale_routed_moe trtllm_sage_attention_quantize xqa xqa_mla"
    ),
    "activation": (
        "gelu_and_mul gelu_tanh_and_mul silu_and_mul silu_and_mul_scaled_nvfp4_experts_quantize"
    ),
    "attention": "BatchAttention BatchAttentionWithAttentionSinkWrapper",
    "attention.cute_dsl": "is_cute_dsl_available",
    "attention.prims_ts": (
        "BatchDecodePagedTSWrapper BatchMLADecodePagedTSWrapper BatchPrefillPagedTSWrapper "
        "BatchPrefillTSWrapper batch_decode_mla_with_paged_kv_cache "
        "batch_decode_with_paged_kv_cache batch_prefill batch_prefill_with_paged_kv_cache "
        "get_prims_ts_batch_decode_mla_workspace_size get_prims_ts_batch_decode_workspace_size "
        "prims_ts_batch_decode_with_kv_cache prims_ts_batch_decode_with_kv_cache_mla"
    ),
    "attention.prims_ts.context": (
        "BatchPrefillPagedTSWrapper BatchPrefillTSWrapper batch_prefill "
        "batch_prefill_with_paged_kv_cache"
    ),
    "attention.prims_ts.decode": (
        "BatchDecodePagedTSWrapper batch_decode_with_paged_kv_cache "
        "get_prims_ts_batch_decode_workspace_size prims_ts_batch_decode_with_kv_cache"
    ),
    "attention.prims_ts.mla_decode": (
        "BatchMLADecodePagedTSWrapper batch_decode_mla_with_paged_kv_cache "
        "get_prims_ts_batch_decode_mla_workspace_size prims_ts_batch_decode_with_kv_cache_mla"
    ),
    "autotuner": "autotune",
    "autotuner.autotuner": "autotune",
    "cake_fmha": (
        "cake_batch_context_with_kv_cache cake_batch_decode_with_kv_cache cake_fmha_manifest "
        "get_cake_fmha_module"
    ),
    "cascade": (
        "BatchDecodeWithSharedPrefixPagedKVCacheWrapper "
        "BatchPrefillWithSharedPrefixPagedKVCacheWrapper MultiLevelCascadeAttentionWrapper "
        "merge_state merge_state_in_place merge_states"
    ),
    "comm": (
        "AllReduceFusionOp AllReduceFusionPattern AllReduceFusionWorkspace "
        "AllReduceStrategyConfig AllReduceStrategyType CudaRTLibrary "
        "MNNVLAllReduceFusionWorkspace Mapping MoeAlltoAll QuantizationSFLayout "
        "TRTLLMAllReduceFusionWorkspace UlyssesBackendDecision UlyssesBackendError "
        "UlyssesCommunicator UlyssesRankTopology allreduce_fusion "
        "compute_fp4_swizzled_layout_sf_size create_allreduce_fusion_workspace "
        "create_shared_buffer decide_ulysses_backend decode_cp_a2a_allocate_mnnvl_workspace "
        "decode_cp_a2a_alltoall decode_cp_a2a_init_workspace decode_cp_a2a_workspace_size "
        "dispose_ulysses_a2a free_shared_buffer init_ulysses_a2a moe_a2a_combine "
        "moe_a2a_dispatch moe_a2a_get_workspace_size_per_rank moe_a2a_initialize "
        "moe_a2a_sanitize_expert_ids moe_a2a_wrap_payload_tensor_in_workspace "
        "pack_strided_memory probe_ulysses_rank_topology quantized_all_reduce "
        "resolve_ulysses_backend trtllm_allreduce_fusion "
        "trtllm_create_ipc_workspace_for_all_reduce "
        "trtllm_create_ipc_workspace_for_all_reduce_fusion trtllm_custom_all_reduce "
        "trtllm_destroy_ipc_workspace_for_all_reduce "
        "trtllm_destroy_ipc_workspace_for_all_reduce_fusion trtllm_lamport_initialize "
        "trtllm_lamport_initialize_all trtllm_moe_allreduce_fusion "
        "trtllm_moe_finalize_allreduce_fusion ulysses_a2a vllm_all_reduce vllm_dispose "
        "vllm_get_graph_buffer_ipc_meta vllm_init_custom_ar vllm_meta_size vllm_register_buffer "
        "vllm_register_graph_buffers"
    ),
    "comm.mapping": "Mapping",
    "comm.mixed_comm": "MixedCommHandler MixedCommMode MixedCommOp run_mixed_comm",
    "comm.mnnvl": "McastGPUBuffer MnnvlMemory SymmDeviceMemory",
    "comm.trtllm_ar": (
        "AllReduceFusionOp AllReduceFusionPattern AllReduceStrategyConfig AllReduceStrategyType "
        "QuantizationSFLayout compute_fp4_swizzled_layout_sf_size trtllm_allreduce_fusion "
        "trtllm_create_ipc_workspace_for_all_reduce "
        "trtllm_create_ipc_workspace_for_all_reduce_fusion trtllm_custom_all_reduce "
        "trtllm_destroy_ipc_workspace_for_all_reduce "
        "trtllm_destroy_ipc_workspace_for_all_reduce_fusion trtllm_lamport_initialize "
        "trtllm_lamport_initialize_all trtllm_moe_allreduce_fusion "
        "trtllm_moe_finalize_allreduce_fusion"
    ),
    "comm.trtllm_mnnvl_ar": (
        "MNNVLAllReduceFusionWorkspace mpi_barrier trtllm_mnnvl_all_reduce "
        "trtllm_mnnvl_allreduce trtllm_mnnvl_fused_allreduce_add_rmsnorm "
        "trtllm_mnnvl_fused_allreduce_add_rmsnorm_quant trtllm_mnnvl_fused_allreduce_rmsnorm"
    ),
    "comm.workspace_base": "AllReduceFusionWorkspace",
    "concat_ops": "concat_mla_k",
    "cudnn": "cudnn_batch_decode_with_kv_cache cudnn_batch_prefill_with_kv_cache",
    "cute_dsl": (
        "AddRMSNormFP4QuantKernel RMSNormFP4QuantKernel "
        "Sm100BlockScaledPersistentDenseGemmKernel add_rmsnorm_fp4quant "
        "create_scale_factor_tensor grouped_gemm_nt_masked is_cute_dsl_available "
        "rmsnorm_fp4quant"
    ),
    "cute_dsl.add_rmsnorm_fp4quant": "AddRMSNormFP4QuantKernel add_rmsnorm_fp4quant",
    "cute_dsl.attention.wrappers.batch_decode": (
        "BatchDecodeCuteDSLWrapper BatchDecodePagedCuteDSLWrapper"
    ),
    "cute_dsl.attention.wrappers.batch_hca": "cute_dsl_hca_decode",
    "cute_dsl.attention.wrappers.batch_mla": "BatchMLADecodeCuteDSLWrapper",
    "cute_dsl.attention.wrappers.batch_prefill": "BatchPrefillCuteDSLWrapper",
    "cute_dsl.rmsnorm_fp4quant": "RMSNormFP4QuantKernel rmsnorm_fp4quant",
    "cute_dsl.sparse.bsa_attn_sm100_blk128": "bsa_attn_sm100_blk128_fwd",
    "cute_dsl.sparse.bsa_attn_sm100_blk64": "bsa_attn_sm100_blk64_fwd",
    "cute_dsl.sparse.bsa_attn_sm120": "bsa_attn_sm120_blk64_fwd",
    "cute_dsl.utils": "is_cute_dsl_available",
    "decode": (
        "BatchDecodeMlaWithPagedKVCacheWrapper BatchDecodeWithPagedKVCacheWrapper "
        "CUDAGraphBatchDecodeWithPagedKVCacheWrapper cudnn_batch_decode_with_kv_cache "
        "fast_decode_plan get_batch_decode_metadata_mla get_prims_ts_batch_decode_workspace_size "
        "prims_ts_batch_decode_with_kv_cache single_decode_with_kv_cache "
        "trtllm_batch_decode_sparse_mla_dsv4 "
        "trtllm_batch_decode_with_kv_cache trtllm_batch_decode_with_kv_cache_mla "
        "xqa_batch_decode_with_kv_cache xqa_batch_decode_with_kv_cache_mla xqa_mla"
    ),
    "diffusion_ops": (
        "fused_dit_gate_residual_layernorm_gamma_beta "
        "fused_dit_gate_residual_layernorm_scale_shift fused_dit_residual_layernorm_scale_shift "
        "fused_qk_rmsnorm_rope minimax_h3_bf16_pre_attention minimax_h3_fc1_swiglu_fp8 "
        "minimax_h3_fp8_out_proj minimax_h3_fp8_pre_attention minimax_h3_nvfp4_out_proj "
        "minimax_h3_nvfp4_pre_attention minimax_h3_sm120_varlen_attention_fp8 "
        "minimax_h3_sm120_varlen_attention_nvfp4 prepare_minimax_h3_fc1_weight_fp8 "
        "quantize_minimax_h3_o_weight_fp8 quantize_minimax_h3_o_weight_nvfp4 "
        "quantize_minimax_h3_qkv_weight_fp8 quantize_minimax_h3_qkv_weight_nvfp4"
    ),
    "dsv3_ops": "concat_mla_k fused_topk_deepseek",
    "fi_trace": "fi_trace",
    "fp4_quantization": (
        "block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize "
        "get_fp4_quantization_module mxfp4_dequantize mxfp4_dequantize_host mxfp4_quantize "
        "nvfp4_batched_quantize nvfp4_block_scale_interleave nvfp4_kv_dequantize "
        "nvfp4_kv_dequantize_paged nvfp4_kv_quantize nvfp4_quantize "
        "nvfp4_quantize_paged_kv_cache scaled_fp4_grouped_quantize shuffle_matrix_a "
        "shuffle_matrix_sf_a silu_and_mul_nvfp4_quantize"
    ),
    "fp8_quantization": "mxfp8_dequantize_host mxfp8_quantize",
    "fused_moe": (
        "ActivationType B12xMoEWrapper CuteDslMoEWrapper CuteDslMxfp8Mxfp4MoEWrapper "
        "RoutingMethodType WeightLayout alloc_scratchpad b12x_fused_moe bgmv_moe bgmv_moe_expand "
        "bgmv_moe_gemm1_lora_delta bgmv_moe_gemm2_lora_delta bgmv_moe_shrink "
        "convert_to_block_layout cute_dsl_fused_moe_mxfp8_mxfp4 cute_dsl_fused_moe_nvfp4 "
        "cutlass_fused_moe fused_topk_deepseek get_scratchpad_size_bytes has_monomoe hash_topk "
        "interleave_for_tma_wgmma_up interleave_moe_scales_for_sm90_mixed_gemm "
        "interleave_moe_weights_for_sm90_mixed_gemm mono_moe "
        "preprocess_moe_weights_for_sm90_mixed_gemm_humming reorder_rows_for_gated_act_gemm "
        "trtllm_bf16_moe trtllm_bf16_routed_moe trtllm_fp4_block_scale_moe "
        "trtllm_fp4_block_scale_routed_moe trtllm_fp8_block_scale_moe "
        "trtllm_fp8_block_scale_routed_moe trtllm_fp8_per_tensor_scale_moe "
        "trtllm_fp8_per_tensor_scale_routed_moe trtllm_mxint4_block_scale_moe "
        "trtllm_mxint4_block_scale_routed_moe"
    ),
    "gdn2_prefill": "chunk_gated_delta_rule2",
    "gdn_decode": (
        "gated_delta_rule_decode gated_delta_rule_decode_pretranspose gated_delta_rule_mtp"
    ),
    "gdn_prefill": "chunk_gated_delta_rule",
    "gdp_prefill": "chunk_gated_delta_product",
    "gemm": (
        "SegmentGEMMWrapper Sm100BlockScaledPersistentDenseGemmKernel "
        "batch_deepgemm_fp8_nt_groupwise bmm_bf16 bmm_fp8 bmm_mxfp8 create_scale_factor_tensor "
        "gemm_fp8_nt_groupwise group_deepgemm_fp8_nt_groupwise group_gemm_fp8_nt_groupwise "
        "grouped_gemm_nt_masked mm_bf16 mm_bf16_fp4 mm_fp4 mm_fp8 mm_mxfp8 mm_nvfp4_svdquant "
        "nvfp4_quantize_smooth prepare_bf16_fp4_weights svdquant_linear tgv_gemm_sm100"
    ),
    "grouped_mm": "grouped_mm_bf16 grouped_mm_fp4 grouped_mm_fp8 grouped_mm_mxfp8",
    "kda": "RecurrentKDAPrefillWrapper recurrent_kda",
    "kda_decode": "fused_kda_decode packed_kda_decode",
    "kda_prefill": "RecurrentKDAPrefillWorkspace",
    "mamba": "checkpointing_ssu replayssm_materialize selective_state_update ssd_combined_fwd",
    "mhc": "mhc_post mhc_pre_big_fuse mhc_pre_big_fuse_with_prenorm",
    "mla": (
        "BatchMLAPagedAttentionWrapper DSV4HCAMetadata "
        "convert_compressed_page_aligned_sparse_indices_to_hca_metadata "
        "get_prims_ts_batch_decode_mla_workspace_size prims_ts_batch_decode_with_kv_cache_mla "
        "trtllm_batch_decode_sparse_mla_dsv4 trtllm_batch_decode_with_kv_cache_mla "
        "xqa_batch_decode_with_kv_cache_mla"
    ),
    "msa_ops": (
        "MSASparseAttentionWorkspace msa_proxy_score msa_proxy_score_fp4 msa_sparse_attention "
        "msa_sparse_decode_attention msa_topk_select prepare_msa_nvfp4_sparse_decode "
        "supports_packed_kv"
    ),
    "norm": (
        "fused_add_rmsnorm fused_add_rmsnorm_fp8_block_quant fused_add_rmsnorm_quant "
        "fused_dit_gate_residual_layernorm_gamma_beta "
        "fused_dit_gate_residual_layernorm_scale_shift fused_dit_residual_layernorm_scale_shift "
        "fused_qk_rmsnorm_rope fused_rmsnorm_silu gemma_fused_add_rmsnorm gemma_rmsnorm "
        "layernorm layernorm_quant rmsnorm rmsnorm_quant"
    ),
    "nvfp4_attention_sm120": "nvfp4_attention_sm120_fwd nvfp4_attention_sm120_quantize_qkv",
    "page": (
        "append_paged_kv_cache append_paged_mla_kv_cache get_batch_indices_positions "
        "nvfp4_quantize_append_paged_kv_cache "
        "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping"
    ),
    "pod": "BatchPODWithPagedKVCacheWrapper PODWithPagedKVCacheWrapper",
    "prefill": (
        "BatchPrefillWithPagedKVCacheWrapper BatchPrefillWithRaggedKVCacheWrapper "
        "cudnn_batch_prefill_with_kv_cache fmha_v2_prefill_deepseek fmha_v2_prefill_sm120 "
        "single_prefill_with_kv_cache single_prefill_with_kv_cache_return_lse "
        "trtllm_batch_context_with_kv_cache "
        "trtllm_fmha_v2_prefill trtllm_ragged_attention_deepseek trtllm_sage_attention_quantize"
    ),
    "quantization": (
        "SfLayout block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize "
        "get_fp4_quantization_module mxfp4_dequantize mxfp4_dequantize_host mxfp4_quantize "
        "mxfp8_dequantize_host mxfp8_grouped_quantize mxfp8_quantize nvfp4_batched_quantize "
        "nvfp4_block_scale_interleave nvfp4_kv_dequantize nvfp4_kv_dequantize_paged "
        "nvfp4_kv_quantize nvfp4_quantize nvfp4_quantize_paged_kv_cache packbits "
        "scaled_fp4_grouped_quantize segment_packbits shuffle_matrix_a shuffle_matrix_sf_a "
        "silu_and_mul_nvfp4_quantize"
    ),
    "quantization.fp4_quantization": (
        "block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize mxfp4_dequantize "
        "mxfp4_dequantize_host mxfp4_quantize nvfp4_batched_quantize "
        "nvfp4_block_scale_interleave nvfp4_kv_dequantize nvfp4_kv_dequantize_paged "
        "nvfp4_kv_quantize nvfp4_quantize nvfp4_quantize_paged_kv_cache "
        "scaled_fp4_grouped_quantize shuffle_matrix_a shuffle_matrix_sf_a "
        "silu_and_mul_nvfp4_quantize"
    ),
    "quantization.fp8_quantization": "mxfp8_dequantize_host mxfp8_grouped_quantize mxfp8_quantize",
    "quantization.packbits": "packbits segment_packbits",
    "rope": (
        "apply_llama31_rope apply_llama31_rope_inplace apply_llama31_rope_pos_ids "
        "apply_llama31_rope_pos_ids_inplace apply_rope apply_rope_inplace apply_rope_pos_ids "
        "apply_rope_pos_ids_inplace apply_rope_with_cos_sin_cache "
        "apply_rope_with_cos_sin_cache_inplace mla_rope_quantize_fp8 rope_quantize_fp8 "
        "rope_quantize_fp8_append_paged_kv_cache"
    ),
    "sampling": (
        "chain_speculative_sampling min_p_sampling_from_probs sampling_from_logits "
        "sampling_from_probs softmax top_k_mask_logits top_k_renorm_prob top_k_renorm_probs "
        "top_k_sampling_from_probs top_k_top_p_sampling_from_logits "
        "top_k_top_p_sampling_from_probs top_p_renorm_prob top_p_renorm_probs "
        "top_p_sampling_from_probs"
    ),
    "sparse": "BlockSparseAttentionWrapper VariableBlockSparseAttentionWrapper",
    "tllm_enums": "ActivationType RoutingMethodType SfLayout WeightLayout is_gated_activation",
    "topk": "TopKTieBreak top_k top_k_page_table_transform top_k_ragged_transform topk",
    "topk_varlen.topk_varlen": "top_k_varlen",
    "trtllm_low_latency_gemm": "prepare_low_latency_gemm_weights",
    "utils": "next_positive_power_of_2",
    "xqa": "xqa xqa_mla",
}
