"""The two pipelines of the demo shop: ordinary PySpark on exact inputs."""

import os

from pyspark.sql import functions as fn


def order_report(inputs, run):
    """Orders with their customers: a join of changes with the full other side.

    An order is touched if it changed itself or if its customer did. Touched orders are computed
    again from both whole tables at the batch's frozen versions; those no longer there go.
    """
    orders = run.table("lake/orders", at="end")
    customers = run.table("lake/customers", at="end")
    changed_orders = inputs["lake/orders"].select("order_id")
    changed_customers = inputs["lake/customers"].select("customer_id")
    of_changed_customers = orders.join(changed_customers, "customer_id", "left_semi")
    touched = changed_orders.union(of_changed_customers.select("order_id")).distinct()

    report = touched.join(orders, "order_id", "left").join(customers, "customer_id", "left")
    is_gone = fn.col("customer_id").isNull()
    changes = report.withColumn("_change_type", fn.when(is_gone, "delete").otherwise("insert"))
    # Each touched order has one row that says what became of it: the changes are handled here.
    run.write(changes, "lake/order_report", mode="merge", keys=["order_id"], changes="handled")


def payment_ledger(inputs, run):
    """Every change of a payment as a row of its own: an append-only ledger."""
    if os.environ.get("SHOP_BANK_IS_DOWN"):
        raise ConnectionError("the bank does not answer")
    run.write(inputs["lake/payments"], "lake/payment_ledger", mode="append", changes="log")
