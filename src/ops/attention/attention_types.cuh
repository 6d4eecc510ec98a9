// SPDX-License-Identifier: Apache-2.0
//
// What QT, KT and OT stand for where 8-bit keys and values meet products of 16 bits: attention.cu
// and attention_stream.cu. Included behind those constants.

#ifndef BOLIDE_OPS_ATTENTION_TYPES_CUH
#define BOLIDE_OPS_ATTENTION_TYPES_CUH

using q_elem = element<QT>::type;
using kv_elem = element<KT>::type;
using out_elem = element<OT>::type;
/* The products run in the 16-bit type of q. 8-bit values are exact in either, but come to f16 by
 * one instruction: with them the products are in f16, and rows of q are fitted to it. */
template <bool BRAIN> struct choose { using type = f16; };
template <> struct choose<true> { using type = bf16; };
constexpr bool FITTED = QT == BF16 && sizeof(kv_elem) == 1;
using half = choose<QT == BF16 && !FITTED>::type;

#endif
