"""The screens of windows of time, word by word: plan, status, lag; and their JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.support.outsides import ON_ARROW

from floodmark.cli.call import Opening
from floodmark.model.clock import FrozenClock

Command = Callable[..., Any]
Golden = Callable[[str, str], None]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROJECT = """\
project: events
pipelines:
  - pipeline: loads
    upstreams:
      - {name: lake/events, time_column: at, settle: 5m, baseline: "2026-03-01T11:00:00Z"}
    function: jobs:process
  - pipeline: clicks
    upstreams:
      - {name: lake/clicks, time_column: at, format: orc}
    function: jobs:process
"""


def rows(*minutes: float) -> pa.Table:
    times = [NOON + timedelta(minutes=m) for m in minutes]
    return pa.table(
        {"id": list(range(len(times))), "at": pa.array(times, pa.timestamp("us", "UTC"))}
    )


@pytest.fixture
def opening() -> Opening:
    """Commands of these tests run on delta-rs, an hour after noon."""
    outside = replace(ON_ARROW, clock=FrozenClock(NOON + timedelta(hours=1)))
    return Opening(session=lambda: None, outside=outside)


@pytest.fixture
def events(project: Path) -> Path:
    (project / "floodmark.yaml").write_text(PROJECT)
    (project / "jobs.py").write_text("def process(inputs, run):\n    pass\n")
    for folder in ("events", "clicks"):
        (project / "lake" / folder).mkdir(parents=True)
    pq.write_table(rows(-90, 1, 2), project / "lake/events/0.parquet")
    orc.write_table(rows(1), str(project / "lake/clicks/0.orc"))
    return project


def test_plan_status_and_lag_of_time_windows(
    events: Path, floodmark: Command, golden: Golden
) -> None:
    golden("time_plan", floodmark("plan").out)
    floodmark("plan", "--freeze", "loads")
    batch = floodmark("status", "--json").document["batches"][0]["batch_id"]
    golden("time_status", floodmark("status").out)
    floodmark("record", "loads", batch, "--status", "SUCCESS")
    floodmark("finalize")
    pq.write_table(rows(30, 58), events / "lake/events/1.parquet")

    golden("time_lag", floodmark("lag").out)


def test_the_json_of_a_time_window_has_marks_and_no_versions(
    events: Path, floodmark: Command
) -> None:
    documents = floodmark("plan", "--json").document["plans"]
    windows = {w["upstream"]: w for plan in documents for w in plan["windows"]}

    known, deferred = windows[str(events / "lake/events")], windows[str(events / "lake/clicks")]
    assert (known["kind"], known["method"]) == ("time", "query")
    assert (known["start"], known["end"], known["versions"], known["rows"]) == (-1, -1, None, 2)
    assert known["start_mark"] == '{"type":"timestamp","value":"2026-03-01T11:00:00.000000Z"}'
    assert known["end_mark"] == '{"type":"timestamp","value":"2026-03-01T12:02:00.000000Z"}'
    assert (deferred["deferred"], deferred["end_mark"], deferred["rows"]) == (True, None, None)


def test_the_json_of_lag_has_seconds_and_marks(events: Path, floodmark: Command) -> None:
    floodmark("plan", "--freeze")
    found = {u["upstream"]: u for u in floodmark("lag", "--json").document["upstreams"]}

    lag = found[str(events / "lake/events")]
    assert (lag["kind"], lag["versions_behind"], lag["seconds_behind"]) == ("time", None, 3540.0)
    assert floodmark("lag", "--fail-above", "1d").code == 1  # the clicks are not known
    assert floodmark("validate").code == 0


# Operating by values ------------------------------------------------------------------------------


@pytest.fixture
def processed(events: Path, floodmark: Command) -> Path:
    """The events through 12:02 are processed."""
    floodmark("plan", "--freeze", "loads")
    batch = floodmark("status", "--json").document["batches"][0]["batch_id"]
    floodmark("record", "loads", batch, "--status", "SUCCESS")
    floodmark("finalize")
    return events


RESET = ("state", "reset", "--scope", "loads", "--upstream", "lake/events")


def test_state_shows_the_mark_of_an_upstream_without_versions(
    processed: Path, floodmark: Command, golden: Golden
) -> None:
    golden("time_state", floodmark("state", "show").out)

    (found,) = floodmark("state", "show", "--json").document["watermarks"]
    assert (found["kind"], found["version"], found["column"]) == ("time", -1, "at")
    assert found["mark"] == '{"type":"timestamp","value":"2026-03-01T12:02:00.000000Z"}'


def test_a_reset_to_a_value_asks_moves_the_mark_and_leaves_a_gap_to_be_seen(
    processed: Path, floodmark: Command
) -> None:
    pq.write_table(rows(30, 40), processed / "lake/events/1.parquet")
    value = "2026-03-01T12:35:00Z"

    asked = floodmark(*RESET, "--to", value)
    done = floodmark(*RESET, "--to", value, "--yes")

    assert (asked.code, done.code) == (2, 0)
    assert "after 2026-03-01T12:02:00.000000Z through 2026-03-01T12:35:00" in " ".join(
        asked.err.split()
    )
    gaps = floodmark("gaps")
    assert gaps.code == 1
    assert "2026-03-01 12:02Z to 2026-03-01 12:35Z" in gaps.out
    assert "--from 2026-03-01T12:02:00.000001Z --to 2026-03-01T12:35:00.000000Z" in gaps.out


def test_a_reset_back_to_a_value_says_what_comes_again(processed: Path, floodmark: Command) -> None:
    done = floodmark(*RESET, "--to", "2026-03-01T12:01:00Z", "--yes", "--json")

    assert done.document["before_mark"].endswith('12:02:00.000000Z"}')
    assert done.document["after_mark"].endswith('12:01:00.000000Z"}')
    assert floodmark("plan", "loads", "--json").document["windows"][0]["rows"] == 1


def test_a_backfill_by_values_runs_and_marks_stay(processed: Path, floodmark: Command) -> None:
    span = ("--from", "2026-03-01", "--to", "2026-03-01T12:01:00Z")

    done = floodmark("backfill", "lake/events", *span, "--json")

    assert done.code == 0, done.err
    (batch,) = floodmark("status", done.document["batch_id"], "--json").document["batches"]
    (window,) = batch["windows"]
    assert window["start_mark"].endswith('2026-02-28T23:59:59.999999Z"}')
    assert window["end_mark"].endswith('2026-03-01T12:01:00.000000Z"}')
    (mark,) = floodmark("state", "show", "--json").document["watermarks"]
    assert mark["mark"].endswith('12:02:00.000000Z"}')


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--start", "0", "--end", "0"), 4, "--from 2026-03-01 --to 2026-03-01T12:02:00.000000Z"),
        (("--from", "2026-03-01", "--to", "2026-03-02"), 4, "--to 2026-03-01T12:02:00.000000Z"),
        (("--from", "2026-03-01"), 2, "--from 2026-01-01 --to 2026-01-31"),
        (("--start", "0", "--to", "2026-03-01"), 2, "--start 0 --end 1"),
        ((), 2, "--start 0 --end 1"),
    ],
)
def test_a_range_that_cannot_be_says_what_to_type(
    processed: Path, floodmark: Command, options: tuple[str, ...], code: int, says: str
) -> None:
    answer = floodmark("backfill", "lake/events", *options)

    assert answer.code == code
    assert says in " ".join(answer.err.split())


def test_every_key_of_a_plan_and_of_lag_is_in_the_guide(events: Path, floodmark: Command) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/commands.md").read_text()
    plan = floodmark("plan", "--json").document["plans"][0]
    floodmark("plan", "--freeze")
    lag = floodmark("lag", "--json").document["upstreams"][0]

    for key in (*plan, *plan["windows"][0], *lag):
        assert f"`{key}`" in guide or f"`{key}[]`" in guide, key
