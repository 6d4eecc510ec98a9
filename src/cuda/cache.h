// SPDX-License-Identifier: Apache-2.0
//
// Compiled kernels on disk:
//
//     <dir>/<target>/<function>-<hash>-<major>.<minor>.cubin   code and a trailer of 96 bytes
//     <dir>/<target>/<function>-<hash>-<major>.<minor>.spec    what it is, to be read by people
//
// The hash covers sources, options, definitions and target; the compiler's version stands behind
// it, so that a machine without a compiler can use whatever version a shipped cache holds. A file
// whose trailer does not fit its name and content is a miss. Files are written aside, synced and
// renamed, so any number of processes may share a folder.

#ifndef BOLIDE_CUDA_CACHE_H
#define BOLIDE_CUDA_CACHE_H

#include "cuda/hash.h"
#include "cuda/spec.h"

/* What the assembler said about the kernel; zeros for PTX. */
typedef struct bolide__resources {
    int32_t registers;
    int32_t stack_bytes;
    int32_t spill_bytes;  /* stores and loads */
    int32_t shared_bytes; /* static */
    int32_t serialized;   /* 1: the log has a C75xx line, wgmma was serialised */
} bolide__resources;

typedef struct bolide__binary {
    char *code; /* freed by the owner */
    size_t bytes;
    bolide__resources resources;
    int32_t major, minor; /* of the compiler */
} bolide__binary;

typedef struct bolide__cache_key {
    char target[BOLIDE__TARGET_TEXT];
    char function[96]; /* without bolide_ */
    bolide__hash128 hash;
    int32_t major, minor; /* of the compiler; 0: any, the newest is taken */
} bolide__cache_key;

/* BOLIDE_CACHE_DIR, else the folder in the user's cache; NULL: nowhere, kernels stay in memory. */
const char *bolide__cache_dir(void);
/* For tests and the tool: another folder from now on. */
void bolide__cache_use(const char *dir);

/* 1 and the code on a hit. */
int bolide__cache_read(const char *dir, const bolide__cache_key *key, bolide__binary *out);
/* Keeps a binary. Where that fails, one warning a process is printed and nothing else happens. */
void bolide__cache_write(const char *dir, const bolide__cache_key *key, const bolide__binary *b,
                         const char *description);

/* For `bolide cache`: every file that looks like ours. */
typedef struct bolide__cache_file {
    const char *path;
    const char *target;
    const char *name; /* function-hash-version */
    int64_t bytes;
    int32_t sound;     /* 1: the trailer fits; 0: torn or foreign */
    int32_t left_over; /* 1: a temporary file of a process that died */
} bolide__cache_file;

/* Calls visit for each in order of folders; returns how many. */
int64_t bolide__cache_walk(const char *dir, void (*visit)(void *arg, const bolide__cache_file *),
                           void *arg);
/* Removes them and the folders that are then empty; returns how many could not be removed. */
int64_t bolide__cache_clear(const char *dir, int64_t *removed);

#endif
