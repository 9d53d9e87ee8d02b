"""Schemas of payloads and tables, as Spark's types in text; read without Spark.

Three forms: Spark's own JSON (or a JSON Schema), an Avro record, and DDL such as
`id BIGINT NOT NULL, tags ARRAY<STRING>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.model.ddl import Column, DdlError, Kind, plain_or_quoted, read_columns
from floodmark.model.names import choices, quoted

PRIMITIVES = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
)
_OTHER_NAMES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "text": "string",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
    "bytes": "binary",
    "dec": "decimal",
    "numeric": "decimal",
}
_SIZED = re.compile(r"(decimal|varchar|char)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,2})\s*)?\))?")


class SchemaProblem(ValueError):
    """What a schema says cannot be used; `path` leads to the part of a JSON document."""

    def __init__(
        self, title: str, allowed: str = "", path: tuple[str | int, ...] = (), position: int = 0
    ) -> None:
        super().__init__(title)
        self.title, self.allowed, self.path, self.position = title, allowed, path, position


@dataclass(frozen=True)
class StreamField:
    """One column."""

    name: str
    type: str
    """Spark's name of the type: bigint, decimal(10,2), array<string>."""
    nullable: bool = True


@dataclass(frozen=True)
class StreamSchema:
    """Columns in their order."""

    fields: tuple[StreamField, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    def field(self, name: str) -> StreamField | None:
        """The column of a name; None where there is none."""
        return next((field for field in self.fields if field.name == name), None)

    @property
    def ddl(self) -> str:
        """The columns as Spark parses them."""
        return ", ".join(
            f"{quoted(f.name)} {f.type.upper() if f.type in PRIMITIVES else f.type}"
            f"{'' if f.nullable else ' NOT NULL'}"
            for f in self.fields
        )


def _schema(fields: Iterable[StreamField]) -> StreamSchema:
    found = tuple(fields)
    if not found:
        raise SchemaProblem("the schema has no columns", "at least one column")
    seen: dict[str, StreamField] = {}
    for field in found:
        if seen.setdefault(field.name.lower(), field) is not field:
            raise SchemaProblem(f"column {field.name} is there twice", "each column once")
    return StreamSchema(found)


def named_type(said: str) -> str:
    """The type of a word such as `BIGINT` or `decimal(10, 2)`; raises SchemaProblem."""
    text = " ".join(said.lower().split())
    head, _, rest = text.partition("(")
    text = _OTHER_NAMES.get(head.strip(), head.strip()) + (f"({rest}" if rest else "")
    if text in PRIMITIVES:
        return text
    sized = _SIZED.fullmatch(text)
    if sized is None or (sized[1] != "decimal" and (sized[2] is None or sized[3] is not None)):
        known = choices([*PRIMITIVES, "decimal(p,s)", "varchar(n)", "char(n)"], said)
        raise SchemaProblem(f'unknown type "{said[:60]}"', known)
    if sized[1] != "decimal":
        return f"{sized[1]}({int(sized[2])})"
    precision, scale = int(sized[2] or 10), int(sized[3] or 0)
    if not 1 <= precision <= 38 or scale > precision:
        raise SchemaProblem(f"{said} is out of range", "decimal(1..38, 0..precision)")
    return f"decimal({precision},{scale})"


def _struct(fields: Iterable[StreamField]) -> str:
    return f"struct<{','.join(f'{plain_or_quoted(f.name)}:{f.type}' for f in fields)}>"


# Spark's JSON, and JSON Schema ------------------------------------------------------------------


def from_json(document: Any) -> StreamSchema:
    """The columns of Spark's JSON of a schema, or of a JSON Schema of an object."""
    if isinstance(document, dict) and isinstance(document.get("properties"), dict):
        return _schema(_properties(document, ()))
    if isinstance(document, dict) and isinstance(document.get("fields"), list):
        return _schema(_spark_fields(document["fields"], ("fields",)))
    rule = "Spark's JSON with fields, or a JSON Schema with properties"
    raise SchemaProblem("the file is no schema", rule)


def _spark_fields(fields: list[Any], path: tuple[str | int, ...]) -> Iterator[StreamField]:
    for position, field in enumerate(fields):
        at = (*path, position)
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not name or "\0" in name:
            raise SchemaProblem("a column has no name", "name, type, nullable", at)
        if "type" not in field:
            raise SchemaProblem(f"column {name} has no type", "name, type, nullable", at)
        nullable = field.get("nullable", True)
        if not isinstance(nullable, bool):
            raise SchemaProblem("nullable is not true or false", "true or false", at)
        yield StreamField(name, _spark_type(field["type"], (*at, "type")), nullable)


def _spark_type(said: Any, path: tuple[str | int, ...]) -> str:
    if isinstance(said, str):
        return _at(said, path)
    kind = said.get("type") if isinstance(said, dict) else None
    if kind == "array":
        return f"array<{_spark_type(said.get('elementType'), (*path, 'elementType'))}>"
    if kind == "map":
        key = _spark_type(said.get("keyType"), (*path, "keyType"))
        return f"map<{key},{_spark_type(said.get('valueType'), (*path, 'valueType'))}>"
    if kind == "struct" and isinstance(said.get("fields"), list):
        inner = _spark_fields(said["fields"], (*path, "fields"))
        return _struct(inner)
    raise SchemaProblem("not a type", "a name, or an array, map or struct", path)


def _at(said: str, path: tuple[str | int, ...]) -> str:
    try:
        return named_type(said)
    except SchemaProblem as problem:
        raise SchemaProblem(problem.title, problem.allowed, path) from None


_JSON_SCHEMA = {
    "string": "string",
    "integer": "bigint",
    "number": "double",
    "boolean": "boolean",
}
_FORMATS = {"date-time": "timestamp", "date": "date"}


def _properties(said: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[StreamField]:
    required = said.get("required", ())
    for name, value in said["properties"].items():
        kind = _schema_type(value, (*path, "properties", name))
        yield StreamField(name, kind, name not in required)


def _schema_type(said: Any, path: tuple[str | int, ...]) -> str:
    kind = said.get("type") if isinstance(said, dict) else None
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "string" and said.get("format") in _FORMATS:
        return _FORMATS[said["format"]]
    if kind in _JSON_SCHEMA:
        return _JSON_SCHEMA[kind]
    if kind == "array" and "items" in said:
        return f"array<{_schema_type(said['items'], (*path, 'items'))}>"
    if kind == "object" and isinstance(said.get("properties"), dict):
        inner = _properties(said, path)
        return _struct(inner)
    known = choices([*_JSON_SCHEMA, "array", "object"], str(kind))
    raise SchemaProblem(f'unknown type "{str(kind)[:60]}"', known, path)


# Avro -------------------------------------------------------------------------------------------

_AVRO = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
}


def from_avro(document: Any) -> StreamSchema:
    """The columns of an Avro record."""
    if not isinstance(document, dict) or document.get("type") != "record":
        raise SchemaProblem("the file is no Avro record", '{"type": "record", "fields": [...]}')
    return _schema(_avro_fields(document, ()))


def _avro_fields(record: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[StreamField]:
    fields = record.get("fields")
    for position, field in enumerate(fields if isinstance(fields, list) else ()):
        at = (*path, "fields", position)
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not name:
            raise SchemaProblem("a column has no name", "name and type", at)
        kind, nullable = _avro_type(field.get("type"), (*at, "type"))
        yield StreamField(name, kind, nullable)


def _avro_type(said: Any, path: tuple[str | int, ...]) -> tuple[str, bool]:
    """The type, and whether it may be null."""
    if isinstance(said, list):
        others = [each for each in said if each != "null"]
        if len(others) != 1:
            raise SchemaProblem("a union of several types", "one type, and null", path)
        return _avro_type(others[0], path)[0], "null" in said
    if isinstance(said, str):
        if said not in _AVRO:
            known = choices([*_AVRO, "record", "enum", "array", "map", "fixed"], said)
            raise SchemaProblem(f'unknown type "{said[:60]}"', known, path)
        return _AVRO[said], False
    if not isinstance(said, dict):
        raise SchemaProblem("not a type", "a type of Avro", path)
    return _avro_complex(said, path), False


def _avro_complex(said: Mapping[str, Any], path: tuple[str | int, ...]) -> str:
    kind, logical = said.get("type"), said.get("logicalType")
    if logical == "decimal":
        return _at(f"decimal({said.get('precision', 10)},{said.get('scale', 0)})", path)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        inner = _avro_fields(said, path)
        return _struct(inner)
    return _avro_holder(kind, said, path)


def _avro_holder(kind: Any, said: Mapping[str, Any], path: tuple[str | int, ...]) -> str:
    if kind == "array":
        return f"array<{_avro_type(said.get('items'), (*path, 'items'))[0]}>"
    if kind == "map":
        return f"map<string,{_avro_type(said.get('values'), (*path, 'values'))[0]}>"
    if kind in ("enum", "fixed"):
        return "string" if kind == "enum" else "binary"
    return _avro_type(kind, (*path, "type"))[0]


# DDL --------------------------------------------------------------------------------------------

_DDL_RULE = "name TYPE [NOT NULL] [COMMENT 'text'], separated by commas"


def from_ddl(text: str) -> StreamSchema:
    """The columns of `name TYPE [NOT NULL] [COMMENT '...'], ...`."""
    try:
        columns = read_columns(text)
    except DdlError as error:
        raise SchemaProblem(str(error), _DDL_RULE, position=error.position) from None
    return _schema(_ddl_fields(columns))


def _ddl_fields(columns: Iterable[Column]) -> Iterator[StreamField]:
    for column in columns:
        yield StreamField(column.name, _ddl_type(column.kind), column.nullable)


def _ddl_type(kind: Kind) -> str:
    if kind.columns:
        return _struct(_ddl_fields(kind.columns))
    if kind.parts:
        return f"{kind.word.lower()}<{','.join(map(_ddl_type, kind.parts))}>"
    try:
        return named_type(kind.word)
    except SchemaProblem as problem:
        raise SchemaProblem(problem.title, problem.allowed, position=kind.position) from None
