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
    "mm_block_quant m=1,5 input=f16 input.pad=5 weight.pad=1 weight.offset=3 out.pad=9 "
    "format=q8_0 compute=int8",
    "mm_block_quant m=1,5 input.stride0=0 format=q4_1 compute=f32,int8",
    "mm_block_quant m=1,40 k=256 input.values=nan,inf,mix,zero,tiny format=q4_1 compute=f32,int8",
    "mm_block_quant m=1,6 n=40 scale=zero,inf,nan format=q4_0,q4_1,q8_0 compute=f32,int8",
    "mm_block_quant k=40 format=q4_1 expect=invalid_argument:input",
    "mm_block_quant k=64 row_bytes=41 format=q4_1 expect=invalid_argument:weight",
    "mm_block_quant format=f16 compute=int8 expect=invalid_argument:compute",
};
BOLIDE_TEST(mm_block_quant, mm_block_quant_cases);
