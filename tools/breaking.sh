#!/bin/sh
# Compares the API with the newest release tag. Without a tag nothing has been promised yet: it says so and succeeds.
set -eu
cd "$(dirname "$0")/.."
tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
if [ -z "$tag" ]; then
	echo "buf breaking: no release tag yet, nothing to compare with"
	exit 0
fi
echo "buf breaking: against $tag"
exec go tool -modfile=tools/buf/go.mod buf breaking --against ".git#tag=$tag"
