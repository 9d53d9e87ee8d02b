"""Targets of the simulator: Delta tables in memory, looked at by the product's own code.

Others drop them, empty them or restore them to an earlier version, as owners of tables do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

from floodmark.deltalog import DeltaLog, Storage
from floodmark.model.delta import SnapshotSize, TableFacts, VersionFacts
from floodmark.model.receipt import Receipt
from floodmark.model.state import SinkDone
from floodmark.sinks.delta.target import DeltaTarget
from floodmark.sinks.loss import RESTORE

AT = datetime(2026, 1, 1, tzinfo=UTC)
APPEND = {"mode": "Append"}
OVERWRITE = {"mode": "Overwrite"}


@dataclass
class SimTable:
    """One table: what a DeltaLog says about it, as far as targets are asked."""

    path: str
    table_id: str
    commits: list[VersionFacts] = field(default_factory=list)
    receipts: dict[str, int] = field(default_factory=dict)
    moments: list[int] = field(default_factory=list)
    """When each version was committed, on the clock of all targets."""
    disturbed_at: int = -1
    """The newest version that is more than an append."""

    def facts(self) -> TableFacts:
        return _facts(self.path, self.table_id, self.latest)

    @property
    def latest(self) -> int:
        return len(self.commits) - 1

    def versions(self, first: int, last: int) -> Sequence[VersionFacts]:
        return self.commits[first : last + 1]

    def transactions(self) -> Mapping[str, int]:
        return self.receipts

    def transaction_version(self, app_id: str) -> int | None:
        return self.receipts.get(app_id)

    def find_transaction(self, app_id: str, version: int) -> VersionFacts | None:
        found = (c for c in reversed(self.commits) if c.transactions.get(app_id) == version)
        return next(found, None)

    def snapshot_size(self, _: int) -> SnapshotSize:
        return SnapshotSize(files=1, bytes=1, rows=1)

    def commit(self, moment: int, operation: str, **more: Any) -> None:
        version = len(self.commits)
        commit = VersionFacts(version, AT, operation, frozenset(), 1, 1, **more)
        self.commits.append(commit)
        self.moments.append(moment)
        self.receipts.update(commit.transactions)
        if commit.parameters != APPEND:
            self.disturbed_at = version


class SimTargets:
    """All targets of a schedule, and a clock that counts what happens to them."""

    def __init__(self) -> None:
        self.moment = 0
        self._tables: dict[str, SimTable] = {}
        self._moments: dict[tuple[str, int], int] = {}
        self._made = 0

    def find(self, path: str) -> SimTable | None:
        return self._tables.get(path)

    def moment_of(self, table_id: str, version: int) -> int:
        """When a version of a table was committed; the newest moment where there was no table."""
        return self._moments.get((table_id, version), self.moment)

    def write(self, path: str, receipt: Receipt, *, replaces: bool) -> int:
        """Commit rows with their receipt, creating the table; the moment of the commit."""
        if path not in self._tables:
            self._made += 1
            self._tables[path] = SimTable(path, f"t{self._made}")
        transactions = {receipt.app_id: receipt.seq}
        parameters = OVERWRITE if replaces else APPEND
        return self._commit(
            path,
            "WRITE",
            transactions=transactions,
            parameters=parameters,
            user_metadata=receipt.user_metadata,
        )

    def drop(self, path: str) -> int:
        """The table is gone; the moment of it."""
        self._tables.pop(path, None)
        self.moment += 1
        return self.moment

    def empty(self, path: str) -> int:
        """Somebody deletes every row; receipts stand. The moment of it."""
        return self._commit(path, "DELETE")

    def restore(self, path: str, versions: int) -> tuple[int, int]:
        """Take back so many of the newest appends, receipts stand: the moment of it, and the one
        after which everything is gone.
        """
        table = self._tables[path]
        back_to = max(table.latest - versions, table.disturbed_at, 0)
        kept = table.moments[back_to]
        return self._commit(path, RESTORE, parameters={"version": str(back_to)}), kept

    def _commit(self, path: str, operation: str, **more: Any) -> int:
        table = self._tables[path]
        self.moment += 1
        table.commit(self.moment, operation, **more)
        self._moments[table.table_id, table.latest] = self.moment
        return self.moment


@dataclass(frozen=True, slots=True)
class SimTarget(DeltaTarget):
    """The product's look at a target, over tables in memory."""

    targets: SimTargets = field(default_factory=SimTargets)

    def _log(self) -> DeltaLog | None:
        return cast("DeltaLog | None", self.targets.find(self.path))

    def _refuse_unknown_writes(self, last: VersionFacts, receipt: Receipt) -> None:
        """There is one control store here, and runs that a removal left behind may write late."""

    def _refuse_unknown_receipt(self, stored: int | None) -> None:
        """See `_refuse_unknown_writes`."""


@lru_cache(maxsize=10_000)
def _facts(path: str, table_id: str, latest: int) -> TableFacts:
    return TableFacts(
        path=path,
        table_id=table_id,
        latest_version=latest,
        latest_at=AT,
        earliest_version=0,
        feed_enabled=True,
        schema_json='{"fields":[]}',
        schema_fingerprint="f",
    )


def target_of(targets: SimTargets, path: str, previous: SinkDone | None) -> SimTarget:
    return SimTarget(path, previous, _NO_STORAGE, targets=targets)


_NO_STORAGE = Storage(None)
