"""Values that a column of Spark cannot hold: a row that has one stops the read, and is told by column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.errors import SourceError
from floodmark.next_steps import BATCH, Blank, then_retry

if TYPE_CHECKING:
    from pyspark.sql import Column

_MARK = "floodmark: a value that Spark cannot hold: "
_MAX_TEXT = 200


def or_refused(name: str, kind: str, text: Column, value: Column, is_refused: Column) -> Column:
    """A value, or an error of the whole read where it is refused; see `told_values`."""
    from pyspark.sql import functions as fn

    place = fn.lit(f"{_MARK}{kind}\0{name}\0")
    stop = fn.raise_error(fn.concat(place, fn.substring(text, 1, _MAX_TEXT)))
    return fn.when(is_refused, stop).otherwise(value)


@contextmanager
def told_values(upstream: str, batch_id: str | Blank = BATCH) -> Iterator[None]:
    """Tell a read that `or_refused` has stopped as FM-SOURCE-066; other errors pass."""
    from floodmark.engines.faults import engine_errors, raised_texts

    try:
        yield
    except engine_errors() as error:
        for raised in raised_texts(error):
            if raised.startswith(_MARK):
                kind, name, text = raised.removeprefix(_MARK).split("\0", 2)
                raise _refused(upstream, batch_id, kind, name, text) from error
        raise


def _refused(upstream: str, batch_id: str | Blank, kind: str, name: str, text: str) -> SourceError:
    return SourceError(
        "FM-SOURCE-066",
        "a value of a database cannot be read exactly",
        where=f"{upstream}, column {name}",
        found=text,
        allowed=f"values that the column's type in Spark, {kind}, holds without rounding",
        state="nothing was written; the committed watermark stays",
        next="correct the value, or read the table by a query that casts the column (to text, or"
        " to numeric(p,s) with enough digits), " + then_retry(batch_id),
    )
