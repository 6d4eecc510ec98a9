#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for an equal share of the given time: tests/fuzz/run.sh BUILD SECONDS
# Inputs that reached something new are kept in .cache/fuzz and are where the next run begins; what
# made a target fail is kept in .cache/fuzz/failures. Ends with a line of counts, one a target.

set -u
cd "$(dirname "$0")/../.." || exit 1
targets=$(find "$1/targets" -type f -name 'fuzz_*' -perm -u+x | sort)
count=$(echo "$targets" | wc -w)
if [ "$count" = 0 ]; then
    echo "FAILED: no fuzz target in $1/targets"
    exit 1
fi
share=$(($2 / count))
[ "$share" -gt 0 ] || share=1
failures=.cache/fuzz/failures
mkdir -p "$failures"
passed=0 failed=0
for target in $targets; do
    name=${target##*/fuzz_}
    corpus=.cache/fuzz/$name
    mkdir -p "$corpus"
    [ ! -d "tests/fuzz/corpus/$name" ] || cp "tests/fuzz/corpus/$name"/* "$corpus"
    echo "== $name: $share seconds, $(find "$corpus" -type f | wc -l) inputs kept from before"
    if "$target" -max_total_time="$share" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
        -verbosity=0 -artifact_prefix="$failures/$name-" "$corpus"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $name: the input is in $failures; run $target on it"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
