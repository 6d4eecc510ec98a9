// SPDX-License-Identifier: Apache-2.0
//
// A spec and a target as text and as a key. The text is what is hashed for the disk, what stands
// in messages and in the .spec files; the key of the table in memory is the packed integers.

#ifndef BOLIDE_CUDA_SPEC_H
#define BOLIDE_CUDA_SPEC_H

#include "cuda/cuda.h"

enum { BOLIDE__SPEC_TEXT = 1024, BOLIDE__TARGET_TEXT = 24 };

/* What a kernel is compiled for: a cubin for sm_<arch><suffix>, or PTX for compute_<arch>. */
typedef struct bolide__target {
    int32_t arch; /* 90 */
    char suffix;  /* 'a': with the features of that chip alone; 0: none */
    int32_t ptx;
} bolide__target;

/* Takes sm_90a, 90a, 9.0, compute_80; 0 for anything else. */
int bolide__target_parse(const char *text, bolide__target *out);
/* "sm_90a" or "compute_80" into text; returns text. */
const char *bolide__target_text(bolide__target target, char text[BOLIDE__TARGET_TEXT]);
/* The target for a chip of this compute capability; 0 if it is below 7.5. An unknown chip gets
 * the nearest lower one whose code it runs. */
int bolide__target_of(int32_t arch, bolide__target *out);
/* The numbers of a typical chip of that architecture, for compiling without one. */
void bolide__target_limits(bolide__target target, bolide__cuda_limits *limits);

/* "norm/rmsnorm.cu bolide_rmsnorm D=4096 DT=2" */
const char *bolide__spec_text(const bolide__spec *s, char text[BOLIDE__SPEC_TEXT]);
/* By content; a spec of another call site has other pointers. */
int bolide__spec_same(const bolide__spec *a, const bolide__spec *b);
/* By pointers and values. */
int bolide__spec_identical(const bolide__spec *a, const bolide__spec *b);
uint64_t bolide__spec_hash(const bolide__spec *s);

#endif
