// SPDX-License-Identifier: Apache-2.0
//
// What operators and the tool ask of the CPU layer: the instruction set in force, a kernel's
// instance for it, and parallel loops.
//
// A kernel file <op>_cpu.c is compiled once for each instruction set with BOLIDE_ISA(name) adding
// the suffix. Its family header declares the instances and the front picks one:
//
//     BOLIDE_CPU_KERNEL(rmsnorm_rows, (void *arg, int64_t begin, int64_t end, int worker));
//     bolide__parallel_for(ctx, n, grain, BOLIDE_CPU_PICK(rmsnorm_rows), &params);

#ifndef BOLIDE_CPU_CPU_H
#define BOLIDE_CPU_CPU_H

#include <bolide/core.h>

/* Ordered: a machine that has one has those before it. emu512 runs the AVX-512 code path as two
 * halves of 8 lanes on AVX2, for tests. */
typedef enum bolide__isa {
    BOLIDE__BASELINE,
    BOLIDE__AVX2,
    BOLIDE__EMU512,
    BOLIDE__AVX512
} bolide__isa;

/* Units beside the base sets; used only where a kernel's table says so and never in deterministic
 * (batch-invariant) mode. */
typedef struct bolide__cpu_features {
    int avx512_bf16;
    int avx512_vnni;
    int avx512_fp16;
    int amx_bf16; /* tile permission asked for once and granted */
    int amx_int8;
    int amx_refused;   /* the chip has it, the system refused it */
    int fast_bf16_dot; /* BF16 dot products beat f32 FMA: AMD's cores; not Intel's, which have AMX
                        */
} bolide__cpu_features;

/* The set in force: BOLIDE_ISA or the best of the machine. A name that is unknown or that the
 * machine lacks gives the best with one warning in the log. */
bolide__isa bolide__cpu_isa(void);
const char *bolide__isa_name(bolide__isa isa);
const bolide__cpu_features *bolide__cpu_features_get(void);
/* For tests and the tool: forces a set that the machine has; 0 if it does not have it. */
int bolide__cpu_force_isa(bolide__isa isa);

#if defined(__x86_64__)
#define BOLIDE_CPU_KERNEL(name, params)                                                            \
    void bolide__##name##_baseline params;                                                         \
    void bolide__##name##_avx2 params;                                                             \
    void bolide__##name##_emu512 params;                                                           \
    void bolide__##name##_avx512 params
#define BOLIDE_CPU_PICK(name)                                                                      \
    (bolide__cpu_isa() == BOLIDE__AVX512   ? bolide__##name##_avx512                               \
     : bolide__cpu_isa() == BOLIDE__EMU512 ? bolide__##name##_emu512                               \
     : bolide__cpu_isa() == BOLIDE__AVX2   ? bolide__##name##_avx2                                 \
                                           : bolide__##name##_baseline)
#else
#define BOLIDE_CPU_KERNEL(name, params) void bolide__##name##_baseline params
#define BOLIDE_CPU_PICK(name) bolide__##name##_baseline
#endif

/* Threads of a call: the context's limit, else affinity, cgroup quota and OMP_NUM_THREADS. */
int bolide__cpu_threads(const bolide_context *ctx);

typedef void (*bolide__loop_body)(void *arg, int64_t begin, int64_t end, int worker);

/* Runs body over [0, n) in pieces of `grain` items (the last may be shorter): piece i is always
 * [i*grain, min(n, (i+1)*grain)), whatever the number of workers, so results cannot depend on it.
 * worker is in [0, bolide__cpu_threads(ctx)) and only chooses scratch. One piece, one thread, or a
 * call from inside a parallel region runs here without a team. Works after fork. */
void bolide__parallel_for(const bolide_context *ctx, int64_t n, int64_t grain,
                          bolide__loop_body body, void *arg);

/* Rows of row_elems elements that make a piece worth handing to a thread. */
static inline int64_t bolide__row_grain(int64_t row_elems) {
    return row_elems >= 16384 ? 1 : 16384 / (row_elems > 0 ? row_elems : 1);
}

/* The same for a kernel that fetches ahead within its piece: of many rows, a 64th. */
static inline int64_t bolide__long_grain(int64_t rows, int64_t row_elems) {
    const int64_t least = bolide__row_grain(row_elems), share = rows / 64;
    return share > least ? share : least;
}

#endif
