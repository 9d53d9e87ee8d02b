"""What became of the columns between two schemas."""

from __future__ import annotations

import json
from typing import Any

from floodmark.model.schemas import dropped_columns, retyped_columns


def struct(**columns: Any) -> dict[str, Any]:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return {"type": "struct", "fields": fields}


def schema(**columns: Any) -> str:
    return json.dumps(struct(**columns))


def test_columns_of_another_type_are_named() -> None:
    old = schema(a="integer", b="string", c="long")
    assert retyped_columns(old, schema(a="long", b="string", C="string")) == ["a", "c"]


def test_columns_that_came_or_went_have_no_other_type() -> None:
    old, new = schema(a="integer", b="string"), schema(a="integer", c="string")
    assert retyped_columns(old, new) == []
    assert dropped_columns(old, new) == ["b"]


def test_types_inside_structs_arrays_and_maps_are_compared() -> None:
    def nested(inner: str) -> str:
        listed = {"type": "array", "elementType": struct(x=inner), "containsNull": True}
        mapped = {
            "type": "map",
            "keyType": "string",
            "valueType": inner,
            "valueContainsNull": True,
        }
        return schema(s=struct(y=inner), l=listed, m=mapped, same="date")

    assert retyped_columns(nested("integer"), nested("long")) == ["s.y", "l.x", "m"]
    assert retyped_columns(nested("integer"), nested("integer")) == []


def test_a_struct_that_became_a_plain_column_has_another_type() -> None:
    assert retyped_columns(schema(a=struct(b="integer")), schema(a="string")) == ["a"]


def test_a_schema_that_is_not_known_tells_nothing() -> None:
    assert retyped_columns(None, schema(a="long")) == []
    assert dropped_columns(schema(a="long"), None) == []
