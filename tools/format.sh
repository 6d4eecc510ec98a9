#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Lays out every C and CUDA source by .clang-format; with --check it changes nothing, prints what
# would change, and ends with a line of counts.

set -u
cd "$(dirname "$0")/.." || exit 1
tool=$(tools/setup.sh --format-tool) || {
    echo "format: clang-format 14 is missing; tools/setup.sh format brings it" >&2
    exit 1
}
files=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')
if [ "${1:-}" != --check ]; then
    # shellcheck disable=SC2086 # names have no blanks
    exec "$tool" -i $files
fi
passed=0 failed=0
for file in $files; do
    if "$tool" --dry-run -Werror "$file" 2>/dev/null; then
        passed=$((passed + 1))
    else
        echo "FAILED: $file: $tool -i would change it"
        "$tool" "$file" | diff -u "$file" - | sed -n '3,14p'
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
