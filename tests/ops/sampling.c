// SPDX-License-Identifier: Apache-2.0
//
// Cases of the sampling family.

#include "ops_test.h"

#include "sampling_ref.h"

static const char *const top_p_sampling_from_probs_cases[] = {
    "top_p_sampling_from_probs n=0,1,7 v=1,2,15,16,17,100,1023,1024,1025",
    "top_p_sampling_from_probs v=5000 n=40 kind=mixed top_p=tensor peak=1,4",
    "top_p_sampling_from_probs v=32000 n=3 peak=0.1,1,3,8 top_p=0.5,0.9,0.99,0.9999",
    "top_p_sampling_from_probs v=128256 n=3 peak=0,1,3 top_p=0.9",
    "top_p_sampling_from_probs v=5003 n=110,140 kind=mixed top_p=0.9",
    "top_p_sampling_from_probs v=128256 n=2 kind=ties,sparse,onehot,nan,zero top_p=0.9",
    "top_p_sampling_from_probs v=40000 n=7 kind=mixed top_p=0,1,1e-9,0.3",
    "top_p_sampling_from_probs v=1000000 n=1 top_p=0.9", /* more than any cluster keeps */
    "top_p_sampling_from_probs v=50 n=20 kind=inf,raw top_p=0.5,1",
    "top_p_sampling_from_probs v=400 n=200 kind=mixed",
    "top_p_sampling_from_probs v=300 seed.dtype=i64 offset.dtype=u64 n=30",
    "top_p_sampling_from_probs v=300 seed.dtype=u64 seed.shape=1 offset=77 n=30",
    "top_p_sampling_from_probs v=300 top_p.shape=1 n=30 valid=given",
    "top_p_sampling_from_probs v=300 n=4 indices=i32,i64 b=0,1,9 valid=given top_p=tensor",
    "top_p_sampling_from_probs v=300 n=4 indices=i32,i64 b=30 outside=2 valid=given",
    "top_p_sampling_from_probs v=300 n=6 probs.pad=5 probs.offset=3 samples=i64",
    "top_p_sampling_from_probs v=0 expect=invalid_argument:probs",
    "top_p_sampling_from_probs n=3 samples.shape=4 expect=invalid_argument:samples",
    "top_p_sampling_from_probs n=3 top_p=tensor top_p.shape=2 expect=invalid_argument:top_p",
};
BOLIDE_TEST(top_p_sampling_from_probs, top_p_sampling_from_probs_cases);

static const char *const sampling_from_probs_cases[] = {
    "sampling_from_probs n=0,1,7 v=1,2,15,16,17,100,1025 valid=given",
    "sampling_from_probs v=5000 n=40 kind=mixed peak=1,4 valid=given",
    "sampling_from_probs v=128256 n=2 peak=0,1,3,8 indices=i64 b=5",
    "sampling_from_probs v=300 n=9 seed.dtype=i64,u64 offset.dtype=u64",
    "sampling_from_probs v=70 n=7 kind=onehot,inf,raw",
};
BOLIDE_TEST(sampling_from_probs, sampling_from_probs_cases);

static const char *const top_k_sampling_from_probs_cases[] = {
    "top_k_sampling_from_probs v=300 n=9 seed.dtype=i64,u64 offset.dtype=u64 indices=i32,i64 b=4",
    "top_k_sampling_from_probs n=0,1,7 v=1,2,17,100,1025 top_k=0,1,2,16,1000",
    "top_k_sampling_from_probs v=5000 n=40 kind=mixed top_k.dtype=i32,i64 valid=given",
    "top_k_sampling_from_probs v=32000 n=8 kind=onehot top_k=1073741824",
    "top_k_sampling_from_probs v=128256 n=1 peak=0,1,3 top_k=1,50,2048,60000",
    "top_k_sampling_from_probs v=40000 n=7 kind=mixed top_k=20",
    "top_k_sampling_from_probs v=5003 n=110 kind=mixed top_k=20,1000",
    "top_k_sampling_from_probs v=40000 n=4 kind=mixed,ties,sparse,zero top_k=20,128,129 "
    "valid=given",
};
BOLIDE_TEST(top_k_sampling_from_probs, top_k_sampling_from_probs_cases);

static const char *const min_p_sampling_from_probs_cases[] = {
    "min_p_sampling_from_probs v=300 n=9 seed.dtype=i64,u64 offset.dtype=u64 indices=i32,i64 b=4",
    "min_p_sampling_from_probs n=0,1,7 v=1,2,17,100,1025 min_p=0,0.1,1",
    "min_p_sampling_from_probs v=5000 n=40 kind=mixed min_p=tensor valid=given",
    "min_p_sampling_from_probs v=128256 n=1 peak=0,1,3 min_p=-1,0.02,0.5,3",
    "min_p_sampling_from_probs v=5003 n=110,140 kind=mixed min_p=0.1",
};
BOLIDE_TEST(min_p_sampling_from_probs, min_p_sampling_from_probs_cases);

static const char *const top_k_top_p_sampling_from_probs_cases[] = {
    "top_k_top_p_sampling_from_probs v=300 n=9 seed.dtype=i64,u64 offset.dtype=u64 indices=i64 "
    "b=4",
    "top_k_top_p_sampling_from_probs n=0,1,7 v=1,17,100,1025 filter_apply_order=top_k_first,joint",
    "top_k_top_p_sampling_from_probs v=5000 n=70 kind=mixed top_k=tensor top_p=tensor "
    "filter_apply_order=top_k_first,joint valid=given",
    "top_k_top_p_sampling_from_probs v=128256 n=1 peak=1,3 top_k=50,60000 top_p=0.3,0.9 "
    "filter_apply_order=top_k_first,joint",
    "top_k_top_p_sampling_from_probs v=32000 n=8 kind=onehot top_k=1073741824 top_p=1",
    "top_k_top_p_sampling_from_probs v=40001 n=4 kind=mixed,ties top_k=50 top_p=0.2,0.9 "
    "filter_apply_order=top_k_first,joint",
    "top_k_top_p_sampling_from_probs v=5003 n=110 kind=mixed top_k=200 top_p=0.7 "
    "filter_apply_order=top_k_first,joint",
};
BOLIDE_TEST(top_k_top_p_sampling_from_probs, top_k_top_p_sampling_from_probs_cases);

static const char *const top_k_top_p_sampling_from_logits_cases[] = {
    "top_k_top_p_sampling_from_logits v=300 n=9 seed.dtype=i64,u64 offset.dtype=u64 indices=i64 "
    "b=4",
    "top_k_top_p_sampling_from_logits n=0,1,7 v=1,17,100,1025 logits=f16,bf16,f32 "
    "filter_apply_order=top_k_first,joint",
    "top_k_top_p_sampling_from_logits v=5000 n=70 kind=mixed top_k=tensor top_p=tensor "
    "filter_apply_order=top_k_first,joint logits=bf16,f32",
    "top_k_top_p_sampling_from_logits v=128256 n=1 peak=1,5 top_k=0,50,60000 top_p=0.3,0.9 "
    "filter_apply_order=top_k_first,joint",
    "top_k_top_p_sampling_from_logits v=40001 n=4 kind=mixed,inf top_k=50 top_p=0.2,0.9 "
    "filter_apply_order=top_k_first,joint logits=bf16,f32",
    "top_k_top_p_sampling_from_logits v=100 n=5 kind=inf logits=f16,f32 indices=i32 b=9",
};
BOLIDE_TEST(top_k_top_p_sampling_from_logits, top_k_top_p_sampling_from_logits_cases);

static const char *const sampling_from_logits_cases[] = {
    "sampling_from_logits n=0,1,7 v=1,2,15,16,17,63,64,65,100,1025 logits=f16,bf16,f32",
    "sampling_from_logits v=300 n=9 seed.dtype=i64,u64 offset.dtype=u64",
    "sampling_from_logits v=5000 n=40 kind=mixed peak=1,4 indices=i64 b=50 outside=2",
    "sampling_from_logits v=128256 n=2 peak=0,1,5 logits=bf16,f32",
    "sampling_from_logits v=5003 n=70,140 kind=mixed logits=bf16,f32 logits.pad=3",
    "sampling_from_logits v=100 n=50 kind=onehot,inf offset.dtype=i64",
};
BOLIDE_TEST(sampling_from_logits, sampling_from_logits_cases);

static const char *const softmax_cases[] = {
    "softmax n=0,1,7 v=0,1,2,15,16,17,100,1025 logits=f16,bf16,f32",
    "softmax v=5000 n=40 kind=mixed temperature=tensor logits=bf16,f32",
    "softmax v=300 n=7 kind=mixed temperature=0,-1,0.5,1e-30,1e30,inf logits=f16,f32",
    "softmax v=300 n=7 kind=mixed out=logits logits=f32 logits.pad=9",
    "softmax v=300 n=9 temperature.shape=1 logits.pad=3 out.pad=5 logits=bf16",
    "softmax v=128256 n=2 peak=1,20 logits=bf16,f32",
    "softmax v=1000000 n=1 logits=f32", /* more than any cluster keeps */
    /* Rows that a cluster takes one after another. */
    "softmax v=40000 n=70 kind=mixed temperature=tensor logits=bf16,f32",
    "softmax v=70000 n=10 kind=inf,nan temperature=0,0.5 logits=f16,f32",
    "softmax v=151936 n=9 peak=8 out=logits logits=f32",
    "softmax v=64 n=20 kind=inf logits=f16,f32 temperature=0,1",
    "softmax v=64 n=20 kind=inf,onehot logits=f32 temperature=-1,tensor",
};
BOLIDE_TEST(softmax, softmax_cases);

static const char *const top_p_renorm_probs_cases[] = {
    "top_p_renorm_probs n=0,1,7 v=0,1,2,17,100,1025 probs=f16,bf16,f32",
    "top_p_renorm_probs v=5000 n=70 kind=mixed top_p=tensor",
    "top_p_renorm_probs v=300 n=70 kind=mixed top_p=tensor probs=f16,bf16",
    "top_p_renorm_probs v=300 n=7 kind=mixed top_p=0.6 out=probs probs.pad=9",
    "top_p_renorm_probs v=300 n=9 top_p.shape=1 probs.pad=3 out.pad=5 probs=bf16",
    "top_p_renorm_probs v=128256 n=2 peak=1,3 top_p=0.9",
    "top_p_renorm_probs v=5003 n=110,140 kind=mixed peak=1,6 top_p=0.9 out.pad=5",
    "top_p_renorm_probs v=40001 n=5,7 kind=mixed peak=6 top_p=0.8 probs=bf16,f32",
    /* Many equal values, whose squares a sum of 1 rounds alike. */
    "top_p_renorm_probs v=40001 n=5 kind=mixed peak=6 top_p=0.8 probs=f32 seed=2468264929174137291",
    "top_p_renorm_probs v=50 n=9 kind=inf,raw top_p=0.5,1",
};
BOLIDE_TEST(top_p_renorm_probs, top_p_renorm_probs_cases);

static const char *const top_k_renorm_probs_cases[] = {
    "top_k_renorm_probs n=0,1,7 v=0,1,2,17,100,1025 top_k=0,1,16,5000 probs=f16,bf16,f32",
    "top_k_renorm_probs v=5000 n=70 kind=mixed top_k.dtype=i32,i64",
    "top_k_renorm_probs v=300 n=7 kind=mixed top_k=20 out=probs probs.pad=9",
    "top_k_renorm_probs v=128256 n=2 peak=1,3 top_k=50,50000 probs=bf16,f32",
    "top_k_renorm_probs v=5003 n=110,140 kind=mixed top_k=20 out.pad=5 probs=bf16,f32",
    "top_k_renorm_probs v=40001 n=5,7 kind=mixed top_k=20,900",
};
BOLIDE_TEST(top_k_renorm_probs, top_k_renorm_probs_cases);

static const char *const top_k_mask_logits_cases[] = {
    "top_k_mask_logits n=0,1,7 v=0,1,2,17,100,1025 top_k=0,1,16,5000 logits=f16,bf16,f32",
    "top_k_mask_logits v=5000 n=70 kind=mixed top_k.dtype=i32,i64 logits=f16,f32",
    "top_k_mask_logits v=300 n=7 kind=mixed top_k=20 out=logits logits.pad=9",
    "top_k_mask_logits v=300 n=7 kind=inf top_k=1,2,3 logits=f16,f32",
    "top_k_mask_logits v=128256 n=2 peak=1,3 top_k=50,50000 logits=bf16,f32",
    "top_k_mask_logits v=5003 n=110,140 kind=mixed top_k=20 out.pad=5 logits=f16,f32",
    "top_k_mask_logits v=40001 n=5,7 kind=mixed top_k=20,900",
};
BOLIDE_TEST(top_k_mask_logits, top_k_mask_logits_cases);

static const char *const chain_speculative_sampling_cases[] = {
    "chain_speculative_sampling b=0,1,9 n=0,1,5 v=1,2,17,100,1025 draft_token_ids=i32,i64",
    "chain_speculative_sampling b=40 n=4 v=30 close=0.9,0.5,0 "
    "maybe_output_accepted_token_num=given maybe_output_emitted_draft_token_num=given",
    "chain_speculative_sampling b=40 n=4 v=30 outside=3 maybe_output_accepted_token_num=given",
    "chain_speculative_sampling b=40 n=3 v=50 kind=mixed seed.dtype=i64 offset.dtype=u64 "
    "maybe_output_emitted_draft_token_num=given",
    "chain_speculative_sampling b=6 n=3 v=50 draft_probs.pad=3 target_probs.pad=5 "
    "target_probs.order=1:0:2 draft_token_ids.pad=2 output_token_ids.pad=4",
    "chain_speculative_sampling b=2 n=3 v=128256",
};
BOLIDE_TEST(chain_speculative_sampling, chain_speculative_sampling_cases);

/* Published vectors of the generator (Random123), so that reference and library cannot be wrong
 * together. */
static void philox_vectors(unit *u) {
    static const uint32_t in[3][6] = {
        {0, 0, 0, 0, 0, 0},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0},
    };
    static const uint32_t out[3][4] = {
        {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t word[4];
        ref_philox((uint64_t)in[i][5] << 32 | in[i][4], in[i], word);
        for (int k = 0; k < 4; k++)
            UNIT_EXPECT(u, word[k] == out[i][k], "vector %d: expected %08x; got %08x", i, out[i][k],
                        word[k]);
    }
}
BOLIDE_UNIT(philox_vectors);
