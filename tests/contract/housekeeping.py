"""Maintenance by others on tables of ours and on targets, while processes of ours hold them open.

A place is opened and used; somebody does housekeeping; the same objects, and then new ones, go on.
Each cell has one of two results: work goes on, or a typed refusal whose advice loses nothing. Run by
delta-rs in test_housekeeping.py, by Spark in tests/spark/test_housekeeping.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from tests.streaming.test_delta_outbox import Stream
from tests.support.crash import armed
from tests.support.node_projects import open_project
from tests.support.outsides import ALONE, ON_ARROW

import floodmark as fm
from floodmark.control.published.archive import AGING
from floodmark.control.published.reading import read_published
from floodmark.control.published.tables import TABLES
from floodmark.deltalog import Storage
from floodmark.engines.kafka import Record
from floodmark.errors import FloodmarkError, StreamError
from floodmark.failpoints import FailpointReached
from floodmark.model.offsets import Offsets
from floodmark.model.receipt import Receipt
from floodmark.model.write import WriteSpec
from floodmark.project import Project
from floodmark.sinks.delta import last_stream_write
from floodmark.sinks.delta.write import DeltaSink
from floodmark.streaming.ledger.batches import Applied, Claim, ClaimFacts, LoadCounts, StreamBatch
from floodmark.streaming.ledger.delta import BESIDE, DEAD_LETTERS, OUTBOX, DeltaLedger
from floodmark.streaming.ledger.delta_letters import LetterTable
from floodmark.streaming.outbox.delta import DeltaOutbox
from floodmark.streaming.outbox.relay import Relay
from floodmark.testing.arrow import ArrowSink

Operation = Callable[[str], None]
Work = Callable[[], None]
Mend = Callable[[Any, Sequence[str], FloodmarkError], None]
"""What the error advises, given the place, its tables and the error."""
ADVICES = 4
"""So many errors may come one after the other: of several tables each has one of its own."""
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
    """A coordinator with its control store and one target, written by delta-rs or by Spark."""

    def __init__(self, root: Path, spark: Any = None) -> None:
        self.days, self.spark = 0, spark
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

    def rebuild(self) -> None:
        """The lost target is written anew."""
        (batch,) = self.coordinator.current_plan()
        self.coordinator.run_pipeline(
            "p", str(batch.batch_id), self._copy, on_lost_target="rebuild"
        )

    def move_store(self) -> None:
        """A new store of the same events."""
        file = f"{self.control}.export"
        self.coordinator.admin.export_state(file)
        Path(self.control).rename(f"{self.control}.old")
        self.reopen()
        self.coordinator.admin.import_state(file)

    def _copy(self, inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[self.source], self.target, mode="append")

    def reopen(self) -> None:
        outside = ON_ARROW if self.spark is None else None
        self.coordinator = fm.Coordinator(
            self.control, spark=self.spark, schema=None, actor="t", outside=outside
        )

    def check(self) -> None:
        ids = _ids(self.target, self.spark)
        assert ids == list(range(1, self.days + 1)), (ids, self.days)
        self.coordinator.admin.rebuild_tables()
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
        if of == "two published":
            names = ["watermarks", "history"]  # one with partitions and overwrites, one that grows
        return [f"{self.control}/{name}" for name in names]


class Kept(Coordinated):
    """The same with `upkeep --keep-rows 0` at the end of each day."""

    def work(self) -> None:
        super().work()
        self.coordinator.admin.upkeep(keep_rows=0)

    def check(self) -> None:
        assert _ids(self.target, self.spark) == list(range(1, self.days + 1))
        self.coordinator.admin.rebuild_tables()
        assert [finding.text for finding in self.coordinator.verify() if not finding.ok] == []
        shown: set[int] = set()
        for folder in (self.control, f"{self.control}/archive"):
            history = read_published(f"{folder}/history", Storage(), "SELECT seq FROM t")
            assert history is not None
            seqs = history.column("seq").to_pylist()
            assert len(seqs) == len(set(seqs))
            shown.update(seqs)
        assert shown == set(range(1, self.coordinator.history(limit=1)[-1].seq + 1))

    def tables(self, of: str) -> list[str]:
        """The same, and the archive."""
        if of != "archive":
            return super().tables(of)
        return [f"{self.control}/archive/{name}" for name in AGING]


FACTS = ClaimFacts("here", {"t": "id"}, "query", "checkpoint")


class Streamed:
    """A stream into a Delta table: record n of its topic is the row n, and a dead letter beside it."""

    def __init__(self, root: Path, spark: Any = None) -> None:
        self.days, self.target, self.spark = 0, str(root / "events"), spark
        self.claim: Claim | None = None
        self.reopen()
        claim = self.ledger.claim(FACTS, self.ledger.stored())
        self.claim = self.ledger.move(claim, _at(0), "begins", begins_incarnation=False)

    def work(self) -> None:
        if self.claim is None:
            self.claim = self.ledger.claim(FACTS, self.ledger.trusted("s"))
        claim, end = self.claim, self.claim.end_offsets
        assert end is not None
        day = end.at(("t", 0)) + 1
        batch = StreamBatch(claim.next_batch_id, claim.incarnation, end, _at(day))
        done = self.ledger.commit(claim, batch, Day(self, day))
        assert isinstance(done, Applied)
        self.claim = replace(claim, end_offsets=_at(day), batch_id=batch.batch_id)
        self.days = day

    def save(self, path: str, rows: pa.Table, receipt: Receipt) -> None:
        """A commit as streaming.load.delta makes it."""
        spec, previous = (
            WriteSpec(path, "append", "s"),
            last_stream_write(path, receipt.app_id, Storage()),
        )
        if self.spark is None:
            ArrowSink(spec, (), previous).write(rows, receipt)
        else:
            DeltaSink(self.spark, spec, (), previous).write(
                self.spark.createDataFrame(rows), receipt
            )

    def reset(self) -> None:
        """`floodmark stream reset`, to where the rows of the target end."""
        claim = self.ledger.claim(replace(FACTS, query_id=None), self.ledger.stored())
        self.ledger.move(claim, _at(self.days), "reset by a test")

    def reopen(self) -> None:
        self.ledger = DeltaLedger(self.target, "s")
        self.ledger.ensure()
        self.claim = None

    def check(self) -> None:
        for path in (self.target, f"{self.target}{DEAD_LETTERS}"):
            assert _ids(path, self.spark) == list(range(1, self.days + 1)), path
        row = self.ledger.trusted("s")
        assert row is not None
        assert row.end_offsets == _at(self.days)

    def tables(self, of: str) -> list[str]:
        """The tables of a kind: the notes or dead letters beside the target, or the target."""
        beside = {"notes": BESIDE, "letters": DEAD_LETTERS}
        return [f"{self.target}{beside.get(of, '')}"]


@dataclass(frozen=True)
class Day:
    """A batch of `Streamed`: streaming.ledger.delta.DeltaLoad by another engine."""

    stream: Streamed
    day: int
    counts: LoadCounts = field(default_factory=lambda: LoadCounts(2, 1, 1))

    def write_letters(self, receipt: Receipt, *, is_new: bool) -> None:
        assert is_new
        letters = f"{self.stream.target}{DEAD_LETTERS}"
        of_letters = LetterTable(letters, "s", Storage()).receipt(receipt, attempt=0)
        self.stream.save(letters, _letters(self.day), of_letters)

    def write_rows(self, receipt: Receipt) -> None:
        rows = pa.table({"id": pa.array([self.day], pa.int64())})
        self.stream.save(self.stream.target, rows, receipt)


def _letters(day: int) -> pa.Table:
    now = pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC"))
    return pa.table(
        {"stream_id": ["s"], "id": pa.array([day], pa.int64()), "dead_lettered_at": now}
    )


class Taken:
    """A broker that takes every message, and counts each."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def refusals(self, records: Iterable[Record]) -> dict[int, StreamError]:
        self.counts.update(json.loads(record.value or b"")["offset"] for record in records)
        return {}


class Relayed:
    """Dead letters beside a Delta target that are sent to a topic, one on each day."""

    def __init__(self, root: Path, spark: Any = None) -> None:
        del spark
        self.path, self.days, self._letters = str(root / "events"), 0, 0
        self.stream, self.broker = Stream(self.path), Taken()

    def work(self) -> None:
        if self._letters == self.days:
            self.stream.letters("topic", [self._letters])
            self._letters += 1
            self.stream.rows(self._letters)
        relay = Relay(DeltaOutbox(self.stream.ledger), lambda: self.broker)
        assert relay.send() == 0
        self.days = self._letters

    def reopen(self) -> None:
        self.stream.ledger = DeltaLedger(self.path, "numbers")

    def check(self) -> None:
        assert sorted(self.broker.counts) == list(range(self.days))
        # Positions that are taken back send once more; nothing is sent at every attempt.
        assert max(self.broker.counts.values()) <= 2

    def tables(self, of: str) -> list[str]:
        """Up to where letters are sent, or the letters."""
        return [f"{self.path}{OUTBOX if of == 'positions' else DEAD_LETTERS}"]


STORY = """\
project: shop
jobs: 1
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: events
    parallel: 1
    nodes:
      - name: recent
        read: {connection: lake, path: events, incremental: {cursor: at, type: timestamp}}
      - {name: one, depends_on: [recent], write: {connection: lake, path: one, mode: append}}
      - {name: two, depends_on: [one], write: {connection: lake, path: two, mode: append}}
      - {name: three, depends_on: [recent], write: {connection: lake, path: three, mode: append}}
"""
TARGETS = ("one", "two", "three")


class Nodes:
    """A pipeline of nodes: `recent` is landed for `one` and `three`, `two` reads the commit of `one`.

    The day of the operation is interrupted twice: behind node one, and by the process that goes on
    behind node two. The next process ends it.
    """

    def __init__(self, root: Path, spark: Any = None) -> None:
        self.root, self.spark, self.days = root, spark, 0
        self._points: list[str] = []
        (root / "floodmark.yaml").write_text(STORY)
        self.reopen()

    def reopen(self) -> None:
        self.project = (
            open_project(self.root)
            if self.spark is None
            else Project.load(self.root, session=lambda: self.spark, outside=ALONE)
        )

    def work(self) -> None:
        if not self._points:
            self._grow()
            self._run()
            return
        with armed(self._points[0] or None), suppress(FailpointReached):
            self._run()
        self._points.pop(0)

    def accept_rows(self) -> None:
        """Rows of this batch that are gone are made once more."""
        (batch,) = self.project.coordinator.current_plan()
        for error in [
            o.error
            for o in self.project.retry(str(batch.batch_id), on_lost_range="accept").outcomes
            if o.error
        ]:
            raise error
        self._points = []

    def _run(self) -> None:
        for error in [o.error for o in self.project.run().outcomes if o.error]:
            raise error

    def _grow(self) -> None:
        self.days += 1
        at = pa.array([datetime(2026, 1, self.days, tzinfo=UTC)], pa.timestamp("us", "UTC"))
        rows = pa.table({"id": pa.array([self.days], pa.int64()), "at": at})
        feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(self.root / "lake/events"), rows, mode="append", configuration=feed)

    def check(self) -> None:
        self.work()
        for name in TARGETS:
            assert _ids(str(self.root / "lake" / name), self.spark) == list(
                range(1, self.days + 1)
            ), name
        findings = self.project.coordinator.verify()
        assert [finding.text for finding in findings if not finding.ok] == []
        landing = self.root / "lake/_control/landing"
        assert not any(landing.glob("batch_*"))

    def tables(self, of: str) -> list[str]:
        """What is landed for the day, or the target that another node reads."""
        self._grow()
        self._points = ["sink.before_commit:3"]
        self.work()
        self._points = ["sink.before_commit:2", ""]
        landing = self.root / "lake/_control/landing"
        landed = [str(log.parent) for log in landing.rglob("_delta_log")]
        assert landed
        return landed if of == "landing" else [str(self.root / "lake/one")]


def _ids(path: str, spark: Any) -> list[int]:
    if spark is None:
        found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t")
        ids = pa.table(found).column("id").to_pylist()
    else:
        ids = [row["id"] for row in spark.read.format("delta").load(path).select("id").collect()]
    return sorted(ids)


def _at(offset: int) -> Offsets:
    return Offsets.of({("t", 0): offset})


def outcome(
    place: Any, kinds: Sequence[str], operation: Operation, mend: Mend | None, *, days: int = 3
) -> str:
    """What becomes of work after housekeeping: WORKS, or the code of the refusal.

    The process that was open goes on, then another one. After a refusal `mend` does what the error
    advises, and everything has to be there. A refusal that a retry passes needs no other advice.
    """
    for _ in range(days):
        place.work()
    tables = [table for of in kinds for table in place.tables(of)]
    for table in tables:
        operation(table)
    result = WORKS
    for again in (False, True):
        if again:
            place.reopen()
        error = _refusal(place.work)
        if error is not None:
            result = error.code
            _follow(place, tables, mend, error, place.work)
    error = _refusal(place.check)
    if error is not None:
        # Nothing that a run needs: only `state rebuild`, which the check asks for, is refused.
        result = f"rebuild {error.code}"
        _follow(place, tables, mend, error, place.check)
    return result


def _follow(
    place: Any, tables: Sequence[str], mend: Mend | None, error: FloodmarkError, work: Work
) -> None:
    """Do what the errors advise, one after the other, until work goes on."""
    for _ in range(ADVICES):
        assert error.next, error
        if not error.retryable:
            place.reopen()
            again = _refusal(work)
            assert again is not None, "another process is refused too"
            assert again.code == error.code
            assert mend is not None, error
            mend(place, tables, again)
            place.reopen()
        following = _refusal(work)
        if following is None:
            return
        error = following
    raise AssertionError(error)


def _refusal(work: Work) -> FloodmarkError | None:
    try:
        work()
    except FloodmarkError as error:
        return error
    return None
