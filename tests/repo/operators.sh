#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each operator of the list has a descriptor with a line of prose, a prototype, a reference, a test,
# and its family is a folder; and nothing of that exists without the operator.

. tests/repo/lib.sh
operators >"$scratch/operators"

grep -vE '^BOLIDE_OP\([a-z][a-z0-9_]*\)$' src/ops/op_list.h |
    verdict "operators: the list has one name a line"
sort "$scratch/operators" | uniq -d | verdict "operators: each is listed once"

# in_files NAME PATTERN FILE...: one test a kind, whose pattern holds OP for the operator's name.
in_files() {
    kind=$1 pattern=$2
    shift 2
    while read -r op; do
        grep -qE "$(printf '%s' "$pattern" | sed "s/OP/$op/g")" "$@" /dev/null 2>/dev/null ||
            echo "$op: no $kind"
    done <"$scratch/operators" | verdict "operators: each has a $kind"
}
in_files descriptor '^const bolide_op bolide_op_OP = \{' $(files 'src/ops/*.c')
in_files 'name in its descriptor' '\.name = "OP"' $(files 'src/ops/*.c')
in_files prototype '\bbolide_OP(_run)?\(const bolide_context' include/bolide/*.h
in_files reference '\bOP(_run)?_ref\b' $(files 'tests/ref/*.c')
in_files test '\bBOLIDE_TEST\(OP\b' $(files 'tests/ops/*.c')

for file in $(files 'src/ops/*.c'); do
    awk -v file="$file" '
        /^const bolide_op bolide_op_/ { inside = 1; doc = family = ""; name = $3 }
        inside && /\.family = "/ { split($0, quote, "\""); family = quote[2] }
        inside && /\.doc = *("|$)/ { doc = 1 }
        inside && /^\};/ {
            split(file, part, "/")
            if (family != part[3]) print file ": " name ": family " family
            if (!doc) print file ": " name ": no doc"
            inside = 0
        }' "$file"
done | verdict "operators: families are folders, and each has a line of prose"

sed -n 's/^const bolide_op bolide_op_\([a-z0-9_]*\) = {.*/\1/p' $(files 'src/ops/*.c') /dev/null |
    sort >"$scratch/described"
sort "$scratch/operators" >"$scratch/sorted"
same "operators: each descriptor is listed" "$scratch/sorted" "$scratch/described"

finish
