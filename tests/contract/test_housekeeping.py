"""What delta-rs does to tables of ours, while they are in use; see housekeeping.py."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from tests.contract.housekeeping import (
    WORKS,
    Coordinated,
    Kept,
    Mend,
    Nodes,
    Operation,
    Relayed,
    Streamed,
    outcome,
)

import floodmark as fm
from floodmark import failpoints
from floodmark.control.journal import delta
from floodmark.deltalog import RETENTION_RULE, DeltaLog, Storage
from floodmark.errors import ControlError, FloodmarkError, StreamError
from floodmark.model.receipt import commit_metadata
from floodmark.run.edges import Edges


def optimize(path: str) -> None:
    DeltaTable(path).optimize.compact()


def optimize_and_vacuum(path: str) -> None:
    """Every file is written anew, and what was there is gone at once."""
    table = DeltaTable(path)
    partitions = table.metadata().partition_columns
    columns = [f.name for f in table.schema().fields if f.name not in partitions]
    table.optimize.z_order(columns[:1])
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def empty_and_vacuum(path: str) -> None:
    DeltaTable(path).delete()
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def unlink(path: str) -> None:
    """Files that the log names are gone, as a VACUUM by an older version of the log leaves it."""
    for file in Path(path).glob("*.parquet"):
        file.unlink()


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


def bare_clone(path: str) -> None:
    """Another table with the same rows is in its place: it has the receipts, not what they say."""
    log = DeltaLog(path)
    facts, receipts = log.facts(), log.transactions()
    adds = pa.table(DeltaTable(path).get_add_actions()).to_pylist()
    metadata = {
        "id": "another",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": facts.schema_json,
        "partitionColumns": [],
        "configuration": dict(facts.properties),
    }
    files = [
        {
            "path": f"file://{path}_aside/{add['path']}",
            "size": add["size_bytes"],
            "dataChange": True,
        }
        | {"partitionValues": {}, "modificationTime": 0}
        for add in adds
    ]
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 0, "operation": "CLONE", "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
        {"metaData": metadata},
        *({"txn": {"appId": app, "version": version}} for app, version in receipts.items()),
        *({"add": file} for file in files),
    ]
    Path(path).rename(f"{path}_aside")
    (Path(path) / "_delta_log").mkdir(parents=True)
    commit = Path(path) / "_delta_log" / f"{0:020d}.json"
    commit.write_text("\n".join(map(json.dumps, actions)))


def raised_protocol(path: str) -> None:
    """To what delta-rs does not write."""
    log = Path(path) / "_delta_log"
    features = ["clustering", "domainMetadata", "madeUpFeature"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    raised = log / f"{DeltaTable(path).version() + 1:020d}.json"
    raised.write_text(json.dumps({"protocol": protocol}))


def let_write(_: Any, tables: Sequence[str], error: FloodmarkError) -> None:
    """What the error says, without Spark."""
    (path,) = tables
    if "UNSET TBLPROPERTIES ('delta.appendOnly')" in str(error.next):
        DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
        return
    assert "madeUpFeature" in str(error.found)
    assert f"move the folder {path} away" in str(error.next)
    Path(path).rename(f"{path}_away")


def restore(path: str) -> None:
    table = DeltaTable(path)
    table.restore(table.version() - 1)


def restore_back(_: Any, tables: Sequence[str], error: FloodmarkError) -> None:
    assert "put the table back" in str(error.next)
    for path in tables:
        restore(path)


def restore_journal(_: Any, tables: Sequence[str], error: FloodmarkError) -> None:
    (journal,) = tables
    DeltaTable(journal).restore(int(str(error.next).rpartition(" ")[2]))


def restore_archive(_: Any, tables: Sequence[str], error: FloodmarkError) -> None:
    advised = re.search(r"RESTORE TABLE delta\.`([^`]+)` TO VERSION AS OF (\d+)", str(error.next))
    assert advised is not None
    assert advised[1] in tables
    DeltaTable(advised[1]).restore(int(advised[2]))


def accept_rows(place: Any, _: Sequence[str], error: FloodmarkError) -> None:
    assert "--on-lost-range" in str(error.next)
    assert "accept" in str(error.next)
    place.accept_rows()


def reset(place: Any, _: Sequence[str], error: FloodmarkError) -> None:
    assert "stream reset" in str(error.next)
    place.reset()


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
    ("kept", "published", properties, WORKS),
    ("kept", "published", optimize_and_vacuum, WORKS),
    ("kept", "archive", optimize_and_vacuum, WORKS),
    ("kept", "archive", properties, WORKS),
    ("kept", "archive", deletion_vectors, WORKS),
    ("kept", "archive", append_only, WORKS),
    ("kept", "archive", short_log, WORKS),
    ("kept", "archive", restore, "FM-CONTROL-033"),
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
    ("stream", "notes", bare_clone, WORKS),
    ("stream", "target", bare_clone, "FM-STREAM-046"),
    ("stream", "letters", optimize_and_vacuum, WORKS),
    ("stream", "letters", properties, WORKS),
    ("stream", "letters", append_only, WORKS),
    ("stream", "letters", short_log, WORKS),
    ("stream", "letters", restore, "FM-SINK-009"),
    ("relay", "positions", optimize_and_vacuum, WORKS),
    ("relay", "positions", properties, WORKS),
    ("relay", "positions", deletion_vectors, WORKS),
    ("relay", "positions", append_only, "FM-STREAM-054"),
    ("relay", "positions", raised_protocol, "FM-STREAM-054"),
    ("relay", "positions", short_log, WORKS),
    ("relay", "positions", restore, WORKS),
    ("relay", "letters", optimize_and_vacuum, WORKS),
    ("relay", "letters", append_only, WORKS),
    ("relay", "letters", short_log, WORKS),
    ("nodes", "landing", optimize_and_vacuum, WORKS),
    ("nodes", "landing", properties, WORKS),
    ("nodes", "landing", deletion_vectors, WORKS),
    ("nodes", "landing", append_only, WORKS),
    ("nodes", "landing", short_log, "FM-RUN-012"),
    ("nodes", "landing", empty_and_vacuum, "FM-RUN-012"),
    ("nodes", "landing", unlink, "FM-SOURCE-006"),
    ("nodes", "target", optimize, WORKS),
    ("nodes", "target", optimize_and_vacuum, "FM-RUN-013"),
    ("nodes", "target", properties, WORKS),
    ("nodes", "target", append_only, WORKS),
    ("nodes", "target", short_log, "FM-RUN-013"),
    ("nodes", "target", restore, "FM-SINK-009"),
]
PLACES: dict[str, Any] = {
    "batches": Coordinated,
    "kept": Kept,
    "stream": Streamed,
    "relay": Relayed,
    "nodes": Nodes,
}
MENDS: dict[str, Mend] = {
    "FM-CONTROL-028": restore_journal,
    "FM-CONTROL-033": restore_archive,
    "FM-SINK-009": restore_back,
    "FM-STREAM-046": reset,
    "FM-STREAM-054": let_write,
    "FM-STREAM-047": reset,
    "FM-RUN-012": accept_rows,
    "FM-RUN-013": accept_rows,
    "FM-SOURCE-006": accept_rows,
}


@pytest.mark.parametrize(
    ("who", "of", "operation", "expected"),
    CELLS,
    ids=[f"{who}-{of}-{operation.__name__}" for who, of, operation, _ in CELLS],
)
def test_work_goes_on_or_is_refused_with_a_way_out(
    tmp_path: Path, who: str, of: str, operation: Operation, expected: str
) -> None:
    assert outcome(PLACES[who](tmp_path), [of], operation, MENDS.get(expected)) == expected


def delete_rows(path: str) -> None:
    DeltaTable(path).delete("n > 1")


@pytest.mark.parametrize(
    ("operation", "is_newest", "is_there"),
    [
        (optimize_and_vacuum, True, True),
        (properties, True, True),
        (deletion_vectors, True, True),
        (short_log, True, True),
        (delete_rows, False, True),
        (restore, False, True),
        (empty_and_vacuum, False, False),
        (unlink, False, False),
    ],
)
def test_an_edge_is_read_as_it_was_left_or_not_at_all(
    tmp_path: Path, operation: Operation, is_newest: bool, is_there: bool
) -> None:
    edges = Edges(str(tmp_path), Storage())
    path = edges.path("p", "u", 0)
    for seq in (1, 2):
        metadata = commit_metadata("store", f"batch_{seq}", seq, "p", {})
        rows = pa.table({"n": pa.array([1, 2, 3 * seq], pa.int64())})
        of_ours = CommitProperties(custom_metadata={"userMetadata": metadata})
        write_deltalake(path, rows, mode="overwrite", commit_properties=of_ours)

    operation(path)

    version = edges.version("p", "u", 0)
    assert edges.has("p", "u", 0) is is_there
    assert (version == DeltaTable(path).version()) is is_newest
    if version is not None:
        table = QueryBuilder().register("t", DeltaTable(path, version)).execute("SELECT n FROM t")
        assert sorted(pa.table(table).column("n").to_pylist()) == [1, 2, 6]


@pytest.mark.parametrize("hidden", [True, False], ids=["as_it_is", "under_another_name"])
def test_a_vacuum_without_retention_spares_what_is_about_to_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    place = Coordinated(tmp_path)
    place.work()
    (journal,) = place.tables("journal")
    if not hidden:
        monkeypatch.setattr(delta, "HIDDEN", "part-")

    def vacuumed(point: str) -> None:
        if point == "journal.after_data_file":
            table = DeltaTable(journal)  # its own commits would come before ours
            doomed = table.vacuum(0, enforce_retention_duration=False, full=True)
            for name in doomed:
                (Path(journal) / name).unlink()

    with monkeypatch.context() as between:
        between.setattr(failpoints, "reached", vacuumed)
        place.coordinator.pause("p")

    if not hidden:
        with pytest.raises(ControlError):
            fm.Coordinator(place.control, actor="t").look.state()
        return
    assert fm.Coordinator(place.control, actor="t").look.state().pipelines["p"].is_paused
    place.coordinator.resume("p")
    place.work()
    place.check()


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
    other.admin.rebuild_tables()
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
        place.coordinator.admin.upkeep()

    assert caught.value.code == "FM-CONTROL-029"
    assert "UNSET TBLPROPERTIES ('delta.appendOnly')" in str(caught.value.next)
    DeltaTable(journal).alter.set_table_properties({"delta.appendOnly": "false"})
    assert place.coordinator.admin.upkeep().folded_events > 0
    place.work()
    place.check()


@pytest.mark.parametrize("days", [1, 20])
@pytest.mark.parametrize("of", ["journal", "archive"])
def test_a_restore_that_spark_refuses_by_age_is_advised_with_the_setting(
    tmp_path: Path, of: str, days: int
) -> None:
    place = (Coordinated if of == "journal" else Kept)(tmp_path)
    for _ in range(2):
        place.work()
    for table in place.tables(of):
        restore(table)
        then = time.time() - days * 86_400
        for commit in (Path(table) / "_delta_log").glob("*.json"):
            os.utime(commit, (then, then))
            commit.write_text(
                re.sub(r'"timestamp":\d+', f'"timestamp":{int(then * 1000)}', commit.read_text())
            )
            os.utime(commit, (then, then))
    place.reopen()

    with pytest.raises(ControlError) as caught:
        place.work()

    rule = f"SET {RETENTION_RULE} = false; RESTORE TABLE"
    assert (rule in str(caught.value.next)) is (days > 7)
    assert "RESTORE TABLE delta." in str(caught.value.next)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (append_only, "UNSET TBLPROPERTIES ('delta.appendOnly')"),
        (raised_protocol, "move the folder"),
    ],
)
def test_letters_that_cannot_be_cleaned_up_say_how_to_make_it_possible(
    tmp_path: Path, operation: Operation, words: str
) -> None:
    place = Relayed(tmp_path)
    place.work()
    (letters,) = place.tables("letters")
    operation(letters)

    with pytest.raises(StreamError) as caught:
        place.stream.ledger.cleanup_dead_letters(0)

    assert caught.value.code == "FM-STREAM-053"
    assert words in str(caught.value.next)
    assert not caught.value.retryable
    assert place.stream.left() == [0]


def test_a_protocol_that_delta_rs_does_not_write_is_named_with_its_features(
    tmp_path: Path,
) -> None:
    place = Coordinated(tmp_path)
    place.work()
    (journal,) = place.tables("journal")
    raised_protocol(journal)

    with pytest.raises(ControlError) as caught:
        place.work()

    assert caught.value.code == "FM-CONTROL-030"
    assert "madeUpFeature" in str(caught.value.found)
    max((Path(journal) / "_delta_log").glob("*.json")).unlink()
    place.reopen()
    place.work()
    place.check()
