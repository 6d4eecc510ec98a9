#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over every C source, in its baseline form where a file is compiled several times,
# and shellcheck over the scripts where it is installed. Ends with a line of counts, one a file.

set -u
cd "$(dirname "$0")/.." || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# clang-tidy would go through a file once for each of its commands.
awk '
    /^\{/ { entry = ""; keep = 1 }
    { entry = entry $0 "\n" }
    /BOLIDE_ISA_(AVX2|EMU512|AVX512)=1/ { keep = 0 }
    /^\}/ { if (keep) { sub(/,\n$/, "\n", entry); out = out (out == "" ? "" : ",\n") entry } }
    END { print "[\n" out "]" }' build/compile_commands.json >"$scratch/compile_commands.json"

check() {
    # Long problem strings go on in the next line.
    if clang-tidy --quiet -p "$scratch" --extra-arg=-Wno-string-concatenation "$1" >"$2" \
        2>/dev/null; then
        echo pass >>"$2.result"
    else
        echo "FAILED: $1"
        cat "$2"
        echo fail >>"$2.result"
    fi
}

n=0
for file in $(git ls-files --cached --others --exclude-standard '*.c'); do
    grep -q "/$file\"" "$scratch/compile_commands.json" || continue
    n=$((n + 1))
    check "$file" "$scratch/out$n" &
    [ $((n % 2)) = 0 ] && wait
done
wait
skipped=0
if command -v shellcheck >/dev/null; then
    for file in .ci/run $(git ls-files --cached --others --exclude-standard '*.sh'); do
        n=$((n + 1))
        if shellcheck -x "$file"; then
            echo pass >"$scratch/out$n.result"
        else
            echo fail >"$scratch/out$n.result"
        fi
    done
else
    echo "skipped: shellcheck is not installed"
    skipped=1
fi
failed=$(cat "$scratch"/*.result | grep -c fail)
echo "$((n - failed)) passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
