// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do, measured: the ceilings that `bolide bench` sets results against. Each
// call takes about half a second on the threads of the context.

#ifndef BOLIDE_CPU_ROOFLINE_H
#define BOLIDE_CPU_ROOFLINE_H

#include <bolide/core.h>

/* Bytes a second of reading a buffer of four times the last cache (256 MiB to 2 GiB), the best of
 * several passes; 0 if there is no memory for it. */
double bolide__roofline_read(const bolide_context *ctx);

/* f32 operations a second of independent FMA chains (two operations each) on the instruction set
 * in force; of multiply and add on baseline. */
double bolide__roofline_fma(const bolide_context *ctx);

#endif
