"""The memory of a stream in the log of its Delta table, without Spark."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.batches import Claim, ClaimFacts, LoadCounts, StreamBatch
from floodmark.streaming.delta_ledger import BESIDE, DeltaLedger
from floodmark.streaming.startup import decide, stored_of

FACTS = ClaimFacts("here", {"events": "id-1"}, "query-1", "checkpoint")
REACHED = datetime(2026, 1, 1, tzinfo=UTC)


def at(offset: int) -> Offsets:
    return Offsets.of({("events", 0): offset})


@pytest.fixture
def ledger(tmp_path: Path) -> DeltaLedger:
    found = DeltaLedger(str(tmp_path / "events"), "clicks")
    found.ensure()
    return found


def begun(ledger: DeltaLedger, facts: ClaimFacts = FACTS) -> Claim:
    claim = ledger.claim(facts, ledger.stored())
    return ledger.move(claim, at(0), "begins at earliest", begins_incarnation=False)


def batch_of(claim: Claim, start: int, end: int, spark_batch: int = 0) -> StreamBatch:
    return StreamBatch(
        claim.next_batch_id, claim.incarnation, at(start), at(end), spark_batch, "checkpoint", REACHED
    )  # fmt: skip


def write(ledger: DeltaLedger, claim: Claim, batch: StreamBatch) -> None:
    """What the writer does, by other means."""
    receipt = ledger.receipt(claim, batch, LoadCounts(5, 5))
    properties = CommitProperties(
        custom_metadata={"userMetadata": receipt.user_metadata},
        app_transactions=[Transaction(receipt.app_id, receipt.seq)],
    )
    rows = pa.table({"id": [batch.batch_id]})
    write_deltalake(ledger.path, rows, mode="append", commit_properties=properties)


def test_a_stream_stands_behind_the_last_batch_of_its_target(ledger: DeltaLedger) -> None:
    assert ledger.stored() is None
    claim = begun(ledger)
    write(ledger, claim, batch_of(claim, 0, 5))

    row = ledger.stored()

    assert row is not None
    assert (row.end_offsets, row.spark_batch_id, row.query_id) == (at(5), 0, "query-1")
    assert (row.batch_id, row.incarnation, row.event_watermark) == (1, 1, REACHED)
    assert [said["seq"] for _, said in ledger.commits()] == [1]


def test_a_batch_is_admitted_once_and_only_where_the_stream_stands(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    batch = batch_of(claim, 0, 5)
    before = ledger.admitted(claim, batch)
    write(ledger, claim, batch)

    after = ledger.admitted(claim, batch)
    with pytest.raises(StreamError) as gap:
        ledger.admitted(claim, replace(batch_of(claim, 7, 9), batch_id=2))
    with pytest.raises(StreamError) as overlap:
        ledger.admitted(claim, replace(batch_of(claim, 3, 9), batch_id=2))

    assert (before, after) == (True, False)
    assert (gap.value.code, overlap.value.code) == ("FM-STREAM-002", "FM-STREAM-003")


def test_a_claim_of_what_has_moved_fences_nobody(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    seen = ledger.stored()
    write(ledger, claim, batch_of(claim, 0, 5))

    with pytest.raises(StreamError) as caught:
        ledger.claim(FACTS, seen)

    assert caught.value.code == "FM-STREAM-011"
    ledger.refuse_fenced(claim)


def test_a_newer_claim_fences_the_older_one(ledger: DeltaLedger) -> None:
    first = begun(ledger)
    ledger.claim(FACTS, ledger.stored())

    with pytest.raises(StreamError) as caught:
        ledger.admitted(first, batch_of(first, 0, 5))

    assert caught.value.code == "FM-STREAM-001"


def test_a_new_incarnation_has_receipts_of_its_own(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    write(ledger, claim, batch_of(claim, 0, 5))
    later = replace(FACTS, query_id="query-2", begins_incarnation=True)
    claim = ledger.claim(later, ledger.stored())
    write(ledger, claim, batch_of(claim, 5, 8))

    row = ledger.stored()

    assert row is not None
    assert (row.incarnation, row.batch_id, row.spark_batch_id) == (2, 2, 0)
    assert (row.end_offsets, row.query_id) == (at(8), "query-2")


def test_the_target_alone_tells_where_its_last_incarnation_stands(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    write(ledger, claim, batch_of(claim, 0, 5))
    claim = ledger.claim(replace(FACTS, begins_incarnation=True), ledger.stored())
    write(ledger, claim, batch_of(claim, 5, 8))
    shutil.rmtree(ledger.path + BESIDE)

    row = ledger.stored()

    assert row is not None
    assert (row.incarnation, row.end_offsets, row.query_id) == (2, at(8), "query-1")
    assert dict(row.topic_ids) == {"events": "id-1"}
    ledger.ensure()
    assert ledger.claim(FACTS, ledger.stored()).end_offsets == at(8)


def test_a_table_that_was_made_anew_holds_nothing_of_the_stream(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    write(ledger, claim, batch_of(claim, 0, 5))
    ledger.claim(FACTS, ledger.stored())
    shutil.rmtree(ledger.path)
    write_deltalake(ledger.path, pa.table({"id": [1]}))

    row = ledger.stored()

    assert row is not None
    assert (row.end_offsets, row.spark_batch_id) == (None, None)


def test_a_table_that_was_put_back_stands_where_its_rows_end(ledger: DeltaLedger) -> None:
    """The claim that noted a later position is not believed: going on there would skip rows."""
    claim = begun(ledger)
    for number in range(4):
        batch = batch_of(claim, 10 * number, 10 * number + 10, number)
        write(ledger, claim, batch)
        claim = replace(claim, batch_id=batch.batch_id)
    claim = ledger.claim(FACTS, ledger.stored())
    assert claim.end_offsets == at(40)
    for version in (2, 3):
        (Path(ledger.path) / "_delta_log" / f"{version:020d}.json").unlink()

    row = ledger.stored()
    with pytest.raises(StreamError) as caught:
        ledger.trusted("clicks")

    assert row is not None
    assert (row.end_offsets, row.batch_id) == (at(20), 2)
    assert caught.value.code == "FM-STREAM-045"
    assert f"goes on at {at(20).to_json()}" in str(caught.value.next)


def test_a_target_whose_last_commit_was_cleaned_is_no_new_stream(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    write(ledger, claim, batch_of(claim, 0, 5))
    for _ in range(2):
        write_deltalake(ledger.path, pa.table({"id": [-1]}), mode="append")
    table = DeltaTable(ledger.path)
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(ledger.path) / "_delta_log" / f"{version:020d}.json").unlink()

    row = ledger.stored()

    assert row is not None
    assert (row.end_offsets, row.batch_id) == (None, 1)
    with pytest.raises(StreamError) as caught:
        decide("clicks", None, stored_of(row), {"events": "id-1"})
    assert caught.value.code == "FM-STREAM-034"


def test_a_decision_of_a_person_is_kept_with_its_note(ledger: DeltaLedger) -> None:
    claim = begun(ledger)
    write(ledger, claim, batch_of(claim, 0, 5))
    claim = ledger.claim(FACTS, ledger.stored())

    ledger.move(claim, at(2), "reset by somebody")

    row = ledger.stored()
    assert row is not None
    assert (row.incarnation, row.end_offsets, row.batch_id) == (2, at(2), 2)
    assert ledger.last_processed() == 2


def test_of_two_claims_at_one_moment_one_is_refused(
    ledger: DeltaLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(ledger)
    seen = ledger.stored()
    others = [DeltaLedger(ledger.path, ledger.stream_id)]

    def late(*arguments: Any, **options: Any) -> None:
        if others:
            others.pop().claim(FACTS, seen)
        write_deltalake(*arguments, **options)

    monkeypatch.setattr("deltalake.write_deltalake", late)
    with pytest.raises(StreamError) as caught:
        ledger.claim(FACTS, seen)

    assert caught.value.code == "FM-STREAM-011"
    row = ledger.stored()
    assert row is not None
    assert row.epoch == 2
