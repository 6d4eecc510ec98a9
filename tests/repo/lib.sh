# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the repository share: counting, and the lists of files that they look at. Each
# of them is read as `. tests/repo/lib.sh` from the root of the checkout and ends with `finish`.

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# Counts are kept in a file, since a test at the end of a pipe runs in a shell of its own.
pass() {
    echo passed >>"$scratch/counts"
}

fail() {
    echo "FAILED: $*"
    echo failed >>"$scratch/counts"
}

skip() {
    echo "skipped: $*"
    echo skipped >>"$scratch/counts"
}

# verdict NAME: one test; it fails if its standard input has a line, and prints all of them.
verdict() {
    cat >"$scratch/verdict"
    if [ -s "$scratch/verdict" ]; then
        cat "$scratch/verdict"
        fail "$1"
    else
        pass
    fi
}

# same NAME EXPECTED ACTUAL: one test; two files with one sorted name a line must be equal.
same() {
    diff -u --label expected --label actual "$2" "$3" | sed -n '3,40p' | verdict "$1"
}

# Files of the checkout, also those not committed yet: files PATTERN...
files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null |
            while read -r name; do [ ! -f "$name" ] || echo "$name"; done
    else
        # A source archive without git: take everything but what .gitignore names.
        for pattern in "$@"; do
            find . '(' -path './build*' -o -path './.venv*' -o -path './.cache' -o -path './.peers' \
                -o -path './dist' ')' -prune -o -type f -path "./$pattern" -print
        done | sed 's|^\./||' | sort -u
    fi
}

# Names of all operators, in table order.
operators() {
    sed -n 's/^BOLIDE_OP(\([a-z0-9_]*\)).*/\1/p' src/ops/op_list.h
}

# Every public function and variable, from the headers.
public_symbols() {
    cat include/bolide/*.h | tr '\n' ' ' | grep -o 'BOLIDE_API [^;]*;' |
        sed 's/BOLIDE_MUST_USE//; s/__attribute__((.*))//; s/(.*//; s/;//; s/.*[ *]//' | sort -u
}

finish() {
    passed=$(grep -c passed "$scratch/counts")
    failed=$(grep -c failed "$scratch/counts")
    skipped=$(grep -c skipped "$scratch/counts")
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}
