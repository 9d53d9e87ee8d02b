"""The readers of a project's files, built from its connections and the nodes that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from floodmark.config import LoadedFile
from floodmark.config.checks.nodes import format_of
from floodmark.config.plugins.registry import Plugins
from floodmark.config.project.connections import FilesConnection, LakeConnection
from floodmark.config.project.graph import Graph, graph_of
from floodmark.config.project.node_reads import is_file_read, upstream_of
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.reads import FORMATS
from floodmark.deltalog import Storage, absolute
from floodmark.model import durations
from floodmark.sources.file_lists import FileLists
from floodmark.sources.files import FileReader
from floodmark.sources.plugged import reading_with


def file_readers_of(
    file: LoadedFile, control: str, storage: Storage, plugins: Plugins
) -> dict[tuple[str, str], FileReader]:
    """What reads each upstream of files, by pipeline and name; looks at no file."""
    found: dict[tuple[str, str], FileReader] = {}
    lists = FileLists(control, storage)
    for pipeline in file.settings.pipelines:
        nodes = {node.name: node for node in pipeline.nodes}
        for node in pipeline.nodes:
            if node.read is None or not is_file_read(node.read, file.settings):
                continue
            upstream = upstream_of(node, pipeline.pipeline, file.settings)
            if upstream is not None:
                key = pipeline.pipeline, upstream.name
                reader = _reader(upstream.name, node, file, lists, storage)
                reader = replace(
                    reader,
                    pipeline=pipeline.pipeline,
                    takes_new_columns=_take_new_columns(node, graph_of(pipeline.nodes), nodes),
                )
                if reader.format not in FORMATS:
                    reader = replace(
                        reader,
                        options=node.read.options,
                        read_with=reading_with(reader.format, reader.upstream, plugins),
                    )
                found.setdefault(key, reader)
    return found


def _take_new_columns(node: NodeSettings, graph: Graph, nodes: Mapping[str, NodeSettings]) -> bool:
    """Whether every write that gets the rows next adds the columns that its target lacks."""
    if node.write is not None:
        return node.write.on_schema_change == "add_columns"
    below = [nodes[name] for name in graph.children(node.name)]
    return bool(below) and all(_take_new_columns(each, graph, nodes) for each in below)


def _reader(
    upstream: str, node: NodeSettings, file: LoadedFile, lists: FileLists, storage: Storage
) -> FileReader:
    read = node.read
    assert read is not None  # noqa: S101  (only such nodes come here)
    connection = file.settings.connections.get(read.connection or "")
    root = connection.root if isinstance(connection, FilesConnection | LakeConnection) else "."
    return FileReader(
        upstream,
        absolute(root, str(file.root)),
        str(read.path).strip("/"),
        str(format_of(read, connection.type if connection is not None else None)),
        lists,
        storage,
        read.ddl,
        {name: _text(value) for name, value in read.options.items()},
        "modified" if read.new_files == "modified" else "list",
        file_column=read.file_column,
        settle=durations.seconds_of(read.settle) if read.settle else 0.0,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
