"""The functions of floodmark.yaml: each gets the change of its upstreams, and writes."""

import floodmark as fm


def revenue(inputs, run):
    """Changed orders with their customer; a changed customer's orders follow with the next change."""
    customers = run.table("lake/customers")  # the whole table, at the version the batch has frozen
    orders = inputs["lake/orders"].join(customers, "customer_id", "left")
    run.write(orders, "lake/revenue", mode="merge", keys=["order_id"], missing="delete")


def archive(inputs, run):
    """Every order as it was inserted or updated; what was deleted stays."""
    run.write(fm.upserts(inputs["lake/orders"]), "lake/archive", mode="append", changes="handled")
