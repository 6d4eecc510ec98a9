#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the built libraries show to the world: tests/repo/symbols.sh BUILD_FOLDER NM READELF

. tests/repo/lib.sh
build=$1 nm=$2 readelf=$3
shared=$build/libbolide.so
archive=$build/libbolide.a

public_symbols >"$scratch/expected"
"$nm" -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    sort -u >"$scratch/actual"
same "symbols: the shared library exports what the headers declare" "$scratch/expected" \
    "$scratch/actual"

# glibc's headers may leave a few of their own inline functions in an object, as weak symbols.
"$nm" -g --defined-only "$archive" | awk 'NF == 3 && $3 !~ /^bolide_/ { print $3 " in the archive" }' |
    verdict "symbols: each global of the archive begins with bolide_ or bolide__"

"$nm" -D --undefined-only "$shared" | sed -n 's/.* \([^ ]*\)@*@GLIBC_\([0-9.]*\)$/\1 \2/p' |
    awk '{ split($2, v, "."); if (v[1] > 2 || v[2] > 28) print $1 "@GLIBC_" $2 }' |
    verdict "symbols: nothing newer than GLIBC_2.28 is needed; add it to src/core/glibc_baseline.S"

"$readelf" -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vxE 'lib(c|m)\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux.*|lib(g|i)?omp5?\.so\..*' |
    verdict "symbols: only glibc and OpenMP are needed"

"$readelf" -d "$shared" | grep -q 'SONAME.*\[libbolide\.so\.[0-9]*\]' || echo "no soname" >"$scratch/x"
touch "$scratch/x"
verdict "symbols: the soname has one number" <"$scratch/x"

"$readelf" -lW "$shared" | grep -E 'GNU_STACK.*E|LOAD.*RWE' |
    verdict "symbols: no memory is both written and executed"

strip -o "$scratch/stripped" "$shared" 2>/dev/null || cp "$shared" "$scratch/stripped"
size=$(wc -c <"$scratch/stripped")
echo "libbolide.so: $size bytes without debug information"
{ [ "$size" -le 4194304 ] || echo "$size bytes"; } | verdict "symbols: the library has at most 4 MB"

finish
