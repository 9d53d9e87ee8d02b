"""Columns that a node names, against those that its read declares."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.config.checks.findings import CONFLICT, Finding
from floodmark.config.project.nodes import Expectation, NodeSettings
from floodmark.config.project.writes import WriteSettings
from floodmark.config.text.places import KeyPath, choices
from floodmark.model.ddl import columns_of
from floodmark.model.names import matching


def undeclared_columns(node: NodeSettings) -> Iterator[Finding]:
    """Columns that the declared schema does not have; after steps only Spark can tell."""
    read = node.read
    if read is None or read.ddl is None:
        return
    declared = [*columns_of(read.ddl), *([read.file_column] if read.file_column else [])]
    for path, name in _named(node):
        if matching(name, declared) is None:
            title = f"the schema of the read has no column {name}"
            yield Finding(path, CONFLICT, title, f'the column "{name}"', choices(declared, name))


def _named(node: NodeSettings) -> Iterator[tuple[KeyPath, str]]:
    incremental = node.read.incremental if node.read is not None else None
    if incremental is not None:
        yield ("read", "incremental", "cursor"), incremental.cursor
        yield from _each(("read", "incremental", "keys"), incremental.keys)
    if node.transform:
        return
    for position, check in enumerate(node.expect):
        yield from (((("expect", position, *path)), name) for path, name in _expected(check))
    if node.write is not None:
        yield from ((("write", *path), name) for path, name in _written(node.write))


def _expected(check: Expectation) -> Iterator[tuple[KeyPath, str]]:
    yield from _each(("not_null",), check.not_null)
    yield from _each(("unique",), check.unique)
    for key in ("accepted_values", "range", "regex"):
        said = getattr(check, key)
        if said is not None:
            yield (key, "column"), said.column


def _written(write: WriteSettings) -> Iterator[tuple[KeyPath, str]]:
    yield from _each(("keys",), write.keys)
    if write.merge is not None:
        yield from _each(("merge", "keys"), write.merge.keys)
        if write.merge.sequence_by is not None:
            yield ("merge", "sequence_by"), write.merge.sequence_by
    for key in ("partition_by", "cluster_by", "zorder_by"):
        yield from _each(("options", key), getattr(write.options, key))


def _each(path: KeyPath, names: list[str] | None) -> Iterator[tuple[KeyPath, str]]:
    for position, name in enumerate(names or ()):
        yield (*path, position), name
