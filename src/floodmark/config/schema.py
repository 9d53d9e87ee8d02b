"""The JSON schema of project files, for editors that check and complete while one types."""

from __future__ import annotations

from typing import Any, Literal

from floodmark.config.connections import SPELLINGS
from floodmark.config.models import ProjectSettings

Kind = Literal["project", "pipeline", "overlay"]
KINDS: tuple[Kind, ...] = ("project", "pipeline", "overlay")
DEFAULT_FILE = "floodmark.schema.json"


def header(schema_file: str) -> str:
    """The first line of a YAML file that tells editors where its schema is."""
    return f"# yaml-language-server: $schema={schema_file}"


def json_schema(kind: Kind = "project") -> dict[str, Any]:
    """The schema of floodmark.yaml, of a file of pipelines/, or of an overlay."""
    schema = ProjectSettings.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")
    _accept_older_spellings(definitions)
    root = schema
    if kind == "pipeline":
        several = {**schema["properties"]["pipelines"]}
        one = {"$ref": "#/$defs/PipelineSettings"}
        wrapped = {
            "type": "object",
            "properties": {"pipelines": several},
            "required": ["pipelines"],
            "additionalProperties": False,
        }
        root = {"anyOf": [one, wrapped]}
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
