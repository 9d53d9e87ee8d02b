"""Values of text files that Spark would read as others, or leave out, without a word.

characters  bytes that are no UTF-8 become question marks
decimals    1,5 becomes 15, as all commas go, and 1.005 becomes 1.01
times       a number, as Excel has them, becomes a year: 45292; 10:00 becomes 10:00 of today
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from floodmark.deltalog import Storage

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

_DECIMAL = re.compile(
    r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?", re.IGNORECASE
)
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_POINT_OR_GROUPS = re.compile(r"\.|,.*,")
"""What tells a comma between thousands from one before a fraction."""


def bounds_of(kind: str) -> tuple[int, int] | None:
    """How many digits a type of decimals has, and how many of them behind the point; None for others."""
    found = _DECIMAL.fullmatch(kind.strip())
    return (int(found[1] or 10), int(found[2] or 0)) if found is not None else None


def scale_of(kind: str) -> int | None:
    """How many digits behind the point a type of decimals has; None for other types."""
    bounds = bounds_of(kind)
    return None if bounds is None else bounds[1]


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


# Times --------------------------------------------------------------------------------------------

_TIMES = frozenset(("date", "timestamp", "timestamp_ntz", "timestamp_ltz"))
OWN_TIMES = frozenset(("dateformat", "timestampformat", "timestampntzformat"))
"""Options that say how times are written; then it is not for us to judge."""
OF_NO_DATE = "a bare number, or a time of day without a date,"
_NO_DATE = r"^\s*(?:[+-]?\d{5,}\s*$|T?\d{1,2}:)"


def is_time(kind: str) -> bool:
    """Whether a type is one of dates or times."""
    return kind.strip().lower() in _TIMES


def has_no_date(value: str) -> bool:
    """Whether Spark makes up the date of a time: a bare number is a year, a time of day is today's."""
    return re.search(_NO_DATE, value, re.ASCII) is not None


# Columns of CSV -----------------------------------------------------------------------------------


def has_other_values(
    file: Any,
    names: Collection[str] | None,
    scales: Mapping[str, int | None],
    parsing: Mapping[str, Any],
    is_missing: Callable[[str], bool],
) -> bool:
    """Whether a CSV file has values in these columns that Spark would change.

    `scales` are those of decimals, None for times. `names` are those of a file without a header.
    What pyarrow cannot read is left to Spark.
    """
    import pyarrow.compute as pc
    from pyarrow import csv

    reading = csv.ReadOptions(
        column_names=list(names) if names is not None else None, block_size=BLOCK_BYTES
    )
    converting = csv.ConvertOptions(
        include_columns=list(scales),
        column_types=dict.fromkeys(scales, pa.string()),
        check_utf8=False,
    )
    try:
        for batch in csv.open_csv(file, reading, csv.ParseOptions(**parsing), converting):
            for name, scale in scales.items():
                if scale is None:
                    if pc.any(pc.match_substring_regex(batch[name], _NO_DATE)).as_py():
                        return True
                    continue
                plain = pc.match_substring_regex(batch[name], rf"^[+-]?\d*\.?\d{{0,{scale}}}0*$")
                others = pc.unique(batch[name].filter(pc.invert(plain))).to_pylist()
                if any(not (is_missing(v) or is_exact(v, scale)) for v in others):
                    return True
    except (pa.ArrowInvalid, KeyError):
        return False
    return False
