"""Each warning comes before it hurts, with the command that mends it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.crash import Story, build_lake

import floodmark as fm
from floodmark.control.events.bodies import Created, Registered
from floodmark.control.journal.journal import Journal
from floodmark.control.journal.memory import MemoryEventLog
from floodmark.deltalog import Storage
from floodmark.model.results import Lag
from floodmark.model.state import SinkDone, State
from floodmark.report import doctor

FEED = {"delta.enableChangeDataFeed": "true"}
APP_ID = "floodmark/control/p/w/0"
DAY = 86_400.0


def table(path: Path, **properties: str) -> str:
    settings = {name.replace("__", "."): value for name, value in properties.items()}
    write_deltalake(
        str(path), pa.table({"id": [1]}), mode="append", configuration={**FEED, **settings}
    )
    return str(path)


def rewrite(path: str, action: str, **changes: Any) -> None:
    """Change an action of the first commit, as a newer writer or a person may have it."""
    commit = Path(path) / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if action in line:
            line[action] |= changes
    commit.write_text("\n".join(map(json.dumps, lines)) + "\n")


def upstream_problems(path: str, seconds_behind: float = 0.0, state: State | None = None) -> Any:
    lag = Lag("default", path, 1, 0, 1, seconds_behind, ())
    found = doctor.examine_upstream(path, [], [lag], state or State(), Storage())
    return [finding for finding in found if not finding.ok]


def test_a_sound_upstream_has_no_problem(tmp_path: Path) -> None:
    assert upstream_problems(table(tmp_path / "a"), seconds_behind=DAY) == []


def test_a_log_that_is_kept_shorter_than_the_lag_is_named_with_the_statement(
    tmp_path: Path,
) -> None:
    path = table(tmp_path / "a", delta__logRetentionDuration="interval 1 days")

    [found] = upstream_problems(path, seconds_behind=3 * DAY)

    assert "its log: kept for 24 hours, but it is 3 days behind" in found.text
    assert found.next == (
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES "
        "('delta.logRetentionDuration' = 'interval 7 days')"
    )


def test_vacuum_that_would_take_files_of_the_lag_is_named_even_by_default(tmp_path: Path) -> None:
    [found] = upstream_problems(table(tmp_path / "a"), seconds_behind=8 * DAY)

    assert "files that VACUUM may remove: kept for 7 days" in found.text
    assert "delta.deletedFileRetentionDuration" in str(found.next)


def test_retention_shorter_than_two_batches_is_named(tmp_path: Path) -> None:
    path = table(tmp_path / "a", delta__deletedFileRetentionDuration="interval 36 hours")
    coordinator = fm.Coordinator(str(tmp_path / "control"), actor="t")
    coordinator.register("p", [path])
    batch = coordinator.look.state()
    coordinator.create_batch()
    [first] = coordinator.status()
    later = replace(first, batch_id="b2", planned_at=first.planned_at + timedelta(days=1))
    state = replace(batch, batches={"b1": first, "b2": later})

    [found] = upstream_problems(path, state=state)

    assert "kept for 36 hours, but batches come every 24 hours" in found.text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 2 hours", 7200.0),
        ("INTERVAL 1 week", 7 * DAY),
        ("30 days", 30 * DAY),
        ("x", None),
    ],
)
def test_intervals_are_read_as_delta_spells_them(text: str, seconds: float | None) -> None:
    assert doctor.seconds_of_interval(text) == seconds


def test_a_retention_that_nobody_understands_is_named(tmp_path: Path) -> None:
    path = table(tmp_path / "a")
    odd = {"delta.logRetentionDuration": "for ever", **FEED}
    rewrite(path, "metaData", configuration=odd)

    [found] = upstream_problems(path)

    assert "delta.logRetentionDuration is for ever: not understood" in found.text


def test_a_feed_that_is_off_comes_with_the_statement(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    write_deltalake(path, pa.table({"id": [1]}))

    [found] = upstream_problems(path)

    assert "change feed off" in found.text
    assert "delta.enableChangeDataFeed = true" in str(found.next)


def test_a_feature_that_this_version_does_not_know_is_named(tmp_path: Path) -> None:
    path = table(tmp_path / "a")
    features = ["deletionVectors", "timeMachine"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    rewrite(path, "protocol", readerFeatures=features, writerFeatures=features, **versions)

    [found] = upstream_problems(path)

    assert "timeMachine" in found.text
    assert "deletionVectors" not in found.text


def test_a_target_that_forgets_its_receipts_is_named_with_the_statement(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    DeltaTable(path).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}
    )

    [found] = doctor.examine_target(SinkDone("w", APP_ID, path, "", 0, 1), State(), Storage())

    assert not found.ok
    assert found.next == (
        f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"
    )


def test_a_target_that_is_gone_is_named(tmp_path: Path) -> None:
    sink = SinkDone("w", APP_ID, "/no/such", "id", 0, 1)

    [found] = doctor.examine_target(sink, State(), Storage())

    assert not found.ok
    assert found.next == "floodmark refresh p && floodmark run p --on-lost-target rebuild"


class ReadOnly(Storage):
    """A store on a read-only mount."""

    def write(self, path: str, data: bytes) -> None:
        raise OSError(30, "Read-only file system", path)


def journal(events: int) -> Journal:
    store = Journal(MemoryEventLog(), actor="t")
    bodies = [Registered(f"p{i}", "default", ("/u",), "h") for i in range(events - 1)]
    store.commit(lambda _: [Created("c"), *bodies])
    return store


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    found = doctor.examine_store(journal(2), str(tmp_path), ReadOnly())

    assert [f.text for f in found if not f.ok] == [
        "cannot be written: OSError: Read-only file system"
    ]


def test_a_store_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    found = doctor.examine_store(journal(2), str(tmp_path), Storage())

    assert all(f.ok for f in found)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_journal_that_was_not_folded_for_long_is_named(tmp_path: Path) -> None:
    found = doctor.examine_store(journal(1_001), str(tmp_path), Storage())

    assert [f.next for f in found if not f.ok] == ["floodmark upkeep"]
    assert all(f.ok for f in doctor.examine_store(journal(1_000), str(tmp_path), Storage()))


def test_the_doctor_of_a_store_looks_at_upstreams_and_targets(tmp_path: Path) -> None:
    build_lake(tmp_path)
    story = Story(tmp_path, "append")
    story.tell()
    target = str(tmp_path / "sinks/first")
    DeltaTable(target).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}
    )

    found = story.coordinator().admin.doctor()

    assert {f.name for f in found if not f.ok and f.name != "java"} == {target}
    assert {str(tmp_path / "lake/orders"), str(tmp_path / "sinks/second")} <= {
        f.name for f in found
    }
