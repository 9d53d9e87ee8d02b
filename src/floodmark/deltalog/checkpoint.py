"""Checkpoints read with pyarrow: classic, in several parts, and V2 with sidecars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from floodmark.deltalog.commit import Action, Commit, damaged
from floodmark.deltalog.listing import Checkpoint
from floodmark.deltalog.storage import Storage, is_local

_ADD_COLUMNS = (
    "add.path",
    "add.size",
    "add.stats",
    "add.stats_parsed.numRecords",
    "add.deletionVector",
)


@dataclass(frozen=True, slots=True)
class CheckpointReader:
    """One checkpoint of one log; each method reads only the columns it needs.

    Raises FM-SOURCE-008 on a damaged file, FileNotFoundError on one that went away.
    """

    storage: Storage
    folder: str
    """The `_delta_log` folder."""
    checkpoint: Checkpoint

    def last(self, name: str) -> Action | None:
        """The one action of a name of which a checkpoint has one: metaData or protocol."""
        found = list(self._top_level(name, [name]))
        return _plain(found[-1]) if found else None

    def transactions(self) -> dict[str, int]:
        """Transaction ids and their newest versions."""
        found = self._top_level("txn", ["txn.appId", "txn.version"])
        return {t["appId"]: t["version"] for t in found}

    def adds(self) -> Iterator[Action]:
        """The data files of the table, with `numRecords` where the statistics are columns."""
        yield from map(_with_records, self._top_level("add", list(_ADD_COLUMNS)))
        for sidecar in self._top_level("sidecar", ["sidecar.path"]):
            path = self._sidecar_path(sidecar["path"])
            yield from map(_with_records, self._from_parquet(path, "add", list(_ADD_COLUMNS)))

    def _top_level(self, name: str, columns: list[str]) -> Iterator[Action]:
        for file_name in self.checkpoint.names:
            path = f"{self.folder}/{file_name}"
            if file_name.endswith(".json"):
                yield from Commit(self.checkpoint.version, path, self.storage.read(path), 0).named(
                    name
                )
            else:
                yield from self._from_parquet(path, name, columns)

    def _from_parquet(self, path: str, name: str, columns: list[str]) -> list[Action]:
        # Imported here: it takes longer than planning a thousand tables without checkpoints.
        import pyarrow.parquet as pq

        try:
            with self.storage.open(path) as source:
                file = pq.ParquetFile(source)
                if name not in file.schema_arrow.names:
                    return []
                rows = file.read(columns=columns).column(name).drop_null().to_pylist()
        except pa.ArrowException as error:
            raise damaged(path, f"not a readable Parquet file ({type(error).__name__})") from error
        return [row for row in rows if row is not None]

    def _sidecar_path(self, path: str) -> str:
        if not is_local(path) or path.startswith("/"):
            return path
        return f"{self.folder}/_sidecars/{unquote(path)}"


def _with_records(add: Action) -> Action:
    parsed = add.get("stats_parsed")
    if not parsed or parsed.get("numRecords") is None:
        return add
    return {**add, "numRecords": parsed["numRecords"]}


def _plain(action: Action) -> Action:
    """Parquet maps arrive as lists of pairs; actions in JSON have objects."""
    return {k: _object(v) for k, v in action.items()}


def _object(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return dict(value)
    return value
