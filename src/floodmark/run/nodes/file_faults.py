"""Files that Spark could not read, told with their place: file, line, column."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from floodmark.engines.faults import unread_file
from floodmark.errors import SourceError
from floodmark.run.context import Pass
from floodmark.sources.files import FileReader, FileRows, unreadable


def unread(error: Exception, run: Pass, cause: str) -> SourceError | None:
    """FM-SOURCE-059 for a file of the pipeline that Spark could not read; None for other errors.

    `cause` is what Spark says where nothing better is found; it may be empty.
    """
    location = unread_file(error)
    if location is None:
        return None
    path = _plain(location)
    for reader in _file_readers(run):
        if path.startswith(f"{reader.root}/"):
            return unreadable(path, FileRows(reader).misfit(path) or cause or type(error).__name__)
    return None


def _file_readers(run: Pass) -> Iterator[FileReader]:
    for (pipeline, _), reader in run.reads.readers.items():
        if pipeline == run.pipeline and isinstance(reader, FileReader):
            yield reader


def _plain(location: str) -> str:
    """A path of this machine without its scheme; Spark escapes what stands behind one."""
    scheme, has_scheme, rest = location.partition(":")
    if not has_scheme or scheme != "file":
        return location
    return unquote("/" + rest.lstrip("/"))
