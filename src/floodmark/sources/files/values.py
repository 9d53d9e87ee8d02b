"""Values of text files that Spark would read as others, or leave out, without a word.

characters  bytes that are no UTF-8 become question marks
decimals    1,5 becomes 15, as all commas go, and 1.005 becomes 1.01
floats      12d becomes 12 and 0x1p3 becomes 8, as in the source of a Java program
times       a number, as Excel has them, becomes a year: 45292; 10:00 becomes 10:00 of today, 2026 the
            first of January; what stands behind a date, and digits behind microseconds, are left out
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from floodmark.deltalog import Storage
from floodmark.model.ddl import Kind

BLOCK_BYTES = 4 * 2**20
MOST_BYTES_OF_A_LINE = 256 * 2**20
"""A line of JSON that is longer is not looked at."""
UTF8 = frozenset(("utf-8", "utf8"))
BOM = b"\xef\xbb\xbf"
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
OF_HADOOP = (".lz4", ".snappy", ".deflate")
"""Compressed in ways of Hadoop's own: Spark alone reads them."""


@contextmanager
def opened(path: str, storage: Storage) -> Iterator[Any]:
    """The content of a file without its compression, which Spark too knows by the name."""
    codec = next((name for end, name in _CODECS.items() if path.endswith(end)), None)
    with storage.open(path) as file:
        yield file if codec is None else pa.CompressedInputStream(file, codec)


def blocks(file: Any, size: int) -> Iterator[bytes]:
    """The content in pieces, without a mark of byte order."""
    block = file.read(size).removeprefix(BOM)
    while block:
        yield block
        block = file.read(size)


def broken_compression(path: str, storage: Storage) -> str | None:
    """Why a file cannot be read whose bytes can; None for one that is out of reach, or not compressed."""
    if not path.endswith(tuple(_CODECS)):
        return None
    try:
        with storage.open(path) as file:
            while file.read(BLOCK_BYTES):
                pass
    except OSError:
        return None
    return "it is not compressed as its name says, or ends before it is complete"


# Characters ---------------------------------------------------------------------------------------


class Characters:
    """Whether a text is UTF-8, block by block."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._lines = 1

    def misfit(self, block: bytes, *, is_last: bool = False) -> str | None:
        """Where a byte is that begins no character; None if there is none so far."""
        try:
            self._decoder.decode(block, is_last)
        except UnicodeDecodeError as error:
            line = self._lines + bytes(error.object).count(b"\n", 0, error.start)
            return f"line {line:,}: bytes that are no UTF-8"
        self._lines += block.count(b"\n")
        return None


def other_characters(path: str, storage: Storage, block_bytes: int = BLOCK_BYTES) -> str | None:
    """Where a file has bytes that are no UTF-8."""
    characters = Characters()
    with opened(path, storage) as file:
        for block in blocks(file, block_bytes):
            if (found := characters.misfit(block)) is not None:
                return found
    return characters.misfit(b"", is_last=True)


# Decimals -----------------------------------------------------------------------------------------

_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_POINT_OR_GROUPS = re.compile(r"\.|,.*,")
"""What tells a comma between thousands from one before a fraction."""


def is_clear(value: str) -> bool:
    """Whether commas can only be between thousands."""
    return bool(_GROUPED.fullmatch(value) and _POINT_OR_GROUPS.search(value))


def is_exact(value: str, scale: int) -> bool:
    """Whether a decimal of this scale holds what is written, and it can be meant in one way only."""
    if "," in value:
        if not is_clear(value):
            return False
        value = value.replace(",", "")
    try:
        number = Decimal(value)
    except InvalidOperation:
        return True  # Spark refuses it
    if not number.is_finite():
        return True
    exponent = number.normalize().as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= scale


# Texts of declared types --------------------------------------------------------------------------

_FORMATS = {
    "dateformat": "date",
    "timestampformat": "timestamp",
    "timestampntzformat": "timestamp_ntz",
}
"""Options that say how times are written; then it is not for us to judge."""
_TIMES = frozenset(_FORMATS.values())
_FLOATS = frozenset(("float", "double"))
_MEANT = ("nullvalue", "nanvalue", "positiveinf", "negativeinf")
"""Options that give a text its meaning."""
OF_NO_DATE = "a bare number, or a time of day without a date,"
_NO_DATE = re.compile(r"\s*(?:[+-]?\d{5,}\s*$|T?\d{1,2}:)", re.ASCII)
_DAY = r"[+-]?\d{4,7}-\d{1,2}-\d{1,2}"
_WRITTEN_OUT = {
    # Midnight is no time of day that would be lost.
    "date": _DAY + r"(?:[ T]0{1,2}:0{1,2}(?::0{1,2}(?:\.0*)?)?(?:Z|[+-]00:?00)?)?",
    **dict.fromkeys(
        ("timestamp", "timestamp_ntz"),
        _DAY + r"(?:[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d{0,6}0*)?)?(?:\s*[A-Za-z+-][\w:/+-]*)?)?",
    ),
}
"""Times of which Spark leaves nothing out and makes nothing up. Of zones Spark is the judge."""
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|NaN|Inf|Infinity)", re.ASCII | re.IGNORECASE
)


def time_pattern(kind: Kind) -> str | None:
    """What a date or time looks like that Spark reads as it is; None for other types."""
    form = _WRITTEN_OUT.get(kind.name)
    return None if form is None else rf"\s*(?:{form})\s*"


@dataclass(frozen=True, slots=True)
class Rules:
    """Which texts of a node's files are judged: not those of which its options say what they are."""

    decimals: bool = True
    floats: bool = False
    """Only readers that know no strict form of these need it."""
    own_times: frozenset[str] = frozenset()
    """Types whose form the options say."""
    meant: frozenset[str] = frozenset()
    """Texts that the options give a meaning, and the empty one."""

    @classmethod
    def of(cls, options: Mapping[str, str], *, floats: bool) -> Rules:
        """The rules beside the options of a reader, whose names are in lower case."""
        return cls(
            decimals="locale" not in options,
            floats=floats,
            own_times=frozenset(kind for name, kind in _FORMATS.items() if name in options),
            meant=frozenset(("", *(options[name] for name in _MEANT if name in options))),
        )

    def judge(self, kind: Kind) -> bool:
        """Whether there are texts of a type that are refused."""
        return (
            (kind.digits is not None and self.decimals)
            or self.judge_time(kind)
            or (kind.name in _FLOATS and self.floats)
        )

    def judge_time(self, kind: Kind) -> bool:
        return kind.name in _TIMES and kind.name not in self.own_times

    def fault(self, name: str, text: str, kind: Kind) -> str | None:
        """Why Spark would read a text of a column as another value; None if it would not."""
        if not self.judge(kind) or text in self.meant or text.strip() in self.meant:
            return None
        if kind.digits is not None:
            is_exactly = is_exact(text, kind.digits[1])
            why = f" is not exactly a {kind}, or can be meant in two ways"
        elif (pattern := time_pattern(kind)) is None:
            number = text.strip()
            is_exactly = _NUMBER.fullmatch(number) is not None or is_clear(number)
            why = f" is no {kind}"
        else:
            is_exactly = re.fullmatch(pattern, text, re.ASCII) is not None
            has_date = _NO_DATE.match(text) is None
            why = f" is not exactly a {kind}" if has_date else f": {OF_NO_DATE} is no {kind}"
        return None if is_exactly else f"column {name}{why}"

    def plain(self, kind: Kind) -> str:
        """A quick look at texts of a type: those that fit are no fault."""
        if kind.digits is not None:
            return rf"^[+-]?\d*\.?\d{{0,{kind.digits[1]}}}0*$"
        pattern = time_pattern(kind)
        return r"^[+-]?\d+(?:\.\d*)?$" if pattern is None else rf"^{pattern}$"


# Columns of CSV -----------------------------------------------------------------------------------


def has_other_values(
    file: Any,
    names: Collection[str] | None,
    kinds: Mapping[str, Kind],
    parsing: Mapping[str, Any],
    rules: Rules,
) -> bool:
    """Whether a CSV file has values in these columns that Spark would change.

    `names` are those of a file without a header. What pyarrow cannot read is left to Spark.
    """
    import pyarrow.compute as pc
    from pyarrow import csv

    reading = csv.ReadOptions(
        column_names=list(names) if names is not None else None, block_size=BLOCK_BYTES
    )
    converting = csv.ConvertOptions(
        include_columns=list(kinds),
        column_types=dict.fromkeys(kinds, pa.string()),
        check_utf8=False,
    )
    try:
        for batch in csv.open_csv(file, reading, csv.ParseOptions(**parsing), converting):
            for name, kind in kinds.items():
                is_plain = pc.match_substring_regex(batch[name], rules.plain(kind))
                others = pc.unique(batch[name].filter(pc.invert(is_plain))).to_pylist()
                if any(rules.fault(name, text, kind) is not None for text in others):
                    return True
    except (pa.ArrowInvalid, KeyError):
        return False
    return False
