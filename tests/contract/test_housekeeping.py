"""What delta-rs does to tables of ours, while they are in use; see housekeeping.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.contract.housekeeping import WORKS, Coordinated, Mend, Operation, Streamed, outcome

import floodmark as fm
from floodmark.errors import ControlError


def optimize(path: str) -> None:
    DeltaTable(path).optimize.compact()


def optimize_and_vacuum(path: str) -> None:
    """Files that older versions name are gone at once."""
    optimize(path)
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)


def properties(path: str) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "2"})


def deletion_vectors(path: str) -> None:
    """The protocol is raised: reader version 3, writer version 7."""
    DeltaTable(path).alter.set_table_properties({"delta.enableDeletionVectors": "true"})


def append_only(path: str) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})


def short_log(path: str) -> None:
    """The retention of the log is shortened, and commit files behind a checkpoint are gone."""
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(table.version()):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


def restore(path: str) -> None:
    table = DeltaTable(path)
    table.restore(table.version() - 1)


def restore_back(_: Any, path: str) -> None:
    table = DeltaTable(path)
    table.restore(table.version() - 1)


CELLS: list[tuple[str, str, Operation, str]] = [
    ("batches", "journal", optimize, WORKS),
    ("batches", "journal", optimize_and_vacuum, WORKS),
    ("batches", "journal", properties, WORKS),
    ("batches", "journal", deletion_vectors, WORKS),
    ("batches", "journal", append_only, WORKS),
    ("batches", "journal", short_log, WORKS),
    ("batches", "journal", restore, "FM-CONTROL-028"),
    ("batches", "published", optimize, WORKS),
    ("batches", "published", optimize_and_vacuum, WORKS),
    ("batches", "published", properties, WORKS),
    ("batches", "published", deletion_vectors, WORKS),
    ("batches", "published", short_log, WORKS),
    ("batches", "published", restore, WORKS),
    ("batches", "target", optimize_and_vacuum, WORKS),
    ("batches", "target", properties, WORKS),
    ("batches", "target", append_only, WORKS),
    ("batches", "target", short_log, WORKS),
    ("batches", "target", restore, "FM-SINK-009"),
    ("stream", "notes", optimize, WORKS),
    ("stream", "notes", optimize_and_vacuum, WORKS),
    ("stream", "notes", properties, WORKS),
    ("stream", "notes", deletion_vectors, WORKS),
    ("stream", "notes", append_only, WORKS),
    ("stream", "notes", short_log, WORKS),
    ("stream", "notes", restore, WORKS),
    ("stream", "target", optimize_and_vacuum, WORKS),
    ("stream", "target", properties, WORKS),
    ("stream", "target", append_only, WORKS),
    ("stream", "target", short_log, "FM-STREAM-047"),
    ("stream", "target", restore, "FM-SINK-009"),
]


@pytest.mark.parametrize(
    ("who", "of", "operation", "expected"),
    CELLS,
    ids=[f"{who}-{of}-{operation.__name__}" for who, of, operation, _ in CELLS],
)
def test_work_goes_on_or_is_refused_with_a_way_out(
    tmp_path: Path, who: str, of: str, operation: Operation, expected: str
) -> None:
    place = (Coordinated if who == "batches" else Streamed)(tmp_path)
    mends: dict[Operation, Mend] = {restore: restore_back, short_log: lambda it, _: it.reset()}

    assert outcome(place, of, operation, mends.get(operation)) == expected


def replace_newest_commit(path: str) -> None:
    """What Spark's commit does on a local disk, when both come at once: a rename over ours."""
    newest = max((Path(path) / "_delta_log").glob("*.json"))
    info = {"commitInfo": {"timestamp": 0, "operation": "OPTIMIZE", "operationParameters": {}}}
    newest.write_text(json.dumps(info))


def test_a_process_whose_operation_was_replaced_writes_nothing_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    place = Coordinated(tmp_path)
    place.work()
    (journal,) = place.tables("journal")
    other = fm.Coordinator(place.control, actor="other", lease_ttl=2)
    other.pause("p")
    replace_newest_commit(journal)
    files = sorted(Path(journal).glob("*.parquet"))

    with pytest.raises(ControlError) as caught:
        other.resume("p")

    assert caught.value.code == "FM-CONTROL-027"
    assert sorted(Path(journal).glob("*.parquet")) == files
    other.pause("p")  # the same command again
    other.resume("p")
    other.rebuild_tables()
    place.reopen()
    place.work()
    place.check()


def test_a_compaction_of_what_was_made_append_only_says_how_to_make_it_possible(
    tmp_path: Path,
) -> None:
    place = Coordinated(tmp_path)
    place.work()
    (journal,) = place.tables("journal")
    append_only(journal)

    with pytest.raises(ControlError) as caught:
        place.coordinator.upkeep()

    assert caught.value.code == "FM-CONTROL-029"
    assert "UNSET TBLPROPERTIES ('delta.appendOnly')" in str(caught.value.next)
    DeltaTable(journal).alter.set_table_properties({"delta.appendOnly": "false"})
    assert place.coordinator.upkeep().folded_events > 0
    place.work()
    place.check()


def test_a_protocol_that_delta_rs_does_not_write_is_named_with_its_features(
    tmp_path: Path,
) -> None:
    place = Coordinated(tmp_path)
    place.work()
    (journal,) = place.tables("journal")
    log = Path(journal) / "_delta_log"
    newest = max(log.glob("*.json"))
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["clustering", "domainMetadata", "madeUpFeature"],
    }
    raised = log / f"{int(newest.stem) + 1:020d}.json"
    raised.write_text(json.dumps({"protocol": protocol}))

    with pytest.raises(ControlError) as caught:
        place.work()

    assert caught.value.code == "FM-CONTROL-030"
    assert "madeUpFeature" in str(caught.value.found)
    raised.unlink()
    place.reopen()
    place.work()
    place.check()
