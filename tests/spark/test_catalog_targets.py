"""Targets by catalog name: written to where they are, created and registered by the first write."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.conftest import add_version
from tests.support import crash
from tests.support.outsides import ALONE

import floodmark as fm
from floodmark import failpoints
from floodmark.coordinator import Coordinator, Outside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.run.context import Run

pytestmark = pytest.mark.spark

Write = Callable[[Mapping[str, Any], Any], None]


@pytest.fixture
def marts(spark: SparkSession, tmp_lake: Path) -> Iterator[Path]:
    """Where the schema `marts` keeps its tables."""
    place = tmp_lake / "the marts"
    spark.sql(f"CREATE SCHEMA marts LOCATION '{place}'")
    yield place
    spark.sql("DROP SCHEMA marts CASCADE")


@pytest.fixture
def coordinator(spark: SparkSession, tmp_lake: Path) -> fm.Coordinator:
    add_version(tmp_lake / "orders", 1, 2)
    opened = reopened(spark, tmp_lake)
    opened.register("p", ["lake/orders"])
    return opened


def reopened(
    spark: SparkSession | None,
    tmp_lake: Path,
    schema: str | None = None,
    outside: Outside | None = None,
) -> fm.Coordinator:
    base = str(tmp_lake.parent)
    return fm.Coordinator("lake/_control", spark, base=base, schema=schema, outside=outside)


def run(coordinator: fm.Coordinator, write: Write, **options: Any) -> fm.RunResult:
    batch_id = str(coordinator.create_batch().batch_id)
    result = coordinator.run_pipeline("p", batch_id, write, **options)
    coordinator.finalize_batch(batch_id)
    return result


def merge(inputs: Mapping[str, Any], run: Run) -> None:
    run.write(inputs["lake/orders"], "marts.report", mode="merge", keys=["id"])


def append(inputs: Mapping[str, Any], run: Run) -> None:
    run.write(inputs["lake/orders"], "marts.report", mode="append", changes="latest", keys=["id"])


def overwrite(inputs: Mapping[str, Any], run: Run) -> None:
    whole = run.table("lake/orders")
    run.write(whole, "marts.report", mode="overwrite", allow_partial=True, changes="handled")


def ids(spark: SparkSession, name: str = "marts.report") -> list[int]:
    return sorted(row["id"] for row in spark.table(name).collect())


def code_of(error: pytest.ExceptionInfo[fm.FloodmarkError]) -> str:
    return error.value.code


def receipts(coordinator: Coordinator) -> set[str]:
    return {app_id.split("/")[3] for app_id in coordinator.look.state().sinks}


@pytest.mark.parametrize("write", [merge, append, overwrite])
def test_the_first_write_creates_the_table_where_the_schema_is_and_the_next_go_on(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator, write: Write
) -> None:
    run(coordinator, write)
    add_version(tmp_lake / "orders", 3)
    run(coordinator, write)

    assert ids(spark) == [1, 2, 3]
    assert (marts / "report/_delta_log/00000000000000000001.json").exists()
    assert "txn" in (marts / "report/_delta_log/00000000000000000000.json").read_text()
    assert receipts(coordinator) == {"marts.report"}
    assert [f.text for f in coordinator.verify() if not f.ok] == []


def test_a_table_that_exists_is_written_where_it_is(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator
) -> None:
    place = f"{tmp_lake}/some where"
    spark.sql(f"CREATE TABLE marts.report (id LONG, name STRING) USING delta LOCATION '{place}'")

    run(coordinator, merge)

    assert ids(spark) == [1, 2]
    assert [sink.target for sink in coordinator.look.state().sinks.values()] == [place]
    assert not (marts / "report").exists()


@pytest.mark.parametrize("point", ["sink.before_commit", "sink.after_commit", "run.before_done"])
def test_a_run_that_dies_around_its_first_commit_is_repeated_once(
    spark: SparkSession,
    tmp_lake: Path,
    marts: Path,
    coordinator: fm.Coordinator,
    point: str,
) -> None:
    batch_id = str(coordinator.create_batch().batch_id)
    with crash.armed(point), pytest.raises(failpoints.FailpointReached):
        coordinator.run_pipeline("p", batch_id, append)

    again = reopened(spark, tmp_lake, outside=ALONE)
    again.run_pipeline("p", batch_id, append)

    assert ids(spark) == [1, 2]
    assert len(list((marts / "report/_delta_log").glob("*.json"))) == 1
    assert [f.text for f in coordinator.verify() if not f.ok] == []


def test_a_name_and_its_path_have_one_row_of_receipts(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator
) -> None:
    targets = iter(["marts.report", f"{marts}/report", "MARTS.Report"])

    def write(inputs: Mapping[str, Any], run: Run) -> None:
        run.write(inputs["lake/orders"], next(targets), mode="merge", keys=["id"])

    for number in (3, 4):
        run(coordinator, write)
        add_version(tmp_lake / "orders", number)
    run(coordinator, write)

    assert ids(spark) == [1, 2, 3, 4]
    assert receipts(coordinator) == {"marts.report"}


def test_a_path_keeps_its_receipts_when_it_is_named(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator
) -> None:
    targets = iter(["lake/the marts/report", "marts.report"])

    def write(inputs: Mapping[str, Any], run: Run) -> None:
        run.write(inputs["lake/orders"], next(targets), mode="merge", keys=["id"])

    run(coordinator, write)
    spark.sql(f"CREATE TABLE marts.report USING delta LOCATION '{marts}/report'")
    add_version(tmp_lake / "orders", 3)
    run(coordinator, write)

    assert ids(spark) == [1, 2, 3]
    assert {s.write_name for s in coordinator.look.state().sinks.values()} == {
        "lake/the marts/report"
    }


def test_what_cannot_be_a_target_is_refused_before_anything_is_written(
    spark: SparkSession, marts: Path, coordinator: fm.Coordinator
) -> None:
    spark.sql("CREATE VIEW marts.seen AS SELECT 1 AS id")
    spark.sql("CREATE TABLE marts.plain (id INT) USING parquet")
    batch_id = str(coordinator.create_batch().batch_id)
    found = {}
    for name in ("marts.seen", "marts.plain", "nowhere.report"):

        def write(inputs: Mapping[str, Any], run: Run, name: str = name) -> None:
            run.write(inputs["lake/orders"], name, mode="append")

        with pytest.raises(fm.FloodmarkError) as caught:
            coordinator.run_pipeline("p", batch_id, write)
        found[name] = code_of(caught)

    assert found == {
        "marts.seen": "FM-SINK-023",
        "marts.plain": "FM-SINK-023",
        "nowhere.report": "FM-SINK-024",
    }
    assert "CREATE SCHEMA `nowhere`" in str(caught.value.next)
    assert coordinator.look.state().sinks == {}


def test_a_dropped_table_is_a_lost_target_and_is_rebuilt_under_its_name(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator
) -> None:
    run(coordinator, merge)
    spark.sql("DROP TABLE marts.report")
    shutil.rmtree(marts / "report")
    add_version(tmp_lake / "orders", 3)

    with pytest.raises(fm.FloodmarkError) as caught:
        run(coordinator, merge)
    run(coordinator, merge, on_lost_target="rebuild")

    assert code_of(caught) == "FM-SINK-007"
    assert ids(spark) == [1, 2, 3]


def test_a_target_that_moved_is_refused_and_goes_on_by_the_words_of_the_error(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator
) -> None:
    run(coordinator, merge)
    place = f"{tmp_lake}/moved"
    spark.sql("DROP TABLE marts.report")
    shutil.move(marts / "report", place)
    spark.sql(f"CREATE TABLE marts.report USING delta LOCATION '{place}'")
    add_version(tmp_lake / "orders", 3)

    with pytest.raises(fm.FloodmarkError) as caught:
        run(coordinator, merge)

    assert code_of(caught) == "FM-SINK-025"
    assert f"run.write(..., {place!r}, name='marts.report')" in str(caught.value.next)

    def by_path(inputs: Mapping[str, Any], run: Run) -> None:
        run.write(inputs["lake/orders"], place, mode="merge", keys=["id"], name="marts.report")

    run(coordinator, by_path)
    assert ids(spark) == [1, 2, 3]
    assert receipts(coordinator) == {"marts.report"}


def test_a_local_catalog_learns_the_names_of_the_store_again(
    spark: SparkSession, tmp_lake: Path, marts: Path, coordinator: fm.Coordinator
) -> None:
    run(coordinator, merge)
    spark.sql("DROP TABLE marts.report")  # as a new process would find it
    add_version(tmp_lake / "orders", 3)

    def look(inputs: Mapping[str, Any], run: Run) -> None:
        assert ids(run.spark) == [1, 2]
        merge(inputs, run)

    run(reopened(spark, tmp_lake), look)

    assert ids(spark) == [1, 2, 3]


def test_tables_of_a_schema_that_goes_with_the_process_are_made_beside_the_store(
    spark: SparkSession, tmp_lake: Path
) -> None:
    add_version(tmp_lake / "orders", 1)
    opened = reopened(spark, tmp_lake, schema="home_of_this_test")
    opened.register("p", ["lake/orders"])

    def write(inputs: Mapping[str, Any], run: Run) -> None:
        run.write(inputs["lake/orders"], "home_of_this_test.Report", mode="merge", keys=["id"])

    try:
        run(opened, write)
        assert ids(spark, "home_of_this_test.report") == [1]
        assert (tmp_lake / "home_of_this_test/report/_delta_log").is_dir()
    finally:
        spark.sql("DROP SCHEMA home_of_this_test CASCADE")


def test_the_example_of_the_guide_runs(spark: SparkSession, tmp_lake: Path) -> None:
    guide = Path(__file__).parents[2] / "docs/guides/catalog-names.md"
    code = guide.read_text().split("```python\n")[1].split("```")[0]
    example: dict[str, Any] = {}
    exec(code, example)
    spark.sql("CREATE SCHEMA shop")
    try:
        spark.sql(
            f"CREATE TABLE shop.orders USING delta LOCATION '{tmp_lake}/o' AS SELECT 7 order_id"
        )
        opened = reopened(spark, tmp_lake, schema="gold")
        opened.register("p", ["shop.orders"])
        run(opened, example["process"])
        assert [row["order_id"] for row in spark.table("gold.report").collect()] == [7]
    finally:
        spark.sql("DROP SCHEMA shop CASCADE")
        spark.sql("DROP TABLE IF EXISTS gold.report")
