"""Receipts are believed by the identity of their commit: sinks and memories of streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.contract import receipt_contract as attacks
from tests.contract.ledger_places import DeltaRows
from tests.contract.postgres_places import PgLake, PgPlace
from tests.contract.receipt_contract import Attack, DeltaFolder, ReceiptContract, Writer
from tests.contract.sink_contract import window
from tests.services.stream_places import ME, StreamPlace, at, committed

from floodmark.deltalog import DeltaLog
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import FloodmarkError, StreamError
from floodmark.model.offsets import Offsets
from floodmark.model.receipt import Receipt, commit_metadata
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.postgres import connector
from floodmark.sinks import RecoverableSink
from floodmark.sinks.postgres import PostgresSink
from floodmark.streaming.ledger.batches import Applied, Claim, ClaimFacts, LoadCounts, StreamBatch
from floodmark.streaming.ledger.delta import DeltaLedger
from floodmark.streaming.position.decisions import decide, stored_of
from floodmark.testing.arrow import ArrowSink

APP = "floodmark/store/pipe/out"
NEWS = window("snapshot")


def receipt(number: int, app_id: str, batch: str = "batch") -> Receipt:
    metadata = commit_metadata("store", f"{batch}_{number}", number, "pipe", {"/up": (1, number)})
    return Receipt(app_id, number, metadata)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


class StoredSink:
    """A sink with the record that the control store has of its last write."""

    def __init__(self) -> None:
        self.done: SinkDone | None = None
        self.generation = 0

    def sink(self, previous: SinkDone | None, windows: tuple[Window, ...] = ()) -> RecoverableSink:
        raise NotImplementedError

    def write(self, number: int) -> None:
        self.done = self._written(number, "batch", rows(number), self.done)

    def other_life(self, number: int) -> None:
        self._written(number, "other", rows(100 + number), None, number - 1)

    def settle(self, number: int) -> None:
        """`--on-lost-target rebuild`: the target is written anew, as a first run would."""
        ours = receipt(number, f"{APP}/{self.generation}")
        self.generation += 1
        loss = self.sink(self.done).loss(ours)
        assert loss is not None
        assert "--on-lost-target rebuild" in str(loss.next)
        next_app_id = f"{APP}/{self.generation}"
        self.done = self.sink(self.done).resolved("rebuild", ours, next_app_id)
        everything = rows(*range(1, number + 1))
        self.done = self._written(number, "batch", everything, self.done, windows=(NEWS,))

    def _written(
        self,
        number: int,
        batch: str,
        frame: pa.Table,
        done: SinkDone | None,
        before: int | None = None,
        *,
        windows: tuple[Window, ...] = (),
    ) -> SinkDone:
        ours = receipt(number, f"{APP}/{self.generation}", batch)
        if before is not None:
            done = self.known(before)
        result = self.sink(done, windows).write(frame, ours)
        return SinkDone(
            "out",
            ours.app_id,
            result.target,
            result.table_id,
            result.version,
            None,
            seq=number,
            accepted_version=done.accepted_version if done else -1,
            batch_id=f"{batch}_{number}",
        )

    def known(self, number: int) -> SinkDone:
        """What a copy of the store knows of its last write: taken from the target."""
        raise NotImplementedError


class DeltaWriter(DeltaFolder, StoredSink):
    def __init__(self, path: Path) -> None:
        DeltaFolder.__init__(self, path)
        StoredSink.__init__(self)

    def sink(self, previous: SinkDone | None, windows: tuple[Window, ...] = ()) -> RecoverableSink:
        return ArrowSink(WriteSpec(str(self.path), "append", "out"), windows, previous)

    def known(self, number: int) -> SinkDone:
        app_id = f"{APP}/{self.generation}"
        log = DeltaLog(self.path)
        commit = log.find_transaction(app_id, number)
        assert commit is not None
        table_id = log.facts().table_id
        return SinkDone("out", app_id, str(self.path), table_id, commit.version, None, seq=number)


class TestDeltaSink(ReceiptContract):
    EXPECTED: ClassVar[dict[Attack, str]] = {
        attacks.put_back: "FM-SINK-017",
        attacks.put_back_and_passed: "FM-SINK-017",
        attacks.copied: "FM-SINK-044",
        attacks.restored_and_passed: "FM-SINK-009",
        attacks.restored_and_cleaned: "FM-SINK-042",
        attacks.cleaned: "FM-SINK-042",
        attacks.checkpoint_gone: "FM-SINK-045",
    }

    @pytest.fixture
    def writer(self, tmp_lake: Path) -> DeltaWriter:
        return DeltaWriter(tmp_lake / "out")

    def test_a_number_whose_commit_was_cleaned_is_no_proof(self, writer: DeltaWriter) -> None:
        for number in (1, 2):
            writer.write(number)
        known = writer.done
        writer.write(3)
        newest = writer.done
        writer.clean()
        other = receipt(3, f"{APP}/0", "new")

        assert newest is not None
        looked_at = replace(newest, accepted_version=DeltaLog(writer.path).facts().latest_version)
        for previous in (known, looked_at):
            with pytest.raises(FloodmarkError) as caught:
                writer.sink(previous).committed(other)
            assert caught.value.code == "FM-SINK-043"
        assert writer.sink(looked_at).committed(receipt(3, f"{APP}/0")) is not None

    def test_cleaned_commits_of_ours_alone_stop_nothing(self, writer: DeltaWriter) -> None:
        for number in (1, 2, 3, 4):
            writer.write(number)
        commits = sorted((writer.path / "_delta_log").glob("*.json"))
        DeltaTable(writer.path).create_checkpoint()
        for commit in commits[:-1]:
            commit.unlink()

        writer.write(5)

        assert writer.numbers() == [1, 2, 3, 4, 5]


class PgWriter(StoredSink):
    """The table and its receipts are copied by rows: a server put back has the same oids."""

    def __init__(self, dsn: str, place: PgPlace) -> None:
        super().__init__()
        self._dsn, self._place = dsn, place

    def sink(self, previous: SinkDone | None, windows: tuple[Window, ...] = ()) -> RecoverableSink:
        spec = WriteSpec(str(self._place), "append", "out")
        return PostgresSink(connector(self._dsn), spec, windows, previous)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self._place.rows() if row["n"] != attacks.STRANGER)

    def save(self) -> None:
        for table in (self._place.table, self._place.receipts):
            self._place.query(f"CREATE TABLE {_copy_of(table)} AS SELECT * FROM {table}")

    def put_back(self) -> None:
        for table in (self._place.table, self._place.receipts):
            self._place.query(
                f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM {_copy_of(table)}"
            )

    def strangers(self, commits: int) -> None:
        for _ in range(commits):
            self._place.query(f"INSERT INTO {self._place.table} VALUES ({attacks.STRANGER})")

    def known(self, number: int) -> SinkDone:
        (row,) = self._place.query(
            f"SELECT table_oid, version FROM {self._place.receipts} WHERE seq = {number}"
        )
        app_id = f"{APP}/{self.generation}"
        table_id = f"oid:{row['table_oid']}"
        return SinkDone("out", app_id, str(self._place), table_id, row["version"], None, seq=number)


def _copy_of(table: str) -> str:
    return f'{table[:-1]}_copy"' if table.endswith('"') else f"{table}_copy"


@pytest.mark.postgres
class TestPostgresSink(ReceiptContract):
    EXPECTED: ClassVar[dict[Attack, str]] = {
        attacks.put_back: "FM-SINK-017",
        attacks.put_back_and_passed: "FM-SINK-017",
        attacks.copied: "FM-SINK-044",
    }

    @pytest.fixture
    def writer(self, postgres: PostgresServer, pg_schema: str) -> PgWriter:
        return PgWriter(postgres.dsn, PgLake(postgres.dsn, pg_schema) / "out")


FACTS = ClaimFacts("here", {"t": "id"}, "query", "checkpoint")


def offsets(number: int) -> Offsets:
    return Offsets.of({("t", 0): number})


class DeltaStream(DeltaFolder):
    """A stream into a Delta table whose checkpoint was deleted: only the target and its notes tell.

    Record `n` has offset n - 1; a stream that begins anew begins at the end of its topic.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.written: dict[int, tuple[str, int]] = {}
        self.ledger = DeltaLedger(str(path), "s")
        self.ledger.ensure()
        claim = self.ledger.claim(FACTS, self.ledger.stored())
        self.ledger.move(claim, offsets(0), "begins at earliest", begins_incarnation=False)

    def write(self, number: int) -> None:
        row = self.ledger.trusted("s")
        start = decide("s", None, stored_of(row), {"t": "id"})
        facts = replace(FACTS, begins_incarnation=start.kind == "new_incarnation")
        claim = self.ledger.claim(facts, row)
        self._write_behind(claim, start.offsets or offsets(number - 1), number)

    def other_life(self, number: int) -> None:
        """A copy of the runner, with a copy of the notes: as the other process left them."""
        app_id, batch_id = self.written[number]
        start, end = offsets(number - 1).to_json(), offsets(number).to_json()
        metadata = commit_metadata(
            "stream",
            f"{app_id}/{batch_id}",
            batch_id,
            "s",
            {},
            start_offsets=start,
            end_offsets=end,
            claim_id="of a copy",
        )
        properties = CommitProperties(
            custom_metadata={"userMetadata": metadata},
            app_transactions=[Transaction(app_id, batch_id)],
        )
        write_deltalake(self.path, rows(100 + number), mode="append", commit_properties=properties)

    def settle(self, number: int) -> None:
        """`stream rewind`, or `reset` to the offsets where the rows that are there end."""
        there = self.numbers()
        end = offsets(next(n for n in range(len(there) + 1) if n + 1 not in there))
        claim = self.ledger.claim(replace(FACTS, query_id=None), self.ledger.stored())
        self.ledger.move(claim, end, "reset by a test")
        extra = [n for n in there if n > number]
        if extra:  # a copy that went its own way has rows that nobody asked for
            DeltaTable(self.path).delete(f"n > {number}")
        self.write(number)

    def _write_behind(self, claim: Claim, start: Offsets, number: int) -> None:
        batch = StreamBatch(claim.next_batch_id, claim.incarnation, start, offsets(number))
        brought = range(start.at(("t", 0)) + 1, number + 1)
        load = DeltaRows(self.path, brought, LoadCounts(1, 1))
        if isinstance(self.ledger.commit(claim, batch, load), Applied):
            self.written[number] = (self.ledger.app_id(batch.incarnation), batch.batch_id)

    def restore(self) -> None:
        DeltaTable(self.path).restore(1)


class RunningDeltaStream(DeltaStream):
    """The same, and the attack comes while its runner runs: the claim is in its hands."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._claim: Claim | None = None

    def write(self, number: int) -> None:
        if self._claim is None:
            row = self.ledger.trusted("s")
            self._claim = self.ledger.claim(FACTS, row)
        end = self._claim.end_offsets
        assert end is not None
        self._write_behind(self._claim, end, number)
        self._claim = replace(
            self._claim, end_offsets=offsets(number), batch_id=self._claim.next_batch_id
        )

    def settle(self, number: int) -> None:
        self._claim = None
        super().settle(number)


class TestDeltaStream(ReceiptContract):
    EXPECTED: ClassVar[dict[Attack, str]] = {
        attacks.put_back: "FM-STREAM-045",
        attacks.put_back_and_passed: "FM-STREAM-045",
        attacks.copied: "FM-STREAM-046",
        attacks.restored_and_passed: "FM-SINK-009",
        attacks.restored_and_cleaned: "FM-STREAM-047",
        attacks.cleaned: "FM-STREAM-047",
        attacks.checkpoint_gone: "FM-STREAM-047",
    }

    @pytest.fixture
    def writer(self, tmp_lake: Path) -> DeltaStream:
        return DeltaStream(tmp_lake / "out")


class TestRunningDeltaStream(ReceiptContract):
    EXPECTED: ClassVar[dict[Attack, str]] = {
        **TestDeltaStream.EXPECTED,
        attacks.put_back: "FM-STREAM-002",
        attacks.put_back_and_passed: "FM-STREAM-002",
    }

    @pytest.fixture
    def writer(self, tmp_lake: Path) -> DeltaStream:
        return RunningDeltaStream(tmp_lake / "out")


class PgStream:
    """A stream whose memory is its database; what is put back by parts is said by the test."""

    def __init__(self, place: StreamPlace) -> None:
        self.place = place
        place.query("CREATE TABLE numbers (n bigint)")
        self.ledger = place.ledger()
        self.ledger.ensure()

    def write(self, number: int) -> None:
        row = self.ledger.trusted("s")
        claim = self.ledger.claim(ME, row)
        start = 1 if claim.end_offsets is None else claim.end_offsets.at(("t", 0))
        committed(self.ledger, claim, self.place.table, claim.next_batch_id, start, number + 1)

    def numbers(self) -> list[int]:
        return [n for n in self.place.numbers() if n != attacks.STRANGER]

    def settle(self, number: int) -> None:
        there = self.numbers()
        claim = self.ledger.claim(ME, self.ledger.stored())
        self.ledger.move(claim, at(max(there) + 1), "reset by a test")
        self.write(number)

    def save(
        self, tables: tuple[str, ...] = ("numbers", "floodmark_stream", "batch_tracker")
    ) -> None:
        for table in tables:
            self.place.query(f"CREATE TABLE {table}_copy AS SELECT * FROM {table}")

    def put_back(
        self, tables: tuple[str, ...] = ("numbers", "floodmark_stream", "batch_tracker")
    ) -> None:
        for table in tables:
            self.place.query(f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM {table}_copy")

    def strangers(self, commits: int) -> None:
        for _ in range(commits):
            self.place.query(f"INSERT INTO numbers VALUES ({attacks.STRANGER})")

    def other_life(self, number: int) -> None:
        """The tracker comes from a copy of the database in which the stream went its own way."""
        self.put_back(())
        self.place.query(
            f"UPDATE batch_tracker SET commit_id = 'of a copy' WHERE batch_id = {number - 1}"
        )


def row_put_back(writer: Any) -> None:
    writer.put_back(("floodmark_stream",))


def row_put_back_and_tracker_cleaned(writer: Any) -> None:
    writer.ledger.cleanup(0)
    writer.put_back(("floodmark_stream",))


def copied_tracker(writer: Any) -> None:
    writer.other_life(4)


@pytest.mark.postgres
class TestPostgresStream(ReceiptContract):
    EXPECTED: ClassVar[dict[Attack, str]] = {
        attacks.put_back: "written",
        attacks.put_back_and_passed: "written",
    }

    @pytest.fixture
    def writer(self, postgres: PostgresServer, pg_schema: str) -> PgStream:
        return PgStream(StreamPlace(postgres.dsn, pg_schema))

    @pytest.mark.parametrize(
        ("attack", "code"),
        [
            (row_put_back, "FM-STREAM-036"),
            (row_put_back_and_tracker_cleaned, "FM-STREAM-036"),
            (copied_tracker, "FM-STREAM-048"),
        ],
    )
    def test_tables_that_parted_are_refused(
        self, writer: PgStream, attack: Attack, code: str
    ) -> None:
        assert attacks.outcome(writer, attack) == code

        writer.settle(5)

        assert writer.numbers() == [1, 2, 3, 4, 5]


def test_a_position_is_noted_with_each_claim(tmp_lake: Path) -> None:
    stream = DeltaStream(tmp_lake / "out")
    for number in (1, 2, 3):
        stream.write(number)

    stream.ledger.claim(FACTS, stream.ledger.trusted("s"))
    stream.clean()
    with pytest.raises(StreamError) as caught:
        stream.ledger.trusted("s")

    assert caught.value.code == "FM-STREAM-047"
    assert f"reset s --to '{offsets(3).to_json()}' --yes" in str(caught.value.next)


_: type[Writer] = DeltaWriter
