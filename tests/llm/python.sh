#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs the comparisons with the Python package `tokenizers`: tests/llm/python.sh LLM_TOKENIZE...
# Uses the environment that setup.sh made, else the system's Python, where the scripts skip what
# needs the package. Adds up what the two report.

cd "$(dirname "$0")/../.." || exit 1
python=python3
if [ -x .venv-llm/bin/python ]; then
    python=.venv-llm/bin/python
fi
model=${BOLIDE_LLM_MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/bolide/models/SmolLM2-135M-Instruct.Q4_1.gguf}
{
    $python tests/llm/make_unicode_tables.py --check examples/llm/unicode_tables.h
    $python tests/llm/check_tokenizer.py "$model" "$@"
} 2>&1 | awk '
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5; closed++; next }
    { print }
    END {
        f += 2 - closed
        printf "%d passed, %d failed, %d skipped\n", p, f, s
        exit f > 0
    }'
