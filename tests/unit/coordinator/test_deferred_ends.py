"""Ends that nobody could know when the batch was planned: frozen once, by its first run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from tests.support.crash import armed
from tests.support.outsides import AFTER_A_CRASH, fold_journal
from tests.unit.coordinator.test_time_windows import INSTANT, Lake, at, mark

import floodmark as fm
from floodmark import failpoints
from floodmark.coordinator import Outside
from floodmark.errors import FloodmarkError
from floodmark.testing import ArrowEngine


class OrcLake(Lake):
    """A lake whose files only an engine looks into."""

    def write(self, table: pa.Table, **_: Any) -> None:
        self.up.mkdir(exist_ok=True)
        orc.write_table(table, str(self.up / f"{len(list(self.up.iterdir())):03}.orc"))

    def upstream(self, **options: Any) -> fm.Upstream:
        return super().upstream(**{"format": "orc", **options})

    def planned(self, *pipelines: str) -> str:
        self.register(*pipelines)
        return str(self.c.create_batch().batch_id)

    def window(self, batch_id: str) -> fm.Window:
        return self.c.status(batch_id)[0].windows[str(self.up)]


@pytest.fixture
def lake(tmp_path: Path) -> OrcLake:
    return OrcLake(tmp_path)


def test_a_deferred_end_is_planned_shown_and_frozen_by_the_first_run(lake: OrcLake) -> None:
    lake.add((1, 1), (2, 2))
    batch = lake.planned()
    planned = lake.window(batch)
    (row,) = lake.published("watermarks")
    lake.c.run_pipeline("copy", batch, lake.copy("copy"))
    frozen = lake.window(batch)

    assert (planned.deferred, planned.end_mark, planned.rows) == (True, None, None)
    assert planned.reason.startswith("deferred: ")
    assert (row["status"], row["end_mark"], row["end_version"]) == ("PENDING", None, -1)
    assert (frozen.deferred, frozen.end_mark, frozen.rows) == (False, mark(2), 2)
    assert [event.kind for event in lake.c.history()][-4:-2] == ["LEASE", "FREEZE"]
    assert lake.published("watermarks")[0]["end_mark"] == mark(2)


def test_every_other_pipeline_of_the_batch_adopts_the_frozen_end(lake: OrcLake) -> None:
    lake.add((1, 1))
    batch = lake.planned("a", "b")
    lake.c.run_pipeline("a", batch, lake.copy("a"))
    lake.add((2, 2))
    lake.c.run_pipeline("b", batch, lake.copy("b"))

    assert lake.calls == [("a", [1]), ("b", [1])]
    assert lake.c.finalize_batch(batch) == (str(lake.up),)
    assert all(finding.ok for finding in lake.c.verify()), lake.c.verify()


def test_a_retry_keeps_the_end_that_the_failed_run_froze(lake: OrcLake) -> None:
    lake.add((1, 1))
    batch = lake.planned()
    with pytest.raises(RuntimeError):
        lake.c.run_pipeline("copy", batch, lake.copy("copy", fails=True))
    lake.add((2, 2))
    lake.c.run_pipeline("copy", batch, lake.copy("copy"))

    assert lake.calls == [("copy", [1]), ("copy", [1])]


def test_two_runs_that_freeze_at_once_agree_on_the_first(
    lake: OrcLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.add((1, 1))
    batch = lake.planned("a", "b")
    other = lake.coordinator()
    look = ArrowEngine().source().look

    class Slow(ArrowEngine):
        def source(self) -> Any:
            found = super().source()

            def looked(*arguments: Any) -> Any:
                seen = look(*arguments)
                lake.add((2, 2))
                other.run_pipeline("b", batch, lake.copy("b"))  # comes first, with both rows
                return seen

            monkeypatch.setattr(found, "look", looked)
            return found

    lake.c = lake.opened(lake.c.control, Outside(engine=Slow()))
    lake.c.run_pipeline("a", batch, lake.copy("a"))

    assert lake.calls == [("b", [1, 2]), ("a", [1, 2])]
    assert [event.kind for event in lake.c.history()].count("FREEZE") == 1


def test_a_deferred_window_without_news_is_a_step_of_no_rows(lake: OrcLake) -> None:
    lake.add((1, 1))
    lake.register()
    lake.step()
    second = lake.step()
    lake.add((2, 2))
    lake.step()

    window = lake.window(str(second.batch_id))
    assert (window.start_mark, window.end_mark, window.rows) == (mark(1), mark(1), 0)
    assert lake.calls == [("copy", [1]), ("copy", []), ("copy", [2])]
    assert all(finding.ok for finding in lake.c.verify())


def test_nothing_advances_and_nothing_succeeds_before_the_end_is_frozen(lake: OrcLake) -> None:
    lake.add((1, 1))
    batch = lake.planned()
    lake.c.record_run("copy", batch, status="RUNNING")
    with pytest.raises(FloodmarkError) as caught:
        lake.c.record_run("copy", batch, status="SUCCESS")

    assert "is not frozen" in caught.value.title
    assert lake.c.finalize(batch).advanced == ()
    assert "not frozen" in lake.c.finalize(batch).held[0].reason


def test_a_pipeline_that_runs_elsewhere_freezes_the_end_with_its_inputs(lake: OrcLake) -> None:
    lake.add((1, 1))
    batch = lake.planned()
    with pytest.raises(FloodmarkError) as caught:
        lake.c.inputs(batch, "copy")
    assert caught.value.code == "FM-SOURCE-011"

    lake.c.record_run("copy", batch, status="RUNNING")
    frame = lake.c.inputs(batch, "copy")[str(lake.up)]
    lake.add((2, 2))
    again = lake.c.inputs(batch, "copy")[str(lake.up)]
    lake.c.record_run("copy", batch, status="SUCCESS")

    assert frame["id"].to_pylist() == again["id"].to_pylist() == [1]
    assert lake.c.finalize_batch(batch) == (str(lake.up),)


def test_a_batch_with_a_deferred_end_can_be_cancelled_and_planned_again(lake: OrcLake) -> None:
    lake.add((1, 1))
    batch = lake.planned()
    lake.c.cancel(batch)
    lake.step()

    assert lake.ids() == [1]


def test_a_deferred_end_survives_compaction(lake: OrcLake) -> None:
    lake.add((1, 1))
    batch = lake.planned()
    fold_journal(lake.c.control, keep_windows=0)
    lake.c = lake.coordinator()
    lake.c.run_pipeline("copy", batch, lake.copy("copy"))

    assert lake.ids() == [1]


def test_rows_without_a_time_stop_the_first_run_before_it_reads(lake: OrcLake) -> None:
    lake.add((1, 1), (2, None))
    batch = lake.planned()
    with pytest.raises(FloodmarkError) as caught:
        lake.c.run_pipeline("copy", batch, lake.copy("copy"))

    assert (caught.value.code, lake.calls) == ("FM-PLAN-024", [])
    assert lake.window(batch).deferred


def test_settle_and_baseline_hold_for_a_deferred_end(lake: OrcLake) -> None:
    lake.add((1, 1), (2, 2), (3, 598))
    lake.register(settle="5m", baseline=f"{at(1):%Y-%m-%dT%H:%M:%SZ}")
    lake.step()

    assert lake.calls == [("copy", [2])]


def test_what_is_latest_has_to_be_looked_at(lake: OrcLake) -> None:
    lake.add((1, 1))
    with pytest.raises(FloodmarkError) as caught:
        lake.register(baseline="latest")
    assert caught.value.code == "FM-PLAN-021"


def test_lag_says_that_only_spark_can_look(lake: OrcLake) -> None:
    lake.add((1, 1))
    lake.register()
    (lag,) = lake.c.lag()

    assert (lag.seconds_behind, lag.reason) == (None, "only Spark can look into it")


@pytest.mark.parametrize("point", failpoints.FREEZE_POINTS)
def test_a_crash_around_the_freeze_leaves_nothing_to_mend(lake: OrcLake, point: str) -> None:
    lake.add((1, 1))
    batch = lake.planned("a", "b")
    with armed(point), pytest.raises(failpoints.FailpointReached):
        lake.c.run_pipeline("a", batch, lake.copy("a"))
    is_frozen = not lake.window(batch).deferred
    lake.add((2, 2))
    lake.c = lake.opened(lake.c.control, AFTER_A_CRASH)
    for pipeline in ("b", "a"):
        lake.c.run_pipeline(pipeline, batch, lake.copy(pipeline))

    assert is_frozen == (point == "freeze.after_commit")
    expected = [1] if is_frozen else [1, 2]
    assert lake.calls == [("b", expected), ("a", expected)]
    assert lake.c.finalize_batch(batch) == (str(lake.up),)


def test_instants_are_not_moved_by_the_zone_of_this_process(
    lake: OrcLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    near = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
    times = pa.array([near, near + timedelta(microseconds=1)], INSTANT)
    lake.write(pa.table({"id": pa.array([1, 2], pa.int64()), "at": times}))
    batch = lake.planned()
    lake.c.run_pipeline("copy", batch, lake.copy("copy"))

    assert lake.window(batch).end_mark == (
        '{"type":"timestamp","value":"2026-03-01T12:00:00.000002Z"}'
    )
