"""Uses of the types that mooring types writes, and what a type checker must find."""

from mooring_client import AsyncClient, Client
from mooring_client.types import DateTime
from shop import Order

placed: DateTime = {"$date": "2026-01-02T03:04:05Z"}
orders = Client("http://127.0.0.1:8080").database("shop").collection("orders", Order)
orders.insert_one({"customer": "Ada", "status": "open", "placed": placed, "items": [{"sku": "a"}]})
orders.insert_many([{"customer": "Ada", "status": "paid", "placed": placed, "gift-note": "x"}])
for order in orders.find({"status": "open"}):
    print(order["customer"].upper(), order["placed"]["$date"], order.get("total"))
    print(order["custmer"])  # wrong
orders.insert_one({"customer": "Ada", "status": "open", "placed": placed, "totl": 5})  # wrong
orders.insert_one({"customer": "Ada", "status": "lost", "placed": placed})  # wrong
orders.insert_one({"customer": "Ada", "status": "open"})  # wrong


async def uses() -> None:
    same = AsyncClient("http://127.0.0.1:8080").database("shop").collection("orders", Order)
    found = await same.find_one({"status": "open"})
    if found is not None:
        print(found["status"], found["customer"] + 1)  # wrong
    async for order in same.stream():
        print(order["customer"].upper())
    await same.insert_one({"customer": 5, "status": "open", "placed": placed})  # wrong
    anything = Client("http://127.0.0.1:8080").database("shop").collection("orders")
    anything.insert_one({"whatever": 1})
