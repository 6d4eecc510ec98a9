#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Brings what the tests of the engine use: the model file, and a Python environment with the package
# `tokenizers`. What cannot be brought is a skip: the tests that need it then skip, too.

cd "$(dirname "$0")/../.." || exit 1
passed=0 skipped=0

# bring WHAT COMMAND...
bring() {
    what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "skip llm_setup: $what could not be brought"
        skipped=$((skipped + 1))
    fi
}

if [ -n "${BOLIDE_LLM_MODEL:-}" ]; then
    bring "the model file $BOLIDE_LLM_MODEL" test -r "$BOLIDE_LLM_MODEL"
else
    bring "the model file" python3 examples/llm/fetch.py
fi
bring "the Python package tokenizers" tools/venv.sh .venv-llm tokenizers==0.23.3
echo "$passed passed, 0 failed, $skipped skipped"
