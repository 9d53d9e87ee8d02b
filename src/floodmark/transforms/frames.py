"""Spark frames: the one place where the SQL of steps meets a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from floodmark.transforms import faults, sql
from floodmark.transforms.relation import INPUT, Column, Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField


def relation_of(frame: DataFrame, name: str = INPUT, **more: Any) -> Relation:
    """What is known of a frame without running it; raises FM-TRANSFORM-005 for doubled names."""
    session = frame.sparkSession
    is_case_sensitive = session.conf.get("spark.sql.caseSensitive", "false") == "true"
    columns = tuple(_column(field, name) for field in frame.schema.fields)
    return Relation(columns, name, is_case_sensitive=is_case_sensitive, **more)


class Relations(Mapping[str, Relation]):
    """What is known of frames by name; a frame is looked at only when it is asked for."""

    def __init__(self, frames: Mapping[str, DataFrame]) -> None:
        self._frames = frames

    def __getitem__(self, name: str) -> Relation:
        return relation_of(self._frames[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)


def _column(field: StructField, frame: str) -> Column:
    return Column(field.name, field.dataType.simpleString(), _fields(field.dataType, frame), frame)


def _fields(kind: DataType, frame: str) -> tuple[Column, ...]:
    """The fields of a struct, and of the structs in a list."""
    inner = getattr(kind, "elementType", kind)
    return tuple(_column(field, frame) for field in getattr(inner, "fields", ()))


def query(session: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query in which names stand for frames; nothing runs before they are asked for.

    The query reaches Spark as it is written, inside the names that it may use: no view is left
    in the session, and no table of the catalog is hidden from other queries. A statement that is
    no query is refused by Spark's parser.
    """
    used = {name: frame for name, frame in frames.items() if name.lower() in sql.words_of(text)}
    slots: dict[str, Any] = {f"frame_{number}": frame for number, frame in enumerate(used.values())}
    names = [
        f"{sql.text_of(sql.identifier(name))} AS (SELECT * FROM {{{slot}}})"
        for name, slot in zip(used, slots, strict=True)
    ]
    # Braces of the user's own are no slots.
    body = text.replace("{", "{{").replace("}", "}}")
    if names:
        return session.sql(f"WITH {', '.join(names)}\n(\n{body}\n)", **slots)
    return session.sql(f"(\n{text}\n)")


def refused_by_spark(error: Exception, text: str) -> Exception:
    """Spark's refusal of a query as an error of the step; other errors as they are."""
    from pyspark.errors import AnalysisException, ParseException

    if not isinstance(error, AnalysisException | ParseException):
        return error
    condition = error.getCondition() or "no condition"
    found = str(error).splitlines()[0][:1000]
    details = {"spark": condition, "sql": text[:1000]}
    return faults.fault(
        "FM-TRANSFORM-008", "Spark refuses the SQL of this step", found=found, details=details
    )
