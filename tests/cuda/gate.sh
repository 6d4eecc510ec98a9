#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The compile gate with three versions of NVRTC: tests/cuda/gate.sh BUILD [--full] [OPTION...]
# Each compiles the kernels of all test cases for every target that it knows; kernels whose sources
# did not change since the last time are found in the cache. 13 comes from the machine's toolkit if
# it has one, the others as Python packages. Options go to bolide_op_tests: --time SECONDS for each
# version, after which the rest is skipped and left to the next run, --shard I/N for one of N
# machines, --filter TEXT.

set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
shift
passed=0 failed=0 skipped=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

skip() {
    echo "skipped: $1"
    skipped=$((skipped + 1))
}

# $1: the library, empty for the one that Bolide finds itself; the rest: options.
gate() {
    library=$1
    shift
    count "$build/tests/bolide_op_tests" --gate all "$@"
    count "$build/tests/test_prop_variant" --gate
}

# Runs a program with the library and adds its counts.
count() {
    if [ -n "$library" ]; then
        BOLIDE_NVRTC=$library "$@"
    else
        "$@"
    fi >"$scratch/log" || failed_run=1
    cat "$scratch/log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$scratch/log" | tail -n 1)
    if [ -z "$line" ]; then
        failed=$((failed + 1))
        return
    fi
    # shellcheck disable=SC2086 # the words of the line
    set -- $line
    passed=$((passed + $1))
    failed=$((failed + $3))
    skipped=$((skipped + $5))
}

# $1: major.minor, $2: the Python package; the library's path.
from_package() {
    tools/venv.sh ".venv-nvrtc-$1" "$2==$1.*" >"$scratch/venv" 2>&1 || return 1
    find "$PWD/.venv-nvrtc-$1" -name "libnvrtc.so.${1%.*}" | head -n 1
}

failed_run=0
if "$build/bolide" doctor 2>/dev/null | grep -q 'nvrtc: 13\.'; then
    gate "" "$@"
elif library=$(from_package 13.0 nvidia-cuda-nvrtc) && [ -n "$library" ]; then
    gate "$library" "$@"
else
    skip "nvrtc 13.0: not on this machine, and its Python package cannot be installed"
fi
for version in 12.9 12.4; do
    if library=$(from_package $version nvidia-cuda-nvrtc-cu12) && [ -n "$library" ]; then
        gate "$library" "$@"
    else
        skip "nvrtc $version: its Python package cannot be installed"
    fi
done
echo "compile gate:"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$failed_run" = 0 ]
