"""Parquet and ORC: what the end of a file says about its columns, compared with those of the node.

Spark takes the lower bits of a number of Parquet that is declared too small, 70000 as SHORT is 4464,
and the whole number of a date for days. Of ORC it converts every value to whatever is declared: what
does not fit is NULL, digits are cut. Both read a column that is not there as NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from floodmark.deltalog import Storage
from floodmark.model.ddl import Column, Kind

_END_BYTES = 4
_PARQUET = (b"PAR1", b"PARE")
_Fits = Callable[[str, Kind, Any], bool]


def columns_in(path: str, form: str, storage: Storage) -> pa.Schema | str | None:
    """The columns of a file; why it has no end, as text; None for what only Spark can say.

    Raises OSError for a file that cannot be reached.
    """
    with storage.open(path) as file:
        file.seek(max(0, file.size() - _END_BYTES))
        end = file.read(_END_BYTES)
        file.seek(0)
        try:
            return _schema(file, form)
        except (pa.ArrowException, OSError, ImportError):
            # pyarrow says of a broken ORC file what it says of one out of reach.
            is_end = end.endswith(_PARQUET) if form == "parquet" else end[:-1] == b"ORC"
            if is_end and file.size() > 2 * _END_BYTES:
                return None
            return f"it does not end as {form} does: cut off, or another format"


def _schema(file: Any, form: str) -> pa.Schema:
    if form == "parquet":
        from pyarrow import parquet

        # The older times of 96 bits count nanoseconds too, but Spark reads them.
        return parquet.ParquetFile(file, coerce_int96_timestamp_unit="us").schema_arrow
    from pyarrow import orc

    return orc.ORCFile(file).schema


def misfit(schema: pa.Schema, form: str, columns: Sequence[Column] | None) -> str | None:
    """The first column whose values Spark would change or leave out, and why; without `columns` the
    first one that it cannot read.
    """
    if (name := _twice(schema)) is not None:
        return (
            f"two columns differ from {name} by the case of letters alone, or are called the same"
        )
    if form == "parquet" and (name := _of_nanoseconds(schema, columns)) is not None:
        return (
            f"column {name} counts nanoseconds, which Spark does not read: write microseconds"
            " (pandas: to_parquet with coerce_timestamps='us', allow_truncated_timestamps=True)"
        )
    if columns is None:
        return None
    fits = _fits_parquet if form == "parquet" else _fits_orc
    return _misfit("", {f.name: f.type for f in schema}, columns, fits)


def _twice(schema: pa.Schema) -> str | None:
    """The first name that another column has too: Spark ignores case, and knows neither then."""
    seen: set[str] = set()
    for name in schema.names:
        if name.casefold() in seen:
            return str(name)
        seen.add(name.casefold())
    return None


def conflict(schemas: Mapping[str, pa.Schema]) -> tuple[str, str] | None:
    """The first file, and why, whose columns have other types than in the files before it.

    Which type a column gets would depend on the files of a batch: only a schema of the node tells.
    """
    first: dict[str, tuple[str, pa.DataType]] = {}
    for path, schema in schemas.items():
        for column in schema:
            other, kind = first.setdefault(column.name.casefold(), (path, column.type))
            if (name := _differs(column.name, kind, column.type)) is not None:
                here, there = _type_of(name, column.type), _type_of(name, kind)
                return path, f"column {name} is {here}, but {there} in {other}"
    return None


def _differs(name: str, one: pa.DataType, other: pa.DataType) -> str | None:
    """The column, or the field within it, whose types Spark does not take for one; as a path."""
    one, other = _plain(one), _plain(other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {each.name.casefold(): each.type for each in one}
        both = [each for each in other if each.name.casefold() in fields]
        inner = (_differs(f"{name}.{b.name}", fields[b.name.casefold()], b.type) for b in both)
        return next((each for each in inner if each is not None), None)
    if _is_list(one) and _is_list(other):
        return _differs(name, one.value_type, other.value_type)
    return None if _family(one) == _family(other) else name


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _family(kind: pa.DataType) -> object:
    """What types have in common that Spark takes for one; where that is not certain, the wider."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return ("decimal", kind.scale)
    if pa.types.is_map(kind):
        return "map"
    return "bytes" if _is_bytes(kind) else kind


def _type_of(name: str, kind: pa.DataType) -> str:
    """The type of a field by its path, as far as it goes through structs."""
    for part in name.split(".")[1:]:
        kind = _plain(kind)
        if not pa.types.is_struct(kind):
            break
        found = [each.type for each in kind if each.name.casefold() == part.casefold()]
        kind = found[0] if found else kind
    return str(kind)


def _of_nanoseconds(schema: pa.Schema, columns: Sequence[Column] | None) -> str | None:
    """The first column of such times that is not declared as a number."""
    numbers = {each.name.casefold() for each in columns or () if each.kind.name in _BITS}
    wanted = None if columns is None else {each.name.casefold() for each in columns}
    for each in schema:
        name = each.name.casefold()
        is_read = name not in numbers and (wanted is None or name in wanted)
        if is_read and pa.types.is_timestamp(each.type) and each.type.unit == "ns":
            return str(each.name)
    return None


def _misfit(
    within: str, found: Mapping[str, pa.DataType], columns: Sequence[Column], fits: _Fits
) -> str | None:
    written = {name.casefold(): kind for name, kind in found.items()}
    for column in columns:
        arrow = written.get(column.name.casefold())
        why = None if arrow is None else _why(f"{within}{column.name}", arrow, column.kind, fits)
        if why is not None:
            return why
    return None


def _why(name: str, arrow: pa.DataType, kind: Kind, fits: _Fits) -> str | None:
    word = kind.name
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if word == "struct" and pa.types.is_struct(arrow):
        return _misfit(f"{name}.", {f.name: f.type for f in arrow}, kind.columns, fits)
    if word == "map" and pa.types.is_map(arrow):
        inner = zip((arrow.key_type, arrow.item_type), kind.parts, strict=True)
        return next((w for a, k in inner if (w := _why(name, a, k, fits))), None)
    if word == "array" and _is_list(arrow):
        return _why(name, arrow.value_type, kind.parts[0], fits)
    if pa.types.is_nested(arrow) or word in ("struct", "map", "array"):
        return None  # Spark refuses it
    return None if fits(word, kind, arrow) else f"column {name} is {arrow}, which is no {kind}"


def _fits_parquet(word: str, _: Kind, arrow: pa.DataType) -> bool:
    """Spark refuses by itself what it cannot read, but for these."""
    if not pa.types.is_integer(arrow):
        return True
    if word == "tinyint":
        return bool(arrow == pa.int8())
    if word == "smallint":
        return bool(arrow in (pa.int8(), pa.int16(), pa.uint8()))
    return word != "date"


def _fits_orc(word: str, kind: Kind, arrow: pa.DataType) -> bool:
    """Whether a type holds every value of another one as it is."""
    if word in _BITS:
        return bool(pa.types.is_signed_integer(arrow) and arrow.bit_width <= _BITS[word])
    if kind.digits is not None:
        return _fits_decimal(kind.digits, arrow)
    return word not in _OF_ORC or bool(_OF_ORC[word](arrow))


_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


def _fits_decimal(bounds: tuple[int, int], arrow: pa.DataType) -> bool:
    precision, scale = bounds
    if pa.types.is_signed_integer(arrow):
        return bool(_DIGITS[arrow.bit_width] <= precision - scale)
    if not pa.types.is_decimal(arrow):
        return False
    whole = arrow.precision - arrow.scale
    return bool(arrow.scale <= scale and whole <= precision - scale)


def _is_list(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(arrow) for is_one in kinds)


def _is_float(most_bits: int, most_bits_of_numbers: int) -> Callable[[pa.DataType], bool]:
    def fits(arrow: pa.DataType) -> bool:
        if pa.types.is_signed_integer(arrow):
            return bool(arrow.bit_width <= most_bits_of_numbers)
        return bool(pa.types.is_floating(arrow) and arrow.bit_width <= most_bits)

    return fits


def _is_bytes(arrow: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string)
    return any(is_one(arrow) for is_one in (*texts, pa.types.is_binary, pa.types.is_large_binary))


_OF_ORC: Mapping[str, Callable[[pa.DataType], bool]] = {
    "float": _is_float(32, 16),
    "double": _is_float(64, 32),
    "boolean": pa.types.is_boolean,
    "binary": _is_bytes,
    "date": pa.types.is_date,
    "timestamp": lambda arrow: pa.types.is_timestamp(arrow) or pa.types.is_date(arrow),
}
"""Of other types Spark is the judge; every value can be a text."""
