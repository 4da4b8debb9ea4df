#!/bin/sh
# Builds the console from web/ into service/console/dist (build), or checks that dist has what web/
# gives (check). Without npm, or where its registry cannot be reached in three tries, check says so
# and compares nothing; go test ./tools/console has compared the hash of the sources then. The file
# that NOT_RUN names, if any, gets a line.
set -eu
cd "$(dirname "$0")/.."
mode=$1

unchecked() { # why
	[ "$mode" = check ] || { echo "$1: nothing is built"; exit 1; }
	echo "$1: the console was NOT built and compared"
	[ -z "${NOT_RUN:-}" ] || echo "make console-check: $1" >>"$NOT_RUN"
	exit 0
}
command -v npm >/dev/null || unchecked "npm is not installed"
cd web
for try in 1 2 3; do
	out=$(npm ci --ignore-scripts --no-progress 2>&1) && break
	printf '%s' "$out" | grep -qE 'ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET' || {
		printf '%s\n' "$out"
		exit 1
	}
	[ "$try" -lt 3 ] || unchecked "the npm registry cannot be reached in three tries"
	sleep 5
done
npm run --silent check
npm run --silent build -- --logLevel warn
cd ..
case $mode in
build) ${GO:-go} run ./tools/console pack ;;
check) ${GO:-go} run ./tools/console compare ;;
esac
