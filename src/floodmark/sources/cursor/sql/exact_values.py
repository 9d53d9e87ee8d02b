"""Values of PostgreSQL that Spark's JDBC source changes without a word: read exactly, or refused.

Spark rounds a numeric to the scale of its column, cuts a time to milliseconds, moves a time with a
zone to UTC, and shows `infinity` as a day of the year 9999 or 1. The first three, and lists, are read
as text, in columns beside the table's own, and Spark casts the text back, as it does with
`wall_times`. Beside dates and timestamps there is a column without infinite values, on some of which
Spark fails, and one with the text of those. The types of the columns stay those that Spark gives
them. Whatever its type cannot hold exactly stops the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from floodmark.model.names import quoted
from floodmark.model.sql_names import quoted_for
from floodmark.sources.cursor.sql.refusals import or_refused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Kind = Literal["number", "time", "time_with_zone", "moment", "finite"]

_ALIAS = "floodmark_values"
_NUMBER, _NUMBERS, _TIME, _TIMES, _ZONED, _ZONEDS = 1700, 1231, 1083, 1183, 1266, 1270
_DATES_AND_TIMESTAMPS = (1082, 1114, 1184)
_LISTS_OF_THEM = (1182, 1115, 1185)
_KINDS: dict[int, Kind] = {
    **dict.fromkeys((_NUMBER, _NUMBERS), "number"),
    **dict.fromkeys((_TIME, _TIMES), "time"),
    **dict.fromkeys((_ZONED, _ZONEDS), "time_with_zone"),
    **dict.fromkeys(_LISTS_OF_THEM, "moment"),
    **dict.fromkeys(_DATES_AND_TIMESTAMPS, "finite"),
}
"""By the numbers that PostgreSQL gives its own types; domains have the number of what they are of."""
_LISTS = (_NUMBERS, _TIMES, _ZONEDS, *_LISTS_OF_THEM)
_DAY, _NEXT_DAY = "1970-01-01", "1970-01-02"


def inexact_columns(types: Mapping[str, int]) -> dict[str, int]:
    """The columns, by their types in PostgreSQL, whose values Spark may change."""
    return {name: number for name, number in types.items() if number in _KINDS}


def with_exact_texts(query: str, columns: Mapping[str, int]) -> str:
    """The rows of a query, each value that Spark may change as text too.

    Conditions still compare the columns themselves, for which the database may have an index.
    """
    added = []
    for position, (name, number) in enumerate(columns.items()):
        column = quoted_for("postgres", name)
        added.append(f"{_text(column, number)} AS {_text_name(position)}")
        if _KINDS[number] == "finite":
            finite = f"CASE WHEN isfinite({column}) THEN {column} END"
            added.append(f"{finite} AS {_finite_name(position)}")
    return f"SELECT {_ALIAS}.*, {', '.join(added)} FROM (\n{query}\n) AS {_ALIAS}"


def finite_columns(columns: Mapping[str, int]) -> dict[str, str]:
    """What `with_exact_texts` has in the place of columns, by the names of its own."""
    return {
        _finite_name(position): name
        for position, (name, number) in enumerate(columns.items())
        if _KINDS[number] == "finite"
    }


def exact_values(
    frame: DataFrame, types: Mapping[str, DataType], columns: Mapping[str, int]
) -> DataFrame:
    """The columns of `types`, in these types, those of `columns` by their texts.

    A row with a value that its type cannot hold raises when it is computed: see `refusals`.
    """
    from pyspark.sql import functions as fn

    names = list(columns)
    selected = []
    for name, kind in types.items():
        value = fn.col(quoted(name))
        if name in columns:
            position = names.index(name)
            text, finite = fn.col(_text_name(position)), fn.col(_finite_name(position))
            value = _exact(name, finite, text, kind, columns[name]).alias(name)
        selected.append(value)
    return frame.select(*selected)


def _text(column: str, number: int) -> str:
    if number in _LISTS_OF_THEM:
        return f"to_json({column})::text"  # in ISO 8601, whatever DateStyle says
    if number in _LISTS:
        return f"to_json({column}::text[])::text"
    if number in _DATES_AND_TIMESTAMPS:
        return f"CASE WHEN NOT isfinite({column}) THEN {column}::text END"
    return f"{column}::text"


def _exact(name: str, finite: Column, text: Column, kind: DataType, number: int) -> Column:
    from pyspark.sql import functions as fn

    what = _KINDS[number]
    if what == "finite":
        return or_refused(name, kind.simpleString(), text, finite, text.isNotNull())
    if number not in _LISTS:
        read = _read(text, kind, what)
        return or_refused(
            name, kind.simpleString(), text, read, _is_changed(text, read, kind, what)
        )
    texts = fn.from_json(text, _of_texts(kind))
    is_changed = _any_changed(texts, kind, what) | (text.isNotNull() & texts.isNull())
    return or_refused(name, kind.simpleString(), text, _each_read(texts, kind, what), is_changed)


def _of_texts(kind: DataType) -> str:
    element = getattr(kind, "elementType", None)
    return "string" if element is None else f"array<{_of_texts(element)}>"


def _each_read(texts: Column, kind: DataType, what: Kind) -> Column:
    from pyspark.sql import functions as fn

    element = getattr(kind, "elementType", None)
    if element is None:
        return _read(texts, kind, what)
    return fn.transform(texts, lambda each: _each_read(each, element, what))


def _any_changed(texts: Column, kind: DataType, what: Kind) -> Column:
    from pyspark.sql import functions as fn

    element = getattr(kind, "elementType", None)
    if element is None:
        return _is_changed(texts, _read(texts, kind, what), kind, what)
    some = fn.exists(texts, lambda each: _any_changed(each, element, what))
    return texts.isNotNull() & some


def _read(text: Column, kind: DataType, what: Kind) -> Column:
    """The value of a text; NULL for one that the type cannot hold, numbers rounded."""
    from pyspark.sql import functions as fn

    if what in ("number", "moment"):
        return text.try_cast(kind)
    clock = fn.regexp_replace(text, "[+]00$", "") if what == "time_with_zone" else text
    is_midnight = clock == "24:00:00"
    day = fn.when(is_midnight, fn.lit(_NEXT_DAY)).otherwise(fn.lit(_DAY))
    hour = fn.when(is_midnight, fn.lit("00:00:00")).otherwise(clock)
    # With the offset of another zone this is no time without a zone, and so NULL.
    zone = fn.lit("Z" if what == "time_with_zone" and kind.typeName() == "timestamp" else "")
    time = fn.when(~clock.rlike("[+-][0-9:]+$"), fn.concat(day, fn.lit(" "), hour, zone))
    return time.try_cast(kind)


def _is_changed(text: Column, value: Column, kind: DataType, what: Kind) -> Column:
    """Whether a text says something else than its value; false where there is none."""
    is_lost = value.isNull()
    if what == "number":
        scale = getattr(kind, "scale", 0)
        is_lost |= ~text.rlike(f"^-?[0-9]+([.][0-9]{{0,{scale}}}0*)?$")
    return text.isNotNull() & is_lost


def _text_name(position: int) -> str:
    return f"floodmark_value_{position}"


def _finite_name(position: int) -> str:
    return f"floodmark_finite_{position}"
