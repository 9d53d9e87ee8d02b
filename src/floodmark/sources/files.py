"""Files of a folder or glob: a window is the files that are on its end's list and not its start's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model.delta import TableFacts
from floodmark.model.file_marks import FilesMark, any_mark
from floodmark.model.plan import TimeFacts
from floodmark.model.window import NOTHING_PROCESSED, Caution, Settlement, Window
from floodmark.sources import headers, times
from floodmark.sources.cursors import Readers, reader_of
from floodmark.sources.file_lists import (
    FileFacts,
    FileLists,
    Files,
    ListGone,
    NewFiles,
    listed,
    new_files,
    refuse_no_place,
    split_pattern,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadWith = Callable[["SparkSession", list[str], Mapping[str, Any], str | None], "DataFrame"]
"""Session, absolute paths, options and declared columns in, rows out."""

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
_DELIMITED = ("csv", "tsv")
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})


def escaped(path: str) -> str:
    """A path as Spark's readers take it, who would see a glob in it."""
    return path.translate(_GLOB)


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
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of Spark's reader, as text; of a plug-in's, as they are said."""
    new_files: NewFiles = "list"
    file_column: str | None = None
    """A column with the path of the file that a row came from."""
    read_with: ReadWith | None = None
    """What reads a format that Spark does not know."""
    settle: float = 0.0
    """A file that is younger, in seconds, may still be written: it waits."""
    pipeline: str = ""
    """Whose node reads them."""
    takes_new_columns: bool = False
    """Whether files may have other columns than one another: every write of the rows says so."""

    def facts(self) -> TableFacts:
        """What is known without a look: a folder has no versions."""
        return times.folder_facts(self.upstream)

    def refuse_no_folder(self) -> None:
        """Raise FM-PLAN-001 if there is no place to look for files, as planning would."""
        refuse_no_place(self._absolute(self.pattern), self.storage)

    def look(self, window: Window, now: datetime, spark: Any = None) -> TimeFacts:  # noqa: ARG002 a door
        """What is new after the start of a window; keeps the list that its end is."""
        known = self.lists.read(self.upstream, files_mark(window.start_mark))
        found = self._found()
        new = new_files(found, known, self.new_files)
        taken = {path: facts for path, facts in new.items() if self._is_settled(facts, now)}
        seen = TimeFacts(
            "files",
            None,
            waiting=len(new) - len(taken) or None,
            warning=self._caution(found, known) if self.new_files == "list" else None,
        )
        if not taken:
            return seen
        mark = self.lists.keep(self.upstream, {**known, **taken})
        oldest_ms = min(facts.modified_ms for facts in taken.values())
        return replace(
            seen,
            newest=mark,
            bytes=sum(facts.size for facts in taken.values()),
            items=len(taken),
            since=datetime.fromtimestamp(oldest_ms / 1000, UTC) if oldest_ms else None,
        )

    def _caution(self, found: Files, known: Files) -> Caution | None:
        """Files that changed after they were read: nobody reads what was added to them."""
        there = {path: facts for path, facts in found.items() if path in known}
        changed = [
            _change(path, known[path], now)
            for path, now in new_files(there, known, "modified").items()
        ]
        if not changed:
            return None
        more = f"; so were {len(changed) - 1:,} more files" if len(changed) > 1 else ""
        again = f"floodmark run --full-refresh {self.pipeline}".rstrip()
        return Caution(
            f"{changed[0]}{more}: what was added or changed there is not read",
            f"put new rows into a new file; or load every file again: {again}; or say new_files:"
            " modified, with a merge, in the node: files that change are then read again as a whole",
        )

    def _is_settled(self, facts: FileFacts, now: datetime) -> bool:
        return not self.settle or facts.modified_ms <= (now.timestamp() - self.settle) * 1000

    def _found(self) -> dict[str, FileFacts]:
        found = listed(self._absolute(self.pattern), self.storage)
        return {path.removeprefix(f"{self.root}/"): facts for path, facts in found.items()}

    def _absolute(self, path: str) -> str:
        return f"{self.root}/{path}"

    def files_of(self, window: Window) -> dict[str, FileFacts]:
        """The files of a window."""
        before = self.lists.read(self.upstream, files_mark(window.start_mark))
        after = self.lists.read(self.upstream, files_mark(window.end_mark))
        return new_files(after, before, "modified")

    def on_list(self, mark: FilesMark | None) -> Files:
        """The files of a mark."""
        return self.lists.read(self.upstream, mark)

    def readable(self, window: Window, files: Files) -> dict[str, FileFacts]:
        """Of `files` those that the window reads; raises FM-SOURCE-041 where that is not decided."""
        changed = self.changed(files)
        gone = [path for path, found in changed.items() if found is None]
        if changed and window.method == "query":
            raise _changed(window, {path: changed[path] for path in (gone or list(changed))[:1]})
        if gone and window.method == "snapshot":
            raise _changed(window, {gone[0]: None})
        if window.method == "lost":
            return {path: facts for path, facts in files.items() if path not in changed}
        return {path: changed.get(path) or facts for path, facts in files.items()}

    def changed(self, files: Files) -> dict[str, FileFacts | None]:
        """The files that are not as planned, as they are now; None for one that is gone."""
        now = {path: self._now(path) for path in files}
        return {path: found for path, found in now.items() if found != files[path]}

    def _now(self, path: str) -> FileFacts | None:
        try:
            entry = self.storage.entry(self._absolute(path))
        except OSError as error:
            raise times.out_of_reach(path, error) from error
        return None if entry is None else FileFacts(entry.size, entry.modified_ms)

    def frame(self, spark: SparkSession, files: Files) -> DataFrame:
        """The rows of files, of which there is one at least."""
        if self.read_with is not None:
            paths = [self._absolute(path) for path in files]
            return self.read_with(spark, paths, self.options, self.ddl)
        options = {**_DEFAULTS.get(self.format, {}), **self.options}
        base = split_pattern(self._absolute(self.pattern))[0]
        if any("=" in path.rpartition("/")[0] for path in files):
            options["basePath"] = base  # so that folders named column=value count

        def load(paths: Sequence[str], ddl: str | None) -> DataFrame:
            reader = spark.read.format(_SPARK_FORMATS.get(self.format, self.format))
            reader = reader.options(**options)
            reader = reader if ddl is None else reader.schema(ddl)
            frame = reader.load([escaped(path) for path in paths])
            return frame if self.file_column is None else self._named(frame)

        paths = [self._absolute(path) for path in files]
        has_header = self.format in _DELIMITED and options.get("header", "").lower() == "true"
        if not (self.takes_new_columns and has_header):
            return load(paths, self.ddl)
        return headers.loaded(load, headers.by_header(paths, self.storage, options), self.ddl)

    def _named(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        return frame.select("*", fn.col("_metadata.file_path").alias(str(self.file_column)))

    def no_rows(self, spark: SparkSession, window: Window) -> DataFrame:
        """No rows, with the columns of the files; raises FM-SOURCE-042 if there was none yet."""
        if self.ddl is not None:
            empty = spark.createDataFrame([], self.ddl)
            return empty if self.file_column is None else _with_text(empty, self.file_column)
        try:
            known = self.lists.read(self.upstream, files_mark(window.end_mark))
        except ListGone:
            known = self._found()
        there = (path for path in reversed(known) if self.storage.exists(self._absolute(path)))
        example = next(there, None)
        if example is None:
            raise _no_columns(window)
        return self.frame(spark, {example: known[example]}).limit(0)


class ListReader(Protocol):
    """Reads one upstream whose windows are lists: of files, or of one answer."""

    def facts(self) -> TableFacts:
        """What is known without a look."""

    def look(self, window: Window, now: datetime, spark: Any = None) -> TimeFacts:
        """What is new after the start of a window; keeps what its end is."""

    def files_of(self, window: Window) -> Files:
        """The files of a window."""

    def on_list(self, mark: FilesMark | None) -> Files:
        """The files of a mark."""

    def readable(self, window: Window, files: Files) -> Files:
        """Of `files` those that the window reads; raises SourceError where that is not decided."""

    def changed(self, files: Files) -> Mapping[str, FileFacts | None]:
        """The files that are not as planned, as they are now; None for one that is gone."""

    def frame(self, spark: SparkSession, files: Files) -> DataFrame:
        """The rows of files, of which there is one at least."""

    def no_rows(self, spark: SparkSession, window: Window) -> DataFrame:
        """No rows, with the columns of the files."""


class FileSource:
    """Reads windows of files, and of whole answers, through Spark."""

    def __init__(self, spark: SparkSession, readers: Readers) -> None:
        self._spark = spark
        self._readers = readers

    def check(self, window: Window) -> TableFacts:
        """Prove that every file of the window is there as it was planned (FM-SOURCE-041)."""
        reader = self._reader(window)
        reader.readable(window, _left_of(reader, window))
        return reader.facts()

    def settled(self, window: Window, choice: Settlement) -> Window | None:
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
        return amended if window.method != "snapshot" else None

    def read(self, window: Window) -> DataFrame:
        """The rows of the window's files, then the three change columns."""
        from floodmark.sources.spark_times import with_change_columns

        reader = self._reader(window)
        files = reader.readable(window, _left_of(reader, window))
        frame = reader.frame(self._spark, files) if files else reader.no_rows(self._spark, window)
        return with_change_columns(frame, window)

    def table(self, window: Window, at_version: int) -> DataFrame:
        """The rows of all files that are on a list, as far as they are still there."""
        reader = self._reader(window)
        if at_version == NOTHING_PROCESSED:
            return reader.no_rows(self._spark, window)
        is_end = at_version == window.through_version
        mark = files_mark(window.end_mark if is_end else window.start_mark)
        files = reader.readable(window, reader.on_list(mark))
        return reader.frame(self._spark, files) if files else reader.no_rows(self._spark, window)

    def look(self, window: Window, now: datetime, settle_seconds: float | None) -> TimeFacts:  # noqa: ARG002 files do not settle
        """See `QuerySource.look`."""
        return self._reader(window).look(window, now)

    def _reader(self, window: Window) -> ListReader:
        found: Any = reader_of(self._readers, window.upstream)
        reader: ListReader = found
        return reader


def _left_of(reader: ListReader, window: Window) -> Files:
    """The files of a window; none if its lists are gone and that was accepted."""
    try:
        return reader.files_of(window)
    except ListGone:
        if window.method != "lost":
            raise
        return {}


def _with_text(frame: DataFrame, column: str) -> DataFrame:
    from pyspark.sql import functions as fn

    return frame.withColumn(column, fn.lit(None).cast("string"))


def _change(path: str, read: FileFacts, now: FileFacts) -> str:
    if read.size == now.size:
        return f"{path} was written again after it was read, with {now.size:,} bytes as before"
    return f"{path} was changed after it was read: from {read.size:,} to {now.size:,} bytes"


def files_mark(text: str | None) -> FilesMark | None:
    """The mark of a stored text; raises ValueError if it is none of files."""
    mark = any_mark(text)
    if mark is None or isinstance(mark, FilesMark):
        return mark
    raise ValueError(f"not a mark of files: {text!r}")


def _changed(window: Window, files: Mapping[str, FileFacts | None]) -> SourceError:
    ((path, now),) = files.items()
    return SourceError(
        "FM-SOURCE-041",
        f"{path.rpartition('/')[2]} was in this batch and has been"
        f" {'deleted' if now is None else 'changed'} since",
        where=f"{window.upstream}: {path}",
        found="it is gone" if now is None else "it was written again",
        allowed="files that stay as they are once they are there",
        state="nothing was read; the committed watermark stays",
        next="put the file back, then: floodmark retry BATCH; or go on with what is there now:"
        " floodmark retry BATCH --on-lost-range snapshot (files as they are now) or accept (without"
        " those that are not as planned)",
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
