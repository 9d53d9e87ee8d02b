"""The tables of the demo shop and what happens in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = {
    "orders": "order_id BIGINT, customer_id BIGINT, item STRING, amount DECIMAL(10,2)",
    "customers": "customer_id BIGINT, name STRING, city STRING",
    "payments": "payment_id BIGINT, order_id BIGINT, amount DECIMAL(10,2), state STRING",
}
CITIES = "array('Lisbon', 'Oslo', 'Lagos', 'Lima', 'Osaka')"
ITEMS = "array('lamp', 'chair', 'desk', 'shelf', 'rug', 'vase', 'clock')"


class Shop:
    """A lake of three Delta tables with their change feeds on."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        self._spark = spark
        self._lake = lake

    def open(self) -> None:
        """Create the tables: 200 customers, 2,000 orders, 1,500 payments."""
        for name, columns in TABLES.items():
            self._sql(
                f"CREATE TABLE {self.table(name)} ({columns}) USING delta "
                "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
            )
        self._insert("customers", 0, 200, f"id, concat('customer ', id), {CITIES}[id % 5]")
        self._insert("orders", 0, 2_000, f"id, id % 200, {ITEMS}[id % 7], 5 + id % 90")
        self._insert("payments", 0, 1_500, "id, id, 5 + id % 90, 'paid'")

    def a_day(self) -> None:
        """New orders, a correction, a cancelled order, a customer who moves, a refund."""
        self._insert("orders", 2_000, 2_040, f"id, id % 200, {ITEMS}[id % 7], 5 + id % 90")
        self._sql(f"UPDATE {self.table('orders')} SET amount = amount + 1 WHERE order_id < 10")
        self._sql(f"DELETE FROM {self.table('orders')} WHERE order_id IN (11, 12)")
        self._sql(f"UPDATE {self.table('customers')} SET city = 'Quito' WHERE customer_id = 42")
        self._insert("payments", 1_500, 1_540, "id, id, 5 + id % 90, 'paid'")
        self._sql(f"UPDATE {self.table('payments')} SET state = 'refunded' WHERE order_id = 11")

    def an_evening(self) -> None:
        """A few more orders and payments."""
        self._insert("orders", 2_040, 2_065, f"id, id % 200, {ITEMS}[id % 7], 5 + id % 90")
        self._insert("payments", 1_540, 1_560, "id, id, 5 + id % 90, 'paid'")

    def truths(self) -> list[tuple[str, bool]]:
        """What must be true in the end, and whether it is: the targets against the sources."""
        report = f"SELECT order_id, customer_id, item, amount, name, city FROM {self.table('order_report')}"
        truth = (
            f"SELECT order_id, customer_id, item, amount, name, city FROM {self.table('orders')} "
            f"JOIN {self.table('customers')} USING (customer_id)"
        )
        ledger = f"SELECT payment_id, change_type, count(*) AS n FROM {self.table('payment_ledger')} GROUP BY ALL"
        return [
            ("every order is in the report once, as it is now", self._same(report, truth)),
            (
                "no payment is in the ledger twice",
                self._is_empty(f"SELECT * FROM ({ledger}) WHERE n > 1"),
            ),
            (
                "no payment is missing from the ledger",
                self._same_keys("payments", "payment_ledger"),
            ),
        ]

    def table(self, name: str) -> str:
        return f"delta.`{self._lake / name}`"

    def _same(self, left: str, right: str) -> bool:
        return self._is_empty(f"({left}) EXCEPT ALL ({right})") and self._is_empty(
            f"({right}) EXCEPT ALL ({left})"
        )

    def _same_keys(self, source: str, target: str) -> bool:
        known = f"SELECT payment_id FROM {self.table(target)}"
        return self._is_empty(
            f"SELECT payment_id FROM {self.table(source)} WHERE payment_id NOT IN ({known})"
        )

    def _is_empty(self, query: str) -> bool:
        return self._spark.sql(query).isEmpty()

    def _insert(self, name: str, first: int, last: int, values: str) -> None:
        self._sql(
            f"INSERT INTO {self.table(name)} SELECT {values} FROM range({first}, {last}, 1, 1)"
        )

    def _sql(self, statement: str) -> None:
        self._spark.sql(statement)
