// SPDX-License-Identifier: Apache-2.0
//
// Cases of the top-k family.

#include "ops_test.h"

static const char *const top_k_cases[] = {
    "top_k n=0,1,7 v=1,2,15,16,17,100,1025 k=0,1 input=f16,bf16,f32",
    "top_k n=3 v=100,1025 k=2,16,100 sorted=0,1 tie_break=none,small,large input=f16,bf16,f32",
    "top_k n=28 v=3000 k=1,17,2048 kind=mixed sorted=0,1 tie_break=small,large out_dtype=i32,i64",
    "top_k n=28 v=700 k=40,699,700 kind=mixed sorted=0,1 tie_break=small,large input=f16,bf16",
    "top_k n=2 v=8320 k=2048 kind=winners tie_break=none,large sorted=0,1 deterministic=1",
    "top_k n=1 v=1048576 k=2048 kind=close",
    "top_k n=2 v=131072 k=1,2048,70000 input=bf16,f32",
    "top_k n=7 v=40000 k=300 kind=mixed sorted=1",
    "top_k n=60 v=9000 k=20,3000 kind=mixed input=bf16,f32",
    "top_k n=20 v=100 k=60,100 kind=inf sorted=0,1 input=f16,f32", /* few finite entries, or none */
    "top_k n=7 v=9000 k=2048,2049,5000 kind=mixed sorted=1 tie_break=small,large",
    "top_k n=6 v=300 input.pad=5 values.pad=3 indices.pad=2 kind=mixed sorted=1",
    "top_k v=10 k=11 expect=invalid_argument:k",
};
BOLIDE_TEST(top_k, top_k_cases);

static const char *const topk_clusters_exact_cases[] = {
    "topk_clusters_exact n=0,1,7 v=1,17,1025 top_k=0,1 logits=f16,bf16,f32 values=given",
    "topk_clusters_exact n=28 v=3000 top_k=17,2048 kind=mixed out_dtype=i32,i64 values=given,none",
    "topk_clusters_exact v=10 top_k=11 expect=invalid_argument:top_k",
};
BOLIDE_TEST(topk_clusters_exact, topk_clusters_exact_cases);

static const char *const top_k_varlen_cases[] = {
    "top_k_varlen n=0,1,6 v=1,17,1025 top_k=0,1,40 logits=f16,bf16,f32 out_values=given",
    "top_k_varlen n=24 v=3000 top_k=17,512,4000 kind=mixed wide=20 next_n=1,2,3 compress_ratio=4",
    "top_k_varlen n=24 v=3000 top_k=17,512 kind=mixed wide=20 next_n=1,2 out_values=given,none",
    "top_k_varlen n=24 v=3000 top_k=100 kind=mixed wide=20 pre_idx=given backend=auto,gvr,radix",
    "top_k_varlen n=3 v=40000 top_k=512 kind=normal,ties pre_idx=given next_n=3",
    "top_k_varlen n=4 next_n=3 expect=invalid_argument:next_n",
    "top_k_varlen n=4 compress_ratio=0 expect=invalid_argument:compress_ratio",
    "top_k_varlen n=4 backend=gvr expect=invalid_argument:pre_idx",
};
BOLIDE_TEST(top_k_varlen, top_k_varlen_cases);

static const char *const top_k_page_table_transform_cases[] = {
    "top_k_page_table_transform n=0,1,5 b=5 row_to_batch=given v=1,17,100 k=0,1,40 "
    "input=f16,bf16,f32",
    "top_k_page_table_transform n=28 b=28 v=3000 pages=3000 k=17,512,4000 kind=mixed "
    "tie_break=small,large out_raw_indices=given",
    "top_k_page_table_transform n=28 b=9 v=3000 pages=100 k=64 kind=mixed row_to_batch=given "
    "row_starts=given page_table_row_starts=given page_size=1,16,64 out_raw_indices=given wide=2",
    "top_k_page_table_transform n=5 v=300 pages=300 row_starts=given",
    "top_k_page_table_transform page_size=3 expect=invalid_argument:page_size",
    "top_k_page_table_transform page_size=4 row_starts=given "
    "expect=invalid_argument:page_table_row_starts",
    "top_k_page_table_transform n=5 b=4 expect=invalid_argument:src_page_table",
};
BOLIDE_TEST(top_k_page_table_transform, top_k_page_table_transform_cases);

static const char *const top_k_ragged_transform_cases[] = {
    "top_k_ragged_transform n=0,1,5 v=1,17,100 k=0,1,40 input=f16,bf16,f32",
    "top_k_ragged_transform n=28 v=3000 k=17,512,4000 kind=mixed tie_break=small,large wide=20 "
    "row_starts=given,none deterministic=0,1",
};
BOLIDE_TEST(top_k_ragged_transform, top_k_ragged_transform_cases);

static const char *const topk_clusters_page_table_transform_cases[] = {
    "topk_clusters_page_table_transform n=0,1,5 v=1,17,100 top_k=0,1,40 logits=f16,bf16,f32",
    "topk_clusters_page_table_transform n=28 v=3000 pages=2000 top_k=17,512 kind=mixed wide=20",
};
BOLIDE_TEST(topk_clusters_page_table_transform, topk_clusters_page_table_transform_cases);

static const char *const topk_clusters_ragged_transform_cases[] = {
    "topk_clusters_ragged_transform n=0,1,5 v=1,17,100 top_k=0,1,40 logits=f16,bf16,f32",
    "topk_clusters_ragged_transform n=28 v=3000 top_k=17,512,4000 kind=mixed wide=20",
};
BOLIDE_TEST(topk_clusters_ragged_transform, topk_clusters_ragged_transform_cases);
