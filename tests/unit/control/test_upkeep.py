"""Upkeep makes a store smaller and quicker, and changes nothing that anybody relies on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support import crash
from tests.support.crash import Story, build_lake, churn_lake, end_state

import floodmark as fm
from floodmark.control import turns
from floodmark.control.events.bodies import Registered
from floodmark.control.heartbeats import FileHeartbeats
from floodmark.control.journal.delta import HIDDEN, DeltaEventLog
from floodmark.control.journal.journal import Journal
from floodmark.control.published.projections import Projector
from floodmark.control.published.tables import TABLES
from floodmark.control.upkeep import upkeep
from floodmark.deltalog import Storage
from floodmark.errors import ConfigError, ControlError

HOUR = 3_600.0


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Two finished batches."""
    build_lake(tmp_path)
    told = Story(tmp_path, "append")
    told.tell()
    return told


def files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def make_older(folder: Path, seconds: float) -> None:
    """Let every file look as if it was written that long ago."""
    then = time.time() - seconds
    for file in files(folder):
        os.utime(file, (then, then))


def settled(coordinator: fm.Coordinator) -> dict[str, Any]:
    """What an upkeep must not change."""
    return {
        "state": coordinator.look.state(),
        "history": coordinator.history(),
        "problems": [finding for finding in coordinator.verify() if not finding.ok],
    }


def test_it_folds_joins_and_removes_and_nothing_is_lost(story: Story) -> None:
    before = settled(story.coordinator())
    judged = end_state(str(story.root))
    count = len(files(story.root / "control"))

    done = story.coordinator().admin.upkeep(0, allow_short=True)

    assert done.folded_events == len(before["history"]) == done.history_events
    assert {"pipeline_checkpoints", "history"} <= set(done.joined)
    assert done.removed_files > 20
    assert done.removed_bytes > 1000
    assert len(files(story.root / "control")) < count - 20
    assert len(DeltaTable(story.root / "control/_journal").file_uris()) == 1
    assert settled(story.coordinator()) == before
    assert not before["problems"]
    assert end_state(str(story.root)) == judged


def test_a_second_upkeep_has_nothing_to_do(story: Story) -> None:
    story.coordinator().admin.upkeep(0, allow_short=True)

    again = story.coordinator().admin.upkeep(0, allow_short=True)

    assert (again.folded_events, again.joined, again.removed_heartbeats) == (0, {}, 0)
    assert again.removed_files == 0


@pytest.mark.parametrize("prefix", [HIDDEN, "part-"], ids=["ours", "of_earlier_versions"])
def test_files_younger_than_the_retention_stay(story: Story, prefix: str) -> None:
    make_older(story.root / "control", 2 * HOUR)
    journal = story.root / "control/_journal"
    orphan, fresh = journal / f"{prefix}orphan.parquet", journal / f"{prefix}fresh.parquet"
    orphan.write_text("a writer that was killed left this")
    os.utime(orphan, (time.time() - 2 * HOUR,) * 2)
    fresh.write_text("a writer is about to commit this")

    done = story.coordinator().admin.upkeep(HOUR)

    assert not orphan.exists()
    assert fresh.exists()
    # Replaced just now, by this very upkeep: whoever reads them may go on.
    assert len(list((story.root / "control/_journal").glob("*.parquet"))) > done.folded_events


def test_commits_below_the_checkpoint_go_and_the_store_reads_the_same(story: Story) -> None:
    log = story.root / "control/_journal/_delta_log"
    coordinator = story.coordinator()
    before = settled(coordinator)
    assert list(log.glob("*.checkpoint.parquet"))
    make_older(story.root / "control", 2 * HOUR)

    coordinator.admin.upkeep(HOUR)

    versions = sorted(int(file.stem) for file in log.glob("*.json"))
    assert versions[0] == 19
    assert versions == list(range(versions[0], versions[-1] + 1))
    assert settled(story.coordinator()) == before


def test_young_commits_stay_and_so_do_those_behind_them(story: Story) -> None:
    log = story.root / "control/_journal/_delta_log"
    make_older(story.root / "control", 2 * HOUR)
    fresh = log / f"{7:020d}.json"
    os.utime(fresh)

    story.coordinator().admin.upkeep(HOUR)

    versions = sorted(int(file.stem) for file in log.glob("*.json"))
    assert versions == list(range(7, versions[-1] + 1))


def test_a_reader_that_slept_through_it_goes_on(story: Story) -> None:
    log = DeltaEventLog(str(story.root / "control"), Storage())
    asleep = Journal(log, actor="asleep")
    early = asleep.state()
    coordinator = story.coordinator()
    churn_lake(story.root, 1)
    story.step(coordinator)
    make_older(story.root / "control", 2 * HOUR)
    coordinator.admin.upkeep(0, allow_short=True)

    state = asleep.commit(lambda _: [Registered("late", "other", ("/u",), "h")])

    assert early.batch_seq == 2
    assert state.batch_seq == 3
    assert "late" in story.coordinator().look.state().pipelines
    assert [event.seq for event in story.coordinator().history()] == list(range(1, state.seq + 1))


def test_short_retention_needs_to_be_asked_for(story: Story) -> None:
    before = sorted(files(story.root))

    with pytest.raises(ConfigError) as caught:
        story.coordinator().admin.upkeep("30m")

    assert caught.value.code == "FM-CONFIG-007"
    assert "--allow-short-retain" in str(caught.value.next)
    assert sorted(files(story.root)) == before


def test_there_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(ControlError) as caught:
        fm.Coordinator(str(tmp_path / "none")).admin.upkeep()

    assert caught.value.code == "FM-CONTROL-001"
    assert not (tmp_path / "none").exists()


# Signs of life ------------------------------------------------------------------------------------


def sign(story: Story, run_id: str, age: float) -> Path:
    FileHeartbeats(str(story.root / "control"), Storage()).beat(run_id, 1)
    path = story.root / "control/_heartbeats" / run_id
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_signs_of_ended_and_silent_runs_go_and_those_of_live_ones_stay(story: Story) -> None:
    coordinator = story.coordinator()
    churn_lake(story.root, 1)
    batch_id = str(coordinator.create_batch().batch_id)
    live = coordinator.record_run("copy", batch_id, status="RUNNING").run_id
    silent = coordinator.record_run("wide", batch_id, status="RUNNING").run_id
    ended, just_ended = sign(story, "run_ended", 2 * HOUR), sign(story, "run_just_ended", 60)
    signs = [sign(story, live, 5 * HOUR), sign(story, silent, 48 * HOUR)]

    done = coordinator.admin.upkeep()

    assert done.removed_heartbeats == 2
    assert [path.exists() for path in (*signs, ended, just_ended)] == [True, False, False, True]


# Killed in the middle -----------------------------------------------------------------------------


def keep_up(root: str) -> None:
    Story(Path(root), "append").coordinator().admin.upkeep(0, allow_short=True)


@pytest.fixture
def killed(story: Story) -> Callable[[str], int]:
    def run(failpoint: str) -> int:
        log = story.root / "log"
        armed = {"FLOODMARK_FAILPOINT": failpoint}
        return crash.run(keep_up, str(story.root), log=log, environment=armed)

    return run


@pytest.mark.parametrize(
    "failpoint", ["compact.after_commit", "cleanup.mid", "cleanup.mid:7", "cleanup.mid:30"]
)
def test_killed_in_the_middle_it_leaves_a_sound_store(
    story: Story, killed: Callable[[str], int], failpoint: str
) -> None:
    before = settled(story.coordinator())

    code = killed(failpoint)

    assert code == -signal.SIGKILL
    assert settled(story.coordinator()) == before
    churn_lake(story.root, 1)
    story.step(story.coordinator())
    story.coordinator().admin.upkeep(0, allow_short=True)
    assert end_state(str(story.root))["problems"] == []
    assert {t.name for t in TABLES} <= set(os.listdir(story.root / "control"))


# Beside others ------------------------------------------------------------------------------------


def test_it_runs_beside_pipelines_and_nothing_is_lost_or_doubled(story: Story) -> None:
    is_over = threading.Event()
    folded: list[int] = []

    def keep_up_all_the_time() -> None:
        while not is_over.is_set():
            folded.append(story.coordinator().admin.upkeep(HOUR).folded_events)

    keeper = threading.Thread(target=keep_up_all_the_time)
    keeper.start()
    try:
        for number in range(3):
            churn_lake(story.root, number)
            story.step(story.coordinator())
    finally:
        is_over.set()
        keeper.join()

    assert sum(folded) > len(folded)
    judged = end_state(str(story.root))
    assert (judged["problems"], judged["history"]) == ([], [])
    assert story.coordinator().look.state().batch_seq == 5


class OvertakenLog(DeltaEventLog):
    """Somebody else commits before each of the first compactions."""

    overtaken = 3

    def replace(self, events: Any, position: int) -> None:
        if self.overtaken:
            self.overtaken -= 1
            other = Journal(DeltaEventLog(self.control, Storage(None)), actor="other")
            other.commit(lambda state: [Registered(f"p{state.seq}", "s", ("/u",), "")])
        super().replace(events, position)


def test_a_journal_that_others_commit_to_is_folded_all_the_same(story: Story) -> None:
    coordinator = story.coordinator()
    projector = Projector(coordinator.control, Storage(None))
    before = coordinator.look.state()

    assert upkeep.compact(OvertakenLog(coordinator.control, Storage(None)), projector)

    tail = DeltaEventLog(coordinator.control, Storage(None)).read(None)
    assert [e.kind for e in tail.events] == ["SNAPSHOT", *["REGISTER"] * 3]
    after = story.coordinator().look.state()
    assert after.marks == before.marks
    assert len(after.pipelines) == len(before.pipelines) + 3


def test_one_process_compacts_for_all(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "COMPACT_AFTER_FILES", 1)
    coordinator = story.coordinator()
    coordinator.look.state()
    log = DeltaEventLog(coordinator.control, Storage(None))
    log.read(None)
    projector = Projector(coordinator.control, Storage(None))

    with turns.alone(coordinator.control) as is_alone:
        assert is_alone
        assert not upkeep.compact_if_due(log, projector)

    assert upkeep.compact_if_due(log, projector)
