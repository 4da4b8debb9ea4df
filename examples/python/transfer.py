"""Moves money between two accounts in transactions, through Mooring's REST API.

    MOORING_REST=http://host:port python3 transfer.py

It needs a gateway before a replica set or a sharded cluster, and nothing but the standard library.
"""

import json
import os
import random
import time
import urllib.error
import urllib.request

BASE = os.environ.get("MOORING_REST", "http://127.0.0.1:8080")
DATABASE = os.environ.get("MOORING_DATABASE", "example")
LIMIT = 120  # seconds for all attempts of a transaction


class Failure(Exception):
    """An error that the gateway answered with, or the lack of an answer."""

    def __init__(self, reason, retry, message):
        super().__init__(f"{reason}: {message}")
        self.reason, self.retry = reason, retry


def post(path, body):
    """Makes a call and returns the parsed answer."""
    request = urllib.request.Request(
        BASE + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        problem = json.load(error)["error"]
        raise Failure(problem["reason"], problem["retry"], problem["message"]) from error
    except OSError as error:  # no answer: the call may have been run
        raise Failure("NoAnswer", "same-request", str(error)) from error


def repeated(deadline, path, body):
    """Repeats a call that cannot be applied twice until it is answered."""
    while True:
        try:
            return post(path, body)
        except Failure as failure:
            if failure.retry != "same-request" or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0, 0.2))


class Transaction:
    """A transaction that has begun. Its operations have numbers, so each can be repeated."""

    def __init__(self, deadline):
        self.deadline = deadline
        self.token = repeated(deadline, "/v1/transactions:begin", {})["transaction"]
        self.statement = 0

    def call(self, collection, verb, body):
        self.statement += 1
        return repeated(
            self.deadline,
            f"/v1/databases/{DATABASE}/collections/{collection}/documents:{verb}",
            {**body, "transaction": self.token, "statement": self.statement},
        )

    def commit(self):
        repeated(self.deadline, "/v1/transactions:commit", {"transaction": self.token})

    def abort(self):
        try:
            post("/v1/transactions:abort", {"transaction": self.token})
        except Failure:
            pass  # without another call the gateway aborts it after a minute


def in_transaction(work):
    """Runs work(transaction) and commits. It runs work again if the gateway says so."""
    deadline = time.monotonic() + LIMIT
    wait = 0.005
    while True:
        try:
            transaction = Transaction(deadline)
            try:
                result = work(transaction)
            except BaseException:
                transaction.abort()
                raise
            transaction.commit()
            return result
        except Failure as failure:
            if failure.retry != "transaction" or time.monotonic() > deadline:
                raise
            print(f"run again: {failure.reason}")
        time.sleep(random.uniform(0, wait))
        wait = min(1.5 * wait, 0.5)


class NotEnough(Exception):
    """The account does not have the money."""


def transfer(payment):
    """Moves money statement by statement.

    The payment's document is inserted first. If the payment was made before, that is a duplicate.
    """

    def work(transaction):
        transaction.call("payments", "insertOne", {"document": payment})
        amount = payment["amount"]
        taken = transaction.call(
            "accounts",
            "updateOne",
            {
                "filter": {"_id": payment["from"], "balance": {"$gte": amount}},
                "update": {"$inc": {"balance": -amount}},
            },
        )
        if taken["matchedCount"] == 0:
            raise NotEnough(payment["from"])
        transaction.call(
            "accounts",
            "updateOne",
            {"filter": {"_id": payment["to"]}, "update": {"$inc": {"balance": amount}}},
        )

    in_transaction(work)


def transfer_at_once(payment):
    """Moves money by one call. The gateway runs it again where that is needed."""
    amount = payment["amount"]

    def operation(verb, collection, **fields):
        return {verb: {"database": DATABASE, "collection": collection, **fields}}

    body = {
        "operations": [
            operation("insertOne", "payments", document=payment),
            {
                **operation(
                    "updateOne",
                    "accounts",
                    filter={"_id": payment["from"], "balance": {"$gte": amount}},
                    update={"$inc": {"balance": -amount}},
                ),
                "expect": {"matchedCount": 1},
            },
            {
                **operation(
                    "updateOne",
                    "accounts",
                    filter={"_id": payment["to"]},
                    update={"$inc": {"balance": amount}},
                ),
                "expect": {"matchedCount": 1},
            },
        ]
    }
    post("/v1/transactions:run", body)


def documents(collection, verb, body):
    return post(f"/v1/databases/{DATABASE}/collections/{collection}/documents:{verb}", body)


def main():
    for collection in ("accounts", "payments"):
        documents(collection, "deleteMany", {"filter": {}})
    accounts = [{"_id": "anna", "balance": 100}, {"_id": "ben", "balance": 50}]
    documents("accounts", "insertMany", {"documents": accounts})

    transfer({"_id": "payment-1", "from": "anna", "to": "ben", "amount": 30})
    print("moved 30 from anna to ben")

    transfer_at_once({"_id": "payment-2", "from": "ben", "to": "anna", "amount": 5})
    print("moved 5 from ben to anna")

    try:
        transfer({"_id": "payment-1", "from": "anna", "to": "ben", "amount": 30})
    except Failure as failure:
        print(f"payment-1 was made before: {failure.reason}")
    try:
        transfer({"_id": "payment-3", "from": "anna", "to": "ben", "amount": 1000})
    except NotEnough as account:
        print(f"{account} does not have the money")
    try:
        transfer_at_once({"_id": "payment-3", "from": "anna", "to": "ben", "amount": 1000})
    except Failure as failure:
        print(f"the gateway says so, too: {failure.reason}")

    found = documents("accounts", "find", {"sort": {"_id": 1}})["documents"]
    print(", ".join(f"{account['_id']} has {account['balance']}" for account in found))


if __name__ == "__main__":
    main()
