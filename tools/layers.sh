#!/bin/sh
# What the packages must not depend on, asked of the go command itself.
set -eu
cd "$(dirname "$0")/.."
forbid() { # packages, pattern, words
	found=$(go list -deps "$1" | grep -E "$2" || true)
	if [ -n "$found" ]; then
		echo "$1 depends on $3:"
		echo "$found"
		exit 1
	fi
	echo "$1: no $3"
}
forbid ./core/... '^(google\.golang\.org/(grpc|protobuf)|go\.uber\.org/(fx|dig))' 'gRPC, protobuf or fx'
forbid ./service/... '^go\.uber\.org/(fx|dig)' 'fx'
forbid ./cmd/gateway 'FerretDB|go\.mongodb\.org/mongo-driver' 'FerretDB or official driver'
for package in $(go list ./... | sed -n 's|^[^/]*/[^/]*/[^/]*/||p'); do
	case $package in gen/* | core/*internal/* | examples/* | deploy/* | tools/*) continue ;; esac
	grep -qE "[\`/]$(basename "$package")\`" docs/architecture.md ||
		{ echo "docs/architecture.md does not name $package"; exit 1; }
done
echo "docs/architecture.md names every package"
named=$(grep -oE '`[A-Za-z0-9_/.-]+\.(go|proto|sh)`' docs/architecture.md | tr -d '`' | sort -u)
for file in $named; do
	[ -f "$file" ] || { echo "docs/architecture.md names $file, which does not exist"; exit 1; }
done
echo "docs/architecture.md names files that exist"
