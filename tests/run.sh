#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of a build folder and adds up what they report: tests/run.sh DIR [CTEST OPTION...]
# Every test is a program that prints "N passed, N failed, N skipped" as its last such line. One
# that prints none, or exits with an error without a failure in its count, counts as one failure.

set -u
dir=$1
shift
cd "$dir" || exit 1
log=$PWD/tests.log
{
    ctest -V --timeout "${TEST_TIMEOUT:-900}" "$@" 2>&1
    echo $? >"$log.status"
} | tee "$log"

awk -v status="$(cat "$log.status")" '
    # "12: 3 passed, 0 failed, 1 skipped" comes from test 12.
    /^[0-9]+: .*[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
        id = $1 + 0
        n = split($0, word, " ")
        passed[id] = word[n - 5]
        failed[id] = word[n - 3]
        skipped[id] = word[n - 1]
        closed[id] = 1
    }
    # "  1/14 Test  #12: norm ........   Passed    0.10 sec"
    /^ *[0-9]+\/[0-9]+ +Test +#[0-9]+:/ {
        match($0, /#[0-9]+:/)
        id = substr($0, RSTART + 1, RLENGTH - 2) + 0
        rest = substr($0, RSTART + RLENGTH + 1)
        split(rest, word, " ")
        name = word[1]
        programs++
        if (!closed[id]) {
            print "FAILED: " name ": ended without a line of counts"
            failed[id] = 1
        } else if (rest !~ /Passed/ && failed[id] == 0) {
            print "FAILED: " name ": ended with an error"
            failed[id] = 1
        } else if (failed[id] > 0) {
            print "FAILED: " name ": " failed[id] " failed"
        }
        p += passed[id]; f += failed[id]; s += skipped[id]
    }
    END {
        if (programs == 0) {
            print "FAILED: no test program was run"
            f++
        } else if (status != 0 && f == 0) {
            print "FAILED: ctest ended with " status
            f++
        }
        printf "%d passed, %d failed, %d skipped\n", p, f, s
        exit f > 0
    }' "$log"
