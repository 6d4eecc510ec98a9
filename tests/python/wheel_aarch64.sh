#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the wheel for aarch64 by the cross compiler and tries it under qemu-user, in a Python of
# Debian's that is unpacked beside it: tests/python/wheel_aarch64.sh. Debian's packages and PyPI's are
# fetched into build/wheel-aarch64 once; nothing is installed. Ends with a line of counts.

set -u
cd "$(dirname "$0")/../.." || exit 1
build=$PWD/build/wheel-aarch64
root=$build/root
skip() {
    echo "skip wheel-aarch64: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
for tool in qemu-aarch64 aarch64-linux-gnu-gcc apt-get dpkg; do
    command -v $tool >/dev/null || skip "$tool is not here"
done
if ! wheel=$(tools/wheel.sh build/wheel-aarch64 aarch64 2>"$build.log"); then
    tail -n 20 "$build.log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi

# The lists of packages for the other machine lie in a folder of their own; the system's stay.
if [ ! -x "$root/usr/bin/python3" ]; then
    apt=$build/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$root"
    : >"$apt/status"
    (cd "$apt" && for step in update "download python3-minimal python3.11-minimal
        libpython3.11-minimal libpython3.11-stdlib zlib1g libexpat1 libc6 libffi8 libssl3 libbz2-1.0
        liblzma5 libgcc-s1 libstdc++6 libgomp1 libuuid1 libcrypt1"; do
        # shellcheck disable=SC2086 # one word a package
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
            -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" $step ||
            exit 1
    done) >"$apt/log" 2>&1 || skip "Debian's Python for aarch64 cannot be had"
    for package in "$apt"/*.deb; do
        dpkg -x "$package" "$root"
    done
fi
python="qemu-aarch64 -L $root $root/usr/bin/python3"
version=$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || skip "it does not run"
site=$root/usr/lib/python3/dist-packages
rm -rf "$site"
.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --target "$site" \
    --only-binary=:all: --python-version "$version" --implementation cp \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
    --platform manylinux2014_aarch64 "${wheel}[numpy]" || skip "the packages cannot be installed"
export OMP_WAIT_POLICY=passive
# shellcheck disable=SC2086 # the words of a command
exec .venv-wheel/bin/python tests/python/try_wheel.py "$wheel" $python
