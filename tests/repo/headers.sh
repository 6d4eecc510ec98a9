#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each public header compiles alone, as C11 and as C++17, with every compiler at hand, twice in one
# unit and with all warnings on.

. tests/repo/lib.sh

compile() {
    compiler=$1 language=$2 standard=$3 header=$4
    command -v "$compiler" >/dev/null || {
        skip "headers: $header as $standard: $compiler is not installed"
        return
    }
    printf '#include <bolide/%s>\n#include <bolide/%s>\n' "$header" "$header" >"$scratch/unit"
    "$compiler" -x "$language" "-std=$standard" -Wall -Wextra -Wpedantic -Werror -Iinclude \
        -fsyntax-only "$scratch/unit" 2>&1 | verdict "headers: $header as $standard by $compiler"
}

for path in include/bolide/*.h; do
    header=${path##*/}
    compile gcc c c11 "$header"
    compile clang c c11 "$header"
    compile g++ c++ c++17 "$header"
    compile clang++ c++ c++17 "$header"
done
for path in include/bolide/*.h; do
    header=${path##*/}
    grep -q "<bolide/$header>" include/bolide/bolide.h || [ "$header" = bolide.h ] || echo "$header"
done | verdict "headers: bolide.h includes every header"

# A header teaches: it opens with prose, and a comment stands before each function or group.
for path in include/bolide/*.h; do
    awk -v path="$path" '
        NR == 3 && !/^\/\/ [A-Z]/ { print path ": line 3 is not the prose that opens the file" }
        /^ ?\*|\*\/|^\/\*/ { commented = 1 }
        /^$/ { blank = 1 }
        /^BOLIDE_API/ {
            if (blank && !commented) print path ":" NR ": no comment before " $0
        }
        !/^$/ && !/\*\// { if (/^BOLIDE_API/ || /;$/) { blank = 0 } }' "$path"
done | verdict "headers: prose"

finish
