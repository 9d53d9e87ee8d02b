"""Lag says why, and what is stuck is named with the command that moves it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import floodmark as fm
from floodmark.control.events.bodies import Leased
from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.journal.journal import Journal
from floodmark.deltalog import Storage
from floodmark.model.results import Lag
from floodmark.report.lag import is_above
from floodmark.work import this_process

Append = Callable[[], None]


@pytest.fixture
def grow(tmp_path: Path) -> Append:
    def append() -> None:
        feed = {"delta.enableChangeDataFeed": "true"}
        rows = pa.table({"id": [1]})
        write_deltalake(str(tmp_path / "a"), rows, mode="append", configuration=feed)

    append()
    return append


@pytest.fixture
def coordinator(tmp_path: Path, grow: Append) -> fm.Coordinator:
    """p and q read one upstream."""
    made = fm.Coordinator(str(tmp_path / "control"), actor="t")
    for name in ("p", "q"):
        made.register(name, [str(tmp_path / "a")])
    return made


def reason(coordinator: fm.Coordinator) -> str | None:
    [lag] = coordinator.lag()
    return lag.reason


def test_the_reason_follows_the_batch(coordinator: fm.Coordinator, grow: Append) -> None:
    seen = [reason(coordinator)]
    batch_id = str(coordinator.create_batch().batch_id)
    seen.append(reason(coordinator))
    for _ in range(2):
        coordinator.record_run("p", batch_id, status="FAILED", error="x")
        coordinator.record_run("p", batch_id, status="RUNNING")
    seen.append(reason(coordinator))
    for name in ("p", "q"):
        coordinator.record_run(name, batch_id, status="SUCCESS")
    seen.append(reason(coordinator))
    coordinator.finalize_batch(batch_id)
    seen.append(reason(coordinator))

    assert seen == [
        "not planned yet",
        f"{batch_id}: waiting for p (not started), q (not started)",
        f"{batch_id}: waiting for p (RUNNING, 2 failures in a row), q (not started)",
        f"{batch_id}: ready to advance",
        None,
    ]


def test_failures_in_a_row_are_counted_and_forgotten(coordinator: fm.Coordinator) -> None:
    batch_id = str(coordinator.create_batch().batch_id)
    counts = []
    for _ in range(3):
        coordinator.record_run("p", batch_id, status="FAILED", error="x")
        coordinator.record_run("p", batch_id, status="RUNNING")
        counts.append(coordinator.look.failures())
    coordinator.record_run("p", batch_id, status="FAILED", error="x")
    counts.append(coordinator.look.failures())
    coordinator.record_run("p", batch_id, status="SUCCESS")

    assert counts == [{"p": 1}, {"p": 2}, {"p": 3}, {"p": 4}]
    assert coordinator.look.failures() == {}


def test_a_batch_that_is_open_for_long_is_stuck(coordinator: fm.Coordinator) -> None:
    batch_id = str(coordinator.create_batch().batch_id)

    assert coordinator.look.stuck("1h") == ()
    [found] = coordinator.look.stuck(0)
    assert (found.batch_id, found.next) == (batch_id, f"floodmark retry {batch_id}")
    assert "waiting for p, q" in found.text
    for name in ("p", "q"):
        coordinator.record_run(name, batch_id, status="SUCCESS")
    [found] = coordinator.look.stuck(0)
    assert found.next == f"floodmark finalize {batch_id}"


def test_a_run_whose_process_is_gone_is_stuck_at_once(coordinator: fm.Coordinator) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    batch_id = str(coordinator.create_batch().batch_id)
    gone = replace(this_process(), pid=process.pid)
    Journal(DeltaEventLog(coordinator.control, Storage()), actor="t").commit(
        lambda _: [Leased(batch_id, "p", 1, "run_1", gone, 60.0)]
    )

    [found] = coordinator.look.stuck()

    assert "stands as RUNNING" in found.text
    assert str(process.pid) in found.text
    assert found.next == f"floodmark retry {batch_id}"


def test_a_run_that_lives_or_runs_elsewhere_is_not_stuck(coordinator: fm.Coordinator) -> None:
    batch_id = str(coordinator.create_batch().batch_id)
    coordinator.record_run("p", batch_id, status="RUNNING")

    assert coordinator.look.stuck() == ()


@pytest.mark.parametrize(
    ("behind", "seconds", "versions_limit", "seconds_limit", "above"),
    [
        (3, 10.0, 3, None, False),
        (4, 10.0, 3, None, True),
        (None, None, 3, None, True),
        (4, 10.0, None, 10.0, False),
        (4, 11.0, None, 10.0, True),
        (4, None, None, 10.0, True),
        (0, 0.0, None, 0.0, False),
        (4, 10.0, None, None, False),
    ],
)
def test_a_threshold_counts_versions_or_time_and_what_is_unknown_is_above(
    behind: int | None,
    seconds: float | None,
    versions_limit: int | None,
    seconds_limit: float | None,
    above: bool,
) -> None:
    lag = Lag("s", "u", 1, 1, behind, seconds, ())

    assert is_above(lag, versions_limit, seconds_limit) == above


def test_what_nobody_but_a_plan_may_ask_raises_no_alarm() -> None:
    lag = Lag("s", "source://api/events", None, None, None, None, (), kind="cursor")

    assert not is_above(lag, 0, None)
    assert not is_above(lag, None, 0.0)
    assert is_above(replace(lag, upstream="sql://erp/orders"), 0, None)
