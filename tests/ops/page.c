// SPDX-License-Identifier: Apache-2.0
//
// Cases of the page family. spare=0 makes the pool exactly full.

#include "ops_test.h"

static const char *const get_seq_lens_cases[] = {
    "get_seq_lens b=1,2,100 page=1,3,16",
    "get_seq_lens len=0:1:4:5:8:0:129 page=4,128",
    "get_seq_lens b=0",
    "get_seq_lens b=3000 max=100000 page=16",
    "get_seq_lens page_size=0 expect=invalid_argument:page_size",
};
BOLIDE_TEST(get_seq_lens, get_seq_lens_cases);

static const char *const get_batch_indices_positions_cases[] = {
    "get_batch_indices_positions b=1,2,100 spare=0,5",
    "get_batch_indices_positions len=0:1:4:0:0:129:0", "get_batch_indices_positions b=0 spare=0,3",
    "get_batch_indices_positions b=9 max=50 nnz=1,20", /* fewer than needed: cut */
};
BOLIDE_TEST(get_batch_indices_positions, get_batch_indices_positions_cases);

static const char *const append_paged_kv_cache_cases[] = {
    "append_paged_kv_cache page=1,3,16,19 kv_layout=NHD,HND append_key=f16 k_cache=f16",
    "append_paged_kv_cache page=1,3,16,19 kv_layout=NHD,HND append_key=bf16 k_cache=bf16",
    "append_paged_kv_cache page=1,3,16,19 kv_layout=NHD,HND append_key=f32 k_cache=f32",
    "append_paged_kv_cache page=16 kv_layout=NHD,HND append_key=f8_e4m3fn k_cache=f8_e4m3fn d=64",
    "append_paged_kv_cache page=16 kv_layout=NHD,HND append_key=f8_e5m2 k_cache=f8_e5m2 d=64",
    "append_paged_kv_cache append_key=f16,bf16,f32 k_cache=f8_e4m3fn,f8_e5m2 d=1,7,16,100 page=5",
    "append_paged_kv_cache append_key=f32 k_cache=f8_e4m3fn append_key.values=mix,inf,nan",
    "append_paged_kv_cache d_qk=192 d_vo=128 h_kv=3 append_key=bf16 k_cache=bf16",
    "append_paged_kv_cache len=8:4:0:16 page=4 spare=0 append_key=f16 k_cache=f16",
    "append_paged_kv_cache b=0 append_key=f16 k_cache=f16",
    "append_paged_kv_cache len=0:0 append_key=f16 k_cache=f16",
    "append_paged_kv_cache b=300 max=40 page=16 h_kv=8 d=128 append_key=bf16 k_cache=bf16",
    /* Many tokens, for a GPU: K and V that differ, and that cannot be cut in two. */
    "append_paged_kv_cache b=4 len=450 append=450 h_kv=8 d_qk=192 d_vo=128 append_key=bf16 "
    "k_cache=bf16",
    "append_paged_kv_cache b=4 len=500 append=500 h_kv=1 d=1111 append_key=f32 k_cache=f32",
    "append_paged_kv_cache kv_layout=NHD,HND append_key=bf16 k_cache=bf16 append_key.pad=8 "
    "append_value.pad=3 k_cache.pad=5 v_cache.pad=8",
    "append_paged_kv_cache append_key=f32 k_cache=f16,bf16 d=1,7,16,100 kv_layout=NHD,HND",
    "append_paged_kv_cache append_key=f32 k_cache=f16 append_key.values=mix,inf,nan",
    "append_paged_kv_cache page=1 spare=200000 d=8 h_kv=1 append_key=f16 k_cache=f16",
    "append_paged_kv_cache append_key=f16 k_cache=f32 expect=invalid_argument:k_cache",
    "append_paged_kv_cache append_key=f16 k_cache=bf16 expect=invalid_argument:k_cache",
    "append_paged_kv_cache append_key=f8_e4m3fn k_cache=f8_e5m2 expect=invalid_argument:k_cache",
};
BOLIDE_TEST(append_paged_kv_cache, append_paged_kv_cache_cases);

static const char *const append_paged_mla_kv_cache_cases[] = {
    "append_paged_mla_kv_cache page=1,3,64 append_ckv=f16 append_kpe=f16 ckv_cache=f16 "
    "kpe_cache=f16",
    "append_paged_mla_kv_cache page=1,3,64 append_ckv=bf16 append_kpe=bf16 ckv_cache=bf16 "
    "kpe_cache=bf16",
    "append_paged_mla_kv_cache page=1,3,64 append_ckv=f32 append_kpe=f32 ckv_cache=f32 "
    "kpe_cache=f32",
    "append_paged_mla_kv_cache d_ckv=512 d_kpe=64 append_ckv=bf16 append_kpe=bf16 "
    "ckv_cache=f8_e4m3fn kpe_cache=f8_e4m3fn b=20",
    "append_paged_mla_kv_cache append_ckv=bf16 ckv_cache=bf16 append_kpe=none kpe_cache=none",
    "append_paged_mla_kv_cache append_kpe=f16 kpe_cache=f16 append_ckv=none ckv_cache=none",
    "append_paged_mla_kv_cache append_ckv=bf16 append_kpe=bf16 ckv_cache=bf16 kpe_cache=bf16 "
    "append_ckv.pad=8 ckv_cache.pad=64",
    "append_paged_mla_kv_cache page=1 spare=200000 d_ckv=8 d_kpe=8 append_ckv=f16 append_kpe=f16 "
    "ckv_cache=f16 kpe_cache=f16",
    "append_paged_mla_kv_cache append_kpe=none expect=invalid_argument:kpe_cache",
    "append_paged_mla_kv_cache append_ckv=none ckv_cache=none append_kpe=none kpe_cache=none "
    "expect=invalid_argument:ckv_cache",
};
BOLIDE_TEST(append_paged_mla_kv_cache, append_paged_mla_kv_cache_cases);

static const char *const concat_mla_k_cases[] = {
    "concat_mla_k n=0,1,7,100 k_nope=f16,bf16,f32,f8_e4m3fn",
    "concat_mla_k n=5 h=1,16,128 k_nope=bf16",
    "concat_mla_k d_nope=5 d_rope=3 k_nope=f16 k.pad=2 k_nope.pad=64 k_rope.pad=7",
    "concat_mla_k d_nope=5 d_rope=3 k_nope=f16 k_nope.order=1:0:2",
    "concat_mla_k d_rope=0 k_nope=f32",
};
BOLIDE_TEST(concat_mla_k, concat_mla_k_cases);
