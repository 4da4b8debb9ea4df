#!/bin/sh
# Checks openapi.json with the tools of others, which npm has: the lints of redocly and spectral, and
# what openapi-typescript and hey-api make of it, with which a client must compile. It also makes the
# files of the clients that come from openapi.json, and fails if they were out of date. Without npm,
# or where its registry cannot be reached in three tries, it says so and checks nothing. The file that
# NOT_RUN names, if any, gets a line then.
set -eu
cd "$(dirname "$0")/npm"
document=../../gen/openapi/openapi.json

unchecked() { # why
	echo "$1: openapi.json was NOT checked"
	[ -z "${NOT_RUN:-}" ] || echo "make openapi-check: $1" >>"$NOT_RUN"
	exit 0
}
command -v npm >/dev/null || unchecked "npm is not installed"
for try in 1 2 3; do
	out=$(npm ci --ignore-scripts --no-progress 2>&1) && break
	printf '%s' "$out" | grep -qE 'ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET' || {
		printf '%s\n' "$out"
		exit 1
	}
	[ "$try" -lt 3 ] || unchecked "the npm registry cannot be reached in three tries"
	sleep 5
done
bin=node_modules/.bin
REDOCLY_TELEMETRY=off "$bin/redocly" lint --config redocly.yaml "$document"
"$bin/spectral" lint --fail-severity=hint --ruleset spectral.yaml "$document"
"$bin/openapi-typescript" "$document" -o openapi.d.ts
"$bin/tsc" -p .
"$bin/openapi-ts" -i "$document" -o hey -c @hey-api/client-fetch --no-log-file
"$bin/tsc" -p tsconfig.hey.json

clients=../../clients
cp openapi.d.ts "$clients/typescript/openapi.d.ts"
node operations.js typescript "$document" >"$clients/typescript/operations.js"
node operations.js python "$document" >"$clients/python/mooring_client/_operations.py"
git diff --exit-code --stat -- "$clients" || {
	echo "clients/ is out of date: run make openapi-check and commit"
	exit 1
}
