// SPDX-License-Identifier: Apache-2.0
//
// A clock and the size of the last cache.

#include "roofline.h"

#include <time.h>
#include <unistd.h>

double roofline_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t roofline_cache(void) {
    static const int names[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE,
                                _SC_LEVEL2_CACHE_SIZE};
    for (int i = 0; i < 3; i++) {
        const long bytes = sysconf(names[i]);
        if (bytes > 0)
            return bytes;
    }
    return (int64_t)32 << 20; /* unknown: as large as most */
}
