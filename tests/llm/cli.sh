#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The program as a user meets it: tests/llm/cli.sh BOLIDE_LLM LLM_SAMPLE
# What it prints where, what it refuses, that no broken file gets more than one sentence and exit
# status 1, and what `make run` does where no package can be fetched.

cd "$(dirname "$0")/../.." || exit 1
. tests/repo/lib.sh
program=$1 sample=$2 build=$(dirname "$1")
model=$scratch/model.gguf
"$sample" "$model" || exit 1

# llm OPTION...: runs the program; leaves its status and what it printed.
llm() {
    "$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}
# expect NAME STATUS: the status of the last run.
expect() {
    [ "$status" = "$2" ] || echo "$1: expected status $2; got $status: $(cat "$scratch/err")"
}

# refused NAME TEXT OPTION...: one sentence that contains TEXT, on standard error, and status 1.
refused() {
    name=$1 text=$2
    shift 2
    llm "$@"
    {
        expect "$name" 1
        [ "$(grep -vc ': loaded ' "$scratch/err")" = 1 ] ||
            echo "expected one sentence; got $(cat "$scratch/err")"
        grep -q "^bolide-llm: .*$text" "$scratch/err" ||
            echo "expected '$text' in '$(cat "$scratch/err")'"
        [ ! -s "$scratch/out" ] || echo "printed on standard output: $(cat "$scratch/out")"
    } | verdict "$name"
}

closing='^prompt [0-9]+ tokens, [0-9.]+ tokens/s; generated [0-9]+ tokens, [0-9.]+ tokens/s; peak memory [0-9]+ MB$'

llm --model "$model" --raw --prompt abcab --max-tokens 6
{
    expect answer 0
    tail -n 1 "$scratch/err" | grep -Eq "$closing" || cat "$scratch/err"
    [ -s "$scratch/out" ] || echo "no answer"
} | verdict "an answer and the closing line"

cp "$scratch/out" "$scratch/one"
llm --model "$model" --raw --prompt abcab --max-tokens 6 --parallel 3 --page-size 1 --threads 2
{
    expect parallel 0
    for i in 0 1 2; do
        printf '[%s] ' $i
        cat "$scratch/one"
    done | diff - "$scratch/out"
} | verdict "three requests together write what one does"

printf abcab >"$scratch/prompt"
llm --model "$model" --raw --prompt-file "$scratch/prompt" --max-tokens 6
{
    expect file 0
    diff "$scratch/one" "$scratch/out"
} | verdict "a prompt from a file"

printf 'abcab\n---\nc\n---\nabcab' >"$scratch/prompt"
llm --model "$model" --raw --prompt-file "$scratch/prompt" --max-tokens 6 --parallel 2
{
    expect prompts 0
    for i in 0 2; do
        printf '[%s] ' $i
        cat "$scratch/one"
    done >"$scratch/want"
    grep -v '^\[1\]' "$scratch/out" | diff "$scratch/want" -
    grep -q '^\[1\] ' "$scratch/out" || echo "no second answer"
} | verdict "three prompts, two at a time"

llm --help
{
    expect help 0
    grep -q -e '--parallel' "$scratch/out" || echo "no usage"
} | verdict "help"

refused "no model" "no such file\|cannot be opened" --model "$scratch/none.gguf"
refused "no option" "no such option" --model "$model" --speed 9
refused "no arithmetic" "expected int16, int8 or f32; got int4" --model "$model" --compute int4
refused "two arithmetics" "expected f32 with --exact" --model "$model" --exact --compute int8
refused "no value" "expected a value" --model "$model" --prompt
refused "a bad number" "expected a number" --model "$model" --top-p much
refused "a number out of range" "from 1 to" --model "$model" --parallel 0
refused "a broken number" "whole number" --model "$model" --top-k 2.5
refused "a device that is none" "expected cpu, cuda or cuda:N" --model "$model" --device gpu
refused "a device without a number" "expected a number" --model "$model" --device cuda:
refused "a GPU that is not there" "" --model "$model" --raw --prompt abc --device cuda:1000
refused "no prompt file" "cannot be opened" --model "$model" --prompt-file "$scratch/none"
refused "no chat model" "no ChatML model" --model "$model" --prompt abc
printf '%0600d' 0 | tr 0 c >"$scratch/prompt"
refused "a prompt that is too long" "600 tokens and the model reads 512" --model "$model" --raw \
    --prompt-file "$scratch/prompt"
refused "an empty prompt" "at least one token" --model "$model" --raw --prompt ""
refused "a folder" "" --model "$scratch"

: >"$scratch/bad.gguf"
refused "an empty file" "" --model "$scratch/bad.gguf"
size=$(wc -c <"$model")
for cut in 3 8 23 24 100 1000 $((size / 2)) $((size - 33)); do
    head -c "$cut" "$model" >"$scratch/bad.gguf"
    refused "a file cut at $cut of $size bytes" "" --model "$scratch/bad.gguf" --raw --prompt abc
done
head -c 4096 /dev/urandom >"$scratch/bad.gguf"
refused "random bytes" "not a GGUF file" --model "$scratch/bad.gguf"
sed 's/attn_output/attn_outfit/' "$model" >"$scratch/bad.gguf"
refused "a tensor that is missing" "no tensor blk.0.attn_output" --model "$scratch/bad.gguf"
sed 's/general.architecture/general.architextur3/' "$model" >"$scratch/bad.gguf"
refused "no architecture" "general.architecture" --model "$scratch/bad.gguf"

# pip obeys these; no address of the network is asked.
XDG_CACHE_HOME=$scratch PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_CONFIG_FILE=/dev/null \
    PIP_RETRIES=0 PIP_NO_INDEX=1 tools/run_model.sh "$build" >"$scratch/out" 2>"$scratch/err" </dev/null
status=$?
{
    expect offline 0
    grep -q "cannot be reached, so attention over a paged cache runs" "$scratch/out" ||
        cat "$scratch/out" "$scratch/err"
    grep -q "batch_decode" "$scratch/out" || echo "no check of batch_decode"
} | verdict "make run without the package"

MODEL=$model PROMPT=abc tools/run_model.sh "$build" >"$scratch/out" 2>"$scratch/err" </dev/null
status=$?
{
    expect run 1
    grep -q "no ChatML model" "$scratch/err" || cat "$scratch/err"
} | verdict "make run with a model of one's own"
finish
