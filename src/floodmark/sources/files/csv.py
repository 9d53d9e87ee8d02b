"""CSV as Excel, pandas and RFC 4180 write it: what Spark has to be told about each file.

Spark's own defaults take a backslash for the escape, read an empty text as NULL and end a record at
every line break. Ours differ, and each file is looked at before it is read (decision 0038): a file
without line breaks in its values can be read in parts, and one whose quotes do not close would lose
rows without a word.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model import HIDDEN_VALUES
from floodmark.model.ddl import Kind
from floodmark.next_steps import BATCH, THEN_RETRY, command
from floodmark.sources.files.values import (
    BOM,
    OF_HADOOP,
    UTF8,
    Characters,
    Rules,
    has_other_values,
    opened,
)

if TYPE_CHECKING:
    import numpy as np

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Places = np.ndarray[Any, np.dtype[np.intp]]

DELIMITED = ("csv", "tsv")
DEFAULTS_VERSION = 2
"""Kept with the marks of CSV files; 1, which no mark tells, had Spark's own escape and NULLs."""
NO_VALUE = "\ue000"
"""Stands for what is missing between two separators. A character for private use: what a file really
holds is never NULL by chance."""

# Spark's own defaults take columns by position and make NULLs of what they cannot read.
_CAREFUL = {"mode": "FAILFAST", "header": "true", "enforceSchema": "false"}
_ALIASES = {"delimiter": "sep", "charset": "encoding"}
_LF, _CR = 10, 13
_ASCII_LIKE = frozenset(
    ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252")
)
_HEADER_BYTES = 2**20
_BLANK = rb"[\x00-\x09\x0b\x0c\x0e-\x20]"
_BLANK_LINES = [re.compile(end + _BLANK + rb"+(?=[\r\n])") for end in (rb"\n", rb"\r")]
"""Lines of white space, which Spark leaves out before it looks for separators."""
_NULS = re.compile(rb"[\r\n]\x00")
"""A line that begins so: of NULs alone it would be left out, as one of white space is."""
_WHITE = bytes(range(0x21))
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a node says that its files are written; what it does not say is as RFC 4180 has it."""

    options: Mapping[str, str]
    """Of Spark's reader, names in lower case."""
    is_tabbed: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_tabbed: bool) -> Dialect:
        """The dialect of a reader's options, which Spark takes in any case."""
        lowered = {name.lower(): value for name, value in options.items()}
        return cls({_ALIASES.get(name, name): v for name, v in lowered.items()}, is_tabbed)

    @property
    def separator(self) -> str:
        return self.options.get("sep", "\t" if self.is_tabbed else ",").replace("\\t", "\t")

    @property
    def quote(self) -> str:
        return self.options.get("quote", '"')

    @property
    def has_header(self) -> bool:
        return self.options.get("header", "true").lower() == "true"

    @property
    def checks_header(self) -> bool:
        """Whether the columns of a file have to be those of the node."""
        return self.has_header and self.options.get("enforceschema", "false").lower() == "false"

    @property
    def encoding(self) -> str:
        return self.options.get("encoding", "utf-8").lower()

    @property
    def doubles_quotes(self) -> bool:
        """Whether a quote within quotes is written twice, and values may be looked at by that rule."""
        is_plain = len(self.separator) == 1 == len(self.quote)
        is_plain = is_plain and (self.separator + self.quote).isascii()
        own = {"escape", "multiline", "linesep", "comment", "mode"} & self.options.keys()
        return is_plain and not own and self.encoding in _ASCII_LIKE

    def reader_options(self, *, spans_lines: bool) -> dict[str, str]:
        """The options of Spark's reader; those of the node win."""
        defaults = {
            **{name.lower(): value for name, value in _CAREFUL.items()},
            "sep": self.separator,
            "escape": self.quote,
            "multiline": str(spans_lines).lower(),
            "nullvalue": NO_VALUE,
        }
        return {**defaults, **self.options}


@dataclass(frozen=True, slots=True)
class CsvLook:
    """What a file needs of its reader."""

    header: tuple[str, ...] | None = None
    """The names in its first line; None where there is no line, or it is not looked at."""
    spans_lines: bool = True
    """Whether a value may have a line break in it, or a row be a line of white space: such a file
    cannot be read in parts."""
    has_rows: bool = True


@dataclass(frozen=True)
class CsvFile:
    """One file, looked at without Spark."""

    path: str
    dialect: Dialect
    storage: Storage
    block_bytes: int = 4 * 2**20
    """How much is looked at in one piece."""

    def look(self) -> CsvLook:
        """What Spark has to be told.

        Raises FM-SOURCE-058 for quotes that RFC 4180 does not have, and for ends of lines of two
        kinds in a file whose values have line breaks: Spark would read both without a word.
        """
        if self.path.endswith(OF_HADOOP):
            return CsvLook()
        quotes = _Quotes(self.dialect) if self.dialect.doubles_quotes else None
        header: tuple[str, ...] | None = None
        has_lines, line = False, 1
        blank_rows = _BlankRows(self.dialect.separator.encode())
        characters = Characters() if self.dialect.encoding in UTF8 else None
        for before, block, after in self._blocks():
            if not has_lines:
                first = self._header_in(block)
                header = first if self.dialect.has_header else None
                blank_rows.are_possible |= first is not None and len(first) == 1
            has_lines = True
            if quotes is None:
                break
            if (nuls := _NULS.search(bytes([before]) + block)) is not None:
                line += block.count(b"\n", 0, nuls.span()[0])
                raise self._unsound(line, "a line of NUL bytes: it may still be written")
            line += block.count(b"\n")
            quotes.see(before, block, after)
            blank_rows.see(block, after)
            if characters is not None and (found := characters.misfit(block)) is not None:
                raise self._of_another_encoding(found)
        if quotes and characters and (found := characters.misfit(b"", is_last=True)) is not None:
            raise self._of_another_encoding(found)
        has_rows = has_lines and not (self.dialect.has_header and header is None)
        if quotes is None:
            return CsvLook(header, bool(self.dialect.quote), has_rows)
        spans_lines = quotes.spans_lines if quotes.are_sound else self._read_slowly()
        spans_lines |= blank_rows.are_there
        if spans_lines and quotes.mix_ends:
            self._refuse_mixed_ends()
        return CsvLook(header, spans_lines, has_rows)

    def _blocks(self) -> Iterator[tuple[int, bytes, int]]:
        """The content, each block between the byte before it and the one behind it."""
        with opened(self.path, self.storage) as file:
            before, block = _LF, file.read(self.block_bytes).removeprefix(BOM)
            while block:
                following = file.read(self.block_bytes)
                yield before, block, following[0] if following else _LF
                before, block = block[-1], following

    def _header_in(self, block: bytes) -> tuple[str, ...] | None:
        """The first line that is not empty."""
        text = block[:_HEADER_BYTES].decode(self.dialect.encoding, errors="replace")
        text = text.removeprefix("\ufeff")
        records = self._records(io.StringIO(text, newline=""), strict=False)
        return next((tuple(record) for record in records if record), None)

    def _records(self, lines: Any, *, strict: bool) -> Any:
        if len(self.dialect.separator) != 1 or len(self.dialect.quote) > 1:
            return iter(())
        csv.field_size_limit(2**31 - 1)
        separator, quote = self.dialect.separator, self.dialect.quote
        if not quote:
            return csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE, strict=strict)
        return csv.reader(lines, delimiter=separator, quotechar=quote, strict=strict)

    def misfit(self, kinds: Mapping[str, Kind]) -> str | None:
        """Where the first record is that does not fit the columns, and why; None if none is found.

        `kinds` are the declared types by column. No value is shown.
        """
        names: Sequence[str] = () if self.dialect.has_header else list(kinds)
        declared = {name.casefold(): (name, kind) for name, kind in kinds.items()}
        with self._lines() as lines:
            records, line = self._records(lines, strict=False), 1
            for record in records:
                if record and not names:
                    names = record
                elif record and (why := _misfit_of(record, names, declared, self._rules)):
                    return f"line {line:,}: {why}"
                line = records.line_num + 1
        return None

    @contextmanager
    def _lines(self) -> Iterator[_Remembered]:
        encoding = self.dialect.encoding
        plain = "utf-8-sig" if encoding in ("utf-8", "utf8") else encoding
        with opened(self.path, self.storage) as file:
            yield _Remembered(io.TextIOWrapper(file, plain, errors="replace", newline=""))

    def _read_slowly(self) -> bool:
        """Whether a value has a line break, record by record.

        Quotes stand where RFC 4180 has none: in values without quotes they are characters as any
        other, elsewhere they are refused.
        """
        last, spans_lines = 0, False
        with self._lines() as lines:
            records = self._records(lines, strict=True)
            try:
                for _ in records:
                    spans_lines |= records.line_num > last + 1
                    last = records.line_num
            except csv.Error as error:
                raise self._unsound(last + 1, str(error)) from error
        return spans_lines

    def _refuse_mixed_ends(self) -> None:
        ends = set()
        with self._lines() as lines:
            records = self._records(lines, strict=False)
            for _ in records:
                ends |= {lines.last[len(lines.last.rstrip("\r\n")) :][-2:]} - {""}
                if len(ends) > 1:
                    found = "lines end in two ways, and values have line breaks"
                    raise self._unsound(records.line_num, found)

    def _of_another_encoding(self, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-059",
            "a file cannot be read as the node says",
            where=self.path,
            found=found,
            allowed="UTF-8, or the encoding of the file in the options of the node: Excel on Windows"
            " writes ISO-8859-1 (with a few characters of its own), or UTF-8 by another name in its"
            " list of formats",
            state="nothing of this node was written; the committed watermark stays",
            next="say options: {encoding: ISO-8859-1} in the read of the node, "
            + THEN_RETRY
            + "; or write the file in UTF-8 in its place, then: "
            + command("retry", BATCH, "--on-lost-range", "snapshot"),
        )

    def changes_values(self, look: CsvLook, kinds: Mapping[str, Kind]) -> bool:
        """Whether Spark would change a value of the file: a decimal by taking its comma away or
        rounding it, a time by making up or leaving out a part of it.

        `kinds` are the declared types by column. Not where the node has rules of its own.
        """
        rules = self._rules
        judged = {name: kind for name, kind in kinds.items() if rules.judge(kind)}
        if not (self.dialect.doubles_quotes and judged) or self.path.endswith(OF_HADOOP):
            return False
        if look.header is not None:
            written = {name.casefold(): name for name in look.header}
            judged = {
                written[n.casefold()]: k for n, k in judged.items() if n.casefold() in written
            }
        parsing = {
            "delimiter": self.dialect.separator,
            "quote_char": self.dialect.quote,
            "newlines_in_values": look.spans_lines,
        }
        names = None if self.dialect.has_header else list(kinds)
        with opened(self.path, self.storage) as file:
            return has_other_values(file, names, judged, parsing, rules)

    @property
    def _rules(self) -> Rules:
        return Rules.of({"nullvalue": NO_VALUE, **self.dialect.options}, floats=True)

    def _unsound(self, line: int, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-058",
            "a CSV file is not written as RFC 4180 has it",
            where=f"{self.path}, line {line:,}",
            found=found,
            allowed="values with separators, quotes or line breaks in quotes, a quote in them doubled;"
            ' where a backslash stands before it, options: {escape: "\\\\"} in the node',
            state="nothing of this node was written; the committed watermark stays",
            next="correct the file in its place, then: "
            + command("retry", BATCH, "--on-lost-range", "snapshot")
            + "; or say in options how it is written, "
            + THEN_RETRY,
        )


class _Remembered:
    """Lines, and the last one that was asked for."""

    def __init__(self, lines: io.TextIOWrapper) -> None:
        self._lines = lines
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.last = line
            yield line


class _BlankRows:
    """Whether a row is a line of nothing but white space: all columns of a TSV empty, say.

    Spark takes it for an empty line, which is no row, unless it reads the file as a whole.
    """

    def __init__(self, separator: bytes) -> None:
        self.are_possible = not separator.strip()
        self.are_there = False
        self._begun = b"\n"

    def see(self, block: bytes, after: int) -> None:
        """Look at the next block, before a byte."""
        if not self.are_possible or self.are_there:
            return
        text = self._begun + block
        followed = text + bytes([after])
        self.are_there = any(line.search(followed) is not None for line in _BLANK_LINES)
        last = text[max(text.rfind(b"\n"), text.rfind(b"\r"), 0) :]
        # What is begun with a value is no blank line; what is not may go on in the next block.
        self._begun = b"" if last.translate(None, _WHITE) else last


class _Quotes:
    """Whether the quotes of a file are in the places that RFC 4180 has for them, block by block."""

    def __init__(self, dialect: Dialect) -> None:
        self._quote = ord(dialect.quote)
        self._neighbours = (ord(dialect.separator), _LF, _CR, self._quote)
        self._are_placed = True
        self._count = 0
        self.spans_lines = False
        self._ends: set[str] = set()

    @property
    def are_sound(self) -> bool:
        """Whether each opens behind a separator and closes before one, or is doubled."""
        return self._are_placed and self._count % 2 == 0

    @property
    def mix_ends(self) -> bool:
        """Whether lines end in two ways; within values they may."""
        return len(self._ends) > 1

    def see(self, before: int, block: bytes, after: int) -> None:
        """CsvLook at a block between two bytes."""
        import numpy as np

        content = np.frombuffer(bytes([before]) + block + bytes([after]), np.uint8)
        quotes = np.flatnonzero(content[1:-1] == self._quote)
        breaks = np.flatnonzero(np.isin(content[1:-1], (_LF, _CR)))
        self._look_at_neighbours(content, quotes)
        self._look_at_breaks(content, quotes, breaks)
        self._count += len(quotes)

    def _look_at_neighbours(self, content: Bytes, quotes: Places) -> None:
        import numpy as np

        first = self._count % 2
        opening, closing = quotes[first::2], quotes[1 - first :: 2]
        neighbours = np.concatenate((content[opening], content[closing + 2]))
        self._are_placed &= bool(np.isin(neighbours, self._neighbours).all())

    def _look_at_breaks(self, content: Bytes, quotes: Places, breaks: Places) -> None:
        import numpy as np

        is_within = (np.searchsorted(quotes, breaks) + self._count) % 2 == 1
        self.spans_lines |= bool(is_within.any())
        outside = breaks[~is_within]
        before, here, after = content[outside], content[outside + 1], content[outside + 2]
        kinds = {
            "\r\n": (before == _CR) & (here == _LF),
            "\n": (before != _CR) & (here == _LF),
            "\r": (here == _CR) & (after != _LF),
        }
        self._ends |= {end for end, places in kinds.items() if places.any()}


# Columns ------------------------------------------------------------------------------------------

_WHOLE = frozenset(("tinyint", "smallint", "int", "bigint"))


def _misfit_of(
    record: Sequence[str],
    names: Sequence[str],
    declared: Mapping[str, tuple[str, Kind]],
    rules: Rules,
) -> str | None:
    if len(record) != len(names):
        return f"{len(record)} values for {len(names)} columns"
    for written, value in zip(names, record, strict=True):
        if written.casefold() not in declared:
            continue
        name, kind = declared[written.casefold()]
        try:
            if kind.name in _WHOLE and value:
                int(value)
        except ValueError:
            return f"column {name} is no {kind}"
        if (why := rules.fault(name, value, kind)) is not None:
            return why
    return None


def refuse_other_columns(
    path: str, header: Sequence[str], wanted: Sequence[str], *, hides_values: bool = False
) -> None:
    """Raise FM-SOURCE-057 if the columns of a file are not those that are wanted, in their order.

    A file without a header has values in its first line: with `hides_values` none of it is shown.
    """
    here, there = [name.casefold() for name in header], [name.casefold() for name in wanted]
    if here == there:
        return
    missing = [name for name in wanted if name.casefold() not in here]
    other = [name for name in header if name.casefold() not in there]
    parts = [f"missing: {_listed(missing)}"] if missing else []
    if other:
        count = "1 other name" if len(other) == 1 else f"{len(other)} other names"
        hidden = f"{count}, {HIDDEN_VALUES}"
        parts.append(f"not expected: {hidden if hides_values else _listed(other)}")
    if not parts:
        # No other name is there, so these are the names of columns.
        parts = [f"another order or a name twice: {_listed(header)}"]
    raise other_columns(f"{path}, line 1", "; ".join(parts), wanted)


def other_columns(where: str, found: str, wanted: Sequence[str]) -> SourceError:
    """The error for a file whose columns are not those of the node."""
    return SourceError(
        "FM-SOURCE-057",
        "a file has other columns than the node reads",
        where=where,
        found=found,
        allowed=_listed(wanted, most=50),
        state="nothing of this node was written; the committed watermark stays",
        next="correct the file in its place, then: "
        + command("retry", BATCH, "--on-lost-range", "snapshot")
        + "; or correct the schema of the node, "
        + THEN_RETRY,
    )


def _listed(names: Sequence[str], most: int = _SHOWN) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
