#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each operator of the list has a function, a reference and a test, and neither exists without the
# operator. What its rows say is looked at by tests/repo/table.c.

. tests/repo/lib.sh
operators >"$scratch/operators"

grep -vE '^BOLIDE_OP\([a-z][a-z0-9_]*\)$' src/ops/op_list.h |
    verdict "operators: the list has one name a line"
sort "$scratch/operators" | uniq -d | verdict "operators: each is listed once"

# listed NAME: one test; standard input must name the same operators.
sort "$scratch/operators" >"$scratch/sorted"
listed() {
    sort >"$scratch/listed"
    same "$1" "$scratch/sorted" "$scratch/listed"
}
sed -n 's/^REF_OP(\([a-z0-9_]*\))$/\1/p' tests/ref/ref_list.h |
    listed "operators: each has a reference in tests/ref/ref_list.h"
cat tests/ops/*.c | grep -oE '^BOLIDE_TEST\([a-z0-9_]+' | sed 's/.*(//' |
    listed "operators: each has a BOLIDE_TEST in tests/ops"
sed -n 's/^\([a-z][a-z0-9_]*\) .*/\1/p' tests/cuda/sanitized.txt | sort -u |
    listed "operators: each has a problem in tests/cuda/sanitized.txt"

# bolide_OP for an operator of one phase, bolide_OP_plan and bolide_OP_run for a planned one.
public_symbols >"$scratch/symbols"
while read -r op; do
    grep -qx "bolide_$op" "$scratch/symbols" || {
        grep -qx "bolide_${op}_plan" "$scratch/symbols" &&
            grep -qx "bolide_${op}_run" "$scratch/symbols"
    } || echo "$op: no function in the headers"
done <"$scratch/operators" | verdict "operators: each has its functions in a header"

finish
