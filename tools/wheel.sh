#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Packs a build folder into the wheel that goes to users: tools/wheel.sh BUILD_FOLDER [aarch64]
# writes it into dist/ and prints its name. With aarch64 the folder is one of the cross compiler's,
# and is made if need be, with that machine's tvm-ffi to link with. The metadata and the Python files come from scikit-build-core, as for
# `pip install .`; the libraries are those that are built already, of the machine that they are for.
# A library that needs a newer glibc than the tag of the wheel says is an error.

set -eu
cd "$(dirname "$0")/.."
build=$1
tools/venv.sh .venv-wheel wheel scikit-build-core apache-tvm-ffi
if [ "${2:-}" = aarch64 ]; then
    there=$PWD/$build/tvm-ffi
    [ -d "$there" ] || .venv-wheel/bin/python -m pip install --quiet --no-deps --target "$there" \
        --disable-pip-version-check --only-binary=:all: --platform manylinux_2_28_aarch64 \
        --platform manylinux2014_aarch64 apache-tvm-ffi >&2
    cmake -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DBOLIDE_TESTS=OFF \
        -DBOLIDE_TVM_FFI="$there/tvm_ffi" >&2
fi
cmake --build "$build" --parallel "$(nproc)" --target bolide_python >&2
python=.venv-wheel/bin/python
work=$build/wheel
rm -rf "$work"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$work" --config-settings=wheel.cmake=false --config-settings=wheel.platlib=true \
    . >&2
"$python" -m wheel unpack --dest "$work" "$work"/bolide-*.whl >&2
rm "$work"/bolide-*.whl
cmake --install "$build" --component python --prefix "$work"/bolide-* --strip >&2
for library in "$work"/bolide-*/bolide/lib/*.so*; do
    machine=$(readelf -h "$library" | sed -n 's/ *Machine: *//p')
    newest=$(readelf -VW "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    if [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" != GLIBC_2.28 ]; then
        echo "wheel: $library needs $newest; manylinux_2_28 has GLIBC_2.28" >&2
        exit 1
    fi
done
case $machine in
    *X86-64) machine=x86_64 ;;
    AArch64) machine=aarch64 ;;
    *) echo "wheel: no tag for $machine" >&2 && exit 1 ;;
esac
mkdir -p dist
"$python" -m wheel pack --dest-dir "$work" "$work"/bolide-* >&2
"$python" -m wheel tags --remove --platform-tag "manylinux_2_28_$machine" "$work"/bolide-*.whl >&2
mv "$work"/bolide-*.whl dist/
ls dist/bolide-*"_$machine.whl"
