"""The writes of a node, as values."""

from __future__ import annotations

from typing import Any

from floodmark.config.project.node_writes import allows_single_writer, file_format, target_of
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.settings import PipelineSettings, ProjectSettings
from floodmark.config.project.writes import MergeSettings, WriteOptions, WriteSettings
from floodmark.model.names import connection_of
from floodmark.model.sql_names import name_parts, qualified
from floodmark.model.write import DELTA, WriteSpec

OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"
QUARANTINE = "quarantine"


def write_of(node: NodeSettings, settings: ProjectSettings) -> WriteSpec | None:
    """What a node writes, under the node's name; None if it writes nothing."""
    write = node.write
    target = target_of(write, settings) if write is not None else None
    if write is None or target is None:
        return None
    return WriteSpec(
        target=target,
        mode=write.write_mode,  # type: ignore[arg-type]  # refused before if it is none
        name=node.name,
        changes=write.changes,  # type: ignore[arg-type]
        table=write.register_table,
        adds_columns=write.on_schema_change == "add_columns",
        is_node=True,
        hides_values=_has_sensitive_columns(settings),
        replace_where=write.replace_where,
        allow_partial=write.allow_partial,
        allow_single_writer=allows_single_writer(write, settings),
        **_format(_format_of(write, settings), write.options),
        **_keys(write),
        **_layout(write.options),
        **(_merge(write.merge) if write.merge is not None else {}),
    )


def writes_of(pipeline: PipelineSettings, settings: ProjectSettings) -> list[WriteSpec]:
    """What the nodes of a pipeline write."""
    specs = (write_of(node, settings) for node in pipeline.nodes)
    return [spec for spec in specs if spec is not None]


def _has_sensitive_columns(settings: ProjectSettings) -> bool:
    """Of any node: what a column becomes in the nodes below the one that declares it is not known."""
    nodes = (node for pipeline in settings.pipelines for node in pipeline.nodes)
    return any(column.sensitive for node in nodes for column in node.columns.values())


def replaced_anew(spec: WriteSpec) -> bool:
    """Whether a full refresh replaces what the target holds.

    Other writes take all rows as they are: a merge that says what becomes of missing ones, a
    condition, keys to be deleted.
    """
    adds_rows = spec.mode == "merge" and spec.strategy != "delete_match"
    return spec.mode in ("append", "overwrite") or (adds_rows and spec.missing is None)


def quarantine_of(spec: WriteSpec, *, replaces: bool) -> WriteSpec:
    """Where the rows go that do not pass: a table beside the target, rows of every batch.

    It follows the columns of the rows whatever the target does about new ones: nobody reads it in
    the place of the target. `replaces` is for a full refresh, which checks every row again.
    """
    return WriteSpec(
        target=_beside(spec.target),
        mode="overwrite" if replaces else "append",
        name=f"{spec.name}.{QUARANTINE}",
        changes="handled",
        allow_full=not replaces,
        allow_partial=replaces,
        format=spec.format,
        writer=spec.writer,
        adds_columns=spec.format == DELTA,
        is_node=True,
        is_aside=True,
        allow_single_writer=spec.allow_single_writer,
    )


def _beside(target: str) -> str:
    connection = connection_of(target)
    if connection is None:
        return f"{target}_{QUARANTINE}"
    *schema, table = name_parts("postgres", target.removeprefix(f"{connection}:"))
    return f"{connection}:{qualified('postgres', (*schema, f'{table}_{QUARANTINE}'))}"


def _keys(write: WriteSettings) -> dict[str, Any]:
    keys = write.merge.keys if write.merge is not None else write.keys
    return {"keys": tuple(keys or ())}


def _merge(merge: MergeSettings) -> dict[str, Any]:
    audit = merge.audit
    return {
        "strategy": merge.strategy,
        "sequence_by": merge.sequence_by,
        "deletes": merge.deletes,
        "missing": merge.missing,
        "created_at": audit.created_at if audit else None,
        "updated_at": audit.updated_at if audit else None,
    }


def _format(name: str | None, options: WriteOptions) -> dict[str, Any]:
    """Files: tab-separated values are a spelling of CSV."""
    if name is None:
        return {}
    said = {"sep": "\t"} if name == "tsv" else {}
    if name in ("csv", "tsv"):
        said["escape"] = '"'  # as RFC 4180 has it, and as files are read by default
    said |= {key: _property(value) for key, value in options.writer.items()}
    return {"format": "csv" if name == "tsv" else name, "writer": tuple(sorted(said.items()))}


def _format_of(write: WriteSettings, settings: ProjectSettings) -> str | None:
    """The format of files; Delta for tables, also for those of a plug-in, which gets options too."""
    found = file_format(write, settings)
    return DELTA if found is None and write.options.writer else found


def _layout(options: WriteOptions) -> dict[str, Any]:
    properties = {key: _property(value) for key, value in options.table_properties.items()}
    if options.optimize_write is not None:
        properties[OPTIMIZE_WRITE] = _property(options.optimize_write)
    return {
        "partition_by": tuple(options.partition_by or ()),
        "cluster_by": tuple(options.cluster_by or ()),
        "zorder_by": tuple(options.zorder_by or ()),
        "properties": tuple(sorted(properties.items())),
    }


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
