"""The readers of a project's files, built from its connections and the nodes that read them."""

from __future__ import annotations

from dataclasses import replace

from floodmark.config import LoadedProject, ResolvedNode, ResolvedPipeline, ResolvedRead
from floodmark.config.checks import hides_values
from floodmark.config.plugins import Plugins
from floodmark.config.project import FORMATS, FilesConnection, LakeConnection
from floodmark.deltalog import Storage, absolute
from floodmark.model import durations
from floodmark.sources.files import FileLists, FileReader
from floodmark.sources.plugin import reading_with


def file_readers_of(
    file: LoadedProject, control: str, storage: Storage, plugins: Plugins
) -> dict[tuple[str, str], FileReader]:
    """What reads each upstream of files, by pipeline and name; looks at no file."""
    found: dict[tuple[str, str], FileReader] = {}
    lists = FileLists(control, storage)
    hides = any(hides_values(pipeline.settings.nodes) for pipeline in file.pipelines)
    for pipeline in file.pipelines:
        for node in pipeline.nodes:
            if node.read is None or node.kind != "files" or node.upstream is None:
                continue
            reader = _reader(node.upstream.name, node.read, file, lists, storage)
            reader = replace(
                reader,
                pipeline=pipeline.name,
                hides_values=hides,
                takes_new_columns=_take_new_columns(node, pipeline),
            )
            if reader.format not in FORMATS:
                reader = replace(
                    reader,
                    options=node.read.settings.options,
                    read_with=reading_with(reader.format, reader.upstream, plugins),
                )
            found.setdefault((pipeline.name, node.upstream.name), reader)
    return found


def _take_new_columns(node: ResolvedNode, pipeline: ResolvedPipeline) -> bool:
    """Whether every write that gets the rows next adds the columns that its target lacks."""
    if node.write is not None:
        return node.write.settings.on_schema_change == "add_columns"
    below = [pipeline.by_name[name] for name in pipeline.graph.children(node.name)]
    return bool(below) and all(_take_new_columns(each, pipeline) for each in below)


def _reader(
    upstream: str, source: ResolvedRead, file: LoadedProject, lists: FileLists, storage: Storage
) -> FileReader:
    read, connection = source.settings, source.connection
    root = connection.root if isinstance(connection, FilesConnection | LakeConnection) else "."
    return FileReader(
        upstream,
        absolute(root, str(file.root)),
        str(read.path).strip("/"),
        str(source.format),
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
