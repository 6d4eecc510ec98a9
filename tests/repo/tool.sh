#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The tool as a user meets it who types something wrong: wrong usage gives a sentence and exit 2, a
# problem that cannot be exit 1 with a sentence, never a signal; what --json prints is JSON.
# tests/repo/tool.sh BUILD_FOLDER

. tests/repo/lib.sh
tool=$1/bolide

# refused STATUS PATTERN ARGUMENT...
refused() {
    status=$1 pattern=$2
    shift 2
    timeout 60 "$tool" "$@" >"$scratch/said" 2>&1
    got=$?
    if [ "$got" = "$status" ] && grep -q "$pattern" "$scratch/said"; then
        pass
    else
        cat "$scratch/said"
        fail "tool: $*: expected exit $status and \"$pattern\"; got exit $got"
    fi
}

refused 2 'usage: bolide'
refused 2 'there is no command nonsense' nonsense
refused 2 'expected no extra' doctor extra
refused 2 'expected no extra' ops extra
refused 2 'expected no extra' coverage extra
refused 2 'expected one operator' describe
refused 1 'there is no operator nope' describe nope
refused 2 'expected problems' check
refused 2 'no option --zzz' ops --zzz
refused 2 'n is given twice' check rmsnorm n=3 n=4
refused 1 'expected a dimension; got -1' check rmsnorm n=-1
refused 1 'input: dtype: expected f32, f16 or bf16; got f64' check rmsnorm input=f64
refused 1 'unknown key zz' check rmsnorm zz=3
for op in batch_decode batch_prefill_paged batch_attention batch_mla append_paged_kv_cache \
    append_paged_mla_kv_cache rope_quantize_fp8_append_paged_kv_cache; do
    refused 1 'page: expected at least 1; got 0' check $op page=0
done
for op in batch_decode batch_prefill_paged batch_mla append_paged_kv_cache \
    rope_quantize_fp8_append_paged_kv_cache; do
    refused 1 'spare: expected at least 0; got -1' check $op spare=-1
done
for op in batch_decode batch_prefill_ragged batch_mla apply_rope append_paged_kv_cache; do
    refused 1 'len: expected lengths of at least 0; got 5:-3' check $op len=5:-3
done

for words in 'ops --json' 'coverage --json' 'doctor --json' 'check rmsnorm n=1,2 d=8 --json' 'bench rmsnorm n=1 d=8 --seconds 0.01 --json'; do
    # shellcheck disable=SC2086 # words
    timeout 60 "$tool" $words 2>&1 >"$scratch/json" | verdict "tool: $words: nothing on standard error"
    python3 -c 'import json, sys
text = sys.stdin.read()
try:
    json.loads(text)
except ValueError:
    for line in text.splitlines():
        json.loads(line)' <"$scratch/json" 2>&1 | verdict "tool: $words: JSON"
done

# A problem that passes and one that is refused: an object each, no line of counts, exit 1.
"$tool" check 'rmsnorm n=1,7 d=8' 'rmsnorm n=2 d=8 zz=1' --json >"$scratch/json"
echo $? >>"$scratch/json"
python3 -c 'import json, sys
lines = sys.stdin.read().splitlines()
rows = [json.loads(line) for line in lines[:-1]]
assert lines[-1] == "1", lines[-1]
assert [row["verdict"] for row in rows] == ["passed", "passed", "failed"], rows
assert [row["elements"] for row in rows] == [8, 56, 0], rows
assert all(0 <= row["worst"] <= 1 for row in rows) and rows[0]["problem"].startswith("rmsnorm n=1")
assert rows[0]["text"] == "" and "unknown key zz" in rows[2]["text"], rows' <"$scratch/json" 2>&1 |
    verdict "tool: check --json"

# What `make check-gpu` runs under compute-sanitizer must at least be problems.
"$tool" check - <tests/cuda/sanitized.txt 2>&1 | grep -v '^ok' | grep -vx '[0-9]* passed, 0 failed, 0 skipped' |
    verdict "tool: tests/cuda/sanitized.txt"

BOLIDE_ISA=nonsense "$tool" check rmsnorm n=1 d=8 2>&1 >"$scratch/said" |
    grep -c 'BOLIDE_ISA: expected .*; got nonsense; using' | grep -vx 1 |
    verdict "tool: an instruction set that is unknown is reported once"

finish
