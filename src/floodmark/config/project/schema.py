"""The JSON schema of project files, for editors that check and complete while one types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from floodmark.config.project.connections import SPELLINGS
from floodmark.config.project.settings import ProjectSettings

Kind = Literal["project", "pipeline", "stream", "overlay"]
KINDS: tuple[Kind, ...] = ("project", "pipeline", "stream", "overlay")
_FILES = {"pipeline": ("pipelines", "PipelineSettings"), "stream": ("streams", "StreamPipeline")}
"""Files of one thing, or of a list of it under a key."""
DEFAULT_FILE = "floodmark.schema.json"


def header(schema_file: str) -> str:
    """The first line of a YAML file that tells editors where its schema is."""
    return f"# yaml-language-server: $schema={schema_file}"


def json_schema(kind: Kind = "project") -> dict[str, Any]:
    """The schema of floodmark.yaml, of a file of pipelines/ or streams/, or of an overlay."""
    schema = ProjectSettings.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")
    _accept_older_spellings(definitions)
    root = schema
    if kind in _FILES:
        key, model = _FILES[kind]
        wrapped = {
            "type": "object",
            "properties": {key: {**schema["properties"][key]}},
            "required": [key],
            "additionalProperties": False,
        }
        root = {"anyOf": [{"$ref": f"#/$defs/{model}"}, wrapped]}
    else:
        # pipelines/ may hold them all.
        root["required"] = [key for key in root["required"] if key != "pipelines"]
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **root,
        "title": f"floodmark {kind}",
        "$defs": definitions,
    }
    found: dict[str, Any] = _walked(document, is_partial=kind == "overlay")
    return found


def _accept_older_spellings(definitions: dict[str, Any]) -> None:
    node = definitions["NodeSettings"]
    nodes = definitions["PipelineSettings"]["properties"]["nodes"]
    unnamed = {**node, "required": [key for key in node["required"] if key != "name"]}
    node["properties"] |= {
        "transformer": {"type": "string", "deprecated": True},
        "params": {"type": "object", "deprecated": True},
    }
    definitions["NodeByName"] = unnamed
    by_name = {"type": "object", "additionalProperties": {"$ref": "#/$defs/NodeByName"}}
    listed = {key: nodes.pop(key) for key in ("type", "items", "minItems")}
    nodes["anyOf"] = [listed, by_name]
    for name, family in (("PostgresConnection", ("postgres",)), ("JdbcConnection", ("sqlserver",))):
        kind = definitions[name]["properties"]["type"]
        words = kind.pop("enum", None) or [kind.pop("const")]
        older = [old for old, new in SPELLINGS.items() if new in family]
        kind["enum"] = [*words, *older]


def _walked(value: Any, *, is_partial: bool) -> Any:
    """The schema with unions that any part may satisfy; partial: with nothing required."""
    if isinstance(value, list):
        return [_walked(each, is_partial=is_partial) for each in value]
    if not isinstance(value, dict):
        return value
    dropped = ("required", "minItems", "minProperties") if is_partial else ()
    renamed = {"oneOf": "anyOf"}
    return {
        renamed.get(key, key): _walked(each, is_partial=is_partial)
        for key, each in value.items()
        if key not in dropped or isinstance(each, dict)
    }


class Key(NamedTuple):
    """One key of a mapping, in words."""

    name: str
    value: str
    default: str
    meaning: str


def sections() -> Iterator[tuple[str, str, list[Key]]]:
    """Every mapping of the files with its title, what it is, and its keys; the project first."""
    schema = json_schema()
    definitions = {"floodmark.yaml": schema, **schema["$defs"]}
    for name, definition in definitions.items():
        mapping = _mapping_of(definition)
        if mapping is not None and name not in _NOT_SHOWN:
            text = definition.get("description") or mapping.get("description", "")
            yield _title(name), text, list(_keys(mapping))


_NOT_SHOWN = ("Step", "NodeByName")


def _mapping_of(definition: dict[str, Any]) -> dict[str, Any] | None:
    either: list[dict[str, Any]] = [definition, *definition.get("anyOf", ())]
    return next((each for each in either if "properties" in each), None)


def _keys(mapping: dict[str, Any]) -> Iterator[Key]:
    required = mapping.get("required", ())
    for name, value in mapping["properties"].items():
        if not value.get("deprecated"):
            default = "required" if name in required else _default(value.get("default"))
            yield Key(name, _kind(value), default, value.get("description", ""))


def _default(value: Any) -> str:
    return "" if value in (None, [], {}) else f"`{json.dumps(value)}`"


def _kind(value: dict[str, Any]) -> str:
    """What may stand there: a kind, the words of a choice, or a link to another mapping."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        title = _title("Node" if name == "NodeByName" else name)
        return "a step" if title == "Step" else f"[{title}](#{title.lower().replace(' ', '-')})"
    if "enum" in value or "const" in value:
        return ", ".join(f"`{word}`" for word in value.get("enum") or [value["const"]])
    if "anyOf" in value:
        kinds = [_kind(each) for each in value["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    kind = value.get("type", "anything")
    if kind == "array":
        return f"list: {_kind(value.get('items', {}))}"
    inner = value.get("additionalProperties")
    if kind == "object" and isinstance(inner, dict) and ("$ref" in inner or "anyOf" in inner):
        return f"mapping: {_kind(inner)}"
    return " or ".join(_WORDS[each] for each in (kind if isinstance(kind, list) else [kind]))


_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "object": "mapping",
    "anything": "anything",
}


def _title(name: str) -> str:
    """PostgresConnection as `Postgres connection`; the word Settings is left out."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Settings")).split()
    return " ".join([words[0], *(word.lower() for word in words[1:])])
