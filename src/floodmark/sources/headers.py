"""Delimited files whose headers differ: each is read by the names in its own header."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from floodmark.deltalog import Storage
from floodmark.model.names import matching
from floodmark.sources import times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("floodmark")

HEADER_BYTES = 65_536
"""As much of a file is read to find its header; one that is longer is left to Spark."""

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}

Header = tuple[str, ...]
Load = Callable[[Sequence[str], str | None], "DataFrame"]
"""Paths, and the declared columns in the order of their headers; rows out."""


def by_header(
    paths: Iterable[str], storage: Storage, options: Mapping[str, str]
) -> dict[Header, list[str]]:
    """The files by their header; those of which none could be told are with the first ones."""
    groups: dict[Header, list[str]] = {}
    unknown = []
    for path in paths:
        header = header_of(path, storage, options)
        if header:
            groups.setdefault(header, []).append(path)
        else:
            unknown.append(path)
    if unknown:
        groups.setdefault(next(iter(groups), ()), []).extend(unknown)
    return groups


def header_of(path: str, storage: Storage, options: Mapping[str, str]) -> Header:
    """The names in the first line of a file; empty for a file without one."""
    try:
        with storage.open(path) as opened:
            start = _plain(path, opened).read(HEADER_BYTES)
    except OSError as error:
        raise times.out_of_reach(path, error) from error
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    text = start.decode(encoding, errors="replace").removeprefix("\ufeff")
    quote = options.get("quote", '"') or None
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=options.get("sep", options.get("delimiter", ",")),
        quotechar=quote,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    )
    return tuple(next((row for row in rows if row), ()))


def _plain(path: str, opened: Any) -> Any:
    """The stream of a file without its compression, which Spark too knows by the name."""
    codec = next((name for end, name in _COMPRESSIONS.items() if path.endswith(end)), None)
    return opened if codec is None else pa.CompressedInputStream(opened, codec)


def loaded(load: Load, groups: Mapping[Header, list[str]], ddl: str | None) -> DataFrame:
    """The rows of all files by name, NULL where a file does not have a column.

    A header with a name that is not declared is left to Spark, which refuses it.
    """
    frames = [_of_header(load, header, paths, ddl) for header, paths in groups.items()]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other, allowMissingColumns=True)
    _tell(groups, frame.columns)
    return frame


def _of_header(load: Load, header: Header, paths: Sequence[str], ddl: str | None) -> DataFrame:
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StructType

    if ddl is None or not header:
        return load(paths, ddl)
    declared = cast("StructType", StructType.fromDDL(ddl))
    names = [matching(name, declared.names) for name in header]
    in_path = [n for n in declared.names if any(f"/{n}=" in path for path in paths)]
    if None in names or len(set(names)) < len(names):
        return load(paths, ddl)
    fields = [declared[str(name)] for name in [*names, *in_path]]
    if [field.name for field in fields] == declared.names:
        return load(paths, ddl)
    # A header that is spelled in another case counts as the declared name.
    frame = load(paths, StructType(fields).toDDL())
    there = {field.name for field in fields}
    absent = [fn.lit(None).cast(f.dataType).alias(f.name) for f in declared if f.name not in there]
    others = [name for name in frame.columns if name not in declared.names]
    return frame.select("*", *absent).select(*(f"`{n}`" for n in [*declared.names, *others]))


def _tell(groups: Mapping[Header, list[str]], columns: Sequence[str]) -> None:
    """Say which files lack a column: NULL never comes without a word."""
    names = {name for header in groups for name in header if matching(name, columns)}
    for header, paths in groups.items():
        absent = sorted(names - set(header)) if header else []
        if absent:
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            log.warning("%s%s: no column %s; NULL is read", paths[0], more, ", ".join(absent))
