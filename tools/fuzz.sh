#!/bin/sh
# Runs every fuzz target of the product and of lab, one after the other, for the given time each.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
go=${GO:-go}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # module, package, target
	(cd "$1" && $go test -run '^$' -fuzz "^$3\$" -fuzztime "$time" "$2") >"$log" 2>&1 && status=0 || status=$?
	cat "$log"
	return "$status"
}

# The fuzzer of Go now and then takes the end of its own time for a failure: "context deadline exceeded", and no failing
# input. Whatever a target finds, it writes down.
timed_out_itself() {
	grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|hung|_test.go:' "$log"
}

for module in . lab; do
	for file in $(cd "$module" && git ls-files '*_test.go' | grep -v '^lab/'); do
		for target in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$module/$file" | awk '{print $2}'); do
			package=./$(dirname "$file")
			echo "fuzz $target in $module/$(dirname "$file")"
			if ! fuzz "$module" "$package" "$target"; then
				timed_out_itself || exit 1
				echo "the fuzzer ran into its own deadline; once more"
				fuzz "$module" "$package" "$target"
			fi
		done
	done
done
