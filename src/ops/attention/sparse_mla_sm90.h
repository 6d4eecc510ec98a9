// SPDX-License-Identifier: Apache-2.0
//
// What the front and the kernel of sparse_mla_sm90.cu must agree on.

#ifndef BOLIDE_OPS_ATTENTION_SPARSE_MLA_SM90_H
#define BOLIDE_OPS_ATTENTION_SPARSE_MLA_SM90_H

/* Of sparse_mla_sm90.cu: keys of a tile; threads of a block, 128 or, with 16 rows and packed keys,
 * 256 of which load. */
enum { BOLIDE__SPARSE90_KEYS = 64, BOLIDE__SPARSE90_THREADS = 384, BOLIDE__SPARSE90_MOST = 512 };

#endif
