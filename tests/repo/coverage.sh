#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# tools/coverage.txt against FlashInfer's interface and the operators' rows:
# tests/repo/coverage.sh BUILD_FOLDER

. tests/repo/lib.sh

"$1/bolide" coverage --json >"$scratch/coverage" 2>"$scratch/faults"
verdict "coverage: each row that is named exists" <"$scratch/faults"
"$1/bolide" ops --json >"$scratch/ops"
for check in entries values limits operators; do
    python3 tests/repo/coverage.py "$check" tests/data/flashinfer_api.json "$scratch/coverage" \
        "$scratch/ops" 2>&1 | verdict "coverage: $check"
done

finish
