"""Spellings of the keys of streams: camelCase, snake_case and older names, turned into one."""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from floodmark.config.checks.faults import by_key
from floodmark.config.stream.fields import folded
from floodmark.config.stream.settings import StreamPipeline
from floodmark.config.text.places import Place, Report
from floodmark.config.text.tree import Entry

_OTHER_KEYS: dict[str, dict[str, str]] = {
    "StreamPipeline": {
        "id": "pipelineId",
        "streamingconfig": "streamingConfigJson",
        "streaming": "streamingConfigJson",
        "errorhandling": "errorHandlingConfig",
    },
    "LoadSettings": {
        "keys": "upsertKeys",
        "primarykey": "upsertKeys",
        "primarykeys": "upsertKeys",
        "keycolumns": "upsertKeys",
        "conflictcolumns": "upsertKeys",
    },
    "ErrorHandlingSettings": {
        "retry": "retryConfig",
        "circuitbreaker": "circuitBreakerConfig",
        "dlq": "dlqConfig",
    },
    "StreamingSettings": {"latedata": "lateDataConfig"},
}
"""Other names of keys, folded, by the model they belong to."""


def normalised_stream(entry: Entry, report: Report) -> Entry:
    """A stream with the keys of its models; every value keeps its place.

    A key that is there in two spellings is an error in the report.
    """
    return _normalised(entry, StreamPipeline, report)


def _normalised(entry: Entry, model: type[BaseModel], report: Report) -> Entry:
    if not entry.is_mapping:
        return entry
    spellings, inner = _spellings(model), _models_below(model)
    values: dict[str, Entry] = {}
    keys: dict[str, Place] = {}
    for said, value in entry.value.items():
        key = spellings.get(folded(said), said)
        if key in values:
            _twice(said, key, entry.key_place(said), report)
            continue
        values[key] = _normalised(value, inner[key], report) if key in inner else value
        keys[key] = entry.key_place(said)
    return Entry(values, entry.place, keys)


def _twice(said: str, key: str, place: Place, report: Report) -> None:
    title = f'"{said}" is another spelling of "{key}", which is there already'
    report.add("FM-CONFIG-005", title, place, key=key, allowed="one of them")


@cache
def _spellings(model: type[BaseModel]) -> dict[str, str]:
    """The keys of a model by their folded spellings."""
    fields = {folded(name): field.alias or name for name, field in model.model_fields.items()}
    proper = {folded(key): key for key in by_key(model)}
    return {**fields, **_OTHER_KEYS.get(model.__name__, {}), **proper}


@cache
def _models_below(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The models of those keys that hold a mapping of settings."""
    found = {key: _model_of(field.annotation) for key, field in by_key(model).items()}
    return {key: inner for key, inner in found.items() if inner is not None}


def _model_of(kind: Any) -> type[BaseModel] | None:
    if get_origin(kind) is Annotated:
        return _model_of(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        kinds = [each for each in get_args(kind) if each is not NoneType]
        return _model_of(kinds[0]) if len(kinds) == 1 else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
