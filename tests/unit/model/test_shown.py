"""What results look like in a terminal and in a notebook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from tests.support.windows import planned_window

from floodmark.model.results import Batch, Lag, RunResult

RESULT = RunResult(
    "report", "batch_1", "SUCCESS", 1_204, None, {"note": "<b>fine</b>"}, "run_1", 12.3
)
LAG = Lag("default", "lake/orders", 9, 5, 4, 420.0, ("report",), "report has not run")


def test_a_batch_is_three_lines(tmp_path: Path) -> None:
    for name in "abcd":
        write_deltalake(tmp_path / name, pa.table({"id": [1]}))
    windows = tuple(planned_window(tmp_path / name, "snapshot", -1, 0) for name in "abcd")
    batch = Batch("batch_1", 7, "default", "PENDING", windows, ("report", "audit"))

    first, second, third = repr(batch).splitlines()

    assert first == "Batch batch_1, number 7 (forward, scope default): PENDING"
    assert second.startswith(f"  {tmp_path}/a 0 to 0 by snapshot, ")
    assert second.endswith("and 1 more")
    assert third == "  pipelines: report, audit"
    assert batch._repr_html_().count("<tr>") == 5


def test_a_preview_without_news_says_so() -> None:
    batch = Batch(None, None, "default", "NOOP", (), ())
    assert repr(batch).splitlines() == [
        "Batch not journaled (forward, scope default): NOOP",
        "  no news",
    ]


def test_a_result_says_what_is_not_known() -> None:
    assert repr(RESULT).splitlines() == [
        "RunResult report of batch_1: SUCCESS in 12.3 s",
        "  1,204 rows read, unknown rows written",
    ]
    failed = replace(RESULT, status="FAILED", error="FM-RUN-005 it raised")
    assert repr(failed).splitlines()[2] == "  FM-RUN-005 it raised"


def test_a_lag_says_who_holds_it() -> None:
    assert repr(LAG).splitlines() == [
        "Lag of lake/orders (scope default): 4 versions behind",
        "  committed 5, latest 9, for 7 min 0 s",
        "  held by report: report has not run",
    ]


def test_no_value_is_markup() -> None:
    html = RESULT._repr_html_() + replace(LAG, upstream="<script>")._repr_html_()
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;b&gt;fine&lt;/b&gt;" in html
