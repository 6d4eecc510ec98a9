// SPDX-License-Identifier: Apache-2.0
//
// The table of operators, expanded from the list of their names.

#include "core/op.h"

#define BOLIDE_OP(name) extern const bolide_op bolide_op_##name;
#include "ops/op_list.h"
#undef BOLIDE_OP

const bolide_op *const bolide__ops[] = {
#define BOLIDE_OP(name) &bolide_op_##name,
#include "ops/op_list.h"
#undef BOLIDE_OP
};

const int64_t bolide__op_count = sizeof bolide__ops / sizeof bolide__ops[0];
