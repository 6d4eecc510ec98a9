#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes a Python virtual environment and installs packages into it: tools/venv.sh DIR PACKAGE...
# A second call with the same packages does nothing. The system's own Python stays untouched.

set -eu
cd "$(dirname "$0")/.."
dir=$1
shift
tools/setup.sh python
wanted=$(printf '%s\n' "$@")
if [ -f "$dir/packages" ] && [ "$(cat "$dir/packages")" = "$wanted" ]; then
    exit 0
fi
if [ ! -x "$dir/bin/python" ]; then
    echo "setup: making a Python environment in $dir" >&2
    python3 -m venv "$dir"
fi
if [ $# -gt 0 ]; then
    echo "setup: installing into $dir: $*" >&2
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
fi
printf '%s\n' "$wanted" >"$dir/packages"
