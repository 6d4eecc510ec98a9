// SPDX-License-Identifier: Apache-2.0
//
// Cases of the attention family. Unused page tails and foreign pages hold NaN in every case.

#include "ops_test.h"

static const char *const batch_decode_cases[] = {
    /* dtypes, layouts, optional results */
    "batch_decode x=f16,bf16,f32 kv_layout=NHD,HND lse=given,none",
    "batch_decode x=f16 kv_data_type=f8_e4m3fn,f8_e5m2 lse=given",
    "batch_decode x=f8_e4m3fn,f8_e5m2 lse=given",
    "batch_decode x=bf16 kv_data_type=f8_e4m3fn,f8_e5m2 lse=given len=0:5:64:130:300",
    "batch_decode x=bf16 kv_data_type=f8_e4m3fn q.values=tiny,zero lse=given",
    "batch_decode x=f8_e4m3fn o_data_type=f8_e4m3fn,f8_e5m2,f16,f32 o_scale=0.01 v_scale=0.5",
    /* beyond the range; with values of one sign, lest a sum near 0 err from one end to the other */
    "batch_decode x=f8_e4m3fn,f16 o_data_type=f8_e4m3fn,f8_e5m2 o_scale=1e-5,1e-30 len=0:5:70 "
    "v_cache.values=uniform",
    "batch_decode x=f16,bf16 q.values=zero v_cache.values=mix o_data_type=f8_e4m3fn,f8_e5m2,f16 "
    "len=0:1:5:30",
    "batch_decode x=f32 kv_data_type=f16,bf16 o_data_type=bf16,f32 lse=given",
    "batch_decode x=bf16 lse=given return_lse_base_on_e=1",
    /* lengths and pages */
    "batch_decode len=0:1:7:8:9:63:64:65:128:300 page=1,3,16,19,128,256,512 x=f16 lse=given",
    "batch_decode len=0:0:0 x=f16 lse=given",
    "batch_decode b=0 x=f16 lse=given",
    "batch_decode b=0 x=f16 fixed_split_size=2 block_tables=none,given",
    "batch_decode len=16:32:16 page=16 spare=0 x=f32 lse=given", /* a full pool */
    "batch_decode b=1 len=5000 x=f32 lse=given h_q=8 h_kv=1",    /* split */
    "batch_decode len=3000:1:700:0:2 x=f16 lse=given kv_layout=NHD,HND",
    "batch_decode b=600 max=40 x=f16 page=16",
    "batch_decode block_tables=given len=0:5:64:100 x=f16 page=16 lse=given",
    "batch_decode seq_lens=given len=0:5:64:100 x=f16 page=16 lse=given",
    "batch_decode block_tables=given block_tables.pad=3 len=9:30 x=f16 page=4",
    "batch_decode b=1 len=130 page=64 kv_layout=HND x=f16 lse=given",
    "batch_decode b=1 len=33728,66000 page=16 d=8 h_q=1 h_kv=1 x=f16 lse=given",  /* over 16 bits */
    "batch_decode len=40:3 page=1 spare=200000 d=8 h_q=1 h_kv=1 x=f16 lse=given", /* page ids, too
                                                                                   */
    "batch_decode x=f16 kv_data_type=f8_e4m3fn,f8_e5m2 len=0:5:0:17 lse=given",
    /* heads and sizes */
    "batch_decode h_q=1,2,3,4,5,6,7,8 h_kv=1 x=f16 lse=given",
    "batch_decode h_q=16,32,64,12 h_kv=1 x=bf16",
    "batch_decode h_q=24 h_kv=4,8,24 x=f16",
    "batch_decode d=8,16,24,72,80,96,112,128,192,224,256,512,576 x=f16 b=2 lse=given",
    "batch_decode d_qk=192 d_vo=128 x=bf16 b=2 lse=given",
    "batch_decode d_qk=64 d_vo=200 x=f32 b=2 h_q=24 h_kv=2",
    "batch_decode b=12 d_qk=192 d_vo=128 causal=0 x=f16",
    /* logits */
    "batch_decode x=f32 window_left=0,1,5,63,64,200 lse=given b=8",
    "batch_decode x=f32 logits_soft_cap=30,1 lse=given",
    "batch_decode x=f32 logits_soft_cap=0 sm_scale=0.2,0,-0.5 lse=given",
    "batch_decode x=f32 sm_scale=20 logits_soft_cap=5 lse=given", /* far above the cap */
    "batch_decode x=f32 q.values=zero lse=given",                 /* uniform over the keys */
    "batch_decode x=f32,f16 logits_soft_cap=1e-300,1e-40,1e38,1e300 lse=given",
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
    "batch_decode x=f16 kv_data_type=f8_e4m3fn k_scale=tensor k_scale.stride=2 v_scale=tensor "
    "v_scale.stride=3 lse=given",
    /* several query tokens, masks */
    "batch_decode x=f32 q_len_per_req=2,3,8,40 lse=given b=4",
    "batch_decode x=f32 q_len_per_req=4 causal=0 lse=given len=0:2:4:9",
    "batch_decode x=f16 q_len_per_req=3 window_left=0,2,30 len=1:2:3:31:32:33:70 lse=given",
    "batch_decode x=f16 kv_data_type=f8_e4m3fn q_len_per_req=4 window_left=1023 "
    "len=1022:1023:1024:1030",
    "batch_decode x=f32 q_len_per_req=5 custom_mask=given lse=given b=5",
    "batch_decode x=f32 q_len_per_req=5 packed_custom_mask=given lse=given b=5 h_q=6 h_kv=1",
    "batch_decode x=f32 q_len_per_req=7 packed_custom_mask=given window_left=20 sinks=given",
    "batch_decode x=f16 q_len_per_req=20 custom_mask=given max=300 h_q=8 h_kv=1 lse=given",
    /* bits over the query tokens, pages of values apart */
    "batch_decode x=f32 q_len_per_req=1,3,8 causal=0 draft_mask=given lse=given b=8",
    "batch_decode x=f16 q_len_per_req=5,40 causal=0 draft_mask=given len=0:3:5:40:64:65:200:300",
    "batch_decode x=f32 q_len_per_req=20,70 causal=0 draft_mask=given draft_mask.dtype=u16,u32 "
    "len=0:20:70:100:130:700 lse=given draft_mask.pad=3",
    "batch_decode x=f32 q_len_per_req=9 causal=0 draft_mask=given window_left=0,4,50 sinks=given",
    "batch_decode block_tables=given v_block_tables=given x=f16 len=0:5:64:100 page=16 lse=given",
    "batch_decode block_tables=given v_block_tables=given v_block_tables.pad=2 x=bf16 page=3,64 "
    "max=300 kv_layout=NHD,HND",
    /* views */
    "batch_decode x=bf16 q.pad=8 out.pad=24 lse=given lse.pad=3 k_cache.pad=8 v_cache.pad=16",
    "batch_decode x=f16 k_cache.order=0:2:1:3 v_cache.order=2:0:1:3 q.order=1:0:2 lse=given",
    "batch_decode x=f16 q.offset=64 k_cache.offset=8 out.offset=3 lse=given",
    /* splits */
    "batch_decode x=f32 fixed_split_size=1,4,100,0,-1 len=0:1:64:400:900 lse=given",
    "batch_decode x=f32 disable_split_kv=1 len=0:1:64:4000 lse=given",
    "batch_decode x=f32 max_batch_size=10 max_sequence_kv=1000 fixed_split_size=3 lse=given",
    /* lengths that stay on the GPU */
    "batch_decode plan_on_device=1 block_tables=given seq_lens=given seq_lens.on=device x=f16,bf16 "
    "len=0:1:64:700:4000:9 lse=given q_len_per_req=1,3 page=16",
    "batch_decode plan_on_device=1 block_tables=given seq_lens=given seq_lens.on=device x=f16 "
    "b=200 "
    "max=300 window_left=-1,40 h_q=8 h_kv=1 max_sequence_kv=300",
    "batch_decode plan_on_device=1 block_tables=given seq_lens=given seq_lens.on=device x=bf16 "
    "b=1,0 "
    "len=9000 h_q=32 h_kv=8 d=128 page=64",
    /* refusals that rows cannot say */
    "batch_decode plan_on_device=1 disable_split_kv=1 expect=invalid_argument:disable_split_kv",
    "batch_decode h_q=5 h_kv=2 expect=invalid_argument:num_qo_heads",
    "batch_decode d=12 expect=unsupported:head_dim",
    "batch_decode d=584 expect=unsupported:head_dim",
    "batch_decode d_vo=12 d_qk=64 expect=unsupported:head_dim_vo",
    "batch_decode window_left=-2 expect=invalid_argument:window_left",
    "batch_decode q_len_per_req=0 expect=invalid_argument:q_len_per_req",
    "batch_decode logits_soft_cap=-1 expect=invalid_argument:logits_soft_cap",
    "batch_decode rope_theta=0 expect=invalid_argument:rope_theta",
    "batch_decode max_batch_size=2 b=3 expect=invalid_argument:max_batch_size",
    "batch_decode max_batch_size=2147483648,3834029160418063669 q_len_per_req=1,127 "
    "expect=invalid_argument:max_batch_size",
    "batch_decode max_sequence_kv=2147483648 expect=invalid_argument:max_sequence_kv",
    "batch_decode max_sequence_kv=10 len=5:20 expect=invalid_argument:max_sequence_kv",
    "batch_decode k_scale=tensor k_scale.shape=3 expect=invalid_argument:k_scale",
    "batch_decode b=2 q.shape=3:4:64 out.shape=3:4:64 expect=invalid_argument:q",
    "batch_decode x=f16 q.dtype=bf16 expect=invalid_argument:q",
    "batch_decode q_len_per_req=2 draft_mask=given expect=invalid_argument:draft_mask",
    "batch_decode b=1 q_len_per_req=9 causal=0 draft_mask=given draft_mask.shape=9:1 "
    "expect=invalid_argument:draft_mask",
    "batch_decode causal=0 draft_mask=given custom_mask=given expect=invalid_argument:draft_mask",
    "batch_decode v_block_tables=given expect=invalid_argument:v_block_tables",
    /* few short requests: pieces that a cluster joins, empty ones among them */
    "batch_decode b=1 len=0,1,15,17,100,255,1000,2048 max_sequence_kv=2048 h_q=32 h_kv=8 d=128 "
    "x=bf16 page=16 lse=given",
    "batch_decode b=1 len=4096,3000,17 max_sequence_kv=4096 h_q=32,64 h_kv=4 d=128 x=bf16 page=16",
    "batch_decode b=1 len=1300 max_sequence_kv=2048 h_q=16 h_kv=8 d=64,128 x=f16 page=1,3,64 "
    "kv_layout=NHD,HND lse=given sinks=given",
    "batch_decode len=300:0:512:17 max_sequence_kv=512 h_q=32 h_kv=8 d=128 x=bf16 page=16 "
    "o_data_type=f32,bf16 k_scale=0.7 v_scale=1.5",
    "batch_decode b=15 max=128 max_sequence_kv=128 h_q=32 h_kv=8 d=128 x=bf16 page=16 lse=given",
    "batch_decode b=1 len=1000,40 q_len_per_req=3 max_sequence_kv=1024 h_q=32 h_kv=8 d=128 x=bf16 "
    "page=16 lse=given window_left=-1,300 logits_soft_cap=0,3",
    "batch_decode b=2 len=900 max_sequence_kv=1024 h_q=32 h_kv=8 d=128 x=bf16 page=16 "
    "block_tables=given pos_encoding_mode=2",
    /* streams: pieces, several items a worker, tails of units, lanes that look up pages twice */
    "batch_decode b=1 len=8192,15,300 max_sequence_kv=8192 h_q=32,64 h_kv=8 d=128 x=bf16 page=16 "
    "lse=given",
    "batch_decode b=2,4 max=4096 max_sequence_kv=4096 h_q=32 h_kv=8 d=128 x=bf16 page=16 lse=given",
    "batch_decode len=0:1:7:16:17:63:64:65:128:300:1000:2:0:5 max_sequence_kv=1000 h_q=32 h_kv=8 "
    "d=128 x=bf16 page=16,64 kv_layout=NHD,HND lse=given",
    "batch_decode b=1 len=30000 max_sequence_kv=30000 h_q=8 h_kv=8 d=64 x=bf16 page=16 lse=given "
    "disable_split_kv=0,1",
    "batch_decode b=3 max=900 max_sequence_kv=900 h_q=32 h_kv=8 d=128 x=bf16 page=16 "
    "block_tables=given lse=given",
    "batch_decode b=9 max=1500 max_sequence_kv=1500 h_q=1,16 h_kv=1 d=64 x=f16 page=32 lse=given "
    "sinks=given",
    "batch_decode b=5 max=700 max_sequence_kv=700 q_len_per_req=3 h_q=32 h_kv=8 d=128 x=bf16 "
    "page=16 lse=given logits_soft_cap=0,5",
    "batch_decode b=12 max=1200 max_sequence_kv=1200 h_q=32 h_kv=8 d=128 x=bf16 page=16 "
    "k_scale=0.7 v_scale=1.5 sm_scale=-0.3",
    "batch_decode len=0:1:31:32:33:3000:17 max_sequence_kv=3000 h_q=32 h_kv=8 d=128 x=bf16,f16 "
    "kv_data_type=f8_e4m3fn,f8_e5m2 page=16,32 lse=given",
    "batch_decode b=1 len=100,4000 max_sequence_kv=8192 h_q=32 h_kv=8 d=128 x=bf16 "
    "kv_data_type=f8_e4m3fn page=32 lse=given",
    "batch_decode b=64 max=500 max_sequence_kv=500 h_q=32 h_kv=8 d=128 x=bf16 page=16 lse=given "
    "pos_encoding_mode=0,2",
};
BOLIDE_TEST(batch_decode, batch_decode_cases);

static const char *const batch_prefill_paged_cases[] = {
    "batch_prefill_paged x=f16,bf16,f32 kv_layout=NHD,HND causal=0,1 lse=given",
    "batch_prefill_paged x=f16 kv_data_type=f8_e4m3fn,f8_e5m2 causal=1",
    "batch_prefill_paged x=bf16 kv_data_type=f8_e4m3fn,f8_e5m2 causal=1 lse=given max=300 "
    "k_scale=0.5 v_scale=2",
    "batch_prefill_paged x=f8_e4m3fn o_data_type=f8_e5m2,f32 causal=1 o_scale=0.01",
    "batch_prefill_paged x=bf16 o_data_type=f8_e4m3fn,f8_e5m2 o_scale=1,1e-5 q.values=zero "
    "v_cache.values=mix",
    "batch_prefill_paged len=0:1:7:64:65:128:300 page=1,3,16,19,128,256,512 x=f16 causal=1 "
    "lse=given",
    "batch_prefill_paged len=200:300:5:0 q_len=200:17:0:3 x=f32 causal=0,1 lse=given", /* q > k */
    "batch_prefill_paged len=3:2:0 q_len=5:2:4 x=f32 causal=1 lse=given",
    "batch_prefill_paged len=3 q_len=2 b=1 x=f32 causal=1",
    "batch_prefill_paged len=3:20:0:5 q_len=50:17:2:5 x=f32 causal=0,1 window_left=0,4 lse=given",
    "batch_prefill_paged b=0 x=f16",
    "batch_prefill_paged b=0 x=f16 fixed_split_size=2 block_tables=none,given",
    "batch_prefill_paged len=0:0 q_len=0:0 x=f16",
    "batch_prefill_paged len=5:6 q_len=0:0 x=f16", /* keys and no query */
    "batch_prefill_paged len=16:32:16 page=16 spare=0 x=f32 causal=1 lse=given",
    "batch_prefill_paged b=1 len=5 q_len=70000 d=8 h_q=1 h_kv=1 x=f16 causal=1 lse=given",
    "batch_prefill_paged len=40:3 page=1 spare=200000 d=8 h_q=1 h_kv=1 x=f16 causal=1",
    "batch_prefill_paged x=f16 kv_data_type=f8_e4m3fn len=0:5:0:17 causal=1 lse=given",
    "batch_prefill_paged x=f16 kv_data_type=f8_e4m3fn q_len=4 window_left=1023 "
    "len=1022:1023:1024:1030 causal=1",
    "batch_prefill_paged x=bf16 causal=1 lse=given return_lse_base_on_e=1",
    "batch_prefill_paged x=f32 custom_mask=given logits_soft_cap=2 sm_scale=3 lse=given",
    "batch_prefill_paged len=700:700:700 q_len=1:1:500 x=f32 causal=1 lse=given h_q=8 h_kv=1",
    "batch_prefill_paged b=300 max=30 x=f16 causal=1",
    "batch_prefill_paged b=2 len=70 q.values=zero x=f32 lse=given",
    "batch_prefill_paged block_tables=given x=f16 causal=1 seq_lens_q=given",
    "batch_prefill_paged h_q=1,2,3,5,7,8,12,64 h_kv=1 x=f32 b=2 causal=1 lse=given",
    "batch_prefill_paged d=8,24,72,80,96,112,128,224,256,512,576 x=f16 b=2 causal=1",
    "batch_prefill_paged d_qk=192 d_vo=128 x=bf16 b=2 causal=1 lse=given",
    "batch_prefill_paged d_qk=64 d_vo=200 x=f32 b=2",
    "batch_prefill_paged x=f32 causal=0,1 window_left=0,1,20,63,64,200 lse=given max=300",
    "batch_prefill_paged x=f32 causal=1 logits_soft_cap=5 lse=given",
    "batch_prefill_paged x=f32 causal=1 pos_encoding_mode=ALIBI h_q=12 h_kv=3 lse=given",
    "batch_prefill_paged x=f32 causal=1 pos_encoding_mode=ROPE_LLAMA d=64,80 lse=given",
    "batch_prefill_paged x=f32 causal=1 sinks=given lse=given window_left=-1,9",
    "batch_prefill_paged x=f16 k_scale=tensor v_scale=tensor q_scale=tensor o_scale=2 causal=1",
    "batch_prefill_paged x=f32 custom_mask=given lse=given max=300",
    "batch_prefill_paged x=f32 packed_custom_mask=given lse=given max=300 window_left=-1,50",
    "batch_prefill_paged x=f32 causal=1 token_pos_in_items_ptr=given lse=given max=400",
    "batch_prefill_paged x=f32 causal=1 token_pos_in_items_ptr=given max_item_len_ptr=given "
    "max=400 "
    "qmax=9",
    "batch_prefill_paged x=f32 fixed_split_size=1,16 causal=1 lse=given",
    "batch_prefill_paged x=f32 disable_split_kv=1 causal=1 lse=given max=600",
    "batch_prefill_paged x=f16 q.pad=8 k_cache.pad=8 out.pad=5 k_cache.order=0:2:1:3 causal=1",
    "batch_prefill_paged x=f32 causal=0,1 chunked_attention_size=1,7,64,100,1000 lse=given max=300",
    "batch_prefill_paged x=bf16 causal=1 chunked_attention_size=128 len=700:513:90 q_len=600:1:90",
    "batch_prefill_paged x=f32 causal=1 chunked_attention_size=40 window_left=30 sinks=given "
    "max=300",
    "batch_prefill_paged x=f32 causal=1 chunked_attention_size=16 len=20:9 q_len=50:17 lse=given",
    "batch_prefill_paged x=f32 draft_mask=given lse=given max=300 qmax=70",
    "batch_prefill_paged x=f16 draft_mask=given draft_mask.dtype=u16,u32 q_len=0:1:33:64:65:5 "
    "len=4:1:40:500:65:3 lse=given",
    "batch_prefill_paged block_tables=given v_block_tables=given x=f16 causal=1 lse=given",
    "batch_prefill_paged o_indptr=given x=f16 causal=1 lse=given b=5",
    "batch_prefill_paged plan_on_device=1 block_tables=given seq_lens=given seq_lens.on=device "
    "qo_indptr.on=device len=200:300:5:0 q_len=200:17:0:3 max_num_rows=220 x=f16 causal=0,1 "
    "lse=given",
    "batch_prefill_paged plan_on_device=1 block_tables=given seq_lens=given seq_lens.on=device "
    "qo_indptr.on=device o_indptr=given o_indptr.on=device len=200:300:5:0 q_len=200:17:0:3 "
    "max_num_rows=220 x=f16 causal=1 lse=given",
    "batch_prefill_paged plan_on_device=1 block_tables=given seq_lens=given seq_lens.on=device "
    "qo_indptr.on=device len=3000:90 q_len=5:1 max_num_rows=6 x=bf16 causal=1 h_q=32 h_kv=8 d=128",
    "batch_prefill_paged chunked_attention_size=-1 expect=invalid_argument:chunked_attention_size",
    "batch_prefill_paged causal=1 draft_mask=given expect=invalid_argument:draft_mask",
    "batch_prefill_paged max_num_rows=2 q_len=1:2 len=5:6 expect=invalid_argument:max_num_rows",
    "batch_prefill_paged max_token_per_sequence=2 q_len=1:3 len=5:6 "
    "expect=invalid_argument:max_token_per_sequence",
    "batch_prefill_paged token_pos_in_items_ptr=given expect=invalid_argument:prefix_len_ptr",
    "batch_prefill_paged b=1 len=20 q_len=10 q.shape=12:4:64 out.shape=12:4:64 "
    "expect=invalid_argument:q",
    "batch_prefill_paged x=f16 q.dtype=bf16 expect=invalid_argument:q",
};
BOLIDE_TEST(batch_prefill_paged, batch_prefill_paged_cases);

static const char *const batch_prefill_ragged_cases[] = {
    "batch_prefill_ragged x=f16,bf16,f32 kv_layout=NHD,HND causal=0,1 lse=given",
    "batch_prefill_ragged x=bf16 kv_data_type=f8_e4m3fn,f8_e5m2 causal=1 k_scale=0.5 v_scale=2",
    "batch_prefill_ragged x=f8_e5m2 causal=1 lse=given",
    "batch_prefill_ragged x=f16 o_data_type=f8_e4m3fn,f8_e5m2 o_scale=1,1e-5 q.values=zero "
    "v.values=mix",
    "batch_prefill_ragged plan_on_device=1 qo_indptr.on=device kv_indptr.on=device len=200:300:5:0 "
    "q_len=200:17:0:3 max_num_rows=220 x=f16 causal=0,1 lse=given",
    "batch_prefill_ragged x=f32,bf16 causal=0,1 chunked_attention_size=1,50,128 lse=given max=300",
    "batch_prefill_ragged len=0:1:64:65:300 x=f32 causal=1 lse=given",
    "batch_prefill_ragged len=9:30:0:70 gap=3 x=f32 causal=1 lse=given v_indptr=given,none "
    "o_indptr=given,none",
    "batch_prefill_ragged b=12 q_len=1 d_qk=192 d_vo=128 x=f16",
    "batch_prefill_ragged b=0",
    "batch_prefill_ragged len=5:6 q_len=0:0",
    "batch_prefill_ragged len=3:2:0:70 q_len=5:2:4:90 x=f32 causal=0,1 lse=given", /* q > k */
    "batch_prefill_ragged len=3:20:0:5 q_len=50:17:2:5 x=f32 causal=0,1 window_left=0,4 lse=given",
    "batch_prefill_ragged x=bf16 causal=1 lse=given return_lse_base_on_e=1",
    "batch_prefill_ragged x=f32 packed_custom_mask=given logits_soft_cap=2 sm_scale=3 lse=given",
    "batch_prefill_ragged x=f32 causal=1 pos_encoding_mode=ROPE_LLAMA,ALIBI lse=given",
    "batch_prefill_ragged x=f32 q.values=zero lse=given",
    "batch_prefill_ragged x=f32 d=80 h_q=6 h_kv=1 causal=1 window_left=30 sinks=given lse=given",
    "batch_prefill_ragged x=f32 custom_mask=given lse=given",
    "batch_prefill_ragged x=f32 causal=1 token_pos_in_items_ptr=given lse=given max=300",
    "batch_prefill_ragged x=f32 token_pos_in_items_ptr=given max_item_len_ptr=given causal=1 "
    "max=99",
    "batch_prefill_ragged x=f32 fixed_split_size=64,100 causal=1 max=500",
    "batch_prefill_ragged x=bf16 q.pad=64 k.pad=64 v.pad=32 causal=1", /* a fused projection */
    "batch_prefill_ragged b=1 len=20 q_len=10 q.shape=12:4:64 out.shape=12:4:64 "
    "expect=invalid_argument:q",
    "batch_prefill_ragged x=f16 q.dtype=bf16 expect=invalid_argument:q",
    "batch_prefill_ragged max_num_rows=2147483648 expect=invalid_argument:max_num_rows",
    "batch_prefill_ragged max_token_per_sequence=2147483648 "
    "expect=invalid_argument:max_token_per_sequence",
};
BOLIDE_TEST(batch_prefill_ragged, batch_prefill_ragged_cases);

static const char *const batch_attention_cases[] = {
    "batch_attention x=f16,bf16,f32 kv_layout=NHD,HND causal=0,1 lse=given",
    "batch_attention len=900:33:1:600 q_len=1:33:1:1 x=f32 causal=1 lse=given h_q=8",
    "batch_attention len=900:33:1:600 q_len=1:33:1:1 x=bf16 causal=1 k_scale=0.5 v_scale=2",
    "batch_attention x=f16 kv_data_type=f8_e4m3fn causal=1 logits_soft_cap=3 lse=given",
    "batch_attention x=f16 o_data_type=f8_e4m3fn,f8_e5m2 o_scale=1,1e-5 q.values=zero "
    "v_cache.values=mix",
    "batch_attention block_tables=given x=f16 causal=1",
    "batch_attention len=3:2:0:70 q_len=5:2:4:90 x=f32 causal=0,1 lse=given",
    "batch_attention len=5:6 q_len=0:0 x=f16",
    "batch_attention x=f32 sinks=given lse=given window_left=-1,9 causal=1",
    "batch_attention x=bf16 causal=1 lse=given return_lse_base_on_e=1",
    "batch_attention len=0:1:7:64:65:300 page=1,3,19,256 x=f16 causal=1 lse=given",
    "batch_attention x=f16 q.dtype=bf16 expect=invalid_argument:q",
    "batch_attention b=0",
    /* requests of many rows and of few in two parts */
    "batch_attention len=300:400:20:500:7 q_len=200:1:1:130:1 h_q=16 h_kv=4 d=128 page=16 causal=1 "
    "x=bf16,f16 lse=given",
    "batch_attention len=600:700:0:250:90 q_len=300:1:0:1:5 h_q=16 h_kv=4 d=128 page=16,5 "
    "causal=0,1 x=bf16",
};
BOLIDE_TEST(batch_attention, batch_attention_cases);

static const char *const block_sparse_attention_cases[] = {
    "block_sparse_attention x=f16,bf16,f32 kv_layout=NHD,HND lse=given",
    "block_sparse_attention x=bf16 kv_data_type=f8_e4m3fn,f8_e5m2 k_scale=0.5 v_scale=2 lse=given",
    "block_sparse_attention x=f8_e4m3fn o_data_type=f8_e5m2,f32,f16 o_scale=0.01",
    "block_sparse_attention x=f16 o_data_type=f8_e4m3fn,f8_e5m2 o_scale=1,1e-5 q.values=zero "
    "v.values=inf",
    "block_sparse_attention R=1,2,7,16,64,100 C=1,3,16,48 N=96 M=64 x=f16 lse=given",
    "block_sparse_attention R=128 C=128 M=512 N=512 kept=30 x=bf16 d=128 lse=given",
    "block_sparse_attention R=0 C=8 M=150 N=200 x=f32 lse=given parts=1,3", /* rows of any number */
    "block_sparse_attention row=0:3:0:1 x=f32 lse=given sinks=given,none",  /* empty row blocks */
    "block_sparse_attention row=0 x=f32 lse=given",
    "block_sparse_attention kept=100 x=f32 lse=given",
    "block_sparse_attention M=0 x=f16 lse=given",
    "block_sparse_attention N=0 x=f16 lse=given",
    "block_sparse_attention R=1 C=1 M=300 N=300 kept=5 d=8 h_q=1 h_kv=1 x=f32 lse=given",
    "block_sparse_attention h_q=1,3,6,8,16 h_kv=1 x=f32 lse=given",
    "block_sparse_attention d=8,80,112,256,576 x=f16 lse=given",
    "block_sparse_attention d_qk=192 d_vo=128 x=bf16 lse=given",
    "block_sparse_attention x=f32 logits_soft_cap=2 sm_scale=3 lse=given return_lse_base_on_e=1",
    "block_sparse_attention x=f16 q_scale=tensor k_scale=tensor v_scale=tensor o_scale=2",
    "block_sparse_attention x=f32 custom_mask=given lse=given R=5,16 C=3,16 parts=2",
    "block_sparse_attention x=f32 packed_custom_mask=given lse=given R=5,16 C=3,16 h_q=6",
    "block_sparse_attention x=f32 custom_mask=given causal=1 lse=given", /* the mask wins */
    "block_sparse_attention x=f16 q.pad=8 k.pad=16 v.pad=8 out.pad=5 lse=given lse.pad=1",
    "block_sparse_attention x=f16 k.order=1:0:2 q.order=1:0:2 lse=given", /* heads first */
    "block_sparse_attention row=200:3 M=20 R=10 N=3200 x=f32 lse=given h_q=8 h_kv=1", /* split */
    "block_sparse_attention M=20 R=10 N=3200 x=f32 lse=given fixed_split_size=3,64",
    "block_sparse_attention M=20 R=10 N=3200 x=f32 lse=given disable_split_kv=1",
    /* positions, which are places in the matrix */
    "block_sparse_attention x=f32 causal=1 M=96,30,200 N=96 lse=given parts=1,2",
    "block_sparse_attention x=f16,bf16 causal=1 C=1,3,32 R=0 M=96 N=96 kept=70 lse=given",
    "block_sparse_attention x=bf16 causal=1 R=128 C=64 M=512 N=512 kept=30 lse=given",
    "block_sparse_attention x=f32 causal=0,1 window_left=0,1,20,95 M=96 R=7 C=3 lse=given",
    "block_sparse_attention x=f32 pos_encoding_mode=ALIBI h_q=6,8 causal=0,1 parts=2 lse=given",
    "block_sparse_attention x=f32,f16 pos_encoding_mode=ROPE_LLAMA causal=0,1 R=3,16 parts=2 "
    "rope_scale=2 lse=given",
    "block_sparse_attention x=f32 pos_encoding_mode=ALIBI custom_mask=given window_left=30 C=1 R=0",
    "block_sparse_attention x=f32 causal=1 M=20 R=10 N=3200 C=16 lse=given h_q=8 h_kv=1",
    "block_sparse_attention M=64 N=100 C=16 expect=invalid_argument:N",
    "block_sparse_attention M=-1 expect=invalid_argument:M",
    "block_sparse_attention C=0 expect=invalid_argument:C",
    "block_sparse_attention h_q=5 h_kv=2 expect=invalid_argument:num_qo_heads",
    "block_sparse_attention d=12 expect=unsupported:head_dim",
    "block_sparse_attention max_num_rows=2 expect=invalid_argument:max_num_rows",
    "block_sparse_attention k.shape=100:2:64 v.shape=100:2:64 expect=invalid_argument:k",
    "block_sparse_attention x=f16 q.dtype=bf16 expect=invalid_argument:q",
};
BOLIDE_TEST(block_sparse_attention, block_sparse_attention_cases);

static const char *const batch_mla_cases[] = {
    "batch_mla x=f16,bf16,f32 causal=0,1 lse=given",
    "batch_mla x=f16 kv_data_type=f8_e4m3fn,f8_e5m2 ckv_scale=0.5 kpe_scale=2 lse=given",
    "batch_mla x=f8_e4m3fn lse=given o_data_type=f16,f8_e4m3fn o_scale=0.1",
    "batch_mla x=f8_e4m3fn,bf16 o_data_type=f8_e4m3fn,f8_e5m2 o_scale=1e-5,1e-30 "
    "ckv_cache.values=uniform",
    "batch_mla ckv=512 kpe=64,0 x=bf16 h=16,128 b=2 q_len=1 lse=given sm_scale=0.0721687836",
    "batch_mla ckv=512 kpe=64 x=bf16 h=8,32,64 b=2 q_len=1 lse=given",
    "batch_mla ckv=512 kpe=64 x=f16 h=1 b=1 len=33728 q_len=1 page=64 lse=given", /* over 16 bits */
    "batch_mla ckv=512 kpe=64 x=bf16 h=16 len=700:0:33:0:1:9:0:64 q_len=1 max_sequence_kv=100000 "
    "lse=given",                                              /* padding in a captured batch */
    "batch_mla x=f16 len=64:128:0 page=64 spare=0 lse=given", /* a full pool */
    "batch_mla ckv=256 kpe=64 x=f16 h=1,5,8,9,64 b=2 q_len=2 causal=1 lse=given",
    "batch_mla ckv=16,48 kpe=8,24 x=f32 h=3 lse=given",
    "batch_mla len=0:1:7:64:65:300 page=1,3,16,64 x=f16 causal=1 lse=given q_len=0:1:2:1:65:3",
    "batch_mla len=3:2:0:70 q_len=5:2:4:90 x=f32 causal=0,1 lse=given", /* q > k */
    "batch_mla b=1 len=3000 q_len=1 x=f32 h=16 lse=given",              /* split */
    "batch_mla b=1 len=3000 q_len=1 x=f32 h=16 fixed_split_size=7,64 page=16 lse=given",
    "batch_mla b=1 len=3000 q_len=1 x=f32 h=16 disable_split_kv=1 lse=given",
    "batch_mla block_tables=given x=f16 causal=1 lse=given",
    "batch_mla plan_on_device=1 block_tables=given qo_indptr.on=device kv_len_arr.on=device "
    "x=f16,f32 causal=0,1 lse=given len=700:1:90:0:33 q_len=3:1:20:2:0 max_num_rows=26 page=16",
    "batch_mla x=f32 q_scale=0.5 ckv_scale=2 kpe_scale=3 o_scale=4 lse=given",
    "batch_mla x=f32 q_scale=tensor ckv_scale=tensor kpe_scale=tensor o_scale=tensor lse=given",
    "batch_mla x=f32 ckv_scale=0 lse=given",
    "batch_mla x=bf16,f32 kv_data_type=f8_e4m3fn,f8_e5m2 ckv_scale_arr=given ckv=128,256 kpe=64,0 "
    "h=3,8,40 causal=1 lse=given ckv_scale=0.5",
    "batch_mla x=bf16 kv_data_type=f8_e4m3fn ckv_scale_arr=given ckv=512 h=16 q_len=3 page=1,64 "
    "custom_mask=given lse=given ckv_scale_arr.pad=3",
    "batch_mla x=bf16 ckv_scale_arr=given expect=unsupported:ckv_scale_arr",
    "batch_mla x=bf16 kv_data_type=f8_e4m3fn ckv=128 ckv_scale_arr=given ckv_scale_arr.shape=9:8:2 "
    "expect=invalid_argument:ckv_scale_arr",
    "batch_mla x=f32 custom_mask=given lse=given q_len=5",
    "batch_mla x=f32 packed_custom_mask=given lse=given q_len=7 logits_soft_cap=3",
    "batch_mla x=f32 sinks=given lse=given causal=1 window_left=-1,9",
    "batch_mla x=bf16 causal=1 lse=given return_lse_base_on_e=1",
    "batch_mla x=f16 q_nope.pad=8 q_pe.pad=16 ckv_cache.pad=64 kpe_cache.pad=512 out.pad=5",
    "batch_mla b=0",
    "batch_mla len=5:6 q_len=0:0 x=f16",
    "batch_mla ckv=24 expect=unsupported:head_dim_ckv",
    "batch_mla ckv=592 kpe=0 expect=unsupported:head_dim_ckv",
    "batch_mla kpe=12 expect=unsupported:head_dim_kpe",
    "batch_mla ckv=512 kpe=72 expect=unsupported:head_dim_kpe",
    "batch_mla kpe_scale=tensor kpe_scale.shape=3 expect=invalid_argument:kpe_scale",
    "batch_mla x=f16 q_pe.dtype=bf16 expect=invalid_argument:q_pe",
    "batch_mla kpe=0 q_pe=given q_pe.shape=9:4:8 expect=invalid_argument:q_pe",
};
BOLIDE_TEST(batch_mla, batch_mla_cases);

static const char *const sparse_mla_cases[] = {
    "sparse_mla x=f16,bf16,f32 lse=given h=1,2,3,5,8,9,16,128",
    "sparse_mla x=f8_e4m3fn,f8_e5m2 lse=given h=2,40 out=bf16,f16,f8_e4m3fn",
    "sparse_mla x=f8_e4m3fn,bf16 out=f8_e4m3fn,f8_e5m2 bmm2_scale=1e5,-1e30 "
    "kv_cache.values=uniform",
    "sparse_mla x=bf16 kv_cache=f8_e4m3fn,f32,f16 lse=given h=4,12",
    "sparse_mla x=bf16,f16,f32 kv_format=FP8_656 h=3,16 lse=given page=1,4,64 pages=40",
    "sparse_mla x=bf16 kv_format=FP8_656 d_qk=512 h=8,64 lse=given",
    "sparse_mla x=bf16,f32 kv_format=FP8_584 h=3,16 lse=given page=1,4,64 pages=40",
    "sparse_mla x=bf16 d_qk=576 d_vo=512 k=128,192,256,512,1024,2048 pages=40 page=64 h=16 n=2",
    "sparse_mla x=bf16 d_qk=320 d_vo=256 k=64,65,63 h=1,8,9,64 lse=given",
    "sparse_mla x=bf16,f16 d_qk=576 d_vo=512 k=1,64,65,129,200 h=5,17 n=2 page=64 lse=given",
    "sparse_mla x=bf16 kv_format=FP8_656,FP8_584 k=1,64,65,129,200 h=5,17 n=1 page=64 lse=given",
    "sparse_mla x=bf16 d_qk=512 d_vo=512 k=300 h=16,70 gaps=1,0 topk_lens=given lse=given",
    "sparse_mla x=bf16,f16 d_qk=576 d_vo=512 k=1,64,65,129,200 h=70 n=14 page=64 lse=given",
    "sparse_mla x=bf16 kv_format=FP8_656,FP8_584 k=1,70 h=17 n=34 page=64 lse=given",
    "sparse_mla x=f32 d_qk=512 d_vo=512 k=1 h=1 n=1,4,16,40 lse=given",
    "sparse_mla x=f32 d_qk=8,24,72 d_vo=8 h=3,13 lse=given",
    "sparse_mla x=f32 d_qk=200 d_vo=200,104 h=4,33 k=300 n=20 lse=given",
    "sparse_mla topk_lens=given lse=given x=f32 n=9 h=2,17",
    "sparse_mla seq_lens=given lse=given x=f32 n=8 b=2,8 topk_lens=given,none",
    "sparse_mla seq_lens=given qo_indptr=given lse=given x=f32 n=10 b=1,3,7",
    "sparse_mla gaps=1 lse=given x=f32,bf16 sinks=given,none out.values=nan",
    "sparse_mla k=0 lse=given x=bf16",
    "sparse_mla pages=0 lse=given x=bf16 extra_kv_cache=given pages_x=0",
    "sparse_mla page=0 lse=given x=bf16 extra_kv_cache=given extra_block_tables=given page_x=0",
    "sparse_mla extra_kv_cache=given lse=given x=f32,bf16 h=4,20 extra_topk_lens=given,none",
    "sparse_mla extra_kv_cache=given extra_block_tables=given lse=given x=f32 page_x=1,3,64 m_x=9",
    "sparse_mla extra_kv_cache=given extra_topk_lens=given extra_topk_lens_offset=128 x=f32 n=7",
    "sparse_mla extra_kv_cache=given extra_block_tables=given extra_topk_lens=given x=bf16 k=128 "
    "seq_lens=given b=2 n=8 extra_topk_lens_offset=128 sinks=given lse=given",
    "sparse_mla extra_kv_cache=given kv_format=FP8_584 x=bf16 h=4,64 sinks=given lse=given",
    "sparse_mla extra_kv_cache=given kv_format=FP8_656 extra_block_tables=given x=bf16 h=4,64",
    "sparse_mla sinks=given lse=given x=f32 h=4,40",
    "sparse_mla bmm1_scale=0,-0.1,0.2 bmm2_scale=2.5 lse=given x=f32",
    "sparse_mla bmm1_scale=tensor bmm2_scale=tensor lse=given x=f32 d_qk=16 d_vo=16",
    "sparse_mla x=bf16 lse=given return_lse_base_on_e=1",
    "sparse_mla n=0 x=bf16 lse=given",
    "sparse_mla h=0 x=bf16 lse=given",
    "sparse_mla x=bf16 q.pad=8 kv_cache.pad=64 indices.pad=3 out.pad=5 lse=given lse.pad=2",
    "sparse_mla x=f16 indices.stride=90 q.order=1:0:2 kv_cache.order=1:0:2 lse=given",
    "sparse_mla kv_format=FP8_656 x=bf16 kv_cache.pad=16 kv_cache.order=1:0:2",
    "sparse_mla x=bf16 page=1 pages=200000 d_qk=8 d_vo=8",
    "sparse_mla d_qk=12 d_vo=8 expect=unsupported:q",
    "sparse_mla d_qk=584 expect=unsupported:q",
    "sparse_mla d_qk=64 d_vo=72 expect=unsupported:out",
    "sparse_mla kv_format=FP8_656 d_qk=568 expect=unsupported:q",
    "sparse_mla kv_format=FP8_584 d_qk=576 expect=unsupported:q",
    "sparse_mla kv_format=FP8_584 d_vo=448 expect=unsupported:out",
    "sparse_mla kv_cache=u8 expect=invalid_argument:kv_cache",
    "sparse_mla kv_format=FP8_584 kv_cache.order=1:0:2 expect=invalid_argument:kv_cache",
    "sparse_mla kv_format=FP8_656 kv_cache.offset=1 expect=invalid_argument:kv_cache",
    "sparse_mla extra_indices=given expect=invalid_argument:extra_indices",
    "sparse_mla extra_block_tables=given expect=invalid_argument:extra_block_tables",
    "sparse_mla extra_topk_lens=given expect=invalid_argument:extra_topk_lens",
    "sparse_mla extra_kv_cache=given extra_indices=none expect=invalid_argument:extra_indices",
    "sparse_mla extra_topk_lens_offset=-1 expect=invalid_argument:extra_topk_lens_offset",
    "sparse_mla qo_indptr=given expect=invalid_argument:qo_indptr",
    "sparse_mla seq_lens=given n=5 b=2 expect=invalid_argument:seq_lens",
    "sparse_mla bmm1_scale=tensor bmm1_scale.shape=3 expect=invalid_argument:bmm1_scale",
};
BOLIDE_TEST(sparse_mla, sparse_mla_cases);

static const char *const single_decode_cases[] = {
    "single_decode_with_kv_cache x=f16,bf16,f32 kv_layout=NHD,HND lse=given",
    "single_decode_with_kv_cache x=f32 len=0,1,64,3000 lse=given sinks=given,none",
    "single_decode_with_kv_cache q=f16 k=f8_e4m3fn v=f8_e4m3fn out=f16 h_q=6 h_kv=2 d=96",
    "single_decode_with_kv_cache x=f32 window_left=10 logits_soft_cap=4 q_scale=0.5 k_scale=tensor",
    "single_decode_with_kv_cache x=f32 pos_encoding_mode=ROPE_LLAMA,ALIBI len=200 lse=given",
    "single_decode_with_kv_cache d_qk=192 d_vo=128 x=bf16 q.pad=8 k.pad=8 out.pad=8",
    "single_decode_with_kv_cache x=bf16 lse=given return_lse_base_on_e=1",
    "single_decode_with_kv_cache x=f16,f32 q.values=nan,mix lse=given len=200",
    "single_decode_with_kv_cache x=f16,f32 k.values=nan,inf,mix lse=given len=200",
    "single_decode_with_kv_cache q=f16 k=f16 v=f16 out=f8_e4m3fn,f8_e5m2 o_scale=1,1e-5 "
    "q.values=zero v.values=mix len=0,30",
    "single_decode_with_kv_cache d=12 expect=unsupported:q",
    "single_decode_with_kv_cache h_q=3 h_kv=2 expect=invalid_argument:q",
    "single_decode_with_kv_cache d_vo=12 expect=unsupported:v",
};
BOLIDE_TEST(single_decode_with_kv_cache, single_decode_cases);

static const char *const single_prefill_cases[] = {
    "single_prefill_with_kv_cache x=f16,bf16,f32 kv_layout=NHD,HND causal=0,1 lse=given",
    "single_prefill_with_kv_cache x=f32 n=0,1,5,100,130 len=0,1,100,300 causal=1 lse=given",
    "single_prefill_with_kv_cache x=f32 custom_mask=given n=1,30 len=77 lse=given",
    "single_prefill_with_kv_cache x=f32 n=3 s=0,7,130",
    "single_prefill_with_kv_cache x=f32 custom_mask=given custom_mask.stride1=0 n=0 len=77 "
    "lse=given",
    "single_prefill_with_kv_cache x=f32 packed_custom_mask=given n=1,30 len=77 window_left=20",
    "single_prefill_with_kv_cache q=f8_e4m3fn k=f8_e4m3fn v=f8_e4m3fn out=f16 q_scale=tensor "
    "k_scale=tensor v_scale=tensor causal=1",
    "single_prefill_with_kv_cache x=f32 pos_encoding_mode=ROPE_LLAMA,ALIBI causal=1 d=128",
    "single_prefill_with_kv_cache x=f32 h_q=8 h_kv=1 n=40 len=1500 causal=1 lse=given",
    "single_prefill_with_kv_cache n=70000 len=3 d=8 h_q=1 h_kv=1 x=f16 causal=1 lse=given",
    "single_prefill_with_kv_cache x=bf16 k.values=nan,inf lse=given n=40 len=100",
    "single_prefill_with_kv_cache q=bf16 k=bf16 v=bf16 out=f8_e4m3fn,f8_e5m2 o_scale=1,1e-5 "
    "q.values=zero v.values=mix n=9 len=30",
    "single_prefill_with_kv_cache x=f32 sinks=given lse=given causal=1 window_left=-1,9 n=30",
    "single_prefill_with_kv_cache x=f32 logits_soft_cap=2 sm_scale=3 custom_mask=given n=9",
    "single_prefill_with_kv_cache d_qk=192 d_vo=128 x=bf16 causal=1 return_lse_base_on_e=1",
};
BOLIDE_TEST(single_prefill_with_kv_cache, single_prefill_cases);

/* Enough tiles of 128 rows for the kernels for Hopper, and what they leave to the others. */
static const char *const large_cases[] = {
    "batch_prefill_paged len=400:300:5:0:129 q_len=130:150:9:2:129 h_q=16 h_kv=4 d=64 x=bf16 "
    "causal=1 page=1,8,24,64,256 kv_layout=NHD,HND lse=given",
    "batch_prefill_paged len=400:300 q_len=130:150 h_q=16 h_kv=4 d=128 x=f16 causal=0 page=16,17 "
    "block_tables=given lse=given window_left=40",
    "batch_prefill_paged len=200:130 q_len=130:130 h_q=16 h_kv=4 d=256 x=bf16 causal=1 page=16,32 "
    "lse=given",
    "batch_prefill_ragged len=400:130:180 q_len=130:130:9 h_q=16 h_kv=4 d=64,128 x=f16,bf16 "
    "causal=1 lse=given",
    "batch_prefill_ragged len=400:130 q_len=130:130 h_q=16,18,32 h_kv=2 d=64 x=bf16 lse=given",
    "batch_prefill_ragged len=280:0:1:128:127:90 q_len=280:3:1:128:140:0 h_q=16 h_kv=4 d=64 x=bf16 "
    "causal=0,1 gap=3 lse=given v_indptr=given o_indptr=given",
    "batch_prefill_ragged len=400:130 q_len=150:130 h_q=16 h_kv=4 d=64 x=bf16 causal=1 "
    "window_left=0,50,128,300 lse=given",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d=64 x=f16 causal=1 "
    "logits_soft_cap=5 lse=given",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d=64 x=f16 causal=1 "
    "sm_scale=-0.2,0,1.5 lse=given",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d=64 x=bf16 causal=1 sinks=given "
    "q_scale=tensor k_scale=tensor v_scale=tensor o_scale=2 lse=given return_lse_base_on_e=1",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d_qk=192 d_vo=128 x=bf16 "
    "causal=1 kv_layout=HND lse=given",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d=80,96,256 x=bf16 causal=1 "
    "lse=given",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=18 h_kv=2 d=64 x=f16 causal=1 q.pad=8 "
    "k.pad=16 v.pad=8 out.pad=24 lse=given lse.pad=1",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d=64 x=bf16 causal=1 k.pad=4",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=16 h_kv=4 d=64 x=bf16 causal=1 out.pad=5 "
    "out.offset=3",
    /* rows of out by the copy engine and without it, behind a request's last row nothing */
    "batch_prefill_ragged len=280:0:1:127:257 q_len=140:3:1:127:200 h_q=8 h_kv=2 d=64,128 x=bf16 "
    "causal=1 gap=3 v_indptr=given o_indptr=given v_scale=0.5 out.pad=0,8,5",
    "batch_prefill_ragged len=130:33:200 q_len=130:33:200 h_q=2,24,32,64 h_kv=2 d=128 x=f16 "
    "causal=1",
    "batch_prefill_ragged len=300:130 q_len=150:130 h_q=8 h_kv=2 d=128 x=bf16 causal=1 "
    "out.offset=8,3",
    "batch_prefill_ragged len=1200 q_len=300 b=1 h_q=16 h_kv=2 d=64 x=bf16 causal=1 lse=given",
    /* few rows and many keys: tiles are cut */
    "batch_prefill_ragged len=3000:200 q_len=96:40 h_q=64 h_kv=16 d=128 x=bf16 causal=0,1 "
    "lse=given",
    "batch_prefill_paged len=2600 q_len=192 b=1 h_q=32 h_kv=8 d=128 page=1,16 x=bf16 causal=1 "
    "lse=given",
    "batch_prefill_ragged len=2500 q_len=300 b=1 h_q=16 h_kv=4 d=64 x=f16 causal=1 window_left=900 "
    "sinks=given v_scale=tensor o_scale=2 lse=given",
    "batch_prefill_ragged len=2500:7:0 q_len=300:9:3 h_q=16 h_kv=4 d=80,256 x=bf16 "
    "logits_soft_cap=5 lse=given",
    "batch_prefill_ragged len=2600 q_len=300 b=1 h_q=16 h_kv=4 d=128 x=f8_e4m3fn "
    "o_data_type=bf16 causal=0,1 lse=given",
    "single_prefill_with_kv_cache n=200 len=3000 h_q=32 h_kv=8 d=128 x=bf16 causal=0,1",
    /* places in a matrix */
    "block_sparse_attention R=128 C=128 M=512 N=768 kept=50 h_q=16 h_kv=4 x=bf16 d=128 causal=0,1 "
    "window_left=200 lse=given kv_layout=HND",
    "block_sparse_attention R=100 C=8,24,256 M=800 N=768 kept=50 h_q=16 h_kv=4 x=f16 d=64 "
    "causal=1 lse=given sinks=given",
    "block_sparse_attention R=128 C=32 M=512 N=384 kept=50 h_q=16 h_kv=4 x=bf16 d=128 causal=1 "
    "lse=given parts=2 logits_soft_cap=5",
    "single_prefill_with_kv_cache n=380 len=600 h_q=16 h_kv=2 d=64,128 x=bf16,f16 causal=1 "
    "kv_layout=HND lse=given",
    "batch_prefill_ragged len=400:130:1:0:257 q_len=400:130:1:3:250 h_q=16,12 h_kv=4 d=128 "
    "x=f8_e4m3fn o_data_type=bf16,f16 causal=0,1 lse=given",
    "batch_prefill_paged len=400:300:5:0:129 q_len=400:250:5:0:129 h_q=16 h_kv=4 d=128 "
    "x=f8_e4m3fn o_data_type=bf16 page=1,16,128 kv_layout=NHD,HND causal=1 lse=given",
    "batch_prefill_ragged len=400:300 q_len=400:250 h_q=16 h_kv=4 d=128 x=f8_e4m3fn "
    "o_data_type=bf16 causal=1 window_left=100 sinks=given q_scale=tensor k_scale=tensor "
    "v_scale=tensor lse=given",
    "batch_mla ckv=512 kpe=64 x=bf16 h=128,16 len=1:64:65:128:129:192:1000 q_len=1 page=1,16,64 "
    "lse=given",
    "batch_mla ckv=512 kpe=64 x=bf16 h=40 len=1:0:65:700 q_len=1:2:0:1 page=128 lse=given",
    "batch_mla ckv=512,256 kpe=64,0 x=f16 h=24 len=300:65:128 q_len=3:1:5 causal=1 page=16,3 "
    "lse=given logits_soft_cap=5",
    "batch_mla ckv=512 kpe=64 x=bf16 h=16 b=1 len=9000 q_len=1 page=64 lse=given",
    "batch_mla ckv=512 kpe=64 x=bf16 h=16 len=300:65 q_len=5 custom_mask=given page=64 lse=given",
    /* Enough tiles of 192 rows for three warpgroups. */
    "batch_prefill_ragged len=440:0:1:128:127:193 q_len=340:3:1:128:130:193 h_q=32 h_kv=32 d=64 "
    "x=bf16 causal=0,1 gap=3 lse=given v_indptr=given o_indptr=given",
    "batch_prefill_ragged len=300:180:129 q_len=300:150:129 h_q=64 h_kv=32 d=48,64 x=f16 causal=1 "
    "logits_soft_cap=0,5 lse=given",
    "batch_prefill_ragged len=500:140 q_len=400:140 h_q=48 h_kv=48 d=64 x=bf16 causal=1 "
    "window_left=0,50,127 lse=given",
    "batch_prefill_ragged len=300:140 q_len=300:140 h_q=64 h_kv=32 d=64 x=bf16 causal=1 "
    "sinks=given q_scale=tensor k_scale=tensor v_scale=tensor o_scale=2 lse=given",
    "batch_prefill_ragged len=200:190 q_len=200:190 h_q=72 h_kv=24 d=64 x=f16 causal=1 q.pad=8 "
    "k.pad=16 v.pad=8 out.pad=24 lse=given lse.pad=1",
    "batch_prefill_paged len=400:200 q_len=300:200 h_q=64 h_kv=32 d=64 x=bf16 causal=1 "
    "page=8,16,128 kv_layout=NHD,HND block_tables=given lse=given window_left=-1,40",
    "batch_prefill_ragged len=300:140 q_len=300:140 h_q=64 h_kv=32 d=64 x=bf16 causal=1 q.pad=0,1 "
    "sm_scale=-0.2,6 lse=given",
    "single_prefill_with_kv_cache n=400 len=500 h_q=64 h_kv=32 d=64 x=bf16 causal=0,1 "
    "kv_layout=HND lse=given",
};
BOLIDE_TEST_GPU(attention_large, large_cases);
