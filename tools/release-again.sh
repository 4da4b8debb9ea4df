#!/usr/bin/env bash
# Makes the release of the same commit again, in another directory and without a build cache, and
# compares the checksums with those of DIRECTORY.
#
#	VERSION=v0.1.0 COMMIT=… tools/release-again.sh DIRECTORY [os/arch …]
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# The sources of the first release, changes that are not committed included.
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -C "$tmp" -xf -
# The tools may come from the cache; the gateway may not.
export BUILDFLAGS=-a
: "${VERSION:?}"
(cd "$tmp" && tools/release.sh "$tmp/dist" "${@:2}")
diff "$dist/checksums.txt" "$tmp/dist/checksums.txt"
echo "built twice, the same bytes"
