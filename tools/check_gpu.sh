#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every operator test, the language-model engine, custom variants and the Python tests on torch's
# tensors on the GPU, then a part of the operators under compute-sanitizer, which is slow: SHARD of
# the tests, 0/16 unless given, at each of its tools. PTX_SHARD is the part that also runs as on
# other chips. PYTHON is a Python that has the packages already (tests/python/run.sh). Ends with a
# line of counts.

set -u
cd "$(dirname "$0")/.." || exit 1
tests=build/tests/bolide_op_tests
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0

# count NAME COMMAND...: runs a test program and adds its counts.
count() {
    name=$1
    shift
    echo "== $name"
    { "$@" && echo 0 >"$log.status" || echo $? >"$log.status"; } 2>&1 | tee "$log"
    counts=$(grep -aoE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$log" | tail -n 1)
    status=$(cat "$log.status")
    rm -f "$log.status"
    # shellcheck disable=SC2086 # six words
    set -- $counts
    passed=$((passed + ${1:-0}))
    failed=$((failed + ${3:-0}))
    skipped=$((skipped + ${5:-0}))
    if [ "$status" != 0 ] && [ "${3:-0}" = 0 ]; then
        echo "FAILED: $name ended with $status"
        failed=$((failed + 1))
    fi
}

count "operators on the GPU" "$tests" --backend cuda
count "the engine on the GPU" build/tests/test_llm_gpu
count "custom variants" build/tests/test_prop_variant
# shellcheck disable=SC2086 # one word a package
count "Python on the GPU" tests/python/run.sh build .venv-torch ${TORCH_PACKAGES:-torch} -- --gpu
# The portable kernels of other chips, as PTX that the driver compiles, under those chips' limits.
for target in compute_75 compute_80 compute_86 compute_89; do
    count "operators as on $target" "$tests" --target "$target" --shard "${PTX_SHARD:-0/1}"
done
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
if [ -x "$sanitizer" ]; then
    for tool in memcheck racecheck synccheck initcheck; do
        count "$tool" "$sanitizer" --tool "$tool" --error-exitcode 3 "$tests" --backend cuda \
            --shard "${SHARD:-0/16}"
    done
else
    echo "skipped: compute-sanitizer is not installed"
    skipped=$((skipped + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
