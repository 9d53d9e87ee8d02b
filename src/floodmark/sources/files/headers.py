"""Delimited files whose headers differ: each is read by the names in its own header."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from floodmark.model.names import matching
from floodmark.sources.files.folders import Folders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("floodmark")

Header = tuple[str, ...]
Load = Callable[[Sequence[str], str | None], "DataFrame"]
"""Paths, and the declared columns in the order of their headers; rows out."""

FoldersOf = Callable[[str], Folders]


def grouped(headers: Mapping[str, Header | None]) -> dict[Header, list[str]]:
    """The files by their header; those of which none could be told are with the first ones."""
    groups: dict[Header, list[str]] = {}
    for path, header in headers.items():
        if header:
            groups.setdefault(header, []).append(path)
    unknown = [path for path, header in headers.items() if not header]
    if unknown:
        groups.setdefault(next(iter(groups), ()), []).extend(unknown)
    return groups


def loaded(
    load: Load,
    groups: Mapping[Header, list[str]],
    ddl: str | None,
    folders: FoldersOf,
    *,
    tells: bool = True,
) -> DataFrame:
    """The rows of all files by name, NULL where a file does not have a column: with `tells` the log
    names both.

    A header with a name that is not declared is left to Spark, which refuses it.
    """
    frames = [_of_header(load, header, paths, ddl, folders) for header, paths in groups.items()]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other, allowMissingColumns=True)
    if tells:
        _tell(groups, frame.columns)
    return frame


def _of_header(
    load: Load, header: Header, paths: Sequence[str], ddl: str | None, folders: FoldersOf
) -> DataFrame:
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StructType

    if ddl is None or not header:
        return load(paths, ddl)
    declared = cast("StructType", StructType.fromDDL(ddl))
    names = [matching(name, declared.names) for name in header]
    in_path = [n for n in declared.names if any(folders(path).has(n) for path in paths)]
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
