#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs into a folder, moves that folder, and builds a small program against it as users do:
# with pkg-config, with CMake against the shared and the static library, and in C++.
# tests/repo/install.sh BUILD_FOLDER COMPILER

. tests/repo/lib.sh
build=$1 CC=$2
export CC
consumer=$PWD/tests/repo/consumer

cmake --install "$build" --prefix "$scratch/first" >"$scratch/log" 2>&1 || {
    cat "$scratch/log"
    fail "install: cmake --install"
    finish
}
prefix="$scratch/a moved place"
mv "$scratch/first" "$prefix"
grep -rlF "$scratch/first" "$prefix" | verdict "install: no file holds the path it was installed to"
grep -rlF "$PWD" "$prefix/lib" --include='*.cmake' --include='*.pc' |
    verdict "install: no file holds the path of the checkout"

# try NAME COMMAND...: the command must succeed.
try() {
    name=$1
    shift
    if "$@" >"$scratch/log" 2>&1; then
        pass
    else
        cat "$scratch/log"
        fail "install: $name"
        return 1
    fi
}

by_cmake() {
    cmake -S "$consumer" -B "$scratch/$1" -DCMAKE_PREFIX_PATH="$prefix" -DBOLIDE_TARGET="$2" &&
        cmake --build "$scratch/$1" && "$scratch/$1/consumer"
}
try "CMake, shared library" by_cmake shared bolide::bolide
try "CMake, static library" by_cmake static bolide::static

pc=$(find "$prefix" -name bolide.pc -exec dirname {} \;)
lib=$(dirname "$pc")
by_pkg_config() {
    # shellcheck disable=SC2086 # the argument may be empty
    # pkg-config escapes blanks in paths for a shell, so a shell must read its answer.
    eval "$CC $consumer/consumer.c $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs $1 bolide) \
        -o $scratch/pc" && LD_LIBRARY_PATH=$lib "$scratch/pc"
}
if command -v pkg-config >/dev/null; then
    try "pkg-config, shared library" by_pkg_config ""
    mkdir "$scratch/archive"
    mv "$lib"/libbolide.so* "$scratch/archive"
    try "pkg-config, static library" by_pkg_config --static
    mv "$scratch/archive"/libbolide.so* "$lib"
else
    skip "install: pkg-config is not installed"
fi

if command -v g++ >/dev/null; then
    in_cxx() {
        g++ -std=c++17 -x c++ "$consumer/consumer.c" -I"$prefix/include" -x none -L"$lib" -lbolide \
            -o "$scratch/cxx" && LD_LIBRARY_PATH=$lib "$scratch/cxx"
    }
    try "C++ program" in_cxx
else
    skip "install: g++ is not installed"
fi

# A loader's cache of our own: it covers one folder, and is brought up to date for that one alone.
mkdir "$scratch/bin"
cat >"$scratch/bin/ldconfig" <<END
#!/bin/sh
if [ "\${1:-}" = -Nv ]; then
    echo "$prefix/lib: (from /etc/ld.so.conf:1)"
else
    echo run >>"$scratch/cache"
    [ ! -f "$scratch/denied" ]
fi
END
chmod +x "$scratch/bin/ldconfig"
loader() {
    PATH=$scratch/bin:$PATH tools/loader.sh "$1" 2>&1
}
mkdir -p "$scratch/other/lib"
cp "$lib"/libbolide.so "$scratch/other/lib"
{
    loader "$scratch/other"
    DESTDIR=$scratch loader "$prefix"
    [ ! -f "$scratch/cache" ] || echo "ldconfig ran for a folder that its cache does not cover"
    loader "$prefix"
    [ -f "$scratch/cache" ] || echo "ldconfig did not run for $prefix/lib"
} | verdict "install: the loader's cache"
: >"$scratch/denied"
{
    loader "$prefix" | grep -q "run ldconfig as root" || echo "no word of ldconfig"
} | verdict "install: a cache that cannot be written"

finish
