// SPDX-License-Identifier: Apache-2.0
//
// Cases of the quant family.

#include "ops_test.h"

static const char *const packbits_cases[] = {
    "packbits n=0,1,7,8,9,15,16,17,31,32,100,1000 x=bool,u8 bitorder=big,little",
    "packbits n=33000,100001 x=bool bitorder=big,little", /* more than one piece */
    "packbits n=77 x=u8 x.offset=1 out.offset=3 x.values=normal,one,zero",
    "packbits n=77 x=i32 expect=invalid_argument:x",
    "packbits n=77 bitorder=2 expect=invalid_argument:bitorder",
};
BOLIDE_TEST(packbits, packbits_cases);

static const char *const segment_packbits_cases[] = {
    "segment_packbits len=1,7,8,9,5:0:20,0:0:3:0:17:8:0 x=bool,u8 indptr=i32,i64 "
    "bitorder=big,little",
    "segment_packbits len=0,0:0:0 x=bool",
    "segment_packbits len=40000:3:70000:1 x=bool bitorder=big,little",
    "segment_packbits len=11:12 first=5 room=0,5", /* values before, bytes behind */
    "segment_packbits len=11:12 room=-1 expect=invalid_argument:out",
    "segment_packbits len=11:12 beyond=1 expect=invalid_argument:indptr",
    "segment_packbits len=11:12 beyond=-13 expect=invalid_argument:indptr",
    "segment_packbits len=11:12 first=-1 expect=invalid_argument:indptr",
};
BOLIDE_TEST(segment_packbits, segment_packbits_cases);
