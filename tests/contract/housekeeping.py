"""Maintenance by others on tables of ours and on targets, while processes of ours hold them open.

A place is opened and used; somebody does housekeeping; the same objects, and then new ones, go on.
Each cell has one of two results: work goes on, or a typed refusal whose advice loses nothing. Run by
delta-rs in test_housekeeping.py, by Spark in tests/spark/test_housekeeping.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import floodmark as fm
from floodmark.control.reading import read_published
from floodmark.control.tables import TABLES
from floodmark.deltalog import Storage
from floodmark.errors import FloodmarkError
from floodmark.model.offsets import Offsets
from floodmark.streaming.batches import Claim, ClaimFacts, LoadCounts, StreamBatch
from floodmark.streaming.delta_ledger import BESIDE, DeltaLedger
from floodmark.testing.outsides import ON_ARROW

Operation = Callable[[str], None]
Mend = Callable[[Any, str], None]
"""What the error advises, given the place and the table."""
WORKS = "works"


class Place(Protocol):
    """Something that works with tables, held open by one process."""

    def work(self) -> None:
        """One day's work by the process that has been open all the while; again after a refusal."""

    def reopen(self) -> None:
        """Another process from here on."""

    def check(self) -> None:
        """Every day is there, once."""


class Coordinated:
    """A coordinator with its control store and one target."""

    def __init__(self, root: Path) -> None:
        self.days = 0
        self.source, self.target = str(root / "orders"), str(root / "copy")
        self.control = str(root / "_control")
        self._batch_id: str | None = None
        self.reopen()
        self._grow()
        self.coordinator.register("p", [self.source])

    def _grow(self) -> None:
        self.days += 1
        rows = pa.table({"id": pa.array([self.days], pa.int64())})
        configuration = {"delta.enableChangeDataFeed": "true"} if self.days == 1 else None
        write_deltalake(self.source, rows, mode="append", configuration=configuration)

    def work(self) -> None:
        if self._batch_id is None:
            if self.days > 1 or Path(self.target).exists():
                self._grow()
            self._batch_id = str(self.coordinator.create_batch([self.source]).batch_id)
        self.coordinator.run_pipeline("p", self._batch_id, self._copy)
        self.coordinator.finalize_batch(self._batch_id)
        self._batch_id = None

    def _copy(self, inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[self.source], self.target, mode="append")

    def reopen(self) -> None:
        self.coordinator = fm.Coordinator(self.control, actor="t", outside=ON_ARROW)

    def check(self) -> None:
        ids = DeltaTable(self.target).to_pyarrow_table().column("id").to_pylist()
        assert sorted(ids) == list(range(1, self.days + 1)), (ids, self.days)
        self.coordinator.rebuild_tables()
        assert [finding.text for finding in self.coordinator.verify() if not finding.ok] == []
        query = "SELECT seq FROM t ORDER BY seq"
        history = read_published(f"{self.control}/history", Storage(), query)
        assert history is not None
        shown = history.column("seq").to_pylist()
        last = self.coordinator.history(limit=1)[-1].seq
        assert shown == list(range(1, last + 1))

    def tables(self, of: str) -> list[str]:
        """The tables of a kind: the journal, the target, or what is published."""
        if of == "target":
            return [self.target]
        names = ["_journal"] if of == "journal" else [table.name for table in TABLES]
        return [f"{self.control}/{name}" for name in names]


FACTS = ClaimFacts("here", {"t": "id"}, "query", "checkpoint")


class Streamed:
    """A stream into a Delta table: record n of its topic is the row n."""

    def __init__(self, root: Path) -> None:
        self.days, self.target = 0, str(root / "events")
        self.claim: Claim | None = None
        self.reopen()
        self.ledger.ensure()
        claim = self.ledger.claim(FACTS, self.ledger.stored())
        self.claim = self.ledger.move(claim, _at(0), "begins", begins_incarnation=False)

    def work(self) -> None:
        if self.claim is None:
            self.claim = self.ledger.claim(FACTS, self.ledger.trusted("s"))
        claim, end = self.claim, self.claim.end_offsets
        assert end is not None
        day = end.at(("t", 0)) + 1
        batch = StreamBatch(claim.next_batch_id, claim.incarnation, end, _at(day))
        assert self.ledger.admitted(claim, batch)
        receipt = self.ledger.receipt(claim, batch, LoadCounts(1, 1))
        properties = CommitProperties(
            custom_metadata={"userMetadata": receipt.user_metadata},
            app_transactions=[Transaction(receipt.app_id, receipt.seq)],
        )
        rows = pa.table({"id": pa.array([day], pa.int64())})
        write_deltalake(self.target, rows, mode="append", commit_properties=properties)
        self.claim = replace(claim, end_offsets=_at(day), batch_id=batch.batch_id)
        self.days = day

    def reset(self) -> None:
        """`floodmark stream reset`, to where the rows of the target end."""
        claim = self.ledger.claim(replace(FACTS, query_id=None), self.ledger.stored())
        self.ledger.move(claim, _at(self.days), "reset by a test")

    def reopen(self) -> None:
        self.ledger = DeltaLedger(self.target, "s")
        self.claim = None

    def check(self) -> None:
        ids = DeltaTable(self.target).to_pyarrow_table().column("id").to_pylist()
        assert sorted(ids) == list(range(1, self.days + 1))
        row = self.ledger.trusted("s")
        assert row is not None
        assert row.end_offsets == _at(self.days)

    def tables(self, of: str) -> list[str]:
        """The tables of a kind: the notes beside the target, or the target."""
        return [self.target if of == "target" else f"{self.target}{BESIDE}"]


def _at(offset: int) -> Offsets:
    return Offsets.of({("t", 0): offset})


def outcome(place: Any, of: str, operation: Operation, mend: Mend | None) -> str:
    """What becomes of work after housekeeping: WORKS, or the code of the refusal.

    The process that was open goes on, then another one. After a refusal `mend` does what the error
    advises, and everything has to be there.
    """
    for _ in range(3):
        place.work()
    tables = place.tables(of)
    for table in tables:
        operation(table)
    result = WORKS
    for again in (False, True):
        if again:
            place.reopen()
        error = _refusal(place)
        if error is not None:
            assert error.next, error
            result = error.code
            place.reopen()
            assert _refusal(place) is not None, "another process is refused too"
            assert mend is not None, error
            for table in tables:
                mend(place, table)
            place.reopen()
            place.work()
    place.check()
    return result


def _refusal(place: Place) -> FloodmarkError | None:
    try:
        place.work()
    except FloodmarkError as error:
        return error
    return None
