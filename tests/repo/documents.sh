#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The documents agree with the tree: generated parts are in step, links lead somewhere, the changelog
# has room for what comes next, and each goal of the Makefile that a document names exists.
# tests/repo/documents.sh BUILD_FOLDER

. tests/repo/lib.sh

python3 tools/tables.py --check "$1/bolide" >"$scratch/tables" 2>&1
status=$?
sed '$d' "$scratch/tables"
# Its own counts are added to ours.
tail -n 1 "$scratch/tables" | awk '
    { for (i = 0; i < $1 + 0; i++) print "passed"; for (i = 0; i < $3 + 0; i++) print "failed"
      for (i = 0; i < $5 + 0; i++) print "skipped" }' >>"$scratch/counts"
[ "$status" = 0 ] || fail "documents: make tables brings them up to date"

# Links to files, seen from the document's own folder.
files '*.md' | while read -r document; do
    grep -oE '\]\([^)]*\)' "$document" | sed 's/^](//; s/)$//; s/#.*//' |
        grep -vE '^(https?:|$)' | while read -r target; do
        [ -e "$(dirname "$document")/$target" ] || echo "$document: $target does not exist"
    done
done | verdict "documents: links"

grep -q '^## Unreleased$' CHANGELOG.md || echo "CHANGELOG.md has no section Unreleased" >"$scratch/x"
touch "$scratch/x"
verdict "documents: changelog" <"$scratch/x"

files '*.md' | xargs grep -ohE '(^|`)make [a-z-]+' | sed 's/.*make //' | sort -u |
    while read -r goal; do
        grep -qE "^$goal:" Makefile || echo "make $goal is named in a document and does not exist"
    done | verdict "documents: goals"

# Problems for measuring: each names an operator, and the headline takes its lines from the others.
cat bench/problems/*.txt bench/problems/*/*.txt | grep -v '^#' | cut -d' ' -f1 | sort -u |
    while read -r op; do operators | grep -qx "$op" || echo "bench/problems: $op"; done |
    verdict "documents: problems name operators"
grep -v '^#' bench/problems/headline.txt | while read -r problem; do
    [ "$(cat bench/problems/*.txt bench/problems/*/*.txt | grep -cxF "$problem")" -gt 1 ] ||
        echo "bench/problems/headline.txt: $problem is in no other file"
done | verdict "documents: the headline problems"

# ADRs are numbered without gaps, each number once.
files 'docs/adr/*.md' | sed 's|.*/\([0-9]*\)-.*|\1|' | sort | uniq -d |
    verdict "documents: numbers of decisions"

# The tests that hold the faults of others are where the page says.
grep -oE '`[a-z/_]+\.[a-z]+`: `[^`]+`' docs/faults.md | while IFS='`' read -r _ file _ text _; do
    grep -qsF -e "$text" "$file" || echo "docs/faults.md: $file has no $text"
done | verdict "documents: faults"

files '*.md' | xargs awk '
    FNR == 1 { code = 0 }
    /^```/ { code = !code }
    !code && length($0) > 110 && !/^\|/ && !/\]\(/ { print FILENAME ":" FNR ": over 110 columns" }' |
    verdict "documents: columns"

finish
