"""The screens of windows of time, word by word: plan, status, lag; and their JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

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
def events(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clock = FrozenClock(NOON + timedelta(hours=1))
    monkeypatch.setattr("floodmark.coordinator.store.SystemClock", lambda: clock)
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
