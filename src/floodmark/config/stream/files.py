"""Streams from files: one JSON or YAML file by itself, or as part of a project."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from floodmark.config.checks.faults import add_fault, add_finding
from floodmark.config.checks.streams import StreamSchemas, stream_findings
from floodmark.config.stream.schema_files import allowed_schemas, find_schema, read_schema
from floodmark.config.stream.schemas import StreamSchema
from floodmark.config.stream.settings import StreamPipeline
from floodmark.config.stream.spellings import normalised_stream
from floodmark.config.text.layers import (
    PROJECT_FILE,
    document_of,
    file_text,
    filled_entry,
    shown_path,
)
from floodmark.config.text.places import KeyPath, Report, key_name
from floodmark.config.text.references import Vault
from floodmark.config.text.tree import PYTHON, Document, Entry, python_entry
from floodmark.errors import ConfigError
from floodmark.next_steps import command

if TYPE_CHECKING:
    from floodmark.config.load import LoadedProject


@dataclass(frozen=True)
class LoadedStream:
    """A valid stream with its schemas, and the folder that its paths start from."""

    path: Path
    settings: StreamPipeline
    payload: StreamSchema
    table: StreamSchema
    root: Path
    warnings: tuple[ConfigError, ...] = field(default=(), compare=False)
    is_of_project: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are written: of the table, or those that an aggregate gives."""
        aggregate = self.settings.streaming.aggregate
        is_said = self.settings.load.schema_name is not None
        return self.table.names if aggregate is None or is_said else aggregate.columns

    @property
    def called(self) -> str:
        """How commands name it: its file, or its id inside a project or of a mapping."""
        is_file = not self.is_of_project and self.path.name != PYTHON
        return shown_path(self.path) if is_file else self.settings.pipeline_id


def load_stream(path: Path) -> LoadedStream:
    """The stream of a JSON or YAML file.

    Raises ConfigError with its place; several errors come together as ConfigErrors. Writes nothing.
    """
    report = Report(shown_path(path), command=command("stream", "validate", shown_path(path)))
    loaded = _loaded(Path(os.path.abspath(path)), report)
    report.raise_if_any()
    assert loaded is not None  # noqa: S101  (nothing is missing without an error in the report)
    return loaded


def stream_of(settings: Mapping[str, Any], root: Path) -> LoadedStream:
    """The stream of a mapping with the keys of the JSON; paths and schemas start at `root`.

    Raises ConfigError as `load_stream` does.
    """
    report = Report(PYTHON)
    loaded = _examined(python_entry(settings), root.absolute() / PYTHON, report)
    report.raise_if_any()
    assert loaded is not None  # noqa: S101  (nothing is missing without an error in the report)
    return loaded


def _loaded(path: Path, report: Report) -> LoadedStream | None:
    text = file_text(path, report)
    written = document_of(path, text, report).root if text is not None else None
    return _examined(written, path, report) if written is not None else None


def _examined(written: Entry, path: Path, report: Report) -> LoadedStream | None:
    written = normalised_stream(written, report)
    roots = schema_roots(path)
    filled = Document(filled_entry(written, (), Vault(root_of(path)), report))
    stream = _settings(filled, Document(written), report)
    if stream is None:
        _look_for_schemas(filled, roots, report)
        return None
    schemas = examine(stream, (), Document(written), roots, report)
    if schemas.payload is None or schemas.table is None:
        return None
    found = tuple(report.warnings)
    return LoadedStream(path, stream, schemas.payload, schemas.table, root_of(path), found)


def schema_roots(path: Path) -> tuple[Path, ...]:
    """The folders whose schemas/ a file may name: its own, then those up to its project.

    Without a project the folder above its own is the last one.
    """
    folders = [path.parent, *path.parent.parents]
    for depth, folder in enumerate(folders[:6]):
        if (folder / PROJECT_FILE).is_file():
            return tuple(folders[: depth + 1])
    return tuple(folders[:2])


def root_of(path: Path) -> Path:
    """Where relative paths of a stream start: the folder of its project, else its own."""
    last = schema_roots(path)[-1]
    return last if (last / PROJECT_FILE).is_file() else path.parent


def _settings(document: Document, written: Document, report: Report) -> StreamPipeline | None:
    before = len(report.found)
    try:
        stream = StreamPipeline.model_validate(document.data)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            add_fault(details, document, written, report, StreamPipeline)
        return None
    return stream if len(report.found) == before else None


# What the models cannot see ---------------------------------------------------------------------


def examine(
    stream: StreamPipeline,
    at: KeyPath,
    document: Document,
    roots: Sequence[Path],
    report: Report,
    *,
    connections: Mapping[str, str] | None = None,
) -> StreamSchemas:
    """The schemas of a stream; what is wrong with them, or does not go together, is reported.

    `at` leads to the stream in the document; `connections` are those of its project by type.
    """
    payload = _schema(stream.extract.schema_name, (*at, "extract"), document, roots, report)
    table = payload
    if stream.load.schema_name is not None:
        table = _schema(stream.load.schema_name, (*at, "load"), document, roots, report)
    schemas = StreamSchemas(payload, table)
    for finding in stream_findings(stream, schemas, connections):
        add_finding(finding.below(*at), document, report)
    return schemas


def _schema(
    name: str, at: KeyPath, document: Document, roots: Sequence[Path], report: Report
) -> StreamSchema | None:
    path = find_schema(name, roots)
    if path is not None:
        return read_schema(path, report)
    where = (*at, "schemaName")
    report.add(
        "FM-CONFIG-013",
        f"there is no schema {name}",
        document.place(where),
        key=key_name(where),
        allowed=allowed_schemas(name, roots),
    )
    return None


def _look_for_schemas(document: Document, roots: Sequence[Path], report: Report) -> None:
    """The schemas that a broken stream names: its errors hide none of theirs."""
    for part in ("extract", "load"):
        entry = document.entry((part, "schemaName"))
        is_named = entry is not None and isinstance(entry.value, str)
        is_fine = entry is not None and all(entry.place != place for place, _ in report.found)
        if is_named and is_fine and entry is not None:
            _schema(entry.value, (part,), document, roots, report)


def streams_of(file: LoadedProject) -> dict[str, LoadedStream]:
    """The streams of a project that is valid, by pipelineId."""
    report, found = Report(shown_path(file.path)), {}
    for index, stream in enumerate(file.settings.streams):
        at = ("streams", index)
        schemas = examine(stream, at, file.document, (file.root,), report)
        if schemas.payload is not None and schemas.table is not None:
            place = Path(file.place(*at).file or file.path)
            found[stream.pipeline_id] = LoadedStream(
                place, stream, schemas.payload, schemas.table, file.root, is_of_project=True
            )
    return found
