// SPDX-License-Identifier: Apache-2.0
//
// What the front and the kernel of sparse_mla_sm90.cu must agree on.

#ifndef BOLIDE_OPS_ATTENTION_SPARSE_MLA_SM90_H
#define BOLIDE_OPS_ATTENTION_SPARSE_MLA_SM90_H

enum {
    BOLIDE__SPARSE90_THREADS = 384, /* of a block, of which 128 load */
    BOLIDE__SPARSE90_KEYS = 64      /* of a tile */
};

#endif
