#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command with what the thread sanitizer needs to understand OpenMP: tools/tsan.sh COMMAND...
# Archer tells it which accesses the OpenMP runtime orders; without Archer every barrier would look
# like a race, so the command is skipped. Some kernels place memory where the sanitizer cannot
# work; address space randomisation is then turned off for the command.

set -u
resources=$(clang -print-resource-dir)
for archer in "$(clang -print-file-name=libarcher.so)" "${resources%/lib/clang/*}/lib/libarcher.so"; do
    [ ! -f "$archer" ] || break
done
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
echo 'int main(void) { return 0; }' >"$scratch/probe.c"
clang -fsanitize=thread "$scratch/probe.c" -o "$scratch/probe"
plain=
"$scratch/probe" 2>/dev/null || plain='setarch -R'

if [ ! -f "$archer" ]; then
    echo "skipped: thread sanitizer: clang has no libarcher.so here"
    echo "0 passed, 0 failed, 1 skipped"
elif ! $plain "$scratch/probe" 2>/dev/null; then
    echo "skipped: thread sanitizer: its programs do not start on this kernel"
    echo "0 passed, 0 failed, 1 skipped"
else
    OMP_TOOL_LIBRARIES=$archer
    TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1 ${TSAN_OPTIONS:-}"
    export OMP_TOOL_LIBRARIES TSAN_OPTIONS
    $plain "$@"
fi
