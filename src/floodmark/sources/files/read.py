"""Windows of files on Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from floodmark.model import NOTHING_PROCESSED, FilesWindow, Settlement, TableFacts
from floodmark.sources.files.lists import Files, ListGone
from floodmark.sources.files.probe import FileReader
from floodmark.sources.files.rows import FileRows
from floodmark.sources.frames import with_change_columns
from floodmark.sources.source import Readers, SparkAccess, reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileSource:
    """Reads windows of files through Spark."""

    def __init__(self, spark: SparkSession, readers: Readers) -> None:
        self._spark = spark
        self._readers = readers

    def check(self, window: FilesWindow) -> TableFacts:
        """Prove that every file of the window is there as it was planned (FM-SOURCE-041)."""
        reader = self._reader(window)
        reader.readable(window, _left_of(reader, window))
        return reader.facts()

    def resolved(self, window: FilesWindow, choice: Settlement) -> FilesWindow | None:
        """snapshot: the files as they are now. accept: without those that are not as planned, or
        without any if nobody knows any more which they were.
        """
        reader = self._reader(window)
        if window.method == "lost":
            return None
        try:
            changed = reader.changed(reader.files_of(window))
        except ListGone as error:
            if choice == "snapshot":
                raise
            reason = f"{error.title}; the loss was accepted"
            return replace(window, method="lost", reason=reason, bytes=None)
        if not changed:
            return None
        names = ", ".join(list(changed)[:3]) + (" and others" if len(changed) > 3 else "")
        if choice == "accept":
            reason = f"{names}: not as planned; left out, the loss was accepted"
            return replace(window, method="lost", reason=reason, bytes=None)
        amended = replace(window, method="snapshot", reason=f"{names}: read as now, as asked for")
        reader.readable(amended, reader.files_of(window))
        reader.correct(window, changed)
        return amended if window.method != "snapshot" else None

    def read(self, window: FilesWindow) -> DataFrame:
        """The rows of the window's files, then the three change columns."""
        reader = self._reader(window)
        files = reader.readable(window, _left_of(reader, window))
        return with_change_columns(self._rows(window, files), window)

    def table(self, window: FilesWindow, at_version: int) -> DataFrame:
        """The rows of all files that are on a list, as far as they are still there."""
        reader = self._reader(window)
        if at_version == NOTHING_PROCESSED:
            return self._rows(window, {})
        is_end = at_version == window.through
        mark = window.through_mark if is_end else window.after_mark
        return self._rows(window, reader.readable(window, reader.on_list(mark)))

    def _rows(self, window: FilesWindow, files: Files) -> DataFrame:
        rows = FileRows(self._reader(window))
        return rows.frame(self._spark, files) if files else rows.no_rows(self._spark, window)

    def _reader(self, window: FilesWindow) -> FileReader:
        reader = reader_of(self._readers, window.upstream)
        if not isinstance(reader, FileReader):
            raise TypeError(f"{window.upstream}: a {type(reader).__name__} reads no files")
        return reader


def source(access: SparkAccess) -> FileSource:
    """See `sources.kinds`."""
    return FileSource(access.spark, access.readers)


def _left_of(reader: FileReader, window: FilesWindow) -> Files:
    """The files of a window; none if its lists are gone and that was accepted."""
    try:
        return reader.files_of(window)
    except ListGone:
        if window.method != "lost":
            raise
        return {}
