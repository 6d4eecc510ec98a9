// SPDX-License-Identifier: Apache-2.0
//
// Cases of the attention family. Unused page tails and foreign pages hold NaN in every case.

#include "ops_test.h"

static const char *const batch_decode_cases[] = {
    /* dtypes, layouts, optional results */
    "batch_decode x=f16,bf16,f32 kv_layout=NHD,HND lse=given,none",
    "batch_decode x=f16 kv_data_type=f8_e4m3fn,f8_e5m2 lse=given",
    "batch_decode x=f8_e4m3fn,f8_e5m2 lse=given",
    "batch_decode x=f8_e4m3fn o_data_type=f8_e4m3fn,f8_e5m2,f16,f32 o_scale=0.01 v_scale=0.5",
    "batch_decode x=f32 kv_data_type=f16,bf16 o_data_type=bf16,f32 lse=given",
    "batch_decode x=bf16 lse=given return_lse_base_on_e=1",
    /* lengths and pages */
    "batch_decode len=0:1:7:8:9:63:64:65:128:300 page=1,3,16,19,128,256,512 x=f16 lse=given",
    "batch_decode len=0:0:0 x=f16 lse=given",
    "batch_decode b=0 x=f16 lse=given",
    "batch_decode len=16:32:16 page=16 spare=0 x=f32 lse=given", /* a full pool */
    "batch_decode b=1 len=5000 x=f32 lse=given h_q=8 h_kv=1",    /* split */
    "batch_decode len=3000:1:700:0:2 x=f16 lse=given kv_layout=NHD,HND",
    "batch_decode b=600 max=40 x=f16 page=16",
    "batch_decode block_tables=given len=0:5:64:100 x=f16 page=16 lse=given",
    "batch_decode seq_lens=given len=0:5:64:100 x=f16 page=16 lse=given",
    "batch_decode block_tables=given block_tables.pad=3 len=9:30 x=f16 page=4",
    /* heads and sizes */
    "batch_decode h_q=1,2,3,5,6,7,8 h_kv=1 x=f16 lse=given",
    "batch_decode h_q=16,32,64,12 h_kv=1 x=bf16",
    "batch_decode h_q=24 h_kv=4,8,24 x=f16",
    "batch_decode d=8,16,24,80,96,112,192,224,256,512,576 x=f16 b=2 lse=given",
    "batch_decode d_qk=192 d_vo=128 x=bf16 b=2 lse=given",
    "batch_decode d_qk=64 d_vo=200 x=f32 b=2 h_q=24 h_kv=2",
    "batch_decode b=12 d_qk=192 d_vo=128 causal=0 x=f16",
    /* logits */
    "batch_decode x=f32 window_left=0,1,5,63,64,200 lse=given b=8",
    "batch_decode x=f32 logits_soft_cap=30,1 lse=given",
    "batch_decode x=f32 logits_soft_cap=0 sm_scale=0.2,0,-0.5 lse=given",
    "batch_decode x=f32 sm_scale=20 logits_soft_cap=5 lse=given", /* far above the cap */
    "batch_decode x=f32 pos_encoding_mode=ALIBI h_q=8,12,6 lse=given",
    "batch_decode x=f32 pos_encoding_mode=ALIBI logits_soft_cap=3 lse=given",
    "batch_decode x=f32,f16 pos_encoding_mode=ROPE_LLAMA lse=given kv_layout=NHD,HND",
    "batch_decode x=f32 pos_encoding_mode=ROPE_LLAMA rope_scale=4 rope_theta=500000 d=24,80,128",
    "batch_decode x=f16 kv_data_type=f8_e4m3fn pos_encoding_mode=ROPE_LLAMA window_left=20",
    "batch_decode x=f32 sinks=given lse=given len=0:1:30:70",
    "batch_decode x=f32 sinks=given lse=given len=4000:3 window_left=-1,5 h_q=8 h_kv=1",
    /* scales */
    "batch_decode x=f32 q_scale=0.5 k_scale=2 v_scale=3 o_scale=4 lse=given",
    "batch_decode x=f16 k_scale=tensor v_scale=tensor q_scale=tensor o_scale=tensor lse=given",
    "batch_decode x=f16 k_scale=tensor k_scale.shape=scalar v_scale=tensor v_scale.shape=1",
    /* several query tokens, masks */
    "batch_decode x=f32 q_len_per_req=2,3,8,40 lse=given b=4",
    "batch_decode x=f32 q_len_per_req=4 causal=0 lse=given len=0:2:4:9",
    "batch_decode x=f16 q_len_per_req=3 window_left=0,2,30 len=1:2:3:31:32:33:70 lse=given",
    "batch_decode x=f16 kv_data_type=f8_e4m3fn q_len_per_req=4 window_left=1023 len=1022:1023:1030",
    "batch_decode x=f32 q_len_per_req=5 custom_mask=given lse=given b=5",
    "batch_decode x=f32 q_len_per_req=5 packed_custom_mask=given lse=given b=5 h_q=6 h_kv=1",
    "batch_decode x=f32 q_len_per_req=7 packed_custom_mask=given window_left=20 sinks=given",
    "batch_decode x=f16 q_len_per_req=20 custom_mask=given max=300 h_q=8 h_kv=1 lse=given",
    /* views */
    "batch_decode x=bf16 q.pad=8 out.pad=24 lse=given lse.pad=3 k_cache.pad=8 v_cache.pad=16",
    "batch_decode x=f16 k_cache.order=0:2:1:3 v_cache.order=2:0:1:3 q.order=1:0:2 lse=given",
    "batch_decode x=f16 q.offset=64 k_cache.offset=8 out.offset=3 lse=given",
    /* splits */
    "batch_decode x=f32 fixed_split_size=1,4,100,0,-1 len=0:1:64:400:900 lse=given",
    "batch_decode x=f32 disable_split_kv=1 len=0:1:64:4000 lse=given",
    "batch_decode x=f32 max_batch_size=10 max_sequence_kv=1000 fixed_split_size=3 lse=given",
    /* refusals that rows cannot say */
    "batch_decode h_q=5 h_kv=2 expect=invalid_argument:num_qo_heads",
    "batch_decode d=12 expect=unsupported:head_dim",
    "batch_decode d=584 expect=unsupported:head_dim",
    "batch_decode d_vo=12 d_qk=64 expect=unsupported:head_dim_vo",
    "batch_decode window_left=-2 expect=invalid_argument:window_left",
    "batch_decode q_len_per_req=0 expect=invalid_argument:q_len_per_req",
    "batch_decode logits_soft_cap=-1 expect=invalid_argument:logits_soft_cap",
    "batch_decode rope_theta=0 expect=invalid_argument:rope_theta",
    "batch_decode max_batch_size=2 b=3 expect=invalid_argument:max_batch_size",
    "batch_decode max_sequence_kv=10 len=5:20 expect=invalid_argument:max_sequence_kv",
    "batch_decode k_scale=tensor k_scale.shape=3 expect=invalid_argument:k_scale",
};
BOLIDE_TEST(batch_decode, batch_decode_cases);
