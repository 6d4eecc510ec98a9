#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Rules about the text of the sources: which file may include which, sizes, names, first lines,
# words that must not be there, and environment variables.

. tests/repo/lib.sh
files 'src/*' 'include/*' >"$scratch/library"
files 'src/*' 'include/*' 'tools/*' 'tests/*' 'examples/*' 'bench/*' 'python/*' >"$scratch/all"
code='\.(c|h|cu|cuh|S)$'
text='\.(c|h|cu|cuh|S|sh|py|cmake)$|CMakeLists\.txt$'

# include -> core -> {cpu, cuda} -> ops -> {tools, tests, python}; no family sees another.
grep -E '^(src|include)/.*\.(c|h|cu|cuh)$' "$scratch/library" | xargs awk '
    FNR == 1 {
        split(FILENAME, part, "/")
        layer = part[1] == "include" ? "include" : part[2]
        family = layer == "ops" && part[4] != "" ? part[3] : ""
    }
    /^ *# *include "/ {
        split($0, quote, "\"")
        n = split(quote[2], to, "/")
        ok = n == 1 && FILENAME ~ /\.cuh?$/
        if (layer == "core") ok = to[1] == "core"
        if (layer == "cpu" || layer == "cuda") ok = ok || to[1] == "core" || to[1] == layer
        if (layer == "ops")
            ok = ok || to[1] ~ /^(core|cpu|cuda)$/ || (to[1] == "ops" && (n == 2 || to[2] == family))
        if (!ok) print FILENAME ":" FNR ": " layer " must not include " quote[2]
    }
    /^ *# *include <bolide\// { if (layer == "include") next }' |
    verdict "sources: includes flow one way"

# Examples are users: public headers, and their own.
grep -E "^examples/.*$code" "$scratch/all" | xargs -r grep -nE '#include "(core|cpu|cuda|ops)/' |
    verdict "sources: examples use public headers"

grep -E '^src/.*\.(c|h|cu|cuh|S)$' "$scratch/library" | sed 's|.*/||' | sort | uniq -d |
    verdict "sources: file names are unique below src"

# Files that may have up to 1,000 lines, one a line, each with its reason behind a blank.
allowed=""
grep -E "$code" "$scratch/all" | xargs wc -l | awk -v allowed="$allowed" '
    BEGIN {
        n = split(allowed, line, "\n")
        for (i = 1; i <= n; i++) { split(line[i], word, " "); most[word[1]] = 1000 }
    }
    $2 != "total" && $1 > ($2 in most ? most[$2] : 600) { print $2 ": " $1 " lines" }' |
    verdict "sources: file sizes"

# A function begins in column 1, opens with ") {" and ends with "}" in column 1.
grep -E '\.(c|h|cu|cuh)$' "$scratch/all" | xargs awk '
    FNR == 1 { start = 0; open = 0 }
    open == 0 && /^[a-zA-Z_]/ && !/;$/ && !start { start = FNR; name = $0 }
    open == 0 && start && /\) \{$/ { open = 1 }
    open == 0 && (/;$/ || /^$/ || /[=,] *\{$/ || /^\}/) { start = 0 }
    open && /^\}/ {
        lines = FNR - start + 1
        most = FILENAME ~ /\.cuh?$/ ? 200 : 60
        sub(/BOLIDE_ISA\(/, "", name); sub(/[()].*/, "", name); sub(/.*[ *]/, "", name)
        print lines, most, FILENAME ":" start, name
        start = 0; open = 0
    }' | sort -rn >"$scratch/functions"
echo "longest functions:"
head -n 3 "$scratch/functions" | awk '{ print "  " $4 ": " $1 " lines, " $3 }'
awk '$1 > $2 { print $3 ": " $4 " has " $1 " lines, at most " $2 }' "$scratch/functions" |
    verdict "sources: function sizes"
echo "longest files:"
grep -E "$code" "$scratch/all" | xargs wc -l | grep -v ' total$' | sort -rn | head -n 3 |
    awk '{ print "  " $2 ": " $1 " lines" }'

# The first line of a source is its licence, the third opens its description.
grep -E "$text" "$scratch/all" | grep -vE '_list\.h$' | while read -r file; do
    head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$file: no SPDX line"
done | verdict "sources: SPDX first"
grep -E "$code" "$scratch/all" | grep -vE '_list\.h$' | while read -r file; do
    awk 'NR == 2 && !/^\/\/$/ { exit 1 } NR == 3 { exit !/^\/\/ [^ ]/ }' "$file" ||
        echo "$file: lines 2 and 3 do not open a description"
done | verdict "sources: each file says what it does"

# This file has to spell the words that it looks for.
grep -E "$text|^Makefile" "$scratch/all" | grep -v '^tests/repo/sources\.sh$' >"$scratch/words"
xargs grep -nE '^ *# *if 0|TODO|FIXME|\bXXX\b' <"$scratch/words" | verdict "sources: no remains"
files '*' | grep -vE '^tests/repo/sources\.sh$|^LICENSE$' | xargs grep -nIE '/w[o]rk/|/home/[a-z]|/root/' |
    verdict "sources: no path of one machine"
files '*' | grep -vE '^tests/repo/sources\.sh$' |
    xargs grep -nIE '(pypi|pythonhosted|deb\.debian|archive\.ubuntu|npmjs|crates)\.(org|com|io)' |
    verdict "sources: no host of a package registry"
files '*' | xargs grep -lI "$(printf '\r')" | verdict "sources: line ends"

# One file reads the environment, and the documentation lists what it reads.
grep -E '^src/' "$scratch/library" | grep -v '^src/core/env\.c$' | xargs grep -nE '\b(secure_)?getenv *\(|\benviron\b' |
    verdict "sources: only src/core/env.c reads the environment"
grep -oE '"(BOLIDE|CUDA|XDG|VIRTUAL|HOME)[A-Z_]*"' src/core/env.c | tr -d '"' | sort -u >"$scratch/read"
sed -n 's/^| `\([A-Z_]*\)` .*/\1/p' docs/env.md | sort -u >"$scratch/documented"
same "sources: docs/env.md lists the environment" "$scratch/read" "$scratch/documented"
{ [ "$(grep -c BOLIDE_ "$scratch/read")" -le 8 ] || echo "more than 8"; } |
    verdict "sources: at most eight variables of our own"

# Operators allocate nothing and print nothing.
grep -E '^src/ops/.*\.[ch]$' "$scratch/library" |
    xargs grep -nE '\b(malloc|calloc|realloc|free|aligned_alloc|printf|puts|fputs|exit|abort) ?\(' |
    verdict "sources: operators neither allocate nor print"

finish
