#!/bin/sh
# Compares the gateway's dependencies with the Go vulnerability database. It reports only: a new entry
# in the database must not turn an unchanged commit red, and without the database nothing is checked.
# The file that NOT_RUN names, if any, gets a line then.
set -u
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ${GO:-go} tool -modfile=tools/vuln/go.mod govulncheck ./... >"$log" 2>&1; then
	echo "govulncheck: no known vulnerability"
elif grep -q 'fetching vulnerabilities' "$log"; then
	echo "govulncheck: NOT CHECKED, its database cannot be reached"
	[ -z "${NOT_RUN:-}" ] || echo "make vulnerabilities: the database cannot be reached" >>"$NOT_RUN"
else
	cat "$log"
fi
