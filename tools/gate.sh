#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The compile gate: the kernels that each operator's default problem needs are compiled for every
# target, which takes no GPU: tools/gate.sh [TARGET...]
# NVRTC is the one that the library finds, else that of a Python package in an environment of its own.
# What was compiled before is taken from build/gate, so a second run looks at changed kernels only.
# Ends with a line of counts, one a kernel and target.

set -u
cd "$(dirname "$0")/.." || exit 1
tool=build/bolide
BOLIDE_CACHE_DIR=$PWD/build/gate
export BOLIDE_CACHE_DIR
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

[ $# -gt 0 ] || set -- sm_75 sm_80 sm_86 sm_89 sm_90a sm_100a sm_103a sm_120a

# Operators with a GPU kernel, one a line, from one JSON object a line.
operators=$($tool ops --json | grep '"cuda": *true' | sed 's/^{"name": *"\([a-z0-9_]*\)".*/\1/')
if [ -z "$operators" ]; then
    echo "skipped: no operator has a GPU kernel in this build"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

# 0 if the library finds a compiler.
finds_compiler() {
    # shellcheck disable=SC2086 # one word an operator
    set -- $operators
    "$tool" compile "$1" --arch sm_80 >"$log" 2>&1
}
if ! finds_compiler; then
    if tools/venv.sh .venv-nvrtc nvidia-cuda-nvrtc; then
        VIRTUAL_ENV=$PWD/.venv-nvrtc
        export VIRTUAL_ENV
    fi
    if ! finds_compiler; then
        cat "$log"
        if grep -q 'NO_DEVICE\|nvrtc' "$log"; then
            echo "skipped: NVRTC could not be brought"
            echo "0 passed, 0 failed, 1 skipped"
            exit 0
        fi
    fi
fi

passed=0 failed=0 skipped=0
for target in "$@"; do
    # shellcheck disable=SC2086 # one word an operator
    "$tool" compile $operators --arch "$target" >"$log" 2>&1
    status=$?
    grep -vE '^\[.*(is there| shared)' "$log"
    good=$(grep -cE '^\[[0-9]+/[0-9]+\].*(is there|B shared)' "$log")
    bad=$(grep -cE 'FAILED' "$log")
    refused=$(grep -cE '^refused' "$log")
    if [ "$status" != 0 ] && [ "$bad" = 0 ] && [ "$refused" = 0 ]; then
        bad=1
    fi
    echo "$target: $good kernels compiled, $bad failed, $refused problems refused"
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + refused))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
