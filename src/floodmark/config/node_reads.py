"""The upstreams of a pipeline of nodes: the tables that its nodes read."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from floodmark.config.chains import table_name
from floodmark.config.connections import LakeConnection
from floodmark.config.models import PipelineSettings, ProjectSettings
from floodmark.config.reads import IncrementalSettings, ReadSettings
from floodmark.config.rules import format_of
from floodmark.config.upstreams import DeltaReadSettings, UpstreamSettings
from floodmark.config.writes import WriteSettings

_SHARED = tuple(DeltaReadSettings.model_fields)


def table_of(place: ReadSettings | WriteSettings, settings: ProjectSettings) -> str | None:
    """The Delta table that a node reads or writes, as path or catalog name; None if it is none."""
    connection = settings.connections.get(place.connection or "")
    kind = connection.type if connection is not None else None
    if format_of(place, kind) != "delta" or (connection is not None and kind != "lake"):
        return None
    if place.path is None:
        return place.table
    if not isinstance(connection, LakeConnection):
        return _with_slash(table_name(place.path))
    return _with_slash(table_name(f"{connection.root.rstrip('/')}/{place.path}"))


def _with_slash(path: str) -> str:
    """A path of one part, told from a catalog name."""
    return path if "/" in path else f"./{path}"


def upstream_of(read: ReadSettings, settings: ProjectSettings) -> UpstreamSettings | None:
    """What a node reads, as an upstream; None for another node, or what is no Delta table."""
    table = table_of(read, settings) if read.node is None else None
    if table is None:
        return None
    said: dict[str, Any] = {name: getattr(read, name) for name in _SHARED}
    if read.incremental is None:
        # Checked already, as keys of the read: a second time takes half as long as all the rest.
        return UpstreamSettings.model_construct(name=table, **said)
    said = {name: value for name, value in said.items() if value is not None}
    try:
        return UpstreamSettings(name=table, **{**said, **_time_window(read.incremental)})
    except ValidationError:
        return None


def _time_window(cursor: IncrementalSettings) -> dict[str, Any]:
    """A Delta table by a time column."""
    said = {
        "time_column": cursor.cursor,
        "baseline": cursor.baseline,
        "settle": cursor.settle or None,
        "on_null_time": "ignore" if cursor.on_null_cursor == "skip" else "fail",
    }
    return {name: value for name, value in said.items() if value is not None}


def with_upstreams(settings: ProjectSettings) -> ProjectSettings:
    """The project with the reads of nodes as the upstreams of their pipelines."""
    pipelines = [
        pipeline.model_copy(update={"declared": _upstreams(pipeline, settings)})
        if pipeline.nodes
        else pipeline
        for pipeline in settings.pipelines
    ]
    return settings.model_copy(update={"pipelines": pipelines})


def _upstreams(pipeline: PipelineSettings, settings: ProjectSettings) -> list[UpstreamSettings]:
    """Each table once: the first node that reads it has the word."""
    found = [upstream_of(node.read, settings) for node in pipeline.nodes if node.read is not None]
    by_name: dict[str, UpstreamSettings] = {}
    for upstream in found:
        if upstream is not None:
            by_name.setdefault(upstream.name, upstream)
    return list(by_name.values())
