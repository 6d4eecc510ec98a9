// SPDX-License-Identifier: Apache-2.0
//
// Cases of the quant family.

#include <bolide/quant.h>

#include <string.h>

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
};
BOLIDE_TEST(segment_packbits, segment_packbits_cases);

/* The list and the room are checked on the CPU; on a device they are the caller's promise. */
static void segments_are_checked(unit *u) {
    static const struct {
        int32_t indptr[3];
        int64_t room;
        const char *arg; /* NULL: all is well */
    } cases[] = {{{0, 11, 23}, 4, NULL},      {{0, 11, 23}, 3, "out"},
                 {{0, 11, 24}, 4, "indptr"},  {{0, 11, 10}, 4, "indptr"},
                 {{-1, 11, 23}, 4, "indptr"}, {{5, 5, 23}, 3, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t x[23] = {0}, out[8] = {0};
        int32_t indptr[3], out_indptr[3];
        memcpy(indptr, cases[i].indptr, sizeof indptr);
        int64_t n = 23, points = 3, m = cases[i].room;
        const bolide_device cpu = {.type = BOLIDE_CPU};
        const bolide_dtype u8 = bolide_dtype_of(BOLIDE_U8), i32 = bolide_dtype_of(BOLIDE_I32);
        const bolide_tensor tx = {.data = x, .device = cpu, .ndim = 1, .dtype = u8, .shape = &n};
        const bolide_tensor ty = {.data = out, .device = cpu, .ndim = 1, .dtype = u8, .shape = &m};
        const bolide_tensor ti = {
            .data = indptr, .device = cpu, .ndim = 1, .dtype = i32, .shape = &points};
        const bolide_tensor to = {
            .data = out_indptr, .device = cpu, .ndim = 1, .dtype = i32, .shape = &points};
        bolide_segment_packbits_args a;
        bolide_status s = bolide_args_init("segment_packbits", &a, sizeof a);
        a.x = &tx;
        a.indptr = &ti;
        a.out = &ty;
        a.out_indptr = &to;
        s = s ? s : bolide_segment_packbits(NULL, &a, NULL);
        const char *arg = bolide_last_error()->arg;
        UNIT_EXPECT(u, s == (cases[i].arg ? BOLIDE_INVALID_ARGUMENT : BOLIDE_OK),
                    "case %d: status %d", (int)i, (int)s);
        UNIT_EXPECT(u, !cases[i].arg || (arg && !strcmp(arg, cases[i].arg)),
                    "case %d: expected %s; got %s", (int)i, cases[i].arg ? cases[i].arg : "nothing",
                    arg ? arg : "nothing");
    }
}
BOLIDE_UNIT(segments_are_checked);
