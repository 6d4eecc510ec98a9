#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The steps of `make check-gpu` with stand-ins for its programs, which take no GPU: what it counts,
# what it does again, how it ends where a step fails, hangs, or there is no GPU, no sanitizer, no
# torch. tests/repo/check_gpu.sh

. tests/repo/lib.sh
home=$scratch/home
mkdir -p "$home/tools" "$home/build/tests" "$home/tests/cuda" "$home/tests/python" "$home/bin"
cp tools/check_gpu.sh "$home/tools/"
cp tests/cuda/sanitized.txt "$home/tests/cuda/"

# A program that notes its call and says what the file beside it says.
stand_in() {
    cat >"$home/$1" <<END
#!/bin/sh
echo "$1 \$*" >>"$home/calls"
case "$1 \$*" in
$2
*) echo "1 passed, 0 failed, 0 skipped" ;;
esac
END
    chmod +x "$home/$1"
}
stand_in build/bolide '*doctor*) echo "cuda  device 0: Any GPU, 80 MiB, kernels for sm_90a" ;;
*check*-) sed "s/^/ok /"; echo "1 passed, 0 failed, 0 skipped" ;;
*check*) echo "ok rmsnorm" ;;'
stand_in build/tests/bolide_op_tests '*"--filter /"*) echo "0 passed, 0 failed, 0 skipped" ;;'
for program in test_llm_gpu test_prop_variant test_prop_concurrent; do
    stand_in build/tests/$program ''
done
stand_in tests/python/run.sh '*) echo "skip python: no packages"; echo "0 passed, 0 failed, 1 skipped" ;;'
stand_in bin/compute-sanitizer '*racecheck*) echo "Error: Device not supported" ; exit 1 ;;
*) shift 4; exec "$@" ;;'

# goal VARIABLE=VALUE...: runs it; $status, $last and $home/said say how it ended.
goal() {
    : >"$home/calls"
    env PATH="$home/bin:$PATH" JOBS=4 "$@" "$home/tools/check_gpu.sh" >"$home/said" 2>&1
    status=$?
    last=$(tail -n 1 "$home/said")
}

# ends STATUS LAST WHAT
ends() {
    if [ "$status" = "$1" ] && [ "$last" = "$2" ]; then
        pass
    else
        tail -n 30 "$home/said"
        fail "check-gpu: $3: expected exit $1 and \"$2\"; got exit $status and \"$last\""
    fi
}

says() {
    if grep -q "$1" "$home/said"; then pass; else fail "check-gpu: $2: no line \"$1\""; fi
}

# 5 kernel steps, 32 shards, 6 of the engine, 2 more, 64 of PTX, 24 sanitized; 8 of Python, 8 of
# the tool that is refused and the problems that synccheck cannot follow are skipped.
beyond=$(awk '/^# not by .*synccheck/ { on = 1 } /^$/ { on = 0 } on && !/^#/' tests/cuda/sanitized.txt |
    wc -l)
skipped=$((16 + beyond))
goal TIME=0
ends 1 "0 passed, 0 failed, 0 skipped" "no time"
says '^149 steps are left' "no time"
goal
ends 0 "133 passed, 0 failed, $skipped skipped" "all steps"
says 'racecheck: this machine refuses it: Error: Device not supported' "a tool that is refused"
goal
ends 0 "133 passed, 0 failed, $skipped skipped" "a second run"
if grep -q -- '--shard' "$home/calls"; then fail "check-gpu: done again"; else pass; fi

stand_in build/tests/test_prop_variant '*) echo "FAILED: a sum"; echo "3 passed, 2 failed, 0 skipped"; exit 1 ;;'
goal STEPS='variants|concurrent'
ends 1 "4 passed, 2 failed, 0 skipped" "a failure, and all anew for a new program"
says 'variants: FAILED: a sum' "a failure"
goal STEPS=variants
ends 1 "4 passed, 2 failed, 0 skipped" "what failed is done again"
grep -c prop_variant "$home/calls" | grep -vx 1 | verdict "check-gpu: what failed is done again"

stand_in build/tests/test_prop_concurrent '*) sleep 9 ;;'
goal LIMIT=1 STEPS=concurrent
ends 1 "0 passed, 1 failed, 0 skipped" "a step that hangs"
says 'concurrent: FAILED: it did not end in 1 seconds' "a step that hangs"
stand_in build/tests/test_prop_concurrent '*) exit 7 ;;'
goal STEPS=concurrent
ends 1 "0 passed, 1 failed, 0 skipped" "a step that dies"
goal STEPS=operators SHARD=1/4
ends 1 "8 passed, 1 failed, 0 skipped" "a part of the steps"

stand_in build/tests/bolide_op_tests '*) echo "skipped: no GPU"; echo "0 passed, 0 failed, 1 skipped" ;;'
goal
ends 0 "0 passed, 0 failed, 1 skipped" "no GPU"

finish
