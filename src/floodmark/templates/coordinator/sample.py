"""Makes the two tables of the example; called again, it changes them."""

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

FEED = {"delta.enableChangeDataFeed": "true"}


def create():
    orders = pa.table(
        {"order_id": [1, 2, 3], "customer_id": [1, 2, 1], "amount": [10.0, 20.0, 30.0]}
    )
    customers = pa.table({"customer_id": [1, 2], "name": ["anna", "ben"]})
    write_deltalake("lake/orders", orders, configuration=FEED)
    write_deltalake("lake/customers", customers, configuration=FEED)


def change():
    table = DeltaTable("lake/orders")
    table.update(updates={"amount": "amount + 1"}, predicate="order_id = 1")
    news = pa.table({"order_id": [table.version() + 3], "customer_id": [2], "amount": [5.0]})
    write_deltalake("lake/orders", news, mode="append")


if __name__ == "__main__":
    change() if DeltaTable.is_deltatable("lake/orders") else create()
