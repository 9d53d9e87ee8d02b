"""The fingerprint of a schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from floodmark.model import NO_COLUMNS

_MAPPING_KEYS = ("delta.columnMapping.id", "delta.columnMapping.physicalName")


def schema_of(metadata: Mapping[str, Any]) -> str:
    """The schema of a metaData action, which may have none; Delta takes it for one without columns."""
    return metadata.get("schemaString") or NO_COLUMNS


@lru_cache(maxsize=4096)
def fingerprint(schema_json: str) -> str:
    """A stable hash of a schema: 32 hexadecimal digits.

    Sensitive to what decides how rows are read: names with their case, types, nullability, the
    order of columns, and the column-mapping id and physical name, also inside structs, arrays and
    maps. Not sensitive to comments, defaults and other metadata, nor to JSON spacing. Raises
    ValueError where the text is not a schema.
    """
    shape = _shape(json.loads(schema_json))
    canonical = json.dumps(shape, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _shape(data_type: Any) -> Any:
    if isinstance(data_type, str):
        return data_type
    match data_type:
        case {"type": "struct", "fields": list(fields)}:
            return ["struct", [_field(f) for f in fields]]
        case {"type": "array", "elementType": element, "containsNull": nullable}:
            return ["array", _shape(element), nullable]
        case {
            "type": "map",
            "keyType": key,
            "valueType": value,
            "valueContainsNull": nullable,
        }:
            return ["map", _shape(key), _shape(value), nullable]
    raise ValueError(f"not a Delta type: {str(data_type)[:200]}")


def _field(field: Any) -> list[Any]:
    match field:
        case {"name": str(name), "type": data_type, "nullable": nullable}:
            metadata = field.get("metadata") or {}
            mapping = [metadata.get(key) for key in _MAPPING_KEYS]
            return [name, _shape(data_type), nullable, *mapping]
    raise ValueError(f"not a Delta field: {str(field)[:200]}")
