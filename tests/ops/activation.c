// SPDX-License-Identifier: Apache-2.0
//
// Cases of the activation family.

#include "ops_test.h"

static const char *const silu_and_mul_cases[] = {
    "silu_and_mul n=1,7,64 d=1,8,15,64,100,1023,4096 input=f16,bf16,f32",
    "silu_and_mul n=1,2 d=4097,14336 input=bf16,f32", /* several pieces a row */
    "silu_and_mul n=5 h=1,3 d=64,81 input=f16,bf16,f32",
    "silu_and_mul n=0,3 d=0,64",
    "silu_and_mul n=3 h=0,2 d=64",
    "silu_and_mul n=9 h=4 d=95 input=f16 input.pad=5 out.pad=3 input.offset=1 out.offset=2",
    "silu_and_mul n=9 h=4 d=96 input.order=1:0:2 out.order=1:0:2",
    "silu_and_mul n=6 d=72 input.stride0=0",
    "silu_and_mul n=40 d=300 input=f16,bf16,f32 input.values=nan,inf,mix,zero,tiny,large",
    "silu_and_mul n=2 d=16384 input=f16",
    "silu_and_mul n=2 input.shape=2:9 out.shape=2:4 expect=invalid_argument:input",
    "silu_and_mul n=2 input.shape=2:8 out.shape=2:5 expect=invalid_argument:out",
};
BOLIDE_TEST(silu_and_mul, silu_and_mul_cases);

static const char *const gelu_and_mul_cases[] = {
    "gelu_and_mul n=1,7 d=1,15,64,100,4096 input=f16,bf16,f32",
    "gelu_and_mul n=5 h=3 d=81 input=f16,bf16,f32 input.pad=8",
    "gelu_and_mul n=0 d=64",
    "gelu_and_mul n=40 d=300 input=f16,bf16,f32 input.values=nan,inf,mix,zero,tiny,large",
    "gelu_and_mul n=2 d=16384 input=f16",
};
BOLIDE_TEST(gelu_and_mul, gelu_and_mul_cases);

static const char *const gelu_tanh_and_mul_cases[] = {
    "gelu_tanh_and_mul n=1,7 d=1,15,64,100,4096 input=f16,bf16,f32",
    "gelu_tanh_and_mul n=5 h=3 d=81 input=f16,bf16,f32 input.pad=8",
    "gelu_tanh_and_mul n=0 d=64",
    "gelu_tanh_and_mul n=40 d=300 input=f16,bf16,f32 input.values=nan,inf,mix,zero,tiny,large",
    "gelu_tanh_and_mul n=2 d=16384 input=f16",
};
BOLIDE_TEST(gelu_tanh_and_mul, gelu_tanh_and_mul_cases);

static const char *const silu_and_mul_scaled_cases[] = {
    "silu_and_mul_scaled n=3 d=1,64,101 x=f16,bf16,f32,f8_e4m3fn,f8_e5m2 "
    "out=f16,bf16,f32,f8_e4m3fn,f8_e5m2",
    "silu_and_mul_scaled n=3 h=2 d=64 x=bf16,f8_e4m3fn x_scale=0.5,tensor o_scale=3,tensor "
    "out=f16,f8_e4m3fn",
    "silu_and_mul_scaled n=4 d=70 x=f16,bf16 x.pad=3 o_scale=3e38 out=f16,bf16,f32",
    "silu_and_mul_scaled n=4 d=70 x_scale=tensor o_scale=tensor x_scale.shape=scalar "
    "o_scale.shape=scalar",
    "silu_and_mul_scaled n=0,3 d=0,64",
    "silu_and_mul_scaled n=40 d=300 x=bf16,f32 x.values=nan,inf,mix,zero out=f8_e4m3fn,bf16 "
    "o_scale=2",
    "silu_and_mul_scaled n=1 d=14336 x=bf16 out=f8_e4m3fn o_scale=20",
};
BOLIDE_TEST(silu_and_mul_scaled, silu_and_mul_scaled_cases);
