#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in steps of at most eight minutes: tools/check_gpu.sh [STEP]
# First the kernels of all cases are compiled on all cores; then come the operators, the engine,
# custom variants, graphs after new plans with two streams and two threads, Python on torch's
# tensors, the operators as PTX of older chips, and compute-sanitizer over tests/cuda/sanitized.txt.
#
# What ended well is not done again until a program changes, so a run that was cut off is taken up
# by running it again; FRESH=1 begins anew. JOBS steps run at once. STEPS is a pattern of the steps
# wanted, SHARD=I/N each N-th of them, TIME the seconds after which no further step begins, LIMIT
# those of a step. PYTHON is a Python that has the packages already (tests/python/run.sh). Logs are
# in build/check-gpu. Ends with a line of counts of all steps so far.

set -u
cd "$(dirname "$0")/.." || exit 1
self=$PWD/tools/check_gpu.sh
tests=build/tests/bolide_op_tests
state=build/check-gpu
limit=${LIMIT:-480}
cores=$(nproc)
jobs=${JOBS:-$((cores < 8 ? cores : 8))}
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
export BOLIDE_CACHE_DIR="${BOLIDE_CACHE_DIR:-$PWD/.cache/cubin}"

# parts NAME N: the names of a step's parts.
parts() {
    i=0
    while [ "$i" -lt "$2" ]; do
        echo "$1-$i-of-$2"
        i=$((i + 1))
    done
}

# The steps whose order matters, each on all cores: one a line.
first_steps() {
    echo "kernels-$(build/bolide doctor | sed -n 's/.*device 0: .* kernels for //p')"
    for target in 75 80 86 89; do
        echo "kernels-compute_$target"
    done
    echo python-0-of-8
}

other_steps() {
    parts operators 32
    for test in every_format the_text_of_the_cpu any_batch_and_graph one_graph_for_all_lengths \
        filters the_real_model; do
        echo "engine-$test"
    done
    echo variants
    echo concurrent
    parts python 8 | tail -n 7
    for target in 75 80 86 89; do
        parts "ptx-compute_$target" 16
    done
    for tool in memcheck racecheck synccheck initcheck; do
        parts "sanitizer-$tool" 8
    done
}

# The torch environment once the first part of the Python tests has made it.
python_tests() {
    if [ -z "${PYTHON:-}" ] && [ "$1" != 0/8 ]; then
        if [ ! -f "$state/python-0-of-8.log" ] || grep -q '^skip python' "$state/python-0-of-8.log"; then
            echo "skipped: Python: its packages could not be installed"
            echo "0 passed, 0 failed, 1 skipped"
            return
        fi
        PYTHON=.venv-torch/bin/python
        export PYTHON
    fi
    # shellcheck disable=SC2086 # one word a package
    tests/python/run.sh build .venv-torch ${TORCH_PACKAGES:-torch} -- --gpu --part "$1"
}

# listed TOOL 0|1 I/N: problems of a part of the short list that a tool is to judge, or those that are
# marked as beyond it: from a line `# not by TOOL...:` to the next empty one.
listed() {
    awk -v tool="$1" -v marked="$2" -v part="${3%/*}" -v parts="${3#*/}" '
        /^# not by / { beyond = index($0, tool) > 0 }
        /^$/ { beyond = 0 }
        /^[a-z]/ && ++n % parts == part && beyond == marked' tests/cuda/sanitized.txt
}

# A part of the short list under a tool, or one skip if the machine refuses the tool: then it does
# not even get to the verdict of a small problem.
sanitized() {
    if [ ! -x "$sanitizer" ]; then
        echo "skipped: $1: compute-sanitizer is not installed"
        echo "0 passed, 0 failed, 1 skipped"
        return
    fi
    trial=$("$sanitizer" --tool "$1" --error-exitcode 3 build/bolide check --backend cuda \
        rmsnorm n=1 d=8 2>&1)
    if ! echo "$trial" | grep -qE '^(ok|FAILED)'; then
        echo "skipped: $1: this machine refuses it: $(echo "$trial" | grep -m 1 -iE 'error|support')"
        echo "0 passed, 0 failed, 1 skipped"
        return
    fi
    out=$(listed "$1" 0 "$2" |
        "$sanitizer" --tool "$1" --error-exitcode 3 build/bolide check --backend cuda - 2>&1)
    status=$?
    echo "$out"
    left_out=$(listed "$1" 1 "$2")
    if [ -n "$left_out" ]; then
        echo "$left_out" | sed "s/^/skipped: $1 cannot follow it: /"
        n=$(echo "$left_out" | wc -l)
        # shellcheck disable=SC2046 # six words
        set -- $(echo "$out" | grep -aoE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' | tail -n 1)
        echo "${1:-0} passed, ${3:-0} failed, $((${5:-0} + n)) skipped"
    fi
    return $status
}

# The command of a step; a name NAME-I-of-N is the part I/N of it.
command_of() {
    part=$(echo "$1" | sed -n 's/.*-\([0-9]*\)-of-\([0-9]*\)$/\1\/\2/p')
    name=${1%-*-of-*}
    case $name in
    kernels-*) "$tests" --gate "${name#kernels-}" --full ;;
    operators) "$tests" --backend cuda --shard "$part" ;;
    engine-*) build/tests/test_llm_gpu "${name#engine-}" ;;
    variants) build/tests/test_prop_variant ;;
    concurrent) build/tests/test_prop_concurrent ;;
    python) python_tests "$part" ;;
    ptx-*) "$tests" --target "${name#ptx-}" --shard "$part" ;;
    sanitizer-*) sanitized "${name#sanitizer-}" "$part" ;;
    *) echo "there is no step $1" && return 2 ;;
    esac
}

# One step with a limit on its time: its log, its result, and the lines that matter.
run_step() {
    log=$state/$1.log
    if [ -n "${DEADLINE:-}" ] && [ "$(date +%s)" -ge "$DEADLINE" ]; then
        return
    fi
    start=$(date +%s)
    OMP_WAIT_POLICY=passive timeout "$limit" "$self" --command "$1" >"$log" 2>&1
    status=$?
    counts=$(grep -aoE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$log" | tail -n 1)
    [ "$status" != 124 ] || counts=
    # shellcheck disable=SC2086 # six words
    set -- "$1" $counts
    passed=${2:-0} failed=${4:-0} skipped=${6:-0}
    {
        grep -aE -A 1 '^FAILED' "$log" | head -n 20
        grep -aE '^skip' "$log" | head -n 20
        [ "$status" != 124 ] || echo "FAILED: it did not end in $limit seconds"
        [ "$status" = 0 ] || [ "$failed" != 0 ] || echo "FAILED: it ended with $status"
    } | sed "s/^/    $1: /"
    [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
    echo "$passed $failed $skipped" >"$state/$1.result"
    echo "$1: $passed passed, $failed failed, $skipped skipped ($(($(date +%s) - start)) s)"
}

is_done() {
    read -r _ failed _ 2>/dev/null <"$state/$1.result" && [ "$failed" = 0 ]
}

# The wanted ones among the steps on standard input that have not ended well.
left() {
    grep -E "${STEPS:-.}" | awk -v shard="${SHARD:-0/1}" '{
        split(shard, s, "/")
        if ($0 ~ /^kernels-|^python-0/ || n++ % s[2] == s[1]) print
    }' | while read -r step; do
        is_done "$step" || echo "$step"
    done
}

case ${1:-} in
--command)
    command_of "$2"
    exit
    ;;
--step)
    run_step "$2"
    exit 0
    ;;
?*)
    mkdir -p "$state"
    run_step "$1"
    is_done "$1"
    exit
    ;;
esac

# Results count for the programs and texts that gave them, on this GPU.
mkdir -p "$state"
stamp=$({
    build/bolide doctor | grep -E 'version|driver:|nvrtc:|device '
    cat build/bolide "$tests" build/tests/test_llm_gpu build/tests/test_prop_variant \
        build/tests/test_prop_concurrent python/bolide/*.py tests/python/*.py "$self"
} 2>/dev/null | cksum)
if [ -n "${FRESH:-}" ] || [ "$(cat "$state/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -f "$state"/*.result "$state"/*.log
    echo "$stamp" >"$state/stamp"
fi

# A machine without a GPU says so in one skip.
if "$tests" --backend cuda --filter / | tee "$state/device" | grep '^skipped'; then
    tail -n 1 "$state/device"
    exit 0
fi
[ -z "${TIME:-}" ] || DEADLINE=$(($(date +%s) + TIME))
export DEADLINE
all=$(first_steps && other_steps)
for step in $(echo "$all" | grep -E '^kernels-|^python-0' | left); do
    run_step "$step"
done
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cores / jobs > 0 ? cores / jobs : 1))}"
echo "$all" | grep -vE '^kernels-|^python-0' | left | xargs -r -n 1 -P "$jobs" "$self" --step

unfinished=$(echo "$all" | left | while read -r step; do
    [ -f "$state/$step.result" ] || echo "$step"
done | wc -l)
cat "$state"/*.result 2>/dev/null | awk -v unfinished="$unfinished" '
    { p += $1; f += $2; s += $3 }
    END {
        if (unfinished > 0)
            printf "%d steps are left; run it again to go on\n", unfinished
        printf "%d passed, %d failed, %d skipped\n", p, f, s
        exit f > 0 || unfinished > 0
    }'
