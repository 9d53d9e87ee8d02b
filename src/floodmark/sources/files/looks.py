"""A look at each file before Spark reads it, for what Spark would change or leave out without a word.

CSV has one of its own, which decides how it is read too: see `csv`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from floodmark.errors import SourceError
from floodmark.model.ddl import Column, read_columns
from floodmark.sources.faults import out_of_reach
from floodmark.sources.files import footers
from floodmark.sources.files.csv import other_columns
from floodmark.sources.files.json import JsonFile
from floodmark.sources.files.probe import FileReader
from floodmark.sources.files.values import (
    OF_HADOOP,
    OWN_TIMES,
    broken_compression,
    other_characters,
)
from floodmark.sources.files.xml import XmlFile

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
    columns: tuple[str, ...] = ()
    """Those that it has, where that is known and the node does not say any."""
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
            checks_decimals="locale" not in self._own,
            checks_times=not OWN_TIMES & self._own.keys(),
        ).look()
        return Look(found.fault, found.absent)

    def _xml(self, path: str) -> Look:
        if "mode" in self._own:
            return Look()
        columns = () if "singlevariantcolumn" in self._own else self._columns(path)
        found = XmlFile(path, self.reader.storage, self._own, columns).look()
        return Look(found.fault, found.absent, has_rows=found.has_rows)

    def _footed(self, path: str) -> Look:
        form = self.reader.format
        schema = footers.columns_in(path, form, self.reader.storage)
        if schema is None or isinstance(schema, str):
            return Look(schema)
        if self.reader.ddl is None:
            return Look(footers.misfit(schema, form, None), columns=tuple(schema.names))
        columns = self._columns(path)
        there = {name.casefold() for name in schema.names}
        absent = tuple(each.name for each in columns if each.name.casefold() not in there)
        return Look(footers.misfit(schema, form, columns), absent)

    @property
    def _own(self) -> dict[str, str]:
        """The options of the node, names in lower case."""
        return {name.lower(): str(value) for name, value in self.reader.options.items()}

    def _columns(self, path: str) -> list[Column]:
        """The declared columns that a file should have: not those of its folders, nor Spark's own."""
        if self.reader.ddl is None:
            return []
        of_spark = self._own.get("columnnameofcorruptrecord", "_corrupt_record")
        return [
            column
            for column in read_columns(self.reader.ddl)
            if f"/{column.name}=" not in path and column.name != of_spark
        ]

    def _no_column(self, path: str, absent: Sequence[str]) -> SourceError:
        return other_columns(path, "no column of the node", absent)


def _others(look: Look, looks: Iterable[Look]) -> tuple[str, ...]:
    """Columns that other files have and this one has not."""
    there = {name.casefold() for name in look.columns}
    names = {name.casefold(): name for each in looks for name in each.columns}
    return tuple(name for key, name in names.items() if look.columns and key not in there)


def _tell(absent: Mapping[str, tuple[str, ...]]) -> None:
    """Say which files lack a column."""
    for names in dict.fromkeys(absent.values()):
        paths = [path for path, missing in absent.items() if missing == names]
        if names:
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            log.warning("%s%s: no column %s; NULL is read", paths[0], more, ", ".join(names))
