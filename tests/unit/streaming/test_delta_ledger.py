"""The memory of a stream in the log of its Delta table, without Spark."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.contract.ledger_places import DeltaRows
from tests.services.stream_places import letter_table

from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import (
    Claim,
    ClaimFacts,
    DeadLetter,
    LoadCounts,
    StreamBatch,
)
from floodmark.streaming.ledger.delta import BESIDE, REQUESTS, DeltaLedger
from floodmark.streaming.position.decisions import decide, stored_of

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
    ledger.commit(claim, batch, DeltaRows(Path(ledger.path), [batch.batch_id], LoadCounts(5, 5)))


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
        write_deltalake(ledger.path, pa.table({"n": [-1]}), mode="append")
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


def test_starts_and_stops_leave_one_sign_and_not_a_file_each(ledger: DeltaLedger) -> None:
    for _ in range(3):
        claim_id = str(ledger.claim(FACTS, ledger.stored()).claim_id)
        ledger.ask_to_stop(claim_id, "somebody")
        ledger.note_end(claim_id)

    requests = Path(ledger.path + BESIDE) / REQUESTS
    kinds = sorted(each.name.partition("-")[0] for each in requests.iterdir())
    assert kinds == ["alive", "ended", "stop"]


def test_letters_that_cannot_be_read_are_a_typed_error(ledger: DeltaLedger) -> None:
    letter = DeadLetter("events", 0, 1, "value", "detail")
    older = datetime.now(UTC) - timedelta(days=40)
    write_deltalake(ledger.letters.path, letter_table([letter], 1, "clicks", older))
    for file in Path(ledger.letters.path).glob("*.parquet"):
        file.write_bytes(b"no Parquet")

    with pytest.raises(StreamError) as caught:
        ledger.cleanup_dead_letters(30)

    assert caught.value.code == "FM-STREAM-053"
