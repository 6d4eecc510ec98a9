// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the CUDA runtime share: the stand-ins, a folder for the cache, a real operator
// on pretended device memory, and counting.

#ifndef BOLIDE_TESTS_CUDA_SUPPORT_H
#define BOLIDE_TESTS_CUDA_SUPPORT_H

#include <bolide/bolide.h>

#include "fake.h"

/* Opens the stand-ins in place of NVIDIA's libraries; nvrtc is "12", "13" or a path. To be called
 * before anything of the library. */
void start(const char *nvrtc);
extern fake_driver *driver;
extern fake_nvrtc *compiler;

void check(int ok, const char *what);
/* The last error's message has this text in it. */
void check_message(const char *text, const char *what);
void skip(const char *why);
/* The last line, and the exit status. */
int finish(void);

/* A new empty folder, removed with its content by remove_folder. */
const char *make_folder(void);
void remove_folder(const char *path);
/* A new empty folder that is the cache from now on. */
const char *fresh_cache(void);

/* rmsnorm of 3 rows; kind 0, 1, 2, … asks for that many different kernels. */
enum { KINDS = 24 };
bolide_status call_kind(const bolide_context *ctx, int kind, bolide_stream stream);

/* A context on a fake device; NULL and a failed check if it does not open. */
bolide_context *open_context(int32_t index);

#endif
