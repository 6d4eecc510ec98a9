// SPDX-License-Identifier: Apache-2.0
//
// A user's program, in the part of C that is also C++: the installed header and library must be of
// one version, and the table of operators must be there.

#include <bolide/bolide.h>

#include <stdio.h>

int main(void) {
    int major = 0, minor = 0, patch = 0;
    if (sscanf(bolide_version(), "%d.%d.%d", &major, &minor, &patch) != 3)
        return 1;
    if (major != BOLIDE_VERSION_MAJOR || minor != BOLIDE_VERSION_MINOR ||
        patch != BOLIDE_VERSION_PATCH)
        return 1;
    printf("bolide %s, %d operators\n", bolide_version(), (int)bolide_op_count());
    return bolide_op_count() > 0 ? 0 : 1;
}
