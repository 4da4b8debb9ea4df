"""A client of the Mooring gateway for MongoDB.

    from mooring_client import Client

    orders = Client("http://127.0.0.1:8080").database("shop").collection("orders")
    orders.insert_one({"customer": "Ada"})
    for order in orders.find({"customer": "Ada"}, batchSize=500):
        print(order)

AsyncClient has the same methods for asyncio. Documents are Extended JSON: `{"$oid": "…"}` is an
ObjectId. With `Client(url, bson=True)` they have the types of pymongo's package bson.
"""

from ._async import AsyncClient, AsyncCollection, AsyncDatabase
from ._calls import MooringError, Versioned
from ._client import Client, Collection, Database

__all__ = [
    "AsyncClient",
    "AsyncCollection",
    "AsyncDatabase",
    "Client",
    "Collection",
    "Database",
    "MooringError",
    "Versioned",
]
