"""A look at each file before Spark reads it, for what Spark would change or leave out without a word.

CSV has one of its own, which decides how it is read too: see `csv`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import SourceError
from floodmark.model.ddl import Column, read_columns
from floodmark.sources.faults import out_of_reach
from floodmark.sources.files import footers
from floodmark.sources.files.csv import other_columns
from floodmark.sources.files.json import JsonFile
from floodmark.sources.files.probe import FileReader
from floodmark.sources.files.values import (
    OF_HADOOP,
    Rules,
    broken_compression,
    other_characters,
)
from floodmark.sources.files.xml import XmlFile

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("floodmark")

MOST_LOOKS = 16
"""How many files are looked at side by side."""
_OF_OTHER_CHARACTERS = frozenset(("encoding", "charset", "linesep"))


@dataclass(frozen=True, slots=True)
class Look:
    """What one file is, as far as Spark would not tell."""

    fault: str | None = None
    """Where it cannot be read as the node says, and why."""
    absent: tuple[str, ...] = ()
    """Columns of the node that it does not have."""
    schema: pa.Schema | None = None
    """Its columns, where they are known and the node does not say any."""
    has_rows: bool = True
    """Whether anything in it is a row by the options of the node."""


@dataclass(frozen=True)
class Looks:
    """Looks at the files of one upstream."""

    reader: FileReader

    def refused(self, paths: Sequence[str]) -> tuple[str, str] | None:
        """The first file that cannot be read as it is meant, and why.

        Raises FM-SOURCE-057 for one that has no column of the node. Says in the log which files
        lack some: NULL never comes without a word.
        """
        with ThreadPoolExecutor(MOST_LOOKS) as pool:
            looks = dict(zip(paths, pool.map(self._look, paths), strict=True))
        for path, look in looks.items():
            if look.fault is not None:
                return path, look.fault
            if look.absent and len(look.absent) == len(self._columns(path)):
                raise self._no_column(path, look.absent)
        schemas = {path: look.schema for path, look in looks.items() if look.schema is not None}
        if (conflict := footers.conflict(schemas)) is not None:
            return conflict
        _tell({path: look.absent or _others(look, looks.values()) for path, look in looks.items()})
        for path, look in looks.items():
            if not look.has_rows:
                log.warning("%s: no element %s; no row is read", path, self._own.get("rowtag", ""))
        return None

    def _look(self, path: str) -> Look:
        try:
            return Look() if path.endswith(OF_HADOOP) else self._judged(path)
        except OSError as error:
            broken = broken_compression(path, self.reader.storage)
            if broken is None:
                raise out_of_reach(path, error) from error
            return Look(broken)

    def _judged(self, path: str) -> Look:
        match self.reader.format:
            case "json":
                return self._json(path)
            case "xml":
                return self._xml(path)
            case "parquet" | "orc":
                return self._footed(path)
            case "text" if not _OF_OTHER_CHARACTERS & self._own.keys():
                return Look(other_characters(path, self.reader.storage))
        return Look()

    def _json(self, path: str) -> Look:
        if _OF_OTHER_CHARACTERS & self._own.keys():
            return Look()
        spans_lines = self._own.get("multiline", "").lower() == "true"
        columns = () if "singlevariantcolumn" in self._own else self._columns(path)
        found = JsonFile(
            path,
            self.reader.storage,
            spans_lines,
            columns,
            Rules.of(self._own, floats=False),
            self.reader.folders(path).names,
        ).look()
        return Look(found.fault, found.absent)

    def _xml(self, path: str) -> Look:
        if "mode" in self._own:
            return Look()
        columns = () if "singlevariantcolumn" in self._own else self._columns(path)
        folders = self.reader.folders(path).names
        found = XmlFile(path, self.reader.storage, self._own, columns, folders).look()
        return Look(found.fault, found.absent, has_rows=found.has_rows)

    def _footed(self, path: str) -> Look:
        form = self.reader.format
        schema = footers.columns_in(path, form, self.reader.storage)
        if schema is None or isinstance(schema, str):
            return Look(schema)
        taken = self.reader.folders(path).taken(schema.names)
        if self.reader.ddl is None:
            return Look(taken or footers.misfit(schema, form, None), schema=schema)
        columns = self._columns(path)
        there = {name.casefold() for name in schema.names}
        absent = tuple(each.name for each in columns if each.name.casefold() not in there)
        return Look(taken or footers.misfit(schema, form, columns), absent)

    @property
    def _own(self) -> dict[str, str]:
        """The options of the node, names in lower case."""
        return {name.lower(): str(value) for name, value in self.reader.options.items()}

    def _columns(self, path: str) -> list[Column]:
        """The declared columns that a file should have: not those of its folders, nor Spark's own."""
        of_spark = self._own.get("columnnameofcorruptrecord", "_corrupt_record")
        folders = self.reader.folders(path)
        return [
            column
            for column in self._declared
            if not folders.has(column.name) and column.name != of_spark
        ]

    @property
    def _declared(self) -> list[Column]:
        return [] if self.reader.ddl is None else read_columns(self.reader.ddl)

    def _no_column(self, path: str, absent: Sequence[str]) -> SourceError:
        return other_columns(path, "no column of the node", absent)


def _others(look: Look, looks: Iterable[Look]) -> tuple[str, ...]:
    """Columns that other files have and this one has not."""
    if look.schema is None:
        return ()
    there = {name.casefold() for name in look.schema.names}
    every = (each.schema for each in looks if each.schema is not None)
    names = {name.casefold(): name for schema in every for name in schema.names}
    return tuple(name for key, name in names.items() if key not in there)


def _tell(absent: Mapping[str, tuple[str, ...]]) -> None:
    """Say which files lack a column."""
    for names in dict.fromkeys(absent.values()):
        paths = [path for path, missing in absent.items() if missing == names]
        if names:
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            log.warning("%s%s: no column %s; NULL is read", paths[0], more, ", ".join(names))
