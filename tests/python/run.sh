#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The Python tests: tests/python/run.sh BUILD_FOLDER ENVIRONMENT PACKAGE... [-- PYTEST OPTION...]
# The environment is made once, with the packages named; the binding is built once it is there.
# Where the packages cannot be had this is one skip. If PYTHON is set, it is a Python that has them
# beside a build that has the binding, and nothing is installed or built.

set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1 environment=$2
shift 2
packages=
while [ $# -gt 0 ]; do
    [ "$1" != -- ] || { shift; break; }
    packages="$packages $1"
    shift
done

# shellcheck disable=SC2086 # one word a package
if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
elif tools/venv.sh "$environment" $packages; then
    python=$environment/bin/python
    # The headers of tvm-ffi come from the small environment, whichever one runs the tests.
    tools/venv.sh .venv-python apache-tvm-ffi numpy ml_dtypes pytest || exit 1
    if ! { cmake -B "$build" && cmake --build "$build" --parallel "$(nproc)" \
        --target bolide_python; } >"$build/python.log" 2>&1; then
        cat "$build/python.log"
        exit 1
    fi
else
    echo "skip python: the packages$packages could not be installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
PYTHONPATH=python${PYTHONPATH:+:$PYTHONPATH} exec "$python" -B -m pytest -q -p no:cacheprovider \
    --confcutdir=tests/python tests/python "$@"
