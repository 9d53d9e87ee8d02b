"""What a target's log says about rows of ours that somebody took away."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.deltalog import Storage
from floodmark.errors import SinkError
from floodmark.model.delta import TableFacts, VersionFacts
from floodmark.model.receipt import Receipt, commit_metadata
from floodmark.model.state import SinkDone
from floodmark.sinks import loss as lost
from floodmark.sinks.delta.target import DeltaTarget
from floodmark.sinks.rules import Target

AT = datetime(2026, 1, 1, tzinfo=UTC)
RECEIPT = Receipt("app", 5, commit_metadata("store", "batch_5", 5, "p", {}))
BEFORE = SinkDone("out", "app", "/lake/out", "id-1", 4, 10)


def commit(
    number: int, operation: str, user_metadata: str | None = None, /, **parameters: str
) -> VersionFacts:
    return VersionFacts(
        number,
        AT,
        operation,
        frozenset(),
        0,
        None,
        parameters=parameters,
        user_metadata=user_metadata,
    )


def facts(table_id: str = "id-1") -> TableFacts:
    return TableFacts("/lake/out", table_id, 9, AT, 0, True, "{}", "f")


def code(*commits: VersionFacts, found: TableFacts | None = None) -> str | None:
    error = lost.target_loss(BEFORE, found or facts(), commits, RECEIPT)
    return error.code if error else None


def test_another_table_or_none_is_not_the_one_written_before() -> None:
    gone = lost.target_loss(BEFORE, None, (), RECEIPT)

    assert gone is not None
    assert gone.code == code(found=facts("id-2")) == "FM-SINK-007"
    assert "floodmark retry batch_5 --on-lost-target rebuild" in str(gone.next)
    assert code() is None


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("TRUNCATE", {}),
        ("DELETE", {}),
        ("DELETE", {"predicate": "[]"}),
        ("DELETE", {"predicate": '["true"]'}),
        ("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}),
        ("CREATE OR REPLACE TABLE AS SELECT", {}),
    ],
)
def test_whoever_takes_every_row_away_is_named(operation: str, parameters: dict[str, str]) -> None:
    assert code(commit(5, operation, **parameters)) == "FM-SINK-016"


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("DELETE", {"predicate": '["(id < 3)"]'}),
        ("UPDATE", {}),
        ("WRITE", {"mode": "Append"}),
        ("WRITE", {"mode": "Overwrite", "predicate": "day = 1"}),
        ("MERGE", {"predicate": "x"}),
        ("OPTIMIZE", {"predicate": "[]"}),
        ("VACUUM END", {}),
    ],
)
def test_what_others_do_to_single_rows_is_their_business(
    operation: str, parameters: dict[str, str]
) -> None:
    assert code(commit(5, operation, **parameters)) is None


def test_an_overwrite_of_ours_is_not_a_loss() -> None:
    said = commit_metadata("store", "batch_1", 1, "p", {})

    assert code(commit(5, "WRITE", said, mode="Overwrite")) is None


def test_a_target_that_was_accepted_as_gone_may_be_anything() -> None:
    settled = SinkDone("out", "app", "/lake/out", "", -1, None, settled="accept")

    assert lost.target_loss(settled, facts("id-2"), (), RECEIPT) is None


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([], True),
        ([commit(5, "WRITE", mode="Append")], True),
        ([commit(5, "RESTORE", version="4")], True),
        ([commit(5, "RESTORE", version="3")], False),
        ([commit(5, "WRITE"), commit(6, "RESTORE", version="5")], True),
        ([commit(5, "RESTORE", version="3"), commit(6, "RESTORE", version="4")], True),
        ([commit(5, "RESTORE", version="3"), commit(6, "RESTORE", version="5")], False),
        ([commit(5, "TRUNCATE"), commit(6, "RESTORE", version="4")], True),
        ([commit(5, "TRUNCATE"), commit(6, "WRITE")], False),
        ([commit(5, "RESTORE", timestamp="2026-01-01")], None),
    ],
)
def test_restores_are_followed_back_to_what_the_table_holds(
    commits: list[VersionFacts], expected: bool | None
) -> None:
    assert lost.survives(4, commits) is expected


def test_a_write_that_returned_without_its_receipt_is_not_taken_for_done(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    target = DeltaTarget(path, None, Storage())
    for is_there in (False, True):
        if is_there:
            write_deltalake(path, pa.table({"id": [1]}))
        with pytest.raises(SinkError) as caught:
            target.read_back(RECEIPT, Target(exists=is_there), {})

        assert caught.value.code == "FM-SINK-008"
        assert "floodmark retry batch_5" in str(caught.value.next)
