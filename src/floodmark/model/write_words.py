"""The options of a write in the words of whoever wrote it: keys of a file, or arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.model.write import WriteSpec

_KEYS = {
    "sequence_by": "write.merge.sequence_by",
    "strategy": "write.merge.strategy",
    "deletes": "write.merge.deletes",
    "missing": "write.merge.missing",
    "created_at": "write.merge.audit.created_at",
    "updated_at": "write.merge.audit.updated_at",
    "partition_by": "write.options.partition_by",
    "cluster_by": "write.options.cluster_by",
    "zorder_by": "write.options.zorder_by",
}


def option(spec: WriteSpec, name: str, *values: str | bool) -> str:
    """An option as it is written, with one of its values or several to choose from.

    >>> option(WriteSpec("lake/t", "merge", "n", is_node=True), "missing", "delete", "keep")
    'write.merge.missing: delete or keep'
    >>> option(WriteSpec("lake/t", "merge", "n"), "missing", "delete", "keep")
    'missing="delete" or "keep"'
    """
    if not spec.is_node:
        shown = [str(value) if isinstance(value, bool) else f'"{value}"' for value in values]
        return f"{name}={either(shown)}"
    if name == "keys":
        key = "write.merge.keys" if spec.mode == "merge" else "write.keys"
    else:
        key = _KEYS.get(name, f"write.{name}")
    shown = [str(value).lower() if isinstance(value, bool) else value for value in values]
    return f"{key}: {either(shown)}" if shown else key


def either(values: Sequence[str]) -> str:
    """Words as a choice: `a, b or c`."""
    *first, last = values or ("",)
    return f"{', '.join(first)} or {last}" if first else last
