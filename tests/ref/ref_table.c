// SPDX-License-Identifier: Apache-2.0
//
// Finds a reference by its operator's name; expanded from the list of names.

#include "ref.h"

#include <string.h>

#define REF_OP(name) extern const ref_op ref_##name;
#include "ref_list.h"
#undef REF_OP

static const ref_op *const refs[] = {
#define REF_OP(name) &ref_##name,
#include "ref_list.h"
#undef REF_OP
};

const ref_op *ref_find(const char *op) {
    for (size_t i = 0; i < sizeof refs / sizeof refs[0]; i++)
        if (!strcmp(refs[i]->name, op))
            return refs[i];
    return NULL;
}
