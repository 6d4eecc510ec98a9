// SPDX-License-Identifier: Apache-2.0
//
// Cases of the gemm family.

#include "ops_test.h"

static const char *const mm_block_quant_cases[] = {
    "mm_block_quant m=1,2,3,4,5 n=1,15,16,17,100 k=32,96 format=q4_0,q4_1,q8_0 compute=f32,int8",
    "mm_block_quant m=1,7,130 n=33 k=576 format=q4_0,q4_1,q8_0 compute=f32,int8",
    "mm_block_quant m=1,2,3,4,5,37,75 n=1,9,20 k=1,31,32,65 format=f32,f16,bf16",
    "mm_block_quant m=1,9 n=40 k=1536,800 format=q4_1,q8_0,bf16",
    "mm_block_quant m=1,6 n=40 k=1536 format=q4_0,q4_1,q8_0 compute=int8",
    "mm_block_quant m=1,3,6 input=f32,f16,bf16 out=f32,f16,bf16 format=q4_1 compute=f32,int8",
    "mm_block_quant m=1,6 bias=f32,f16,bf16 format=q4_0,f16",
    "mm_block_quant m=1,6 n=35 bias=f32,f16,bf16 format=q8_0 compute=int8",
    "mm_block_quant m=0,2 n=0,3 k=0,32 format=q4_1,q8_0 compute=f32,int8",
    "mm_block_quant m=2 n=3 k=0 bias=f32 format=q4_1,f32",
    "mm_block_quant m=2 n=3 k=0 bias=f32 format=q4_0 compute=int8",
    "mm_block_quant m=1,5 input.pad=3 weight.pad=7 weight.offset=1 out.pad=2 format=f32,q4_1",
    "mm_block_quant m=1,5 input=f16 input.pad=5 weight.pad=1 weight.offset=3 format=q8_0",
    "mm_block_quant m=1,5 input=bf16 input.pad=5 weight.pad=9 out.pad=9 format=q8_0 compute=int8",
    "mm_block_quant m=1,5 input.stride0=0 format=q4_1 compute=f32,int8",
    "mm_block_quant m=1,40 k=256 input.values=nan,inf,mix,zero,tiny format=q4_1 compute=f32,int8",
    "mm_block_quant m=1,6 n=40 scale=zero,inf,nan format=q4_0,q4_1,q8_0 compute=f32,int8",
    "mm_block_quant k=40 format=q4_1 expect=invalid_argument:input",
    "mm_block_quant k=64 row_bytes=41 format=q4_1 expect=invalid_argument:weight",
    "mm_block_quant format=f16 compute=int8 expect=invalid_argument:compute",
};
BOLIDE_TEST(mm_block_quant, mm_block_quant_cases);

static const char *const mm_bf16_cases[] = {
    "mm_bf16 m=1,2,3,4,5,37 n=1,7,8,9,50 k=1,15,64,100 a=f16,bf16",
    "mm_bf16 m=1,5,80 n=70 k=1000,1600 a=f16,bf16 out_dtype=f32",
    "mm_bf16 m=1,6 a=f16,bf16 out_dtype=f16,bf16,f32 bias=f16,bf16,f32",
    "mm_bf16 m=1,6,40 n=30 k=33,64 a=f16,bf16 b.order=0:1", /* row-major */
    "mm_bf16 m=2,6 n=30 k=33,64 b.order=0:1,1:0 b.pad=5 a.pad=3 out.pad=1",
    "mm_bf16 m=2,6 b.stride0=2 b.stride1=131", /* neither dimension is contiguous */
    "mm_bf16 m=2,6 a.stride0=0",
    "mm_bf16 m=0,2 n=0,3 k=0,4",
    "mm_bf16 m=2,7 n=3 k=0 bias=f32",
    "mm_bf16 m=1,6 n=40 k=96 a.values=nan,inf,mix,zero,tiny,large a=f16,bf16 out_dtype=f32",
    "mm_bf16 m=1,6 n=40 k=96 b.values=mix a=bf16",
    "mm_bf16 m=2 a=f32 expect=invalid_argument:a",
};
BOLIDE_TEST(mm_bf16, mm_bf16_cases);

static const char *const bmm_bf16_cases[] = {
    "bmm_bf16 b=1,3 m=1,5,40 n=1,17,50 k=1,64,100 A=f16,bf16",
    "bmm_bf16 m=1,6 A=f16,bf16 out_dtype=f16,bf16,f32",
    "bmm_bf16 m=2,6 n=30 k=33 B.order=0:1:2,1:0:2,2:1:0 A.order=1:0:2 out.order=1:0:2",
    "bmm_bf16 m=2,6 A.stride0=0 B.stride0=0",
    "bmm_bf16 b=0,2 m=0,2 n=0,3 k=0,4",
    "bmm_bf16 m=6 k=96 A.values=nan,inf,mix",
};
BOLIDE_TEST(bmm_bf16, bmm_bf16_cases);
