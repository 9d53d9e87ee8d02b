"""The table of rows that did not pass the checks of a node, beside its target."""

from __future__ import annotations

from floodmark.model.names import connection_of
from floodmark.model.sql_names import name_parts, qualified

QUARANTINE = "quarantine"


def quarantine_name(target: str) -> str:
    """The table with the rows that are not in a target.

    >>> quarantine_name("/lake/orders"), quarantine_name("erp:sales.orders")
    ('/lake/orders_quarantine', 'erp:"sales"."orders_quarantine"')
    """
    connection = connection_of(target)
    if connection is None:
        return f"{target}_{QUARANTINE}"
    *schema, table = name_parts("postgres", target.removeprefix(f"{connection}:"))
    return f"{connection}:{qualified('postgres', (*schema, f'{table}_{QUARANTINE}'))}"
