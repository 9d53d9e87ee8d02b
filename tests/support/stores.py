"""Control stores of older versions, kept as fixtures that every later version must open.

A store names its upstreams and targets by absolute path, so a kept one is written for the folder
`PLACE` and moved to where a test wants it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PLACE = "/floodmark/kept-store"
"""The folder that the names inside a kept store point to; it does not have to exist."""


def keep(root: Path, archive: Path) -> None:
    """Put a lake and its store into an archive; `root` is moved and of no use afterwards."""
    move(root, str(root), PLACE)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as kept:
        for file in sorted(file for file in root.rglob("*") if file.is_file()):
            name = zipfile.ZipInfo(str(file.relative_to(root)))
            kept.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)


def unpack(archive: Path, root: Path) -> None:
    """Put a kept lake and its store into a folder, ready to be used there."""
    with zipfile.ZipFile(archive) as kept:
        kept.extractall(root)
    move(root, PLACE, str(root))


def move(root: Path, before: str, after: str) -> None:
    """Let every name inside the Delta tables below `root` begin with another folder.

    Rows, commits and their order stay. Checkpoints are left out: the commits say the same.
    """
    for log in sorted(root.rglob("_delta_log")):
        for extra in [*log.glob("*.checkpoint.parquet"), *log.glob("_last_checkpoint")]:
            extra.unlink()
        for commit in sorted(log.glob("*.json")):
            lines = commit.read_text().replace(before, after).splitlines()
            actions = [_moved(json.loads(line), log.parent, before, after) for line in lines]
            commit.write_text("\n".join(json.dumps(action) for action in actions) + "\n")


def _moved(action: dict[str, Any], table: Path, before: str, after: str) -> dict[str, Any]:
    add: dict[str, Any] = action.get("add", {})
    file = table / add.get("path", "")
    if add and file.is_file():
        rows = pq.ParquetFile(file).read()
        pq.write_table(_renamed(rows, before, after), file, compression="zstd")
        add["size"] = file.stat().st_size
        add["stats"] = json.dumps(_without_paths(json.loads(add["stats"])))
    return action


def _renamed(rows: pa.Table, before: str, after: str) -> pa.Table:
    columns = [_renamed_column(column.combine_chunks(), before, after) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _renamed_column(column: Any, before: str, after: str) -> Any:
    if pa.types.is_list(column.type):
        values = _renamed_column(column.values, before, after)
        return pa.ListArray.from_arrays(column.offsets, values, type=column.type)
    if not pa.types.is_string(column.type):
        return column
    return pc.replace_substring(column, before, after)


def _without_paths(stats: dict[str, Any]) -> dict[str, Any]:
    """Statistics without texts that begin with a folder: they may be cut off anywhere."""
    return {key: _kept(value) for key, value in stats.items()}


def _kept(value: Any) -> Any:
    return dict(_texts_that_are_no_path(value)) if isinstance(value, dict) else value


def _texts_that_are_no_path(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if not (isinstance(value, str) and "/" in value):
            yield name, _kept(value)
