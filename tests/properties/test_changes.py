"""A merged target equals the upstream's table, whatever happened to its keys in between."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from tests.properties.change_logs import Batches, Change, batches

from floodmark.model.receipt import Receipt
from floodmark.model.write import CHANGE_COLUMNS, WriteSpec
from floodmark.testing.arrow import ArrowSink, last_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("id", "value", *CHANGE_COLUMNS)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("value", pa.string()),
        ("_change_type", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)


def as_rows(feed: list[Change]) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, (*change, AT), strict=True)) for change in feed]


def merged(target: str, case: Batches, **options: Any) -> list[list[dict[str, Any]]]:
    """The rows of the target after each batch."""
    sink = ArrowSink(WriteSpec(target, "merge", "out", keys=("id",), **options), ())
    seen = []
    for seq, feed in enumerate(case.feeds, start=1):
        frame = pa.Table.from_pylist(as_rows(feed), schema=SCHEMA)
        sink.write(frame, Receipt("app", seq, "{}"))
        seen.append(DeltaTable(target).to_pyarrow_table().to_pylist())
    return seen


def in_fresh_folder(case: Batches, **options: Any) -> list[list[dict[str, Any]]]:
    folder = tempfile.mkdtemp(prefix="floodmark-changes-")
    try:
        return merged(str(Path(folder) / "out"), case, **options)
    finally:
        shutil.rmtree(folder)


@given(batches())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_merged_target_equals_the_upstream_after_every_batch(case: Batches) -> None:
    targets = in_fresh_folder(case)

    for rows, state in zip(targets, case.states, strict=True):
        assert {row["id"]: row["value"] for row in rows} == state
        assert len(rows) == len(state)


@given(batches())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_soft_deletes_hide_exactly_what_is_gone_and_forget_no_key(case: Batches) -> None:
    targets = in_fresh_folder(case, deletes="soft")

    ever: set[int] = set()
    for rows, state, feed in zip(targets, case.states, case.feeds, strict=True):
        ever |= {change[0] for change in feed}
        assert {r["id"]: r["value"] for r in rows if not r["is_deleted"]} == state
        assert {r["id"] for r in rows} == ever


@given(batches())
@settings(max_examples=100)
def test_a_single_history_has_no_ties(case: Batches) -> None:
    for feed in case.feeds:
        assert last_changes(as_rows(feed), ["id"]).ties == []


@pytest.mark.spark
def test_spark_reduces_a_hundred_histories_as_the_oracle_says(spark: SparkSession) -> None:
    from floodmark.sinks import changes

    cases: list[Batches] = []

    @given(batches())
    @settings(max_examples=100, database=None, derandomize=True, phases=[Phase.generate])
    def collect(case: Batches) -> None:
        cases.append(case)

    collect()
    rows = [
        (number, *change, AT)
        for number, case in enumerate(cases)
        for feed in case.feeds
        for change in feed
    ]
    schema = "case int, id long, value string, _change_type string, _commit_version long"
    frame = spark.createDataFrame(rows, f"{schema}, _commit_timestamp timestamp").repartition(3)

    reduced = changes.reduced(frame, ["case", "id"]).collect()

    found: dict[int, dict[int, str]] = {number: {} for number in range(len(cases))}
    for row in reduced:
        assert not row[changes.TIED]
        if not row[changes.DELETED]:
            found[row["case"]][row["id"]] = row["value"]
    assert len(cases) >= 90
    assert found == {number: case.states[-1] for number, case in enumerate(cases)}
