// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do, measured: the ceilings that `bolide bench` sets results against. Other
// work on the machine takes its share of both, so a ceiling is measured in short steps, in turn
// with what it is compared with.

#ifndef BOLIDE_CPU_ROOFLINE_H
#define BOLIDE_CPU_ROOFLINE_H

#include <bolide/core.h>

typedef struct bolide__roofline bolide__roofline;

/* On the threads of the context, with a buffer of four times the last cache (256 MiB to 2 GiB, at
 * most a quarter of the free memory). NULL if there is no memory for it. */
bolide__roofline *bolide__roofline_open(const bolide_context *ctx);

/* Bytes a second of one sweep over about as many bytes, at least 8 MiB and at most the buffer. It
 * begins where the last one ended, so that it finds nothing in a cache. */
double bolide__roofline_read(bolide__roofline *r, double bytes);

/* f32 operations a second of about as many of them, in independent FMA chains (two operations each)
 * on the instruction set in force; of multiply and add on baseline. At most some 30 ms. */
double bolide__roofline_fma(bolide__roofline *r, double operations);

void bolide__roofline_close(bolide__roofline *r); /* NULL: nothing */

#endif
