"""The write of a node as the value that sinks take."""

from __future__ import annotations

from typing import Any

from floodmark.config.project.writes import MergeSettings, WriteOptions, WriteSettings
from floodmark.model import DELTA, WriteSpec

OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"


def spec_of(name: str, write: WriteSettings, target: str, file_format: str | None) -> WriteSpec:
    """What a write asks of the sink; `file_format` only where files are written."""
    return WriteSpec(
        target=target,
        mode=write.write_mode,  # type: ignore[arg-type]  # refused before if it is none
        name=name,
        changes=write.changes,  # type: ignore[arg-type]
        table=write.register_table,
        adds_columns=write.on_schema_change == "add_columns",
        is_node=True,
        replace_where=write.replace_where,
        allow_partial=write.allow_partial,
        keys=tuple((write.merge.keys if write.merge is not None else write.keys) or ()),
        **_format(file_format, write.options),
        **_layout(write.options),
        **(_merge(write.merge) if write.merge is not None else {}),
    )


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
    """The format with its options; tables of a plug-in get options too, and no format of files."""
    if name is None and not options.writer:
        return {}
    own = {"sep": "\t"} if name == "tsv" else {}  # tab-separated values are a spelling of CSV
    if name in ("csv", "tsv"):
        own["escape"] = '"'  # as RFC 4180 has it, and as files are read by default
    own |= {key: _property(value) for key, value in options.writer.items()}
    return {
        "format": "csv" if name == "tsv" else name or DELTA,
        "writer": tuple(sorted(own.items())),
    }


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
