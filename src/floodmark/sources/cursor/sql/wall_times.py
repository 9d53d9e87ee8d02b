"""Times without a zone, read as text: Java's own time would move those of an hour that its zone skips.

Spark 4.2 reads them by `getTimestamp`, through the zone of the JVM: on the day that summer time begins,
02:30 becomes 03:30. So where that zone has such days, the database writes them as text, in columns
beside its own, and Spark casts the text back. Conditions still compare the columns themselves, and
Spark asks only for the columns that are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from floodmark.errors import SourceError
from floodmark.model.names import quoted
from floodmark.model.sql_names import SqlDialect, quoted_for
from floodmark.sources.cursor.sql.refusals import or_refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_ALIAS = "floodmark_times"
_TEXT_OF: dict[SqlDialect, str] = {
    # to_char gives infinity as NULL and a year before the first one as one after it.
    "postgres": "CASE WHEN isfinite({0}) AND {0} >= '0001-01-01'"
    " THEN to_char({0}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US') ELSE {0}::text END",
    "sqlserver": "CONVERT(varchar(33), CAST({} AS datetime2(6)), 126)",
    "mysql": "DATE_FORMAT({}, '%Y-%m-%dT%H:%i:%s.%f')",
    "oracle": "TO_CHAR(CAST({} AS TIMESTAMP(6)), 'YYYY-MM-DD\"T\"HH24:MI:SS.FF6')",
    "snowflake": "TO_VARCHAR({}, 'YYYY-MM-DD\"T\"HH24:MI:SS.FF6')",
    "bigquery": "FORMAT_DATETIME('%Y-%m-%dT%H:%M:%E6S', {})",
}


def wall_times(frame: DataFrame) -> list[str]:
    """The columns with times without a zone; raises FM-SOURCE-060 for those within other values."""
    nested = [f.name for f in frame.schema.fields if _is_nested(f.dataType)]
    if nested:
        raise _unreadable(", ".join(nested), "lists or structs with times without a zone")
    return [f.name for f in frame.schema.fields if f.dataType.typeName() == "timestamp_ntz"]


def with_texts(dialect: SqlDialect, query: str, columns: Sequence[str]) -> str:
    """The rows of a query, each time as text too."""
    texts = [
        f"{_TEXT_OF[dialect].format(quoted_for(dialect, column))} AS {quoted_for(dialect, _name(n))}"
        for n, column in enumerate(columns)
    ]
    alias = _ALIAS if dialect == "oracle" else f"AS {_ALIAS}"
    return f"SELECT {_ALIAS}.*, {', '.join(texts)} FROM (\n{query}\n) {alias}"


def cast_back(
    frame: DataFrame,
    names: Sequence[str],
    columns: Sequence[str],
    origins: Mapping[str, str],
) -> DataFrame:
    """The columns `names`, the times among them made from their texts; a text that is no time fails.

    `origins` are the names by which people know columns.
    """
    from pyspark.sql import functions as fn

    selected = []
    for name in names:
        if name not in columns:
            selected.append(fn.col(quoted(name)))
            continue
        text = fn.col(_name(columns.index(name)))
        time = text.try_cast("timestamp_ntz")
        no_time = text.isNotNull() & time.isNull()
        selected.append(
            or_refused(origins.get(name, name), "timestamp_ntz", text, time, no_time).alias(name)
        )
    return frame.select(*selected)


def _name(number: int) -> str:
    return f"floodmark_text_{number}"


def _is_nested(kind: DataType) -> bool:
    simple = kind.simpleString()
    return simple != "timestamp_ntz" and "timestamp_ntz" in simple


def _unreadable(columns: str, found: str) -> SourceError:
    return SourceError(
        "FM-SOURCE-060",
        "times without a zone cannot be read exactly in this session",
        where=columns,
        found=f"{found}, and a JVM in a zone with summer time, which skips an hour a year",
        allowed="a session whose JVMs run in UTC, as those of floodmark do",
        state="nothing was read",
        next="start driver and executors with -Duser.timezone=UTC (spark.driver.extraJavaOptions,"
        " spark.executor.extraJavaOptions); or read the column as text in the query of the node",
    )
