# SPDX-License-Identifier: Apache-2.0
"""Every public name of FlashInfer 0.6.18 by module, documented or not: what may be seen under the
alias. A test compares it with the interface."""

NAMES = {
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
        "VariableBlockSparseAttentionWrapper __git_commit__ __git_version__ __version__ "
        "add_rmsnorm_fp4quant append_paged_kv_cache append_paged_mla_kv_cache apply_llama31_rope "
        "apply_llama31_rope_inplace apply_llama31_rope_pos_ids apply_llama31_rope_pos_ids_inplace "
        "apply_rope apply_rope_inplace apply_rope_pos_ids apply_rope_pos_ids_inplace "
        "apply_rope_with_cos_sin_cache apply_rope_with_cos_sin_cache_inplace autotune "
        "b12x_fused_moe block_scale_interleave bmm_bf16 bmm_fp8 bmm_mxfp8 cake_sampling "
        "chain_speculative_sampling chunk_gated_delta_rule cudnn_batch_decode_with_kv_cache "
        "cute_dsl_fused_moe_mxfp8_mxfp4 cute_dsl_fused_moe_nvfp4 cutlass_fused_moe "
        "e2m1_and_ufp8sf_scale_to_float fast_decode_plan fi_trace fp4_paged_mqa_logits "
        "fp4_quantize fp8_paged_mqa_logits fused_add_rmsnorm fused_add_rmsnorm_quant "
        "fused_dit_gate_residual_layernorm_gamma_beta "
        "fused_dit_gate_residual_layernorm_scale_shift fused_dit_residual_layernorm_scale_shift "
        "fused_kda_decode fused_qk_rmsnorm_rope fused_rmsnorm_silu gdn_fused_decode_step "
        "gdn_fused_decode_step_supported gelu_and_mul gelu_tanh_and_mul gemma_fused_add_rmsnorm "
        "gemma_rmsnorm get_batch_indices_positions get_fp4_quantization_module get_seq_lens "
        "grouped_mm_bf16 grouped_mm_fp4 grouped_mm_fp8 grouped_mm_mxfp8 is_gated_activation jit "
        "layernorm layernorm_quant mamba merge_state merge_state_in_place merge_states mhc "
        "min_p_sampling_from_probs mm_bf16 mm_bf16_fp4 mm_fp4 mm_fp8 mm_mxfp8 mm_nvfp4_svdquant "
        "msa_ops mxfp4_dequantize mxfp4_dequantize_host mxfp4_quantize mxfp8_dequantize_host "
        "mxfp8_grouped_quantize mxfp8_quantize next_positive_power_of_2 nvfp4_attention_sm120 "
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
        "top_p_sampling_from_probs topk trace_apply trtllm_bf16_moe trtllm_bf16_routed_moe "
        "trtllm_fmha_v2_prefill trtllm_fp4_block_scale_moe trtllm_fp4_block_scale_routed_moe "
        "trtllm_fp8_block_scale_moe trtllm_fp8_block_scale_routed_moe "
        "trtllm_fp8_per_tensor_scale_moe trtllm_fp8_per_tensor_scale_routed_moe "
        "trtllm_sage_attention_quantize xqa xqa_mla"
    ),
    "__main__": (
        "clear_cache_cmd clear_cubin_cmd cli collect_env_cmd download_cubin_cmd "
        "download_jit_cache_cmd download_kernels_cmd export_compile_commands_cmd "
        "generate_tactics_blocklist_cmd install_cubin_wheel_cmd install_jit_cache_wheel_cmd "
        "list_cubins_cmd list_modules_cmd module_status_cmd replay_cmd show_config_cmd"
    ),
    "activation": (
        "gelu_and_mul gelu_tanh_and_mul gen_act_and_mul_module silu_and_mul "
        "silu_and_mul_scaled_nvfp4_experts_quantize"
    ),
    "aot": (
        "compile_and_package_modules copy_built_kernels detect_sm_capabilities gen_all_modules "
        "gen_attention gen_fa2 gen_fa3 gen_xqa get_default_config main parse_bool parse_head_dim "
        "register_default_modules"
    ),
    "api_logging": "clear_graph_dumps flush_graph_dumps replay_from_dump replay_sequence",
    "artifacts": (
        "ArtifactPath CheckSumHash clear_cubin download_artifacts get_artifacts_status "
        "get_available_cubin_files get_available_header_files get_checksums get_subdir_file_list "
        "temp_env_var"
    ),
    "attention": (
        "BatchAttention BatchAttentionWithAttentionSinkWrapper gen_batch_attention_module "
        "get_holistic_attention_module"
    ),
    "attention.cute_dsl": (
        "cute_dsl_fmha_blockscaled_prefill cute_dsl_fmha_ragged_prefill get_cute_dsl_fmha_kernel "
        "is_cute_dsl_available"
    ),
    "attention.cute_dsl.fmha": "cute_dsl_fmha_ragged_prefill",
    "attention.cute_dsl.fmha_blockscaled": "cute_dsl_fmha_blockscaled_prefill",
    "attention.prims_ts": (
        "BatchDecodePagedTSWrapper BatchMLADecodePagedTSWrapper BatchPrefillPagedTSWrapper "
        "BatchPrefillTSWrapper BlockSparsePagedTSWrapper BlockSparseTSWrapper "
        "batch_decode_mla_with_paged_kv_cache batch_decode_with_paged_kv_cache batch_prefill "
        "batch_prefill_with_paged_kv_cache block_sparse block_sparse_attention "
        "block_sparse_attention_with_paged_kv_cache decode "
        "get_prims_ts_batch_decode_mla_workspace_size get_prims_ts_batch_decode_workspace_size "
        "prims_ts_batch_decode_with_kv_cache prims_ts_batch_decode_with_kv_cache_mla"
    ),
    "attention.prims_ts.block_sparse": (
        "BlockSparsePagedTSWrapper BlockSparseTSWrapper block_sparse_attention "
        "block_sparse_attention_with_paged_kv_cache"
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
    "attention.prims_ts.split_kv_mode_policy": "canonical_split_kv_mode select_split_kv_modes",
    "attn_scores": (
        "compute_paged_mqa_logits_schedule padded_context_len precompile_paged_mqa_logits"
    ),
    "autotuner": (
        "AutoTuner AutoTunerStatistics ConstraintSpec Dim DynamicDim DynamicTensorSpec "
        "OptimizationProfile ProfilingCacheKey StaticDim TunableRunner TuningConfig "
        "ValueProfileArena autotune autotuner_initializer_empty autotuner_initializer_ones "
        "autotuner_initializer_rand autotuner_initializer_rand_scaled autotuner_initializer_randn "
        "autotuner_initializer_zeros get_autotune_process_group is_in_profile_measurement "
        "make_bucket_mapper round_to_nearest_bucket set_autotune_process_group"
    ),
    "autotuner.autotuner": (
        "AutoTuner AutoTunerStatistics ConstraintSpec Dim DynamicDim DynamicTensorSpec "
        "OptimizationProfile Override OverrideStack ProfilingCacheKey StaticDim TunableRunner "
        "TuningConfig ValueProfileArena autotune get_autotune_process_group get_config_path "
        "is_in_profile_measurement load_from_file make_bucket_mapper round_to_nearest_bucket "
        "set_autotune_process_group"
    ),
    "autotuner.initializers": (
        "TensorInitializer autotuner_initializer_empty autotuner_initializer_ones "
        "autotuner_initializer_rand autotuner_initializer_rand_scaled autotuner_initializer_randn "
        "autotuner_initializer_zeros"
    ),
    "cake_fmha": (
        "cake_batch_context_with_kv_cache cake_batch_decode_with_kv_cache cake_fmha_manifest "
        "get_cake_fmha_module"
    ),
    "cake_vsa": "plan_cake_vsa run_cake_vsa",
    "cascade": (
        "BatchDecodeWithSharedPrefixPagedKVCacheWrapper "
        "BatchPrefillWithSharedPrefixPagedKVCacheWrapper MultiLevelCascadeAttentionWrapper "
        "merge_state merge_state_in_place merge_states"
    ),
    "collect_env": "collect_env_info format_report main",
    "comm": (
        "AllReduceFusionOp AllReduceFusionPattern AllReduceFusionWorkspace "
        "AllReduceStrategyConfig AllReduceStrategyType CudaRTLibrary "
        "MNNVLAllReduceFusionWorkspace Mapping MoeAlltoAll PCIE_IPC_CUSTOM_OP "
        "PcieIpcAllReduceWorkspace PcieIpcLaunchConfig PcieIpcVariant QuantizationSFLayout "
        "TRTLLMAllReduceFusionWorkspace ULYSSES_BACKENDS UlyssesBackendDecision "
        "UlyssesBackendError UlyssesCommunicator UlyssesRankTopology all_gather_matmul "
        "allreduce_fusion compute_fp4_swizzled_layout_sf_size create_allreduce_fusion_workspace "
        "create_shared_buffer decide_ulysses_backend decode_cp_a2a_allocate_mnnvl_workspace "
        "decode_cp_a2a_alltoall decode_cp_a2a_init_workspace decode_cp_a2a_workspace_size "
        "dispose_ulysses_a2a free_shared_buffer gen_pcie_ipc_comm_module gen_trtllm_comm_module "
        "gen_ulysses_a2a_module gen_vllm_comm_module get_pcie_ipc_comm_module "
        "get_pcie_ipc_launch_config get_ulysses_a2a_module init_ulysses_a2a "
        "moe_a2a_active_rank_mask moe_a2a_combine moe_a2a_dispatch "
        "moe_a2a_get_workspace_size_per_rank moe_a2a_initialize moe_a2a_sanitize_expert_ids "
        "moe_a2a_wrap_payload_tensor_in_workspace pack_strided_memory pcie_ipc_ar "
        "pcie_ipc_default_cache_path pcie_ipc_tuning probe_pcie_ipc_rank_topology "
        "probe_ulysses_rank_topology quantized_all_reduce resolve_pcie_ipc_profile "
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
    "comm.comm_backend": "MPIBackend MpiComm TorchDistBackend lazy_import_mpi",
    "comm.mapping": "Mapping",
    "comm.mixed_comm": (
        "MixedCommHandler MixedCommMode MixedCommOp ParallelInfo get_mixed_comm_module "
        "run_mixed_comm"
    ),
    "comm.mnnvl": (
        "CommBackend HandleExchanger MNNVL_DEBUG McastGPUBuffer MnnvlConfig MnnvlMemory MpiComm "
        "OMPI_COMM_TYPE_HOST SIGNAL_PAD_SIZE SymmDeviceMemory TorchDistBackend all_ranks_agree "
        "all_ranks_support_mnnvl alloc_and_copy_to_cuda create_tensor_from_cuda_memory "
        "handle_allgather handle_broadcast handle_cleanup handle_close is_mnnvl_fabric_supported "
        "is_multicast_supported make_handle_exchanger round_up test_cuda_memory_access"
    ),
    "comm.nvshmem_allreduce": "NVSHMEMAllReduce",
    "comm.trtllm_alltoall": (
        "MnnvlMoe MoEAlltoallInfo get_comm_alltoall_module get_moe_commworkspace_size_per_rank "
        "get_moe_prepare_workspace_size_per_rank moe_comm moe_comm_prepare_indices "
        "moe_local_gather moe_prepare set_moe_max_usable_sm_count"
    ),
    "comm.trtllm_ar": (
        "AllReduceFusionOp AllReduceFusionPattern AllReduceStrategyConfig AllReduceStrategyType "
        "BarrierFlagCount LamportTokenNumThreshold MAX_ALL_REDUCE_BLOCKS MAX_COMM_SIZE "
        "OneShotMaxToken QuantizationSFLayout check_trtllm_allreduce_fusion_workspace_metadata "
        "compute_fp4_swizzled_layout_sf_size get_trtllm_comm_module trtllm_allreduce_fusion "
        "trtllm_create_ipc_workspace_for_all_reduce "
        "trtllm_create_ipc_workspace_for_all_reduce_fusion trtllm_custom_all_reduce "
        "trtllm_destroy_ipc_workspace_for_all_reduce "
        "trtllm_destroy_ipc_workspace_for_all_reduce_fusion trtllm_lamport_initialize "
        "trtllm_lamport_initialize_all trtllm_moe_allreduce_fusion "
        "trtllm_moe_finalize_allreduce_fusion"
    ),
    "comm.trtllm_mnnvl_ar": (
        "MNNVLAllReduceFusionWorkspace MNNVLAllreduceFusionStrategy MNNVLQuantType "
        "MNNVL_ONE_SHOT_THRESHOLD get_allreduce_mnnvl_workspace get_trtllm_mnnvl_comm_module "
        "mpi_barrier trtllm_mnnvl_all_reduce trtllm_mnnvl_allreduce "
        "trtllm_mnnvl_fused_allreduce_add_rmsnorm trtllm_mnnvl_fused_allreduce_add_rmsnorm_quant "
        "trtllm_mnnvl_fused_allreduce_rmsnorm"
    ),
    "comm.workspace_base": "AllReduceFusionWorkspace",
    "compilation_context": "CompilationContext cutlass_supports_sm107",
    "concat_ops": "concat_mla_k",
    "cuda_utils": "checkCudaErrors cudart",
    "cudnn": "cudnn_batch_decode_with_kv_cache cudnn_batch_prefill_with_kv_cache prefill",
    "cute_dsl": (
        "AddRMSNormFP4QuantKernel FusedAddRMSNormKernel FusedAddRMSNormQuantKernel "
        "LayerNormKernel QKRMSNormKernel RMSNormFP4QuantKernel RMSNormKernel RMSNormQuantKernel "
        "Sm100BlockScaledPersistentDenseGemmKernel add_rmsnorm_fp4quant "
        "convert_sf_from_mma_layout convert_sf_to_mma_layout create_scale_factor_tensor "
        "fused_add_rmsnorm_cute fused_add_rmsnorm_quant_cute get_cutlass_dtype get_mma_sf_shape "
        "get_num_sm get_sm_version grouped_gemm_nt_masked is_cute_dsl_available layernorm_cute "
        "make_ptr qk_rmsnorm_cute rmsnorm_cute rmsnorm_fp4quant rmsnorm_quant_cute "
        "torch_to_cutlass_dtype"
    ),
    "cute_dsl.add_rmsnorm_fp4quant": (
        "AddRMSNormFP4QuantKernel add_rmsnorm_fp4quant get_sm_version"
    ),
    "cute_dsl.attention.wrappers.batch_decode": (
        "BatchDecodeCuteDSLWrapper BatchDecodePagedCuteDSLWrapper"
    ),
    "cute_dsl.attention.wrappers.batch_hca": "cute_dsl_hca_decode",
    "cute_dsl.attention.wrappers.batch_mla": "BatchMLADecodeCuteDSLWrapper",
    "cute_dsl.attention.wrappers.batch_prefill": "BatchPrefillCuteDSLWrapper",
    "cute_dsl.gemm_allreduce_two_shot": (
        "PersistentDenseGemmKernel sm_wise_inter_gpu_multimem_barrier "
        "spin_lock_atom_cas_acquire_wait spin_lock_multimem_arrive"
    ),
    "cute_dsl.rmsnorm_fp4quant": "RMSNormFP4QuantKernel get_sm_version rmsnorm_fp4quant",
    "cute_dsl.sparse.bsa_attn_sm100_blk128": "bsa_attn_sm100_blk128_fwd",
    "cute_dsl.sparse.bsa_attn_sm100_blk64": "bsa_attn_sm100_blk64_fwd",
    "cute_dsl.sparse.bsa_attn_sm120": "bsa_attn_sm120_blk64_fwd",
    "cute_dsl.utils": (
        "ceil_div convert_sf_from_mma_layout convert_sf_to_mma_layout current_cuda_stream "
        "cutlass_to_torch_dtype get_cutlass_dtype get_num_sm is_cute_dsl_arch_supported "
        "is_cute_dsl_available is_rubin_cute_dsl_available make_ptr require_cute_dsl_arch "
        "sm120_make_smem_layout_sfa sm120_make_smem_layout_sfb torch_dtype_to_cutlass "
        "torch_to_cutlass_dtype"
    ),
    "cutile": "is_cuda_tile_available",
    "decode": (
        "BatchDecodeMlaWithPagedKVCacheWrapper BatchDecodeWithPagedKVCacheWrapper "
        "CUDAGraphBatchDecodeWithPagedKVCacheWrapper TrtllmGenDecodeModule "
        "cudnn_batch_decode_with_kv_cache fast_decode_plan gen_batch_decode_module "
        "gen_single_decode_module get_batch_decode_metadata_mla "
        "get_prims_ts_batch_decode_workspace_size prims_ts_batch_decode_with_kv_cache "
        "single_decode_with_kv_cache single_decode_with_kv_cache_with_jit_module "
        "trtllm_batch_decode_sparse_mla_dsv4 trtllm_batch_decode_with_kv_cache "
        "trtllm_batch_decode_with_kv_cache_mla xqa_batch_decode_with_kv_cache "
        "xqa_batch_decode_with_kv_cache_mla xqa_mla"
    ),
    "deep_gemm": "get_col_major_tma_aligned_packed_tensor",
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
    "dsv3_ops": "concat_mla_k fused_topk_deepseek mm_M1_16_K7168_N128 mm_M1_16_K7168_N256",
    "fi_trace": "build_fi_trace_fn fi_trace register_fi_trace",
    "fp4_quantization": (
        "block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize "
        "gen_fp4_quantization_module gen_fp4_quantization_sm100_module "
        "gen_fp4_quantization_sm103_module gen_fp4_quantization_sm107_module "
        "gen_fp4_quantization_sm110_module gen_fp4_quantization_sm120_module "
        "gen_fp4_quantization_sm120f_module gen_fp4_quantization_sm121_module "
        "gen_fp4_quantization_sm90_module get_fp4_quantization_module mxfp4_dequantize "
        "mxfp4_dequantize_host mxfp4_quantize nvfp4_batched_quantize nvfp4_block_scale_interleave "
        "nvfp4_kv_dequantize nvfp4_kv_dequantize_paged nvfp4_kv_quantize nvfp4_quantize "
        "nvfp4_quantize_paged_kv_cache scaled_fp4_grouped_quantize shuffle_matrix_a "
        "shuffle_matrix_sf_a silu_and_mul_nvfp4_quantize"
    ),
    "fp8_quantization": (
        "get_mxfp8_quantization_sm100_module mxfp8_dequantize_host mxfp8_quantize"
    ),
    "fused_moe": (
        "ActivationConfig ActivationType B12xMoEWrapper B12xNvfp4Config B12xNvfp4Runner "
        "B12xW4A16Config B12xW4A16Runner BackendOptions CuteDslConfig CuteDslMoEWrapper "
        "CuteDslMxfp8Mxfp4MoEWrapper CuteDslNvfp4Runner CutlassBf16Config CutlassBf16Runner "
        "CutlassConfig CutlassW4A16Config CutlassW4A16Runner ExecutionConfig ExpertConfig "
        "Fp8QuantizationType MoEActivationPack MoEConfig MoEFinalizeConfig MoELayer MoEWeightPack "
        "QuantConfig QuantVariant RoutingConfig RoutingInputMode RoutingMethodType "
        "TrtllmBf16Config TrtllmBf16RoutedRunner TrtllmFp4Config TrtllmFp4RoutedRunner "
        "TrtllmFp8BlockConfig TrtllmFp8BlockRunner TrtllmFp8PerTensorConfig "
        "TrtllmFp8PerTensorRunner TrtllmGenRoutingResult TrtllmMoERoutingMetadata "
        "TrtllmMoERoutingMetadataSlot TrtllmMxInt4Config TrtllmMxInt4RoutedRunner WeightLayout "
        "alloc_scratchpad alphamoe_fp8_block_scale_aligned_moe alphamoe_fused_router "
        "alphamoe_interleave_gated_weights alphamoe_nvfp4_aligned_moe api b12x_fused_moe bgmv_moe "
        "bgmv_moe_expand bgmv_moe_gemm1_lora_delta bgmv_moe_gemm2_lora_delta bgmv_moe_shrink "
        "convert_to_block_layout core cute_dsl_fused_moe_mxfp8_mxfp4 cute_dsl_fused_moe_nvfp4 "
        "cutlass_fused_moe cutlass_fused_moe_workspace_size fill_w_ptr fused_topk_deepseek "
        "gen_cutlass_fused_moe_sm100_module gen_cutlass_fused_moe_sm103_module "
        "gen_cutlass_fused_moe_sm120_module gen_cutlass_fused_moe_sm90_module "
        "gen_trtllm_gen_fused_moe_sm100_module get_scratchpad_size_bytes has_bgmv_moe has_monomoe "
        "hash_topk interleave_for_tma_wgmma_up interleave_moe_scales_for_sm90_mixed_gemm "
        "interleave_moe_weights_for_sm90_mixed_gemm layer mono_moe "
        "preprocess_moe_weights_for_sm90_mixed_gemm_humming reorder_rows_for_gated_act_gemm "
        "trtllm_bf16_moe trtllm_bf16_routed_moe trtllm_fp4_block_scale_moe "
        "trtllm_fp4_block_scale_routed_moe trtllm_fp8_block_scale_moe "
        "trtllm_fp8_block_scale_routed_moe trtllm_fp8_per_tensor_scale_moe "
        "trtllm_fp8_per_tensor_scale_routed_moe trtllm_gen_routing "
        "trtllm_moe_acquire_da_graph_leases trtllm_moe_allocate_routing_metadata "
        "trtllm_moe_allocate_routing_metadata_multi_tile trtllm_moe_da_diagnostics "
        "trtllm_moe_release_da_resources trtllm_mxint4_block_scale_moe "
        "trtllm_mxint4_block_scale_routed_moe"
    ),
    "gdn2_prefill": "chunk_gated_delta_rule2",
    "gdn_decode": (
        "gated_delta_rule_decode gated_delta_rule_decode_pretranspose gated_delta_rule_mtp"
    ),
    "gdn_kernels": (
        "chunk_gated_delta_rule_sm100 chunk_gated_delta_rule_sm120 chunk_gated_delta_rule_sm90 "
        "cp_delta_rule_dsl_sm100 cp_delta_rule_dsl_sm120 cp_delta_rule_dsl_sm90 experimental "
        "gated_delta_rule gated_delta_rule_bf16state_cooprow "
        "gated_delta_rule_bf16state_cooprow_mtp gated_delta_rule_mtp gated_delta_rule_mtp_ucache "
        "gated_delta_rule_mtp_ucache_flush gated_delta_rule_mtp_wy_output_only get_mtp_config "
        "get_tile_v_mtp get_vec_size_mtp run_mtp_decode run_nontranspose_decode "
        "run_pretranspose_decode"
    ),
    "gdn_prefill": "chunk_gated_delta_rule",
    "gdp_prefill": "chunk_gated_delta_product",
    "gemm": (
        "SegmentGEMMWrapper Sm100BlockScaledPersistentDenseGemmKernel "
        "batch_deepgemm_fp8_nt_groupwise bmm_bf16 bmm_fp8 bmm_mxfp8 create_scale_factor_tensor "
        "fp8_blockscale_gemm_sm90 gemm_base gemm_fp8_nt_blockscaled gemm_fp8_nt_groupwise "
        "group_deepgemm_fp8_nt_groupwise group_gemm_fp8_nt_groupwise "
        "group_gemm_mxfp4_nt_groupwise group_gemm_mxfp8_mxfp4_nt_groupwise "
        "group_gemm_nvfp4_nt_groupwise grouped_gemm_nt_masked is_cuda_tile_available "
        "mm_M1_16_K6144_N256 mm_M1_16_K7168_N128 mm_M1_16_K7168_N256 mm_bf16 mm_bf16_fp4 mm_fp4 "
        "mm_fp8 mm_mxfp8 mm_nvfp4_svdquant nvfp4_quantize_smooth prepare_bf16_fp4_weights "
        "svdquant_linear tgv_gemm_sm100 tinygemm_bf16"
    ),
    "green_ctx": (
        "create_green_ctx_streams get_cudevice get_device_resource get_sm_count_constraint "
        "split_device_green_ctx split_device_green_ctx_by_sm_count split_resource "
        "split_resource_by_sm_count"
    ),
    "grouped_mm": (
        "grouped_mm_bf16 grouped_mm_fp4 grouped_mm_fp8 grouped_mm_mxfp8 moe_gemm_fp8_nt_groupwise "
        "moe_gemm_mxfp8_nt_groupwise"
    ),
    "jit": (
        "JitSpec JitSpecCuteDsl JitSpecNvcc JitSpecRegistry JitSpecStatus MissingJITCacheError "
        "build_jit_specs cake_flash_kda_packed_t1 cake_kda_packed_t1 clear_cache_dir core cpp_ext "
        "cubin_loader current_compilation_context cute_dsl_core env flash_kda_decode "
        "gen_act_and_mul_module gen_batch_attention_module gen_batch_decode_mla_module "
        "gen_batch_decode_module gen_batch_mla_module gen_batch_pod_module "
        "gen_batch_prefill_module gen_bgmv_moe_module gen_comm_alltoall_module "
        "gen_cudnn_fmha_module gen_customize_batch_decode_module "
        "gen_customize_batch_prefill_module gen_customize_single_decode_module "
        "gen_customize_single_prefill_module gen_dcp_alltoall_module "
        "gen_dsv3_fused_routing_module gen_dsv3_router_gemm_module gen_flash_kda_m128_module "
        "gen_flash_kda_m128_n16_module gen_flash_kda_m64_module gen_fmha_cutlass_sm100a_module "
        "gen_fmha_v2_module gen_fp4_kv_dequantization_module gen_fp4_kv_quantization_module "
        "gen_hash_topk_module gen_jit_spec gen_moe_alltoall_module gen_moe_utils_module "
        "gen_monomoe_module gen_nvfp4_attention_sm120_module gen_pcie_ipc_comm_module "
        "gen_pod_module gen_single_decode_module gen_single_prefill_module gen_tinygemm2_module "
        "gen_tinygemm2_sm100_module gen_trtllm_comm_module gen_trtllm_fmha_v2_sm120_module "
        "gen_trtllm_gen_fmha_module gen_trtllm_mnnvl_comm_module gen_vllm_comm_module "
        "get_act_and_mul_cu_str get_batch_attention_uri get_batch_decode_mla_uri "
        "get_batch_decode_uri get_batch_mla_uri get_batch_prefill_uri "
        "get_flash_kda_prefill_module get_pod_uri get_single_decode_uri get_single_prefill_uri "
        "jit_spec_registry load_bgmv_moe_module load_flash_kda_m128_module "
        "load_flash_kda_m128_n16_module load_flash_kda_m64_module load_monomoe_module "
        "setup_cubin_loader sm100a_nvcc_flags sm100f_nvcc_flags sm103a_nvcc_flags "
        "sm107a_nvcc_flags sm110a_nvcc_flags sm120a_nvcc_flags sm120f_nvcc_flags "
        "sm121a_nvcc_flags sm90a_nvcc_flags"
    ),
    "jit.core": (
        "FlashInferJITLogger JitSpec JitSpecNvcc JitSpecRegistry JitSpecStatus "
        "MissingJITCacheError build_jit_specs check_cuda_arch clear_cache_dir common_nvcc_flags "
        "current_compilation_context gen_jit_spec get_tmpdir jit_spec_registry sm100a_nvcc_flags "
        "sm100f_nvcc_flags sm103a_nvcc_flags sm107a_nvcc_flags sm110a_nvcc_flags "
        "sm120a_nvcc_flags sm120f_nvcc_flags sm121a_nvcc_flags sm89_nvcc_flags sm90a_nvcc_flags"
    ),
    "jit.cpp_ext": (
        "build_cflags build_common_cflags build_cuda_cflags generate_ninja_build_for_op "
        "get_cccl_includes get_cuda_path get_cuda_version get_nvcc_parallelism_flags "
        "get_system_includes is_cuda_version_at_least join_multiline parse_env_flags run_ninja"
    ),
    "jit.cubin_loader": (
        "FLASHINFER_CUBINS_REPOSITORY convert_to_ctypes_char_p dll_cubin_handlers download_file "
        "ensure_symlink get_artifact get_cubin get_meta_hash load_cubin safe_urljoin "
        "setup_cubin_loader verify_cubin verify_symlinked_headers"
    ),
    "jit.env": (
        "CCCL_INCLUDE_DIRS CUTLASS_INCLUDE_DIRS FLASHINFER_AOT_DIR FLASHINFER_BASE_DIR "
        "FLASHINFER_CACHE_DIR FLASHINFER_CSRC_DIR FLASHINFER_CUBIN_DIR FLASHINFER_DATA "
        "FLASHINFER_GEN_SRC_DIR FLASHINFER_INCLUDE_DIR FLASHINFER_JIT_DIR "
        "FLASHINFER_WORKSPACE_DIR SPDLOG_INCLUDE_DIR has_flashinfer_cubin "
        "has_flashinfer_jit_cache"
    ),
    "kda": "RecurrentKDAPrefillWrapper recurrent_kda",
    "kda_decode": "fused_kda_decode packed_kda_decode recurrent_kda",
    "kda_kernels": (
        "can_implement_kda_prefill_sm120 clear_kda_prefill_sm120_caches fused_kda_decode "
        "packed_kda_decode recurrent_kda run_fused_kda_decode run_kda_prefill_sm120 "
        "run_packed_kda_decode run_recurrent_kda sm120_prefill"
    ),
    "kda_prefill": "RecurrentKDAPrefillWorkspace",
    "logits_processor": (
        "CompileError Compiler FusionRule LegalizationError LogitsPipe LogitsProcessor MinP Op "
        "ParameterizedOp Sample Softmax TaggedTensor Temperature TensorType TopK TopP "
        "compile_pipeline legalize_processors"
    ),
    "logits_processor.compiler": "Compiler compile_pipeline",
    "logits_processor.fusion_rules": (
        "FusionRule build_minp_sampling build_temperature_softmax build_topk_sampling "
        "build_topp_sampling get_default_fusion_rules joint_topk_topp_sampleprobs_guard"
    ),
    "logits_processor.legalization": (
        "LegalizationError infer_initial_type legalize_processors validate_processor_chain"
    ),
    "logits_processor.op": "Op ParameterizedOp",
    "logits_processor.operators": (
        "FusedProbsMinPSampleOp FusedProbsTopKSampleOp FusedProbsTopKTopPSampleOp "
        "FusedProbsTopPSampleOp FusedTemperatureSoftmaxOp LogitsSampleOp LogitsTopKOp MinPOp "
        "ProbsSampleOp ProbsTopKOp SoftmaxOp TemperatureOp TopPOp"
    ),
    "logits_processor.pipeline": "LogitsPipe",
    "logits_processor.processors": "LogitsProcessor MinP Sample Softmax Temperature TopK TopP",
    "logits_processor.types": "TaggedTensor TensorType",
    "logits_processor.validators": (
        "CompileError ValidityCheck get_default_validity_checks indices_terminal_rule "
        "single_softmax_rule validate_pipeline"
    ),
    "mamba": (
        "SSDCombined cake_selective_state_update checkpointing_ssu replayssm_materialize "
        "selective_state_update ssd_combined_fwd"
    ),
    "mhc": "mhc_post mhc_pre_big_fuse mhc_pre_big_fuse_with_prenorm",
    "mla": (
        "BatchMLAPagedAttentionWrapper CuteDslMlaDecodeRunner DSV4HCAMetadata MLAHeadDimensions "
        "MLALayerDimensions TrtllmGenMlaDecodeRunner batch_decode_sparse_mla_dsv4 "
        "convert_compressed_page_aligned_sparse_indices_to_hca_metadata deepseek_mla_dimensions "
        "get_batch_mla_module get_mla_module get_prims_ts_batch_decode_mla_workspace_size "
        "get_trtllm_gen_fmha_module nope_mla_dimensions prims_ts_batch_decode_with_kv_cache_mla "
        "smaller_mla_dimensions supported_mla_head_dimensions supported_mla_layer_dimensions "
        "trtllm_batch_decode_sparse_mla_dsv4 trtllm_batch_decode_with_kv_cache_mla "
        "xqa_batch_decode_with_kv_cache_mla"
    ),
    "moe_ep": (
        "AlgoKnob Bf16CutedslMegaMoeConfig BootstrapConfig CombineInputParams CombineOutput "
        "DeepGemmMegaMoeConfig DispatchInputParams DispatchOutput EpAlgorithm EpLayout Fleet "
        "FleetAlgoKnobAllocator FleetAlgoKnobFaultTolerance FleetAlgoKnobNumChannelsPerRank "
        "FleetAlgoKnobNumQpsPerRank FleetAlgoKnobQuantization FleetAlgoKnobRdmaBufferSize "
        "FleetAlgoKnobTopologyCapacity FleetParams FusedMoeKernelConfig Handle "
        "HandleAlgoKnobNumReceivedTokens HandleAlgoKnobSplitOperation HandleAlgoKnobTopKWeights "
        "HandleAlgoKnobUserStream HandleParams IdentityConfig MegaConfig MoEEpArchError "
        "MoEEpConfigError MoEEpFaultToleranceUnsupportedError MoEEpLayer MoEEpMegaLayer "
        "MoEEpNotBuiltError MoEEpRankEvictedError MoEEpSplitLayer MoEEpTensors "
        "MoEEpTransportError MoEWeightPack Mxfp8CutedslMegaMoeConfig NCCLEPConfig NcclEpConfig "
        "NvepConfig Nvfp4CutedslMegaMoeConfig PrequantizedMoEWeights QuantType "
        "Sm100_Bf16_Bf16_Bf16_Cutedsl_MegaMoeConfig Sm100_Fp8_Fp4_Bf16_Deepgemm_MegaMoeConfig "
        "Sm100_Mxfp8_Mxfp4_Bf16_Cutedsl_SplitConfig Sm100_Mxfp8_Mxfp8_Bf16_Cutedsl_MegaMoeConfig "
        "Sm100_Nvfp4_Nvfp4_Bf16_Cutedsl_MegaMoeConfig Sm90PullFp8MegaMoeConfig "
        "Sm90PushFp8MegaMoeConfig Sm90_Fp8_Fp8_Bf16_PullCutedsl_MegaMoeConfig "
        "Sm90_Fp8_Fp8_Bf16_PushCuda_MegaMoeConfig SplitConfig SplitKernelContext "
        "UnquantizedMoEWeights available_backends bootstrap_comm_group bootstrap_ep_rank_world "
        "bootstrap_ep_world_size bootstrap_moe_ep_runtime create_fleet dummy_moe_weights "
        "ensure_bootstrap_dist_validated ensure_moe_ep_cuda_device finalize_moe_ep_runtime "
        "have_nccl_ep have_nixl_ep kernel_requires_weights preprocess_bf16_cutedsl_mega_weights "
        "preprocess_mega_weights preprocess_mxfp8_cutedsl_mega_weights "
        "preprocess_nvfp4_cutedsl_mega_weights preprocess_sm90_pull_fp8_mega_weights "
        "preprocess_sm90_push_fp8_mega_weights run_split_kernel supports_fault_tolerance "
        "validate_arch_for_backend validate_bootstrap_process_group_ready "
        "validate_bootstrap_world_size validate_fleet_params validate_fleet_weights "
        "validate_mega_arch validate_mega_fleet_params validate_mega_forward_inputs "
        "validate_split_forward_inputs"
    ),
    "moe_ep.algo_knobs": (
        "AlgoKnob FleetAlgoKnobAllocator FleetAlgoKnobFaultTolerance "
        "FleetAlgoKnobNumChannelsPerRank FleetAlgoKnobNumQpsPerRank FleetAlgoKnobQuantization "
        "FleetAlgoKnobRdmaBufferSize FleetAlgoKnobTopologyCapacity "
        "HandleAlgoKnobNumReceivedTokens HandleAlgoKnobSplitOperation HandleAlgoKnobTopKWeights "
        "HandleAlgoKnobUserStream"
    ),
    "moe_ep.config": (
        "BootstrapConfig CombineInputParams CombineOutput DispatchInputParams DispatchOutput "
        "EpAlgorithm EpLayout FleetParams HandleParams QuantType"
    ),
    "moe_ep.errors": (
        "MoEEpFaultToleranceUnsupportedError MoEEpNotBuiltError MoEEpRankEvictedError "
        "MoEEpTransportError"
    ),
    "moe_ep.layer": "MoEEpLayer MoEEpMegaLayer MoEEpSplitLayer",
    "moe_ep.tensors": "MoEEpTensors",
    "moe_ep.tune": "main",
    "moe_ep.weights": (
        "MoEWeightPack PrequantizedMoEWeights UnquantizedMoEWeights dummy_moe_weights"
    ),
    "msa_ops": (
        "MSASparseAttentionWorkspace SUPPORTS_PACKED_KV msa_proxy_score msa_proxy_score_fp4 "
        "msa_sparse_attention msa_sparse_decode_attention msa_topk_select "
        "prepare_msa_nvfp4_sparse_decode supports_packed_kv"
    ),
    "norm": (
        "fused_add_rmsnorm fused_add_rmsnorm_fp8_block_quant fused_add_rmsnorm_quant "
        "fused_dit_gate_residual_layernorm_gamma_beta "
        "fused_dit_gate_residual_layernorm_scale_shift fused_dit_residual_layernorm_scale_shift "
        "fused_qk_rmsnorm_rope fused_rmsnorm_silu gemma_fused_add_rmsnorm gemma_rmsnorm "
        "gen_norm_module layernorm layernorm_quant rmsnorm rmsnorm_quant"
    ),
    "nvfp4_attention_sm120": "nvfp4_attention_sm120_fwd nvfp4_attention_sm120_quantize_qkv",
    "page": (
        "append_paged_kv_cache append_paged_mla_kv_cache gen_page_module "
        "get_batch_indices_positions nvfp4_quantize_append_paged_kv_cache "
        "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping"
    ),
    "parallel_attention": (
        "ParallelAttention UnevenCPConfig VarlenCPConfig get_parallel_groups ring_varlen_config "
        "split_varlen_input ulysses_varlen_config uneven_cp_config"
    ),
    "pod": "BatchPODWithPagedKVCacheWrapper PODWithPagedKVCacheWrapper",
    "prefill": (
        "BatchPrefillWithPagedKVCacheWrapper BatchPrefillWithRaggedKVCacheWrapper "
        "cudnn_batch_prefill_with_kv_cache fmha_v2_prefill_deepseek fmha_v2_prefill_sm120 "
        "fmha_varlen fmha_varlen_plan gen_batch_prefill_module gen_single_prefill_module "
        "make_hashable_cache single_prefill_with_kv_cache single_prefill_with_kv_cache_return_lse "
        "single_prefill_with_kv_cache_with_jit_module trtllm_batch_context_with_kv_cache "
        "trtllm_fmha_v2_prefill trtllm_ragged_attention_deepseek trtllm_sage_attention_quantize"
    ),
    "profiler": "EventType decode_tag export_to_perfetto_trace",
    "quantization": (
        "SfLayout block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize "
        "fp8_quantization gen_quantization_module get_fp4_quantization_module mxfp4_dequantize "
        "mxfp4_dequantize_host mxfp4_quantize mxfp4_quantize_cute_dsl mxfp8_dequantize_host "
        "mxfp8_grouped_quantize mxfp8_quantize mxfp8_quantize_cute_dsl nvfp4_batched_quantize "
        "nvfp4_block_scale_interleave nvfp4_kv_dequantize nvfp4_kv_dequantize_paged "
        "nvfp4_kv_quantize nvfp4_quantize nvfp4_quantize_cute_dsl nvfp4_quantize_paged_kv_cache "
        "nvfp4_quantize_per_token_cute_dsl packbits per_token_group_quant_8bit "
        "scaled_fp4_grouped_quantize segment_packbits shuffle_matrix_a shuffle_matrix_sf_a "
        "silu_and_mul_nvfp4_quantize"
    ),
    "quantization.fp4_quantization": (
        "NVFP4_QUANT_ENV_VARS block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize "
        "mxfp4_dequantize mxfp4_dequantize_host mxfp4_quantize nvfp4_batched_quantize "
        "nvfp4_block_scale_interleave nvfp4_kv_dequantize nvfp4_kv_dequantize_paged "
        "nvfp4_kv_quantize nvfp4_quantize nvfp4_quantize_paged_kv_cache "
        "scaled_fp4_grouped_quantize shuffle_matrix_a shuffle_matrix_sf_a "
        "silu_and_mul_nvfp4_quantize"
    ),
    "quantization.fp8_quantization": (
        "get_mxfp8_grouped_quantization_module mxfp8_dequantize_host mxfp8_grouped_quantize "
        "mxfp8_quantize per_token_group_quant_8bit"
    ),
    "quantization.kernels.mxfp4_quantize": "mxfp4_quantize_cute_dsl",
    "quantization.kernels.mxfp8_quantize": "mxfp8_quantize_cute_dsl",
    "quantization.kernels.nvfp4_quantize": (
        "nvfp4_quantize_cute_dsl nvfp4_quantize_per_token_cute_dsl"
    ),
    "quantization.nvfp4_quantization_utils": (
        "FLOAT4_E2M1_MAX FLOAT8_E4M3_MAX NVFP44Over6Config NVFP44Over6ErrMode "
        "current_nvfp4_4over6_config env_flag_enabled make_nvfp4_global_scale "
        "nvfp4_4over6_mode_label nvfp4_e4m3_max"
    ),
    "quantization.packbits": "packbits segment_packbits",
    "rope": (
        "apply_llama31_rope apply_llama31_rope_inplace apply_llama31_rope_pos_ids "
        "apply_llama31_rope_pos_ids_inplace apply_rope apply_rope_inplace apply_rope_pos_ids "
        "apply_rope_pos_ids_inplace apply_rope_with_cos_sin_cache "
        "apply_rope_with_cos_sin_cache_inplace mla_rope_quantize_fp8 rope_quantize_fp8 "
        "rope_quantize_fp8_append_paged_kv_cache"
    ),
    "sampling": (
        "chain_speculative_sampling gen_sampling_module min_p_sampling_from_probs "
        "sampling_from_logits sampling_from_probs softmax top_k_mask_logits top_k_renorm_prob "
        "top_k_renorm_probs top_k_sampling_from_probs top_k_top_p_sampling_from_logits "
        "top_k_top_p_sampling_from_probs top_p_renorm_prob top_p_renorm_probs "
        "top_p_sampling_from_probs"
    ),
    "sparse": (
        "BlockSparseAttentionWrapper VariableBlockSparseAttentionWrapper convert_bsr_mask_layout"
    ),
    "tactics_blocklist": "TacticsBlocklist",
    "tactics_blocklist_gen": "PROBE_FUNCTIONS generate",
    "testing": (
        "attention_flops attention_flops_with_actual_seq_lens attention_tb_per_sec "
        "attention_tb_per_sec_with_actual_seq_lens attention_tflops_per_sec "
        "attention_tflops_per_sec_with_actual_seq_lens bench_gpu_time "
        "bench_gpu_time_with_cuda_event bench_gpu_time_with_cudagraph bench_gpu_time_with_cupti "
        "set_seed sleep_after_kernel_run"
    ),
    "testing.utils": (
        "aggregate_gpu_time_across_ranks attention_flops attention_flops_with_actual_seq_lens "
        "attention_tb_per_sec attention_tb_per_sec_with_actual_seq_lens attention_tflops_per_sec "
        "attention_tflops_per_sec_with_actual_seq_lens bench_gpu_time "
        "bench_gpu_time_with_cuda_event bench_gpu_time_with_cudagraph bench_gpu_time_with_cupti "
        "bench_kineto calculate_rotation_count count_bytes dequantize_fp8 empty_suppress "
        "get_l2_cache_size per_block_cast_to_fp8 per_token_cast_to_fp8 quantize_fp8 set_seed "
        "sleep_after_kernel_run suppress_stdout_stderr"
    ),
    "tllm_enums": (
        "ActivationType DEFAULT_SITU_BETA DEFAULT_SITU_LINEAR_BETA DEFAULT_SWIGLU_ALPHA "
        "DEFAULT_SWIGLU_BETA DEFAULT_SWIGLU_LIMIT DtypeTrtllmGen Fp8QuantizationType GatedActType "
        "RoutingInputMode RoutingMethodType SfLayout WeightLayout deduce_trtllm_gen_tensor_dtype "
        "is_gated_activation normalize_activation_type trtllm_gen_dtype_has_scale"
    ),
    "tllm_utils": "delay_kernel",
    "topk": (
        "TopKTieBreak can_implement_filtered_topk can_use_clusters_topk roundup_kbyte top_k "
        "top_k_page_table_transform top_k_ragged_transform topk topk_clusters_exact "
        "topk_clusters_page_table_transform topk_clusters_ragged_transform"
    ),
    "topk_varlen.topk_varlen": "top_k_varlen",
    "trace": (
        "BuildSpec Const Scalar Solution SourceFile SupportedBindings SupportedLanguages Tensor "
        "TraceTemplate Var default_check default_tolerances standard_check"
    ),
    "trace.solution": "BuildSpec Solution SourceFile SupportedBindings SupportedLanguages",
    "trace.template": (
        "Const Scalar Tensor TraceTemplate Var default_check default_tolerances standard_check"
    ),
    "trace_apply": "adapt disable_apply enable_apply is_enabled stats",
    "triton": "cascade sm_constraint_gemm",
    "triton.activation": "silu_and_mul",
    "triton.cascade": (
        "EXPECT_HOPPER merge_state merge_state_in_place merge_states variable_length_merge_states"
    ),
    "triton.gemm": (
        "compute_padding_mapping compute_sm80_group_gemm_args compute_sm90_group_gemm_args"
    ),
    "triton.norm": "rms_norm rms_norm_add_residual",
    "triton.page": "get_batch_indices_positions_kernel",
    "triton.sm_constraint_gemm": "gemm gemm_descriptor_persistent gemm_persistent",
    "trtllm_low_latency_gemm": "prepare_low_latency_gemm_weights trtllm_low_latency_gemm",
    "utils": (
        "BackendSupportedError FP4Tensor GPUArchitectureError LibraryError LogLevel MaskMode "
        "PosEncodingMode SINGLE_KERNEL_TMP_SIZE TensorLayout backend_requirement "
        "calculate_tile_tokens_dim canonicalize_torch_dtype ceil_div check_shape_dtype_device "
        "check_trtllm_gen_sm107_only_feature determine_attention_backend determine_gemm_backend "
        "determine_mla_backend device_support_pdl get_alibi_slopes get_compute_capability "
        "get_cuda_python_version get_default_generators get_device_index get_device_name "
        "get_device_properties get_device_sm_count get_globaltimer_kernel "
        "get_gpu_memory_bandwidth get_indptr get_logging_module get_native_fp4_dtype "
        "get_shared_bytes_per_block_optin get_shuffle_block_size get_shuffle_matrix_a_row_indices "
        "get_shuffle_matrix_sf_a_row_indices get_trtllm_gen_multi_ctas_kv_counter_bytes "
        "has_cuda_cudart has_flashinfer_jit_cache is_confidential_compute "
        "is_cutlass_backend_supported is_cvt_rs_supported is_fa3_backend_supported "
        "is_fa3_prefill_head_dim_supported is_float8 is_sm100a_supported is_sm100f_supported "
        "is_sm110a_supported is_sm120a_supported is_sm120f_supported is_sm121a_supported "
        "is_sm12x_supported is_sm90a_supported last_positive_power_of_2 log2e log_level_map "
        "next_positive_power_of_2 prepare_jit_additional_args register_custom_op register_fake_op "
        "round_up set_log_level srcToDstBlk16RowMap srcToDstBlk32RowMap "
        "supported_compute_capability version_at_least"
    ),
    "xqa": "xqa xqa_mla",
}
