// SPDX-License-Identifier: Apache-2.0
//
// Lets a shared library built on a new system load on glibc 2.28. The linker is told to redirect
// each function listed here (--wrap, from the names in this very list) to a jump that asks for the
// symbol version of old. Only the shared library is linked with this file: a program that takes
// the static archive is bound to its own machine's glibc anyway. A test reads the result and names
// any function that is still missing here. Why it is done so: docs/adr/0002-glibc-baseline.md.

#if defined(__x86_64__)
#define V_2_2_5 GLIBC_2.2.5
#define V_2_3_4 GLIBC_2.3.4
#define JUMP(target) jmp target@PLT
#define STAT_VERSION(target)                                                                       \
    mov %rsi, %rdx; mov %rdi, %rsi; mov $1, %edi; jmp target@PLT
#define FUNCTION @function
#define V_2_7 GLIBC_2.7
#else /* aarch64, whose first glibc was 2.17 */
#define V_2_2_5 GLIBC_2.17
#define V_2_3_4 GLIBC_2.17
#define JUMP(target) b target
#define STAT_VERSION(target)                                                                       \
    mov x2, x1; mov x1, x0; mov w0, #0; b target
#define FUNCTION %function
#define V_2_7 GLIBC_2.17
#endif

/* A section each, so that the linker drops those that nothing calls. */
#define START(name)                                                                                \
    .section .text.__wrap_##name, "ax", %progbits; .globl __wrap_##name;           \
    .hidden __wrap_##name; .type __wrap_##name, FUNCTION; __wrap_##name:
#define END(name) .size __wrap_##name, . - __wrap_##name

/* Two steps, so that the version is expanded before it is made part of the name. */
#define SYMVER_(target, version) .symver bolide__old_##target, target@version
#define SYMVER(target, version) SYMVER_(target, version)

#define OLD(name, version)                                                                         \
    SYMVER(name, version); START(name) JUMP(bolide__old_##name); END(name)
/* A new name for an old function. */
#define OLD_NAME(name, target, version)                                                            \
    SYMVER(target, version); START(name) JUMP(bolide__old_##target); END(name)
/* stat and its like were inline calls of __xstat and its like with a version number in front. */
#define OLD_STAT(name, target)                                                                     \
    START(name) STAT_VERSION(target); END(name)

OLD(dlopen, V_2_2_5)
OLD(dlsym, V_2_2_5)
OLD(dlclose, V_2_2_5)
OLD(dlerror, V_2_2_5)
OLD(dladdr, V_2_2_5)
OLD(pthread_create, V_2_2_5)
OLD(pthread_join, V_2_2_5)
OLD(pthread_detach, V_2_2_5)
OLD(pthread_once, V_2_2_5)
OLD(pthread_key_create, V_2_2_5)
OLD(pthread_key_delete, V_2_2_5)
OLD(pthread_getspecific, V_2_2_5)
OLD(pthread_setspecific, V_2_2_5)
OLD(pthread_mutex_trylock, V_2_2_5)
OLD(pthread_rwlock_rdlock, V_2_2_5)
OLD(pthread_rwlock_wrlock, V_2_2_5)
OLD(pthread_rwlock_unlock, V_2_2_5)
OLD(pthread_getaffinity_np, V_2_3_4)
OLD(exp, V_2_2_5)
OLD(exp2, V_2_2_5)
OLD(log, V_2_2_5)
OLD(log2, V_2_2_5)
OLD(pow, V_2_2_5)
OLD(fmod, V_2_2_5)
OLD(fmodf, V_2_2_5)
OLD(hypot, V_2_2_5)
OLD_NAME(__isoc23_strtol, strtol, V_2_2_5)
OLD_NAME(__isoc23_strtoll, strtoll, V_2_2_5)
OLD_NAME(__isoc23_strtoul, strtoul, V_2_2_5)
OLD_NAME(__isoc23_strtoull, strtoull, V_2_2_5)
OLD_NAME(__isoc23_sscanf, __isoc99_sscanf, V_2_7)
OLD_NAME(__isoc23_fscanf, __isoc99_fscanf, V_2_7)
OLD_STAT(stat, __xstat)
OLD_STAT(fstat, __fxstat)
OLD_STAT(lstat, __lxstat)

    .section .note.GNU-stack, "", %progbits
