// SPDX-License-Identifier: Apache-2.0
//
// Cases of the cascade family. Every problem has states of no keys, whose values are NaN.

#include "ops_test.h"

static const char *const merge_state_cases[] = {
    "merge_state n=0,1,40 d=64,100,256,300 x=f16,bf16,f32",
    "merge_state h=1,3,128 d=8 x=bf16",
    "merge_state v_a.pad=8 v_b.pad=3 v_merged.pad=5 s_a.pad=2 s_merged.pad=1 x=f16",
    "merge_state s_a.values=large x=f32",
    "merge_state x=f16,f32 s_b.values=mix,inf,nan n=40",
};
BOLIDE_TEST(merge_state, merge_state_cases);

static const char *const merge_state_in_place_cases[] = {
    "merge_state_in_place n=0,1,40 d=64,100,300 x=f16,bf16,f32 mask=none,given",
    "merge_state_in_place v.pad=8 v_other.pad=3 s.pad=2 x=bf16 mask=given",
};
BOLIDE_TEST(merge_state_in_place, merge_state_in_place_cases);

static const char *const merge_states_cases[] = {
    "merge_states n=0,1,12 k=0,1,2,5,70 d=64,100 x=f16,f32",
    "merge_states v.pad=8 s.pad=1 v_merged.pad=3 x=bf16 d=300",
    "merge_states v.order=1:0:2:3 x=f32",
    "merge_states x=f32 s.values=mix,inf n=40 k=5",
};
BOLIDE_TEST(merge_states, merge_states_cases);

static const char *const variable_length_merge_states_cases[] = {
    "variable_length_merge_states n=0,1,9,100 d=64,100 x=f16,bf16,f32",
    "variable_length_merge_states v.pad=8 s.pad=1 x=bf16",
};
BOLIDE_TEST(variable_length_merge_states, variable_length_merge_states_cases);
