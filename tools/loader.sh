#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The last step of `make install`: tools/loader.sh PREFIX. Programs find a library in the folders of
# /etc/ld.so.conf through a cache, so a new one there is found once ldconfig has run. Elsewhere the
# cache has no part, and a tree for a package (DESTDIR) is not where programs will look.

set -u
[ -z "${DESTDIR:-}" ] || exit 0
PATH=$PATH:/usr/sbin:/sbin
for folder in "$1"/lib*; do
    [ -f "$folder/libbolide.so" ] || continue
    ldconfig -Nv 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p' | while read -r known; do
        [ "$(realpath "$known")" = "$(realpath "$folder")" ] || continue
        ldconfig 2>/dev/null ||
            echo "install: run ldconfig as root, so that programs find $folder/libbolide.so.0" >&2
        break
    done
done
