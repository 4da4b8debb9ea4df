#!/bin/sh
# Inserts documents through Mooring's REST API with curl, reads them page by page, then as one stream.
#
#   ./demo.sh                                  (the gateway of `make run`)
#   MOORING_REST=http://host:port ./demo.sh
set -eu

base=${MOORING_REST:-http://127.0.0.1:8080}
documents=$base/v1/databases/${MOORING_DATABASE:-example}/collections/curl/documents

post() { # post URL BODY [HEADER]
  curl --silent --show-error --fail-with-body --no-buffer \
    --header 'Content-Type: application/json' --header "${3:-Accept: application/json}" --data "$2" "$1"
  echo
}

echo '# delete what an earlier run left, then insert three documents'
post "$documents:deleteMany" '{"filter": {}}'
post "$documents:insertMany" '{"documents": [
  {"_id": 1, "name": "rope",   "price": 39.95, "added": {"$date": "2026-11-20T12:00:00Z"}},
  {"_id": 2, "name": "fender", "price": 49.95, "stock": {"$numberLong": "9007199254740993"}},
  {"_id": 3, "name": "cleat",  "price": 5}]}'

echo '# one document'
post "$documents:findOne" '{"filter": {"price": {"$gt": 40}}}'

echo '# the first page of two, and the rest with its cursor'
page=$(post "$documents:find" '{"filter": {}, "batchSize": 2}')
echo "$page"
cursor=$(printf '%s' "$page" | sed -n 's/.*"cursor": *"\([^"]*\)".*/\1/p')
post "$base/v1/cursors:next" "{\"cursor\": \"$cursor\"}"

echo '# everything as a stream, one line a document'
post "$documents:streamFind" '{"filter": {}}' 'Accept: application/x-ndjson'

echo '# the same in canonical Extended JSON, which keeps every type'
post "$documents:findOne" '{"filter": {"_id": 2}}' 'Accept: application/ejson'
