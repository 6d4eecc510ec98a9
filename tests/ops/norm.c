// SPDX-License-Identifier: Apache-2.0
//
// Cases of the norm family.

#include "ops_test.h"

static const char *const rmsnorm_cases[] = {
    "rmsnorm n=1,7,64 d=1,8,64,100,1023,4096 input=f16,bf16,f32",
    "rmsnorm n=5 h=1,3 d=64,80 input=f16,bf16,f32",
    "rmsnorm n=0 d=64", /* nothing to do is fine */
    "rmsnorm n=3 h=0 d=64",
    "rmsnorm n=4 d=0",
    "rmsnorm n=3 d=128,130 input=bf16,f32 input.pad=8 out=input", /* padded rows, in place */
    "rmsnorm n=9 h=4 d=96 input=f16 input.pad=5 out.pad=3 weight.offset=1 out.offset=2",
    "rmsnorm n=9 h=4 d=96 input.order=1:0:2 out.order=1:0:2",
    "rmsnorm n=6 d=72 input.stride0=0", /* one row read many times */
    "rmsnorm n=40 d=300 input=f16,bf16,f32 input.values=nan,inf,mix,zero,tiny",
    "rmsnorm n=40 d=300 weight.values=mix",
    "rmsnorm n=3 d=8192,16384 eps=0,1e-5,0.5",
    "rmsnorm n=1 d=64 out=weight expect=invalid_argument:out",
    "rmsnorm n=2 d=64 eps=nan expect=invalid_argument:eps",
};
BOLIDE_TEST(rmsnorm, rmsnorm_cases);
