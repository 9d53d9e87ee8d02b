"""What monitoring is told in the corners: nothing ran yet, nothing can be looked at, others hold."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from prometheus_client.parser import text_string_to_metric_families
from tests.support.outsides import fold_journal

import floodmark as fm
from floodmark.control.published.reading import read_published
from floodmark.control.upkeep import upkeep
from floodmark.coordinator import Outside
from floodmark.deltalog import Storage
from floodmark.model.clock import FrozenClock
from floodmark.report import metrics
from floodmark.report.exposition import text_of
from floodmark.report.metrics import METRICS, Metric, Sample

Append = Callable[..., str]


@pytest.fixture
def grow(tmp_path: Path) -> Append:
    def append(name: str = "a") -> str:
        feed = {"delta.enableChangeDataFeed": "true"}
        rows = pa.table({"id": [1]})
        write_deltalake(str(tmp_path / name), rows, mode="append", configuration=feed)
        return str(tmp_path / name)

    append()
    return append


@pytest.fixture
def coordinator(tmp_path: Path, grow: Append) -> fm.Coordinator:
    """p and q read one upstream."""
    made = fm.Coordinator(str(tmp_path / "control"), actor="t")
    for name in ("p", "q"):
        made.register(name, [str(tmp_path / "a")], scope="s")
    return made


def values(coordinator: fm.Coordinator, metric: Metric) -> dict[tuple[str, ...], float]:
    found = [s for s in coordinator.admin.metrics() if s.metric is metric]
    return {sample.label_values: sample.value for sample in found}


def finish(coordinator: fm.Coordinator, *pipelines: str) -> str:
    """Plan a batch and let these succeed; returns its id."""
    batch_id = str(coordinator.create_batch(scope="s").batch_id)
    for name in pipelines:
        coordinator.record_run(name, batch_id, status="SUCCESS", rows_read=7, rows_written=5)
    coordinator.finalize_batch(batch_id)
    return batch_id


def test_a_pipeline_that_never_ran_has_no_last_run_and_never_succeeded(
    coordinator: fm.Coordinator,
) -> None:
    assert values(coordinator, metrics.RUN_STATUS) == {}
    assert values(coordinator, metrics.SUCCEEDED_AT) == {("s", "p"): 0.0, ("s", "q"): 0.0}
    assert values(coordinator, metrics.BEHIND) == {("s", "p"): 1, ("s", "q"): 1}
    assert set(values(coordinator, metrics.COMMITTED).values()) == {-1}
    assert set(values(coordinator, metrics.COMMITTED_AT).values()) == {0.0}


def test_a_pipeline_that_is_done_is_not_behind_although_another_one_holds(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    finish(coordinator, "p")
    held = values(coordinator, metrics.HELD), values(coordinator, metrics.BEHIND)
    grow()
    later = values(coordinator, metrics.BEHIND)

    assert set(held[0].values()) == {True}
    assert held[1] == {("s", "p"): 0, ("s", "q"): 1}
    assert later == {("s", "p"): 1, ("s", "q"): 2}


def test_nothing_is_held_once_everybody_is_done(coordinator: fm.Coordinator) -> None:
    finish(coordinator, "p", "q")

    assert set(values(coordinator, metrics.HELD).values()) == {False}
    assert set(values(coordinator, metrics.OPEN_BATCHES).values()) == {0}
    assert values(coordinator, metrics.OLDEST_OPEN) == {("s",): 0.0}


def test_a_running_run_has_a_start_and_no_duration(coordinator: fm.Coordinator) -> None:
    batch_id = str(coordinator.create_batch(scope="s").batch_id)
    coordinator.record_run("p", batch_id, status="RUNNING")

    assert values(coordinator, metrics.RUN_STATUS)["s", "p", "RUNNING"]
    assert list(values(coordinator, metrics.RUN_STARTED)) == [("s", "p")]
    assert values(coordinator, metrics.RUN_SECONDS) == {}


def test_each_upstream_tells_what_its_newest_batch_cost(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    first = finish(coordinator, "p", "q")
    grow()
    grow()
    second = str(coordinator.create_batch(scope="s").batch_id)
    for status in ("FAILED", "FAILED", "SUCCESS"):
        coordinator.record_run("p", second, status="RUNNING")
        error = "no" if status == "FAILED" else None
        coordinator.record_run("p", second, status=status, error=error)
    coordinator.record_run("q", second, status="RUNNING")
    published = {
        row["batch_id"]: [row["rows_read"], row["duration_seconds"], row["retries"]]
        for row in watermarks(coordinator)
    }

    ((rows, key),) = [(n, k) for k, n in values(coordinator, metrics.UPSTREAM_ROWS).items()]
    (seconds,) = values(coordinator, metrics.UPSTREAM_SECONDS).values()
    retries = values(coordinator, metrics.UPSTREAM_RETRIES)

    assert key[0] == "s"
    assert (rows, retries) == (2, {key: 2})
    assert seconds > 0
    assert published[first][::2] == [1, 0]
    assert published[second][::2] == [2, 2]


def test_a_batch_that_has_left_the_state_still_tells(
    coordinator: fm.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(coordinator, "p", "q")
    each = (metrics.UPSTREAM_ROWS, metrics.UPSTREAM_SECONDS, metrics.UPSTREAM_RETRIES)
    before = [values(coordinator, metric) for metric in each]
    monkeypatch.setattr(upkeep, "KEEP_WINDOWS", 0)

    coordinator.admin.upkeep()

    assert not fm.Coordinator(coordinator.control).look.state().batches
    assert [values(coordinator, metric) for metric in each] == before
    assert all(before)


def watermarks(coordinator: fm.Coordinator) -> list[dict[str, Any]]:
    rows = read_published(f"{coordinator.control}/watermarks", Storage(), "SELECT * FROM t")
    assert rows is not None
    return list(rows.to_pylist())


def test_paused_pipelines_are_told(coordinator: fm.Coordinator) -> None:
    coordinator.pause("q")

    assert values(coordinator, metrics.PAUSED) == {("s", "p"): False, ("s", "q"): True}


def test_a_debt_of_a_paused_pipeline_is_an_open_batch_that_is_completed(
    coordinator: fm.Coordinator,
) -> None:
    batch_id = str(coordinator.create_batch(scope="s").batch_id)
    coordinator.record_run("q", batch_id, status="FAILED", error="x")
    coordinator.pause("q")
    coordinator.record_run("p", batch_id, status="SUCCESS")
    coordinator.finalize_batch(batch_id)

    open_batches = values(coordinator, metrics.OPEN_BATCHES)

    assert open_batches == {("s", "PENDING"): 0, ("s", "FAILED"): 0, ("s", "COMPLETED"): 1}
    assert values(coordinator, metrics.FAILURES)["s", "q"] == 1


def test_an_upstream_that_is_gone_is_unknown_and_not_fine(
    coordinator: fm.Coordinator, tmp_path: Path
) -> None:
    key = ("s", str(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a")

    assert values(coordinator, metrics.LAG_KNOWN) == {key: False}
    for metric in (metrics.LAG_VERSIONS, metrics.LAG_SECONDS, metrics.LATEST, metrics.BEHIND):
        assert values(coordinator, metric) == {}


def test_an_upstream_that_lost_its_next_change_is_behind_for_an_unknown_time(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    for _ in range(3):
        grow()
    DeltaTable(str(tmp_path / "a")).create_checkpoint()
    for version in (0, 1):
        (tmp_path / f"a/_delta_log/{version:020d}.json").unlink()

    assert list(values(coordinator, metrics.LAG_VERSIONS).values()) == [4]
    assert values(coordinator, metrics.LAG_SECONDS) == {}
    assert list(values(coordinator, metrics.LAG_KNOWN).values()) == [False]


def test_an_upstream_that_went_back_is_behind_by_less_than_nothing(
    coordinator: fm.Coordinator, grow: Append, tmp_path: Path
) -> None:
    grow()
    finish(coordinator, "p", "q")
    (tmp_path / f"a/_delta_log/{1:020d}.json").unlink()

    assert list(values(coordinator, metrics.LAG_VERSIONS).values()) == [-1]
    assert values(coordinator, metrics.BEHIND) == {("s", "p"): 0, ("s", "q"): 0}


def test_a_batch_is_stuck_once_whatever_the_reasons(coordinator: fm.Coordinator) -> None:
    clock = FrozenClock(datetime.now(UTC))
    coordinator = fm.Coordinator(coordinator.control, actor="t", outside=Outside(clock=clock))
    batch_id = str(coordinator.create_batch(scope="s").batch_id)
    coordinator.record_run("p", batch_id, status="RUNNING")
    calm = values(coordinator, metrics.STUCK)
    clock.at += timedelta(days=2)

    assert calm == {("s",): 0}
    assert values(coordinator, metrics.STUCK) == {("s",): 1}
    [age] = values(coordinator, metrics.OLDEST_OPEN).values()
    assert age == pytest.approx(2 * 86_400.0, abs=60)


def test_runs_of_batches_that_left_the_state_are_remembered(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    finish(coordinator, "p", "q")
    before = [
        s for s in coordinator.admin.metrics() if s.metric.name.startswith("floodmark_pipeline")
    ]
    assert fold_journal(coordinator.control, keep_windows=0)
    fresh = fm.Coordinator(coordinator.control, actor="t")

    after = [s for s in fresh.admin.metrics() if s.metric.name.startswith("floodmark_pipeline")]

    assert fresh.look.state().batches == {}
    assert values(fresh, metrics.ROWS_READ) == {("s", "p"): 7, ("s", "q"): 7}
    assert sorted(after, key=repr) == sorted(before, key=repr)


def test_a_failure_since_then_is_the_newest_run_and_no_success(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    finish(coordinator, "p", "q")
    succeeded = values(coordinator, metrics.SUCCEEDED_AT)
    assert fold_journal(coordinator.control, keep_windows=0)
    grow()
    fresh = fm.Coordinator(coordinator.control, actor="t")
    batch_id = str(fresh.create_batch(scope="s").batch_id)
    fresh.record_run("p", batch_id, status="FAILED", error="x")

    assert values(fresh, metrics.SUCCEEDED_AT) == succeeded
    assert values(fresh, metrics.RUN_STATUS)["s", "p", "FAILED"]
    assert values(fresh, metrics.RUN_STATUS)["s", "q", "SUCCESS"]


def test_names_that_are_no_plain_text_survive(coordinator: fm.Coordinator, grow: Append) -> None:
    odd = 'b"\\{x="1"}\n# \x1b[31m\udcff'
    sample = Sample(metrics.HELD, ("s", odd), 1.0)

    text = text_of([sample], {"project": 'a"b\\c'})

    [family] = text_string_to_metric_families(text)
    [found] = family.samples
    assert found.labels == {
        "project": 'a"b\\c',
        "scope": "s",
        "upstream": 'b"\\{x="1"}\\n# \\x1b[31m\\udcff',
    }


def test_the_journal_is_told(coordinator: fm.Coordinator) -> None:
    finish(coordinator, "p", "q")
    seq = coordinator.look.state().seq

    assert values(coordinator, metrics.JOURNAL_EVENTS) == {(): seq}
    assert values(coordinator, metrics.JOURNAL_UNFOLDED) == {(): seq}
    coordinator.admin.upkeep()
    assert values(coordinator, metrics.JOURNAL_UNFOLDED) == {(): 0}
    assert values(coordinator, metrics.JOURNAL_EVENTS) == {(): seq}
    assert values(coordinator, metrics.JOURNAL_BYTES)[()] > 0


def test_the_names_follow_the_rules_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]

    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"floodmark_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert set(metric.labels) <= {
            *("scope", "upstream", "pipeline", "status", "version"),
            "pipeline_id",
        }


def test_every_metric_is_in_the_list(coordinator: fm.Coordinator) -> None:
    defined = {value for value in vars(metrics).values() if isinstance(value, Metric)}

    assert defined == set(METRICS)
    assert {sample.metric for sample in coordinator.admin.metrics()} <= defined
