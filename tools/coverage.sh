#!/bin/sh
# Prints the coverage of the product's packages from a profile of `go test -coverprofile`: the total and
# the lowest packages. Each package counts with its own tests only.
#
#	tools/coverage.sh coverage.txt [how many packages]
set -eu
awk -v lowest="${2:-12}" '
	/^mode:/ { next }
	/\/(gen|tools|examples|lab)\// { next }
	{
		package = $1
		sub(/\/[^\/]*$/, "", package)
		sub(/^github.com\/mooringdb\/mooring\//, "", package)
		all[package] += $2
		total += $2
		if ($3 > 0) { run[package] += $2; covered += $2 }
	}
	END {
		if (total == 0) { print "coverage: the profile is empty"; exit 1 }
		printf "coverage: %.1f %% of %d statements; the lowest packages:\n", 100 * covered / total, total
		sort = "sort -n | head -n " lowest
		for (p in all) printf "%6.1f %%  %s\n", 100 * run[p] / all[p], p | sort
		close(sort)
	}
' "$1"
