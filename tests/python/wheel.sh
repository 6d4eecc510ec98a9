#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the wheel and tries it in an environment that holds nothing else but what it asks for and
# NumPy: tests/python/wheel.sh BUILD_FOLDER. Ends with a line of counts.

set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
tools/venv.sh .venv-python apache-tvm-ffi numpy ml_dtypes pytest && cmake -B "$build" >/dev/null
if ! tools/venv.sh .venv-wheel wheel scikit-build-core apache-tvm-ffi; then
    echo "skip wheel: the packages could not be installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if ! wheel=$(tools/wheel.sh "$build" 2>"$build/wheel.log"); then
    tail -n 20 "$build/wheel.log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
clean=$build/wheel/clean
if ! { python3 -m venv "$clean" && "$clean/bin/python" -m pip install --quiet \
    --disable-pip-version-check "${wheel}[numpy]"; }; then
    echo "$wheel could not be installed"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
exec "$clean/bin/python" -I tests/python/try_wheel.py "$wheel"
