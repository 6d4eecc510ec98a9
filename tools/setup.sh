#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Brings what a goal of the Makefile needs: tools/setup.sh NEED...
# Each need is checked by using the thing, not by asking for a package, so a machine that has it
# from elsewhere is left alone. What is missing is installed with apt-get, as root or by sudo, after
# saying so. Without that right, or on another system, the script names what is missing and stops.

set -u
cd "$(dirname "$0")/.." || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

say() {
    echo "setup: $*" >&2
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# compiles COMPILER FLAG...: builds and, unless $emulator says otherwise, runs a parallel program.
compiles() {
    cat >"$scratch/probe.c" <<'END'
#include <math.h>
#include <omp.h>
#include <pthread.h>
int main(void) {
    int n = 0;
#pragma omp parallel reduction(+ : n)
    n += omp_get_num_threads() > 0;
    return n > 0 ? 0 : 1;
}
END
    has "$1" && "$@" "$scratch/probe.c" -o "$scratch/probe" -lm -lpthread >/dev/null 2>&1 &&
        ${emulator:-} "$scratch/probe" >/dev/null 2>&1
}

clang_major() {
    clang -dumpversion 2>/dev/null | cut -d. -f1
}

# The formatter's version is fixed, since each version lays some lines out differently.
format_tool() {
    for tool in clang-format-14 clang-format .venv/bin/clang-format; do
        if "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then
            echo "$tool"
            return 0
        fi
    done
    return 1
}

# have NEED and packages NEED: the check, and the Debian and Ubuntu packages that satisfy it.
have() {
    case $1 in
    compiler) compiles "${CC:-cc}" -fopenmp ;;
    c++) has g++ || has clang++ ;;
    make) has make ;;
    cmake)
        has cmake && cmake --version |
            awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || v[2] >= 20) }'
        ;;
    pkg-config) has pkg-config ;;
    python3) python3 -c 'import json' >/dev/null 2>&1 ;;
    clang) compiles clang -fopenmp ;;
    clang-tidy) has clang-tidy ;;
    asan) compiles clang -fopenmp -fsanitize=address,undefined ;;
    tsan) compiles clang -fopenmp -fsanitize=thread ;;
    fuzzer) compiles clang -fopenmp -fsanitize=fuzzer-no-link,address,undefined ;;
    aarch64) emulator='qemu-aarch64 -L /usr/aarch64-linux-gnu' compiles aarch64-linux-gnu-gcc -fopenmp ;;
    python) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    format) format_tool >/dev/null ;;
    *)
        say "unknown need: $1"
        exit 2
        ;;
    esac
}

packages() {
    case $1 in
    compiler) echo gcc libc6-dev ;;
    c++) echo g++ ;;
    make | cmake | pkg-config | python3 | clang-tidy) echo "$1" ;;
    clang) echo clang libomp-dev ;;
    asan | tsan | fuzzer)
        echo clang libomp-dev
        # Ubuntu 22.04 has the run-time parts in a package that clang itself pulls in.
        if has clang && apt-cache show "libclang-rt-$(clang_major)-dev" >/dev/null 2>&1; then
            echo "libclang-rt-$(clang_major)-dev"
        fi
        ;;
    aarch64) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ;;
    python) echo python3 python3-venv ;;
    format)
        if apt-cache show clang-format-14 >/dev/null 2>&1; then
            echo clang-format-14
        else
            echo python3 python3-venv
        fi
        ;;
    esac
}

apt() {
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get "$@"
    elif [ -t 0 ]; then
        sudo DEBIAN_FRONTEND=noninteractive apt-get "$@"
    else
        sudo -n DEBIAN_FRONTEND=noninteractive apt-get "$@"
    fi
}

# What apt-get cannot bring on every system comes into the project's own virtual environment.
from_python() {
    case $1 in
    format) tools/venv.sh .venv clang-format==14.0.6 ;;
    *) return 1 ;;
    esac
}

install() {
    # shellcheck disable=SC2046 # one word a package
    set -- "$1" $(packages "$1")
    need=$1
    shift
    if ! has apt-get; then
        say "$need is missing and this system has no apt-get; Debian's packages are: $*"
        return 1
    fi
    if [ "$(id -u)" != 0 ] && ! has sudo; then
        say "$need is missing; please install as root: apt-get install $*"
        return 1
    fi
    say "$need is missing; installing $*"
    if ! apt install -y --no-install-recommends "$@" >"$scratch/apt" 2>&1; then
        say "reading the list of packages first (apt-get update)"
        apt update >"$scratch/apt" 2>&1
        apt install -y --no-install-recommends "$@" >"$scratch/apt" 2>&1 || {
            tail -n 20 "$scratch/apt" >&2
            say "apt-get install $* failed"
            return 1
        }
    fi
}

if [ "${1:-}" = --format-tool ]; then
    format_tool
    exit
fi
for need in "$@"; do
    have "$need" && continue
    install "$need" || exit 1
    # Names of packages may depend on the compiler that has just come.
    have "$need" || install "$need" || exit 1
    have "$need" || from_python "$need"
    if ! have "$need"; then
        say "$need still does not work after installing $(packages "$need" | tr '\n' ' ')"
        exit 1
    fi
done
