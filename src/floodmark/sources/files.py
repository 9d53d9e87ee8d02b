"""Files of a folder or glob: a window is the files that are on its end's list and not its start's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model.clock import epoch_micros
from floodmark.model.delta import TableFacts
from floodmark.model.file_marks import FilesMark, any_mark
from floodmark.model.plan import TimeFacts
from floodmark.model.window import NOTHING_PROCESSED, Settlement, Window
from floodmark.sources import times
from floodmark.sources.cursors import Readers, reader_of
from floodmark.sources.file_lists import (
    FileFacts,
    FileLists,
    Files,
    NewFiles,
    listed,
    new_files,
    split_pattern,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARK_FORMATS = {"tsv": "csv", "binary": "binaryFile"}
# Spark's own defaults turn what it cannot read into NULLs, and columns by position; neither says so.
_CAREFUL = {"mode": "FAILFAST", "header": "true", "enforceSchema": "false"}
_DEFAULTS: dict[str, dict[str, str]] = {
    "csv": _CAREFUL,
    "tsv": {**_CAREFUL, "sep": "\t"},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})


@dataclass(frozen=True)
class FileReader:
    """What one upstream of files is, and how they are read.

    Nothing of it is stored: format and options may be edited between two windows.
    """

    upstream: str
    root: str
    """The folder of the connection: an absolute path or URI; lists name files from there on."""
    pattern: str
    """A path or glob below it."""
    format: str
    lists: FileLists
    storage: Storage
    ddl: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    new_files: NewFiles = "list"
    settle: timedelta = timedelta()
    """Files that are younger are left for the next window: somebody may still write them."""

    def facts(self) -> TableFacts:
        """What is known without a look: a folder has no versions."""
        return times.folder_facts(self.upstream)

    def look(self, window: Window, now: datetime, spark: Any = None) -> TimeFacts:  # noqa: ARG002 a door
        """What is new after the start of a window; keeps the list that its end is."""
        known = self.lists.read(self.upstream, _mark(window.start_mark))
        found = new_files(self._found(), known, self.new_files)
        latest_ms = epoch_micros(now - self.settle) // 1000
        taken = {
            path: f for path, f in found.items() if f.modified_ms <= latest_ms or not self.settle
        }
        waiting = len(found) - len(taken)
        if not taken:
            return TimeFacts("files", None, waiting=waiting)
        mark = self.lists.keep(self.upstream, {**known, **taken})
        size = sum(facts.size for facts in taken.values())
        return TimeFacts("files", mark, waiting=waiting, bytes=size)

    def _found(self) -> dict[str, FileFacts]:
        found = listed(self._absolute(self.pattern), self.storage)
        return {path.removeprefix(f"{self.root}/"): facts for path, facts in found.items()}

    def _absolute(self, path: str) -> str:
        return f"{self.root}/{path}"

    def files_of(self, window: Window) -> dict[str, FileFacts]:
        """The files of a window."""
        before = self.lists.read(self.upstream, _mark(window.start_mark))
        after = self.lists.read(self.upstream, _mark(window.end_mark))
        return new_files(after, before, "modified")

    def refuse_changed(self, window: Window, files: Files) -> None:
        """Files are read as they were planned: raises FM-SOURCE-041 where one is gone or changed."""
        for path, planned in files.items():
            try:
                entry = self.storage.entry(self._absolute(path))
            except OSError as error:
                raise _changed(window, path, f"{type(error).__name__}: {error}"[:300]) from error
            if entry is None:
                raise _changed(window, path, "it is gone")
            if FileFacts(entry.size, entry.modified_ms) != planned:
                raise _changed(window, path, "it was written again")

    def frame(self, spark: SparkSession, files: Files) -> DataFrame:
        """The rows of files, of which there is one at least."""
        reader = spark.read.format(_SPARK_FORMATS.get(self.format, self.format))
        reader = reader.options(**{**_DEFAULTS.get(self.format, {}), **self.options})
        if self.ddl is not None:
            reader = reader.schema(self.ddl)
        base = split_pattern(self._absolute(self.pattern))[0]
        if any("=" in path.rpartition("/")[0] for path in files):
            reader = reader.option("basePath", base)  # so that folders named column=value count
        return reader.load([self._absolute(path).translate(_GLOB) for path in files])

    def no_rows(self, spark: SparkSession, window: Window) -> DataFrame:
        """No rows, with the columns of the files; raises FM-SOURCE-042 if there was none yet."""
        if self.ddl is not None:
            return spark.createDataFrame([], self.ddl)
        known = self.lists.read(self.upstream, _mark(window.end_mark))
        there = (path for path in reversed(known) if self.storage.exists(self._absolute(path)))
        example = next(there, None)
        if example is None:
            raise _no_columns(window)
        return self.frame(spark, {example: known[example]}).limit(0)


class FileSource:
    """Reads windows of files through Spark."""

    def __init__(self, spark: SparkSession, readers: Readers) -> None:
        self._spark = spark
        self._readers = readers

    def check(self, window: Window) -> TableFacts:
        """Prove that every file of the window is there as it was planned (FM-SOURCE-041)."""
        reader = self._reader(window)
        reader.refuse_changed(window, reader.files_of(window))
        return reader.facts()

    def settled(self, window: Window, choice: Settlement) -> Window | None:  # noqa: ARG002 a door
        """A file that is gone is not replaced by anything."""
        return None

    def read(self, window: Window) -> DataFrame:
        """The rows of the window's files, then the three change columns."""
        from floodmark.sources.spark_times import with_change_columns

        reader = self._reader(window)
        files = reader.files_of(window)
        reader.refuse_changed(window, files)
        frame = reader.frame(self._spark, files) if files else reader.no_rows(self._spark, window)
        return with_change_columns(frame, window)

    def table(self, window: Window, at_version: int) -> DataFrame:
        """The rows of all files that are on a list, as far as they are still there."""
        reader = self._reader(window)
        if at_version == NOTHING_PROCESSED:
            return reader.no_rows(self._spark, window)
        is_end = at_version == window.through_version
        mark = _mark(window.end_mark if is_end else window.start_mark)
        files = reader.lists.read(window.upstream, mark)
        reader.refuse_changed(window, files)
        return reader.frame(self._spark, files) if files else reader.no_rows(self._spark, window)

    def look(self, window: Window, now: datetime, settle_seconds: float | None) -> TimeFacts:  # noqa: ARG002 a reader knows how long its files settle
        """See `QuerySource.look`."""
        return self._reader(window).look(window, now)

    def _reader(self, window: Window) -> FileReader:
        found: Any = reader_of(self._readers, window.upstream)
        reader: FileReader = found
        return reader


def _mark(text: str | None) -> FilesMark | None:
    mark = any_mark(text)
    if mark is None or isinstance(mark, FilesMark):
        return mark
    raise ValueError(f"not a mark of files: {text!r}")


def _changed(window: Window, path: str, found: str) -> SourceError:
    return SourceError(
        "FM-SOURCE-041",
        "a file is no longer what was planned",
        where=f"{window.upstream}: {path}",
        found=found,
        allowed="files that stay as they are once they are there",
        state="nothing was read; the committed watermark stays",
        next="put the file back, then: floodmark retry BATCH; or plan with what is there now:"
        " floodmark cancel BATCH, then floodmark run",
    )


def _no_columns(window: Window) -> SourceError:
    return SourceError(
        "FM-SOURCE-042",
        "the columns of files are not known before the first one is there",
        where=window.upstream,
        found="no file, and no schema",
        allowed='a schema in the node: read: {schema: "id LONG, name STRING"}; or one file',
        state="nothing was read or written",
        next="say the schema, or put a file there, then run the same command again",
        retryable=True,
    )
