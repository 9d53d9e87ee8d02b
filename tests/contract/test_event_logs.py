"""What every event log promises, over the one in memory and the one in Delta."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from floodmark.control.events.bodies import Created, Event, Registered
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.journal.journal import CommitConflict, CommitReplaced, EventLog, Journal
from floodmark.control.journal.memory import MemoryEventLog
from floodmark.control.rules.folding import fold
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.deltalog import Storage
from floodmark.model.state import State

OpenLog = Callable[[], EventLog]


@pytest.fixture(params=["memory", "delta"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    """Opens the same log again and again, as different processes would."""
    if request.param == "memory":
        shared = MemoryEventLog()
        return lambda: shared
    delta_log(tmp_path).create()
    return lambda: delta_log(tmp_path)


@pytest.fixture
def log(open_log: OpenLog) -> EventLog:
    return open_log()


def delta_log(folder: Path) -> DeltaEventLog:
    return DeltaEventLog(str(folder / "control"), Storage(None))


def event(seq: int, op_id: str = "op") -> Event:
    body = Created("c") if seq == 1 else Registered(f"p{seq}", "default", ("/u/a",), "h")
    return Event(seq, body, op_id, "tester", datetime(2026, 1, 1, tzinfo=UTC))


def seqs(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events]


def start(log: EventLog) -> int:
    return log.read(None).position


def test_an_empty_log_has_no_events(log: EventLog) -> None:
    tail = log.read(None)
    assert not tail.events
    assert tail.is_whole


def test_what_was_appended_is_read_back_as_it_was(log: EventLog) -> None:
    log.append([event(1), event(2)], start(log))
    assert list(log.read(None).events) == [event(1), event(2)]


def test_one_append_moves_the_position_by_one(log: EventLog) -> None:
    before = start(log)
    log.append([event(1), event(2)], before)
    assert log.read(None).position == before + 1


def test_an_append_at_an_old_position_is_a_conflict_and_writes_nothing(open_log: OpenLog) -> None:
    first, second = open_log(), open_log()
    position = start(first)
    start(second)
    first.append([event(1)], position)
    with pytest.raises(CommitConflict):
        second.append([event(1, "other")], position)
    assert [e.op_id for e in second.read(None).events] == ["op"]


def test_after_a_conflict_the_loser_can_go_on(open_log: OpenLog) -> None:
    first, second = open_log(), open_log()
    position = start(first)
    start(second)
    first.append([event(1)], position)
    with pytest.raises(CommitConflict):
        second.append([event(1)], position)
    second.append([event(2)], second.read(position).position)
    assert seqs(first.read(None).events) == [1, 2]


def test_a_position_ahead_of_the_log_is_a_conflict(log: EventLog) -> None:
    position = start(log)
    with pytest.raises(CommitConflict):
        log.append([event(1)], position + 1)


def test_read_after_gives_only_what_is_new(open_log: OpenLog) -> None:
    writer, reader = open_log(), open_log()
    writer.append([event(1)], start(writer))
    seen = reader.read(None)
    writer.append([event(2)], writer.read(None).position)
    writer.append([event(3)], writer.read(None).position)
    tail = reader.read(seen.position)
    assert not tail.is_whole
    assert seqs(tail.events) == [2, 3]
    assert not reader.read(tail.position).events


def test_two_threads_lose_no_commit(open_log: OpenLog) -> None:
    Journal(open_log(), actor="main").commit(lambda _: [Created("c")])
    threads = [threading.Thread(target=register_many, args=(open_log(), n, 15)) for n in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Journal(open_log(), actor="main").state().pipelines) == 30


def test_two_processes_lose_no_commit(tmp_path: Path) -> None:
    delta_log(tmp_path).create()
    Journal(delta_log(tmp_path), actor="main").commit(lambda _: [Created("c")])
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=in_process, args=(tmp_path, name)) for name in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    journal = Journal(delta_log(tmp_path), actor="main")
    assert len(journal.state().pipelines) == 40
    assert seqs(journal.events()) == list(range(1, 42))


def test_threads_that_create_one_log_at_once_lose_no_commit(tmp_path: Path) -> None:
    """delta-rs commits the second creation behind the first one, and behind commits of others too."""
    names, rounds = "abcd", 6
    for number in range(rounds):
        folder, gate = tmp_path / str(number), threading.Barrier(len(names))

        def begin(name: str, folder: Path = folder, gate: threading.Barrier = gate) -> None:
            log = delta_log(folder)
            gate.wait()
            log.create()
            created = Created("c")
            Journal(log, actor=name).commit(lambda state: [] if state.seq else [created])
            register_many(log, name, 2)

        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(begin, names))

        assert len(Journal(delta_log(folder), actor="main").state().pipelines) == 2 * len(names)


def in_process(folder: Path, name: str) -> None:
    register_many(delta_log(folder), name, 20)


def register_many(log: EventLog, name: str, count: int) -> None:
    """Register one pipeline after the other, each in a commit that must not be lost."""
    journal = Journal(log, actor=name)
    for n in range(count):
        body = Registered(f"{name}{n}", "default", ("/u/a",), "h")
        journal.commit(lambda _, body=body: [body])  # type: ignore[misc]


# Compaction, Delta only ---------------------------------------------------------------------------


def compacted(log: DeltaEventLog) -> State:
    """Replace the log by one snapshot; the state before and after."""
    tail = log.read(None)
    state = fold(tail.events)
    snapshot = replace(tail.events[-1], body=snapshot_of(state, keep_windows=100))
    log.replace([snapshot], tail.position)
    return state


def filled(folder: Path) -> DeltaEventLog:
    log = delta_log(folder)
    log.create()
    journal = Journal(log, actor="tester")
    journal.commit(lambda _: [Created("c")])
    register_many(log, "p", 3)
    return log


def test_a_fresh_reader_of_a_compacted_log_finds_the_same_state(tmp_path: Path) -> None:
    before = compacted(filled(tmp_path))
    journal = Journal(delta_log(tmp_path), actor="tester")
    assert journal.state() == before
    assert [e.kind for e in journal.events()] == ["SNAPSHOT"]


def test_an_incremental_reader_sees_no_event_in_a_compaction(tmp_path: Path) -> None:
    log = filled(tmp_path)
    reader = Journal(delta_log(tmp_path), actor="reader")
    before = reader.state()
    compacted(log)
    register_many(log, "later", 1)
    assert set(reader.state().pipelines) - set(before.pipelines) == {"later0"}


def test_a_reader_that_missed_vacuumed_commits_reads_the_whole_log(tmp_path: Path) -> None:
    log = filled(tmp_path)
    early = log.read(None).position - 2
    compacted(log)
    for data in (tmp_path / "control/_journal").glob("*.parquet"):
        if data.name not in {uri.rsplit("/", 1)[-1] for uri in DeltaTable(log.path).file_uris()}:
            data.unlink()
    tail = delta_log(tmp_path).read(early)
    assert tail.is_whole
    assert [e.kind for e in tail.events] == ["SNAPSHOT"]


def test_a_compaction_that_lost_the_race_changes_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    position = log.read(None).position
    register_many(delta_log(tmp_path), "other", 1)
    with pytest.raises(CommitConflict):
        log.replace([event(1)], position)
    assert len(Journal(delta_log(tmp_path), actor="t").state().pipelines) == 4


def test_events_survive_the_way_through_delta(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert fold(log.read(None).events) == Journal(delta_log(tmp_path), actor="t").state()


def test_a_journal_in_whose_place_an_older_copy_was_put_takes_no_commit(tmp_path: Path) -> None:
    journal, older = tmp_path / "control/_journal", tmp_path / "older"
    log = delta_log(tmp_path)
    log.create()
    log.append([event(1)], start(log))
    shutil.copytree(journal, older)
    log.append([event(2)], start(log))
    position = start(log)
    shutil.rmtree(journal)
    older.rename(journal)
    before = sorted(journal.rglob("*"))

    with pytest.raises(CommitReplaced):
        log.append([event(3)], position)

    assert sorted(journal.rglob("*")) == before


def test_files_that_spark_has_put_together_are_read_with_their_times(tmp_path: Path) -> None:
    """Spark writes times as INT96, in nanoseconds and without a zone."""
    log = filled(tmp_path)
    before = log.read(None).events
    for data in (tmp_path / "control/_journal").glob("*.parquet"):
        rows = pq.ParquetFile(data).read()
        pq.write_table(rows, data, use_deprecated_int96_timestamps=True)

    assert delta_log(tmp_path).read(None).events == before
