"""The rows of files as Spark reads them; what it would change or leave out is refused first."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from floodmark.deltalog import is_local
from floodmark.errors import SourceError
from floodmark.model import FilesWindow
from floodmark.model.ddl import Kind, columns_of, read_columns
from floodmark.next_steps import BATCH, THEN_RETRY, command
from floodmark.sources.faults import out_of_reach
from floodmark.sources.files import headers
from floodmark.sources.files.csv import DELIMITED, CsvFile, CsvLook, Dialect, refuse_other_columns
from floodmark.sources.files.lists import Files, ListGone
from floodmark.sources.files.looks import MOST_LOOKS, Looks
from floodmark.sources.files.probe import FileReader
from floodmark.sources.files.values import broken_compression
from floodmark.sources.frames import escaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_SPARK_FORMATS = {"tsv": "csv", "binary": "binaryFile"}
_OF_LINES = (*DELIMITED, "json", "text", "xml", "binary")
"""Formats in which an empty file has no rows; in others it is a file that was not finished."""
_OWN_COLUMNS = {"text": "value STRING"}
# Spark's own defaults turn what it cannot read into NULLs and do not say so.
_DEFAULTS: dict[str, dict[str, str]] = {
    "json": {"mode": "FAILFAST", "enableDateTimeParsingFallback": "false"},
    "xml": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}


@dataclass(frozen=True)
class FileRows:
    """Reads files as one upstream describes them."""

    reader: FileReader

    def frame(self, spark: SparkSession, files: Files) -> DataFrame:
        """The rows of files, of which there is one at least."""
        if self.reader.read_with is not None:
            paths = [self.reader.absolute(path) for path in files]
            return self.reader.read_with(spark, paths, self.reader.options, self.reader.ddl)
        for path in files:
            if ":" in path.rpartition("/")[2] and is_local(self.reader.absolute(path)):
                found = "Spark reads no local file with a colon in its name"
                raise unreadable(self.reader.absolute(path), found, by_name=True)
            if not files[path].size and self.reader.format not in _OF_LINES:
                raise self._unreadable(path, f"0 bytes, which is no {self.reader.format}")
        if self.reader.format in DELIMITED:
            return self._delimited(spark, files)
        with_rows = [path for path in files if files[path].size or self.reader.format == "binary"]
        if not with_rows:
            return self._nothing(spark, files)
        paths = list(map(self.reader.absolute, with_rows))
        self._refuse_folders(paths)
        self._refuse_changed_values(paths)
        options = {**_DEFAULTS.get(self.reader.format, {}), **self.reader.options}
        return self._by_folders(
            paths, lambda some: self._loaded(spark, some, options, self.reader.ddl)
        )

    def _delimited(self, spark: SparkSession, files: Iterable[str]) -> DataFrame:
        """The rows of CSV files, each looked at first: see `csv`."""
        dialect, paths = self._dialect, [self.reader.absolute(path) for path in files]
        with ThreadPoolExecutor(MOST_LOOKS) as pool:
            looks = dict(zip(paths, pool.map(self._look, paths), strict=True))
        looks = {path: look for path, look in looks.items() if look.has_rows}
        if not looks:
            return self._nothing(spark, files)
        self._refuse_folders(list(looks))

        def load(some: Sequence[str], ddl: str | None) -> DataFrame:
            frames = []
            # Those without line breaks in their values can be read in parts.
            for spans_lines, group in _by_line_breaks(some, looks).items():
                options = dialect.reader_options(spans_lines=spans_lines)
                frames.append(self._loaded(spark, group, options, ddl))
            return reduce(lambda one, other: one.union(other), frames)

        def by_headers(some: Sequence[str]) -> DataFrame:
            groups = headers.grouped({path: looks[path].header for path in some})
            # A first line that is no header has values.
            tells = self.reader.ddl is not None or not self.reader.hides_values
            return headers.loaded(load, groups, self.reader.ddl, self.reader.folders, tells=tells)

        if dialect.checks_header:
            self._refuse_other_columns(looks)
        if not (self.reader.takes_new_columns and dialect.has_header):
            return self._by_folders(list(looks), lambda some: load(some, self.reader.ddl))
        return self._by_folders(list(looks), by_headers)

    @property
    def _dialect(self) -> Dialect:
        return Dialect.of(self.reader.options, is_tabbed=self.reader.format == "tsv")

    def _look(self, path: str) -> CsvLook:
        try:
            file = CsvFile(path, self._dialect, self.reader.storage)
            look = file.look()
            changes = self.reader.ddl is not None and file.changes_values(look, self._kinds)
        except OSError as error:
            broken = broken_compression(path, self.reader.storage)
            if broken is None:
                raise out_of_reach(path, error) from error
            raise unreadable(path, broken) from error
        if changes:
            raise unreadable(path, self.misfit(path) or "a value that Spark would change")
        return look

    def _refuse_changed_values(self, paths: Sequence[str]) -> None:
        """Raise FM-SOURCE-059 for values that Spark would change or leave out without a word."""
        refused = Looks(self.reader).refused(paths)
        if refused is not None:
            raise unreadable(*refused)

    def _refuse_other_columns(self, looks: Mapping[str, CsvLook]) -> None:
        """Raise FM-SOURCE-057 for the first file whose columns are not those of the node.

        Where every write takes new columns, only a name that the schema does not have is refused.
        """
        named = {path: look.header for path, look in looks.items() if look.header is not None}
        columns: Sequence[str] = next(iter(named.values()), ())
        if self.reader.ddl is not None:
            columns = list(columns_of(self.reader.ddl))
        for path, header in named.items():
            folders = self.reader.folders(path)
            if (taken := folders.taken(header)) is not None:
                raise unreadable(path, taken)
            in_file = [name for name in columns if not folders.has(name)]
            if self.reader.takes_new_columns and (
                self.reader.ddl is None
                or {n.casefold() for n in header} <= {n.casefold() for n in in_file}
            ):
                continue
            refuse_other_columns(path, header, in_file, hides_values=self.reader.hides_values)

    def _refuse_folders(self, paths: Sequence[str]) -> None:
        """Raise FM-SOURCE-059 for folders that cannot be columns, FM-SOURCE-057 for files whose
        folders are other columns than those of others, unless every write takes new columns.
        """
        first = self.reader.folders(paths[0])
        declared = [] if self.reader.ddl is None else read_columns(self.reader.ddl)
        for path in paths:
            folders = self.reader.folders(path)
            fault = folders.fault or folders.misfit(declared)
            if fault is not None:
                raise unreadable(path, fault)
            if not self.reader.takes_new_columns and _folded(folders.names) != _folded(first.names):
                raise other_folders(path, folders.names, paths[0], first.names)

    def _by_folders(
        self, paths: Sequence[str], load: Callable[[Sequence[str]], DataFrame]
    ) -> DataFrame:
        """The rows of all files: Spark reads those together whose folders are the same columns."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for path in paths:
            folders = self.reader.folders(path)
            groups.setdefault((folders.above, *folders.names), []).append(path)
        frames = [load(group) for group in groups.values()]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other, allowMissingColumns=self.reader.takes_new_columns)
        return frame

    def _nothing(self, spark: SparkSession, files: Iterable[str]) -> DataFrame:
        """No rows, of files that have none."""
        ddl = self.reader.ddl or _OWN_COLUMNS.get(self.reader.format)
        if ddl is None:
            raise _no_columns(
                self.reader.upstream, f"only empty files ({', '.join(list(files)[:3])})"
            )
        empty = spark.createDataFrame([], ddl)
        return (
            empty if self.reader.file_column is None else _with_text(empty, self.reader.file_column)
        )

    def _loaded(
        self,
        spark: SparkSession,
        paths: Sequence[str],
        options: Mapping[str, str],
        ddl: str | None,
    ) -> DataFrame:
        reader = spark.read.format(
            _SPARK_FORMATS.get(self.reader.format, self.reader.format)
        ).options(**options)
        folders = self.reader.folders(paths[0]).names
        reader = reader if ddl is None else reader.schema(ddl)
        if folders:
            # With a type for each, Spark does not guess any.
            reader = reader.schema(self._with_folders(reader, paths, ddl, folders))
            reader = reader.option("basePath", self.reader.base)
        frame = reader.load([escaped(path) for path in paths])
        self._refuse_left_out(frame, paths)
        return frame if self.reader.file_column is None else self._named(frame)

    def _with_folders(
        self, reader: DataFrameReader, paths: Sequence[str], ddl: str | None, folders: Sequence[str]
    ) -> StructType:
        """The columns of files, and those of their folders, as text where no type is declared."""
        from pyspark.sql.types import StringType, StructField, StructType

        if ddl is None:
            own = reader.load([escaped(path) for path in paths]).schema
            if (taken := self.reader.folders(paths[0]).taken(own.names)) is not None:
                raise unreadable(paths[0], taken)
        else:
            own = cast("StructType", StructType.fromDDL(ddl))
        there = _folded(own.names)
        texts = [StructField(n, StringType()) for n in folders if n.casefold() not in there]
        return StructType([*own.fields, *texts])

    def _refuse_left_out(self, frame: DataFrame, paths: Sequence[str]) -> None:
        """Raise FM-SOURCE-059 unless Spark reads each file, and once: it leaves some names out."""
        files = frame.inputFiles()
        if len(files) == len(set(files)) == len(paths):
            return
        read = Counter(unquote(file).rpartition("/")[2] for file in files)
        left_out = Counter(path.rpartition("/")[2] for path in paths) - read
        for path in paths:
            if path.rpartition("/")[2] in left_out:
                raise unreadable(path, "Spark leaves out files of this name", by_name=True)
        raise unreadable(
            paths[0], f"Spark reads {len(files):,} files where {len(paths):,} are meant"
        )

    def misfit(self, path: str) -> str | None:
        """Where and why a file cannot be read, as far as that is found without Spark."""
        try:
            if self.reader.format in DELIMITED:
                return CsvFile(path, self._dialect, self.reader.storage).misfit(self._kinds)
            if self.reader.format == "json" and "multiline" not in map(
                str.lower, self.reader.options
            ):
                return _broken_line(self.reader.storage.read(path))
        except (OSError, csv.Error) as error:
            return f"{type(error).__name__}"
        return None

    @property
    def _kinds(self) -> dict[str, Kind]:
        """The declared columns and their types."""
        columns = [] if self.reader.ddl is None else read_columns(self.reader.ddl)
        return {column.name: column.kind for column in columns}

    def _unreadable(self, path: str, found: str) -> SourceError:
        return unreadable(self.reader.absolute(path), found)

    def _named(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as fn

        return frame.select("*", fn.col("_metadata.file_path").alias(str(self.reader.file_column)))

    def no_rows(self, spark: SparkSession, window: FilesWindow) -> DataFrame:
        """No rows, with the columns of the files; raises FM-SOURCE-042 if there was none yet."""
        if self.reader.ddl is not None or self.reader.format in _OWN_COLUMNS:
            return self._nothing(spark, ())
        try:
            files = dict(self.reader.on_list(window.through_mark))
        except ListGone:
            files = self.reader.files_there()
        for path in reversed(files):
            if files[path].size and self.reader.storage.exists(self.reader.absolute(path)):
                return self.frame(spark, {path: files[path]}).limit(0)
        raise _no_columns(window.upstream, "no file, and no schema")


def _with_text(frame: DataFrame, column: str) -> DataFrame:
    from pyspark.sql import functions as fn

    return frame.withColumn(column, fn.lit(None).cast("string"))


def unreadable(path: str, found: str, *, by_name: bool = False) -> SourceError:
    """The error for a file that Spark cannot read as the node says; or by its name alone."""
    correct = "correct the file in its place, then: " + command(
        "retry", BATCH, "--on-lost-range", "snapshot"
    )
    rename = "give the file another name: the next batch reads it; then: " + command(
        "retry", BATCH, "--on-lost-range", "accept"
    )
    if by_name:
        return SourceError(
            "FM-SOURCE-059",
            "a file cannot be read as the node says",
            where=path,
            found=found,
            allowed="names without a colon that do not begin with _ or .",
            state="nothing of this node was written; the committed watermark stays",
            next=rename,
        )
    return SourceError(
        "FM-SOURCE-059",
        "a file cannot be read as the node says",
        where=path,
        found=found,
        allowed="files that fit format, schema and options of the node",
        state="nothing of this node was written; the committed watermark stays",
        next=correct
        + "; or correct the node, "
        + THEN_RETRY
        + "; or go on without the file: take it away, then: "
        + command("retry", BATCH, "--on-lost-range", "accept"),
    )


def _broken_line(content: bytes) -> str | None:
    for number, line in enumerate(content.splitlines(), 1):
        try:
            if line.strip():
                json.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return f"line {number:,} is no JSON"
    return None


def _by_line_breaks(paths: Sequence[str], looks: Mapping[str, CsvLook]) -> dict[bool, list[str]]:
    """The files by whether a value may have a line break."""
    groups: dict[bool, list[str]] = {}
    for path in paths:
        groups.setdefault(looks[path].spans_lines, []).append(path)
    return groups


def _folded(names: Sequence[str]) -> set[str]:
    return {name.casefold() for name in names}


def other_folders(
    path: str, names: Sequence[str], first: str, names_of_first: Sequence[str]
) -> SourceError:
    """The error for files of one batch that are not in folders of the same columns."""

    def told(some: Sequence[str]) -> str:
        return "/".join(f"{name}=" for name in some) or "no folder that is a column"

    return SourceError(
        "FM-SOURCE-057",
        "a file is in folders of other columns than another one of this batch",
        where=path,
        found=told(names),
        allowed=f"{told(names_of_first)}, as {first} has it; or on_schema_change: add_columns in every"
        " write of the rows: a column that a file does not have is then NULL",
        state="nothing of this node was written; the committed watermark stays",
        next="correct the node, "
        + THEN_RETRY
        + "; or go on without the files: take them away, then: "
        + command("retry", BATCH, "--on-lost-range", "accept"),
    )


def _no_columns(upstream: str, found: str) -> SourceError:
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
