"""Files of a folder or glob: a window is the files that are on its end's list and not its start's."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model.ddl import columns_of
from floodmark.model.delta import TableFacts
from floodmark.model.file_marks import FilesMark
from floodmark.model.plan import TimeFacts
from floodmark.model.window import NOTHING_PROCESSED, Caution, FilesWindow, Settlement
from floodmark.sources.cursor.read import Readers, reader_of
from floodmark.sources.files import headers
from floodmark.sources.files.csv import (
    DEFAULTS_VERSION,
    DELIMITED,
    CsvFile,
    Dialect,
    Look,
    refuse_other_columns,
)
from floodmark.sources.files.lists import (
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
from floodmark.sources.files.values import OF_HADOOP, other_characters, second_value
from floodmark.sources.scratch import Scratch
from floodmark.sources.time import probe as times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadWith = Callable[["SparkSession", list[str], Mapping[str, Any], str | None], "DataFrame"]
"""Session, absolute paths, options and declared columns in, rows out."""

_SPARK_FORMATS = {"tsv": "csv", "binary": "binaryFile"}
_OF_LINES = (*DELIMITED, "json", "text", "xml", "binary")
"""Formats in which an empty file has no rows; in others it is a file that was not finished."""
_OWN_COLUMNS = {"text": "value STRING"}
_MOST_LOOKS = 16
# Spark's own defaults turn what it cannot read into NULLs and do not say so.
_DEFAULTS: dict[str, dict[str, str]] = {
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
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

    def look(
        self,
        window: FilesWindow,
        now: datetime,
        spark: Any = None,  # noqa: ARG002 a door
        scratch: Scratch | None = None,
    ) -> TimeFacts:
        """What is new after the start of a window; keeps the list that its end is."""
        lists = self.lists.with_scratch(scratch)
        known = lists.read(self.upstream, window.after_mark)
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
        mark = lists.keep(self.upstream, {**known, **taken})
        mark = replace(mark, defaults=self._defaults_after(window.after_mark))
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

    def _defaults_after(self, start: FilesMark | None) -> int:
        """By which defaults all files up to a mark were read: the oldest of them."""
        mine = DEFAULTS_VERSION if self.format in DELIMITED else 0
        return mine if start is None else min(mine, start.defaults)

    def _is_settled(self, facts: FileFacts, now: datetime) -> bool:
        return not self.settle or facts.modified_ms <= (now.timestamp() - self.settle) * 1000

    def _found(self) -> dict[str, FileFacts]:
        found = listed(self._absolute(self.pattern), self.storage)
        return {path.removeprefix(f"{self.root}/"): facts for path, facts in found.items()}

    def _absolute(self, path: str) -> str:
        return f"{self.root}/{path}"

    def files_of(self, window: FilesWindow) -> dict[str, FileFacts]:
        """The files of a window."""
        before = self.lists.read(self.upstream, window.after_mark)
        after = self.lists.read(self.upstream, window.through_mark)
        return new_files(after, before, "modified")

    def on_list(self, mark: FilesMark | None) -> Files:
        """The files of a mark."""
        return self.lists.read(self.upstream, mark)

    def readable(self, window: FilesWindow, files: Files) -> dict[str, FileFacts]:
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

    def correct(self, window: FilesWindow, changed: Mapping[str, FileFacts | None]) -> None:
        """Remember how the files of a window are now: later windows do not take them for changed."""
        mark = window.through_mark
        now = {path: facts for path, facts in changed.items() if facts is not None}
        if mark is not None and now:
            self.lists.correct(self.upstream, mark, now)

    def frame(self, spark: SparkSession, files: Files) -> DataFrame:
        """The rows of files, of which there is one at least."""
        if self.read_with is not None:
            paths = [self._absolute(path) for path in files]
            return self.read_with(spark, paths, self.options, self.ddl)
        for path in files:
            if not files[path].size and self.format not in _OF_LINES:
                raise self._unreadable(path, f"0 bytes, which is no {self.format}")
        if self.format in DELIMITED:
            return self._delimited(spark, files)
        with_rows = [path for path in files if files[path].size or self.format == "binary"]
        if not with_rows:
            return self._nothing(spark, files)
        if self.format in ("json", "text"):
            self._refuse_changed_values(list(map(self._absolute, with_rows)))
        options = {**_DEFAULTS.get(self.format, {}), **self.options, **self._base_of(with_rows)}
        return self._loaded(spark, list(map(self._absolute, with_rows)), options, self.ddl)

    def _delimited(self, spark: SparkSession, files: Iterable[str]) -> DataFrame:
        """The rows of CSV files, each looked at first: see `csv_files`."""
        dialect, paths = self._dialect, [self._absolute(path) for path in files]
        with ThreadPoolExecutor(_MOST_LOOKS) as pool:
            looks = dict(zip(paths, pool.map(self._look, paths), strict=True))
        looks = {path: look for path, look in looks.items() if look.has_rows}
        if not looks:
            return self._nothing(spark, files)
        base = self._base_of(files)

        def load(some: Sequence[str], ddl: str | None) -> DataFrame:
            frames = []
            # Those without line breaks in their values can be read in parts.
            for spans_lines, group in _by_line_breaks(some, looks, together=bool(base)).items():
                options = {**dialect.reader_options(spans_lines=spans_lines), **base}
                frames.append(self._loaded(spark, group, options, ddl))
            return reduce(lambda one, other: one.union(other), frames)

        if dialect.checks_header:
            self._refuse_other_columns(looks)
        if not (self.takes_new_columns and dialect.has_header):
            return load(list(looks), self.ddl)
        groups = headers.grouped({path: look.header for path, look in looks.items()})
        return headers.loaded(load, groups, self.ddl)

    @property
    def _dialect(self) -> Dialect:
        return Dialect.of(self.options, is_tabbed=self.format == "tsv")

    def _look(self, path: str) -> Look:
        try:
            file = CsvFile(path, self._dialect, self.storage)
            look = file.look()
            changes = self.ddl is not None and file.changes_decimals(look, columns_of(self.ddl))
        except OSError as error:
            raise times.out_of_reach(path, error) from error
        if changes:
            raise unreadable(path, self.misfit(path) or "a decimal that Spark would change")
        return look

    def _refuse_changed_values(self, paths: Sequence[str]) -> None:
        """Raise FM-SOURCE-059 for values that Spark would change or leave out without a word."""
        own = {name.lower(): str(value).lower() for name, value in self.options.items()}
        if not {"encoding", "charset", "linesep"} & own.keys():
            with ThreadPoolExecutor(_MOST_LOOKS) as pool:
                look = partial(self._changed_value, spans_lines=own.get("multiline") == "true")
                for path, found in zip(paths, pool.map(look, paths), strict=True):
                    if found is not None:
                        raise unreadable(path, found)

    def _changed_value(self, path: str, *, spans_lines: bool) -> str | None:
        if path.endswith(OF_HADOOP):
            return None
        try:
            if self.format == "text":
                return other_characters(path, self.storage)
            return second_value(path, self.storage, spans_lines=spans_lines)
        except OSError as error:
            raise times.out_of_reach(path, error) from error

    def _refuse_other_columns(self, looks: Mapping[str, Look]) -> None:
        """Raise FM-SOURCE-057 for the first file whose columns are not those of the node.

        Where every write takes new columns, only a name that the schema does not have is refused.
        """
        named = {path: look.header for path, look in looks.items() if look.header is not None}
        wanted: Sequence[str] = next(iter(named.values()), ())
        if self.ddl is not None:
            wanted = list(columns_of(self.ddl))
        elif self.takes_new_columns:
            return
        for path, header in named.items():
            in_file = [name for name in wanted if f"/{name}=" not in path]
            if self.takes_new_columns and {n.casefold() for n in header} <= {
                n.casefold() for n in in_file
            }:
                continue
            refuse_other_columns(path, header, in_file)

    def _base_of(self, files: Iterable[str]) -> dict[str, str]:
        """The option by which folders named column=value count."""
        if not any("=" in path.rpartition("/")[0] for path in files):
            return {}
        return {"basePath": split_pattern(self._absolute(self.pattern))[0]}

    def _nothing(self, spark: SparkSession, files: Iterable[str]) -> DataFrame:
        """No rows, of files that have none."""
        ddl = self.ddl or _OWN_COLUMNS.get(self.format)
        if ddl is None:
            raise no_columns(self.upstream, f"only empty files ({', '.join(list(files)[:3])})")
        empty = spark.createDataFrame([], ddl)
        return empty if self.file_column is None else _with_text(empty, self.file_column)

    def _loaded(
        self,
        spark: SparkSession,
        paths: Sequence[str],
        options: Mapping[str, str],
        ddl: str | None,
    ) -> DataFrame:
        reader = spark.read.format(_SPARK_FORMATS.get(self.format, self.format)).options(**options)
        reader = reader if ddl is None else reader.schema(ddl)
        frame = reader.load([escaped(path) for path in paths])
        return frame if self.file_column is None else self._named(frame)

    def misfit(self, path: str) -> str | None:
        """Where and why a file cannot be read, as far as that is found without Spark."""
        kinds = {} if self.ddl is None else columns_of(self.ddl)
        try:
            if self.format in DELIMITED:
                return CsvFile(path, self._dialect, self.storage).misfit(kinds)
            if self.format == "json" and "multiline" not in map(str.lower, self.options):
                return _broken_line(self.storage.read(path))
        except (OSError, csv.Error) as error:
            return f"{type(error).__name__}"
        return None

    def _unreadable(self, path: str, found: str) -> SourceError:
        return unreadable(self._absolute(path), found)

    def _named(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        return frame.select("*", fn.col("_metadata.file_path").alias(str(self.file_column)))

    def no_rows(self, spark: SparkSession, window: FilesWindow) -> DataFrame:
        """No rows, with the columns of the files; raises FM-SOURCE-042 if there was none yet."""
        if self.ddl is not None or self.format in _OWN_COLUMNS:
            return self._nothing(spark, ())
        try:
            known = self.lists.read(self.upstream, window.through_mark)
        except ListGone:
            known = self._found()
        with_rows = (path for path in reversed(known) if known[path].size)
        there = (path for path in with_rows if self.storage.exists(self._absolute(path)))
        example = next(there, None)
        if example is None:
            raise no_columns(window.upstream, "no file, and no schema")
        return self.frame(spark, {example: known[example]}).limit(0)


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

    def settled(self, window: FilesWindow, choice: Settlement) -> FilesWindow | None:
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
        from floodmark.sources.time.read import with_change_columns

        reader = self._reader(window)
        files = reader.readable(window, _left_of(reader, window))
        frame = reader.frame(self._spark, files) if files else reader.no_rows(self._spark, window)
        return with_change_columns(frame, window)

    def table(self, window: FilesWindow, at_version: int) -> DataFrame:
        """The rows of all files that are on a list, as far as they are still there."""
        reader = self._reader(window)
        if at_version == NOTHING_PROCESSED:
            return reader.no_rows(self._spark, window)
        is_end = at_version == window.through
        mark = window.through_mark if is_end else window.after_mark
        files = reader.readable(window, reader.on_list(mark))
        return reader.frame(self._spark, files) if files else reader.no_rows(self._spark, window)

    def look(self, window: FilesWindow, now: datetime, settle_seconds: float | None) -> TimeFacts:  # noqa: ARG002 files do not settle
        """See `QuerySource.look`."""
        return self._reader(window).look(window, now)

    def _reader(self, window: FilesWindow) -> FileReader:
        found: Any = reader_of(self._readers, window.upstream)
        reader: FileReader = found
        return reader


def _left_of(reader: FileReader, window: FilesWindow) -> Files:
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


def _changed(window: FilesWindow, files: Mapping[str, FileFacts | None]) -> SourceError:
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


def no_columns(upstream: str, found: str) -> SourceError:
    """The error for rows whose columns nothing tells."""
    return SourceError(
        "FM-SOURCE-042",
        "the columns of files are not known before the first one is there",
        where=upstream,
        found=found,
        allowed='a schema in the node: read: {schema: "id LONG, name STRING"}; or one file with rows',
        state="nothing was read or written",
        next="say the schema, or put a file there, then run the same command again",
        retryable=True,
    )


def unreadable(path: str, found: str) -> SourceError:
    """The error for a file that Spark cannot read as the node says."""
    return SourceError(
        "FM-SOURCE-059",
        "a file cannot be read as the node says",
        where=path,
        found=found,
        allowed="files that fit format, schema and options of the node",
        state="nothing of this node was written; the committed watermark stays",
        next="correct the file in its place, then: floodmark retry BATCH --on-lost-range snapshot; or"
        " correct the node, then: floodmark retry BATCH; or go on without the file: take it away,"
        " then: floodmark retry BATCH --on-lost-range accept",
    )


def _broken_line(content: bytes) -> str | None:
    for number, line in enumerate(content.splitlines(), 1):
        try:
            if line.strip():
                json.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return f"line {number:,} is no JSON"
    return None


def _by_line_breaks(
    paths: Sequence[str], looks: Mapping[str, Look], *, together: bool
) -> dict[bool, list[str]]:
    """The files by whether a value may have a line break. Folders whose names are columns stay
    together: the types of those are inferred from all of them.
    """
    any_spans = any(looks[path].spans_lines for path in paths)
    groups: dict[bool, list[str]] = {}
    for path in paths:
        groups.setdefault(any_spans if together else looks[path].spans_lines, []).append(path)
    return groups
