#!/bin/sh
# Runs every fuzz target of the product and of lab, one after the other, for the given time each.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
go=${GO:-go}
for module in . lab; do
	for file in $(cd "$module" && git ls-files '*_test.go' | grep -v '^lab/'); do
		for target in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$module/$file" | awk '{print $2}'); do
			echo "fuzz $target in $module/$(dirname "$file")"
			(cd "$module" && $go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")")
		done
	done
done
