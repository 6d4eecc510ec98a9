#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The reference of the Python package, from its docstrings: tools/docs.sh BUILD_FOLDER writes
# BUILD_FOLDER/docs. A warning of Sphinx is an error. Ends with a line of counts.

set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
if ! tools/venv.sh .venv-docs sphinx apache-tvm-ffi numpy ml_dtypes ||
    ! tools/venv.sh .venv-python apache-tvm-ffi numpy ml_dtypes pytest; then
    echo "skip docs: the packages could not be installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
# Modules are imported for their text, so the binding has to be there.
if { cmake -B "$build" && cmake --build "$build" --parallel "$(nproc)" --target bolide_python; } \
    >"$build/docs.log" 2>&1 &&
    PYTHONPATH=python .venv-docs/bin/python -B -m sphinx -q -W --keep-going -b html docs/reference \
        "$build/docs"; then
    echo "the reference is in $build/docs/index.html"
    echo "1 passed, 0 failed, 0 skipped"
else
    tail -n 20 "$build/docs.log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
