"""Tables of PostgreSQL as an independent reader sees them."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import dict_row

from floodmark.model.sql_names import qualified


class PgPlace:
    def __init__(self, dsn: str, schema: str, name: str) -> None:
        self._dsn = dsn
        self._address = qualified("postgres", (schema,)) + "." + name
        self.table = qualified("postgres", (schema, name))
        self.receipts = qualified("postgres", (schema, "floodmark_receipts"))

    def __str__(self) -> str:
        return f"shop:{self._address}"

    def query(self, text: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._dsn, row_factory=dict_row, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def exists(self) -> bool:
        found = self.query(f"SELECT to_regclass('{self.table}') IS NOT NULL AS it")
        return bool(found[0]["it"])

    def rows(self) -> list[dict[str, Any]]:
        return self.query(f"SELECT * FROM {self.table}")

    def history(self) -> list[dict[str, int]]:
        rows = self.query(
            f"SELECT app_id, seq FROM {self.receipts} WHERE table_oid ="
            f" '{self.table}'::regclass::oid ORDER BY version"
        )
        return [{row["app_id"]: row["seq"]} for row in rows]

    def lose(self) -> None:
        """The table is made anew from an old copy of it."""
        self.query(
            f"CREATE TEMP TABLE kept AS SELECT * FROM {self.table} LIMIT 1; DROP TABLE {self.table};"
            f" CREATE TABLE {self.table} AS SELECT * FROM kept"
        )

    def empty(self) -> None:
        self.query(f"TRUNCATE {self.table}")


class PgLake:
    def __init__(self, dsn: str, schema: str) -> None:
        self._dsn = dsn
        self._schema = schema

    def __truediv__(self, name: str) -> PgPlace:
        return PgPlace(self._dsn, self._schema, name)
