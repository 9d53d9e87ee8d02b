"""What became of the columns between two schemas, as far as reading old files is concerned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from floodmark.model.delta import NO_COLUMNS

_WIDER = (["byte", "short", "integer", "long"], ["float", "double"])
_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def has_columns(schema: str) -> bool:
    """False for a schema that says that there are none; one that cannot be read may have some."""
    return schema != NO_COLUMNS and _parsed(schema).get("fields") != []


def retyped_columns(old: str | None, new: str | None) -> list[str]:
    """Columns of both schemas, also inside structs, arrays and maps, whose type differs.

    Empty where a schema is not known.
    """
    return list(_retyped(_parsed(old), _parsed(new), "")) if old and new else []


def narrowed_columns(old: str, new: str) -> list[str]:
    """The retyped columns whose new values an old column may not hold."""
    types = _fields(_parsed(old)), _fields(_parsed(new))
    return [
        column
        for column in retyped_columns(old, new)
        if not _holds(*(each.get(column) for each in types))
    ]


def _holds(old: Any, new: Any) -> bool:
    return any(new in kinds and old in kinds[kinds.index(new) :] for kinds in _WIDER)


def shown_type(schema: str, column: str) -> str:
    """The type of a column as SQL calls it; of one inside of others, and of those, the kind alone."""
    kind = _fields(_parsed(schema)).get(column.lower(), "another type")
    name = str(kind["type"] if isinstance(kind, dict) else kind)
    return _SQL_NAMES.get(name, name).upper()


def dropped_columns(old: str | None, new: str | None) -> list[str]:
    """Columns of the old schema that the new one does not have; empty where one is not known."""
    if not old or not new:
        return []
    kept = _fields(_parsed(new))
    return [name for name in _fields(_parsed(old)) if name not in kept]


def tightened_columns(old: str | None, new: str | None) -> list[str]:
    """Columns of both schemas, also inside others, that may be NULL in the old one only."""
    return list(_tightened(_parsed(old), _parsed(new), "")) if old and new else []


def overtaken_columns(old: str | None, new: str | None) -> list[str]:
    """Columns for which Spark refuses to read the old rows with the new schema."""
    found = [*retyped_columns(old, new), *dropped_columns(old, new), *tightened_columns(old, new)]
    return list(dict.fromkeys(found))


def _parsed(schema_json: str) -> Any:
    try:
        return json.loads(schema_json)
    except ValueError:
        return {}


def _retyped(old: Any, new: Any, name: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict) and old.get("type") == new.get("type"):
        for inner in ("elementType", "keyType", "valueType"):
            yield from _retyped(old.get(inner), new.get(inner), name)
        fields, others = _fields(old), _fields(new)
        for field, data_type in fields.items():
            if field in others:
                inside = f"{name}.{field}" if name else field
                yield from _retyped(data_type, others[field], inside)
    elif old != new:
        yield name


def _fields(schema: Any) -> dict[str, Any]:
    found = schema.get("fields") if isinstance(schema, dict) else None
    return {str(field["name"]).lower(): field["type"] for field in found or ()}


def _tightened(old: Any, new: Any, name: str) -> Iterator[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    if any(old.get(flag) and not new.get(flag) for flag in ("containsNull", "valueContainsNull")):
        yield name
    for inner in ("elementType", "keyType", "valueType"):
        yield from _tightened(old.get(inner), new.get(inner), name)
    others = {str(field["name"]).lower(): field for field in new.get("fields") or ()}
    for field in old.get("fields") or ():
        other = others.get(str(field["name"]).lower())
        if other is None:
            continue
        inside = f"{name}.{field['name']}" if name else str(field["name"])
        if field.get("nullable", True) and not other.get("nullable", True):
            yield inside
        yield from _tightened(field["type"], other["type"], inside)
