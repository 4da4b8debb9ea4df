#!/bin/sh
# Moves money between two accounts in transactions, through Mooring's REST API with curl.
# It needs a gateway before a replica set or a sharded cluster.
#
#   MOORING_REST=http://host:port ./transfer.sh
set -eu

base=${MOORING_REST:-http://127.0.0.1:8080}
database=${MOORING_DATABASE:-example}
collections=$base/v1/databases/$database/collections

post() { # post URL BODY [OPTION …]
  url=$1 body=$2
  shift 2
  curl --silent --show-error --fail-with-body --header 'Content-Type: application/json' \
    "$@" --data "$body" "$url"
}

echo '# two accounts'
for collection in accounts payments; do
  reply=$(post "$collections/$collection/documents:deleteMany" '{"filter": {}}') || {
    echo "$collection cannot be emptied: $reply" >&2
    exit 1
  }
done
post "$collections/accounts/documents:insertMany" \
  '{"documents": [{"_id": "anna", "balance": 100}, {"_id": "ben", "balance": 50}]}'
echo

echo '# a transfer, statement by statement'
begun=$(post "$base/v1/transactions:begin" '{}') || {
  echo "no transaction can begin: $begun" >&2
  exit 1
}
transaction=$(echo "$begun" | sed -n 's/.*"transaction": *"\([^"]*\)".*/\1/p')
in="Mooring-Transaction: $transaction"
post "$collections/payments/documents:insertOne" '{"statement": 1,
  "document": {"_id": "payment-1", "from": "anna", "to": "ben", "amount": 30}}' --header "$in"
echo
post "$collections/accounts/documents:updateOne" '{"statement": 2,
  "filter": {"_id": "anna", "balance": {"$gte": 30}}, "update": {"$inc": {"balance": -30}}}' \
  --header "$in"
echo
post "$collections/accounts/documents:updateOne" '{"statement": 3,
  "filter": {"_id": "ben"}, "update": {"$inc": {"balance": 30}}}' --header "$in"
echo

# Commit can be repeated: curl does so after a 503 and when it gets no answer.
post "$base/v1/transactions:commit" '{}' --header "$in" --retry 10 --retry-all-errors
echo

# run BODY: the whole transfer as one call, which the gateway repeats where that is needed.
run() {
  post "$base/v1/transactions:run" "$1"
  echo
}
transfer() { # transfer PAYMENT FROM TO AMOUNT
  cat <<BODY
{"operations": [
  {"insertOne": {"database": "$database", "collection": "payments",
    "document": {"_id": "$1", "from": "$2", "to": "$3", "amount": $4}}},
  {"updateOne": {"database": "$database", "collection": "accounts",
    "filter": {"_id": "$2", "balance": {"\$gte": $4}},
    "update": {"\$inc": {"balance": -$4}}}, "expect": {"matchedCount": 1}},
  {"updateOne": {"database": "$database", "collection": "accounts",
    "filter": {"_id": "$3"}, "update": {"\$inc": {"balance": $4}}}, "expect": {"matchedCount": 1}}]}
BODY
}

echo '# a transfer as one call'
run "$(transfer payment-2 ben anna 5)"

echo '# one for which there is not enough money: 412, and nothing has changed'
run "$(transfer payment-3 anna ben 1000)" || echo '# refused'

echo '# the accounts and the payments'
post "$collections/accounts/documents:find" '{"filter": {}, "sort": {"_id": 1}}'
echo
post "$collections/payments/documents:find" '{"filter": {}, "projection": {"_id": 1}}'
echo
