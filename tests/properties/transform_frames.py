"""Small frames for tests of transforms, without files and mostly without jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from floodmark.transforms import Table, apply_steps, parse_steps, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[Any, ...]]


def quick(spark: SparkSession) -> SparkSession:
    """A child session in which tiny queries are quick: one partition, nothing compiled."""
    child = spark.newSession()
    child.conf.set("spark.sql.shuffle.partitions", "1")
    child.conf.set("spark.sql.codegen.wholeStage", "false")
    child.conf.set("spark.sql.adaptive.enabled", "false")
    return child


def frame_of(session: SparkSession, table: Table) -> DataFrame:
    """The table as a frame of literals, which Spark evaluates where it plans."""
    names = [sql.text_of(sql.identifier(name)) for name in table.columns]
    kinds = list(table.columns.values())
    rows = table.rows or [(None,) * len(kinds)]
    values = ", ".join(f"({', '.join(map(_cell, row, kinds))})" for row in rows)
    where = "" if table.rows else " WHERE false"
    return session.sql(f"SELECT * FROM VALUES {values} AS v({', '.join(names)}){where}")


def _cell(value: Any, kind: str) -> str:
    return f"CAST({_value(value)} AS {kind})"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"ARRAY({', '.join(map(_value, value))})"
    if isinstance(value, tuple):
        parts = (f"'f{number}', {_value(part)}" for number, part in enumerate(value))
        return f"NAMED_STRUCT({', '.join(parts)})"
    return sql.text_of(sql.literal(value))


def applied(
    session: SparkSession,
    steps: Iterable[Any],
    given: Table,
    others: Mapping[str, Table] | None = None,
) -> DataFrame:
    """The result of steps over a table, not yet run."""
    frames = {name: frame_of(session, table) for name, table in (others or {}).items()}
    return apply_steps(parse_steps(list(steps)), frame_of(session, given), others=frames).frame


def rows_of(frame: DataFrame) -> Rows:
    """The rows, times with a zone as what a clock in UTC shows."""
    return [tuple(map(plain, row)) for row in frame.collect()]


def plain(value: Any) -> Any:
    """A collected value as plain tuples, lists and times."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return [plain(each) for each in value] if isinstance(value, list) else value


def in_utc(value: datetime | None) -> datetime | None:
    """A collected timestamp, which pyspark gives in the zone of this machine."""
    return value.astimezone(UTC).replace(tzinfo=None) if value else None


def unordered(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Rows to compare when their order means nothing; NaN equals itself."""
    return sorted(map(repr, rows))
