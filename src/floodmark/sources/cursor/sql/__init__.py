"""SQL of queries by cursor: in each dialect, with its parameters, in parts; and the probe of PostgreSQL."""

from __future__ import annotations

from floodmark.sources.cursor.sql.checks import query_problem, unbound, used_parameters

__all__ = [
    "query_problem",
    "unbound",
    "used_parameters",
]
