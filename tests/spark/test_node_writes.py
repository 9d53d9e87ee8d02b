"""Writes of nodes that only Spark can make: files, layouts, replacements, PostgreSQL from frames."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.postgres_places import PgLake
from tests.support import crash
from tests.support.node_projects import table_rows

from floodmark import failpoints
from floodmark.deltalog import DeltaLog
from floodmark.engines.postgres_server import PostgresServer
from floodmark.project import Project
from floodmark.run.nodes.side_by_side import in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LAYOUT = """\
project: shop
lease_ttl: 1s
connections: {lake: {type: lake, root: lake}, out: {type: files, root: out}}
pipelines:
  - pipeline: layout
    nodes:
      - name: sorted
        read: {connection: lake, path: orders, method: snapshot}
        transform: [{derive_columns: {columns: {day: "id % 2"}}}]
        write:
          connection: lake
          path: sorted
          mode: replace_where
          replace_where: day >= 0 AND amount < 1000
          options:
            partition_by: [day]
            zorder_by: [amount]
            optimize_write: true
            table_properties: {delta.logRetentionDuration: interval 60 days}
"""
FILES = """\
  - pipeline: files
    parallel: 1
    nodes:
      - name: rows
        read: {connection: lake, path: orders}
      - name: csv
        depends_on: [rows]
        write: {connection: out, format: csv, path: csv, mode: append, changes: handled, options: {writer: {header: true, sep: ;}}}
      - name: json
        depends_on: [csv]
        write: {connection: out, format: json, path: json, mode: append, changes: handled}
      - name: parquet
        depends_on: [rows]
        write: {connection: out, format: parquet, path: parquet, mode: append, changes: handled, options: {partition_by: [id]}}
      - name: text
        depends_on: [rows]
        transform: [{sql: "SELECT cast(id AS string) AS line, _change_type, _commit_version, _commit_timestamp FROM input"}]
        write: {connection: out, format: text, path: text, mode: overwrite, allow_partial: true, changes: handled}
"""  # fmt: skip


def project_of(root: Path, spark: SparkSession, text: str | None = None) -> Project:
    if text is not None:
        (root / "floodmark.yaml").write_text(text)
    return Project.load(root, session=lambda: spark)


def test_nodes_side_by_side_are_cancelled_with_their_run(spark: SparkSession) -> None:
    meeting = threading.Barrier(2)
    tags: list[list[str]] = []

    def work(_: str) -> None:
        meeting.wait(10)
        tags.append(sorted(map(str, spark.sparkContext.getJobTags())))

    spark.sparkContext.addJobTag("of-the-run")
    try:
        in_order({"a": (), "b": ()}, work, 2, spark)
    finally:
        spark.sparkContext.removeJobTag("of-the-run")

    assert tags == [["of-the-run"], ["of-the-run"]]


def lines(folder: Path) -> list[str]:
    """The lines of all files, sorted."""
    files = [path for path in folder.rglob("part-*") if path.is_file()]
    return sorted(line for path in files for line in path.read_text().splitlines())


def test_layouts_last_and_replacements_keep_to_their_condition(
    spark: SparkSession, tmp_path: Path
) -> None:
    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 20), (9, 5000)])
    project = project_of(tmp_path, spark, LAYOUT)
    refused = project.run().outcomes[0].error
    assert refused is not None
    assert refused.code == "FM-SINK-034"
    assert "5000" not in str(refused)
    condition = (tmp_path / "floodmark.yaml").read_text().replace("amount < 1000", "amount < 9999")

    project_of(tmp_path, spark, condition).run()
    crash.open_table(tmp_path, "lake/orders").delete("id = 9")
    summary = project_of(tmp_path, spark).run()

    assert summary.exit_code == 0, summary.outcomes
    assert table_rows(tmp_path / "lake/sorted", "id, amount") == [(1, 10), (2, 20)]
    assert summary.outcomes[0].rows_written == 2
    log = DeltaLog(str(tmp_path / "lake/sorted"))
    facts = log.facts()
    assert facts.partition_columns == ("day",)
    assert facts.properties["delta.autoOptimize.optimizeWrite"] == "true"
    assert facts.properties["delta.logRetentionDuration"] == "interval 60 days"
    operations = [c.operation for c in log.versions(0, facts.latest_version)]
    assert operations.count("OPTIMIZE") == 1
    assert operations.count("WRITE") == 3  # the first one made the table, without rows
    assert all(finding.ok for finding in project_of(tmp_path, spark).verify())


def test_files_are_written_in_each_format_and_again_only_after_a_crash_beside_the_journal(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 20)])
    head = LAYOUT[: LAYOUT.index("  - pipeline: layout")]
    project = project_of(tmp_path, spark, head + FILES)
    assert project.run().exit_code == 0
    assert lines(out / "csv").count("1;10") == 1
    assert "id;amount" in lines(out / "csv")
    assert [json.loads(line) for line in lines(out / "json")] == [
        {"id": 1, "amount": 10},
        {"id": 2, "amount": 20},
    ]
    assert (out / "parquet/id=1").is_dir()
    assert lines(out / "text") == ["1", "2"]

    crash.append_rows(tmp_path, "lake/orders", [(3, 30)])
    with crash.armed("sink.after_commit:2"), pytest.raises(failpoints.FailpointReached):
        project.run()
    summary = project_of(tmp_path, spark).run()

    assert summary.exit_code == 0, summary.outcomes
    assert lines(out / "csv").count("3;30") == 1  # in the journal before the crash
    assert len(lines(out / "json")) == 4  # not in the journal: at least once
    assert lines(out / "text") == ["3"]
    assert summary.outcomes[0].rows_written is None
    assert all(finding.ok for finding in project_of(tmp_path, spark).verify())
    assert all(f.ok for f in project.coordinator.admin.doctor() if f.name.startswith(str(out)))


SHOWN = """\
  - pipeline: files
    nodes:
      - name: rows
        read: {connection: lake, path: orders}
        write: {connection: out, format: FORMAT, path: it's, mode: append, changes: handled, register_table: raw.files, options: {writer: {header: true}}}
"""


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.usefixtures("raw_names")
def test_files_are_shown_by_a_name_of_the_catalog_and_a_taken_name_is_refused(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 20)])
    head = LAYOUT[: LAYOUT.index("  - pipeline: layout")]
    project = project_of(tmp_path, spark, head + SHOWN.replace("FORMAT", kind))
    assert project.run().exit_code == 0
    shown = "SELECT CAST(id AS INT) AS id FROM raw.files ORDER BY 1"
    assert [row.id for row in spark.sql(shown).collect()] == [1, 2]
    crash.append_rows(tmp_path, "lake/orders", [(3, 30)])
    assert project_of(tmp_path, spark).run().exit_code == 0
    assert [row.id for row in spark.sql(shown).collect()] == [1, 2, 3]

    spark.sql("DROP TABLE raw.files")
    spark.sql(f"CREATE TABLE raw.files (id INT) USING {kind} LOCATION '{tmp_path}/other'")
    crash.append_rows(tmp_path, "lake/orders", [(4, 40)])
    refused = project_of(tmp_path, spark).run().outcomes[0].error

    assert refused is not None
    assert refused.code == "FM-SINK-025"
    assert all(finding.ok for finding in project_of(tmp_path, spark).verify())


ERP = """\
  - pipeline: erp
    nodes:
      - name: orders
        read: {connection: lake, path: orders}
        expect: [{check: amount < 100, action: quarantine}]
        write: {connection: erp, table: @orders, merge: {keys: [id]}}
      - name: copy
        depends_on: [orders]
        write: {connection: lake, path: copy, merge: {keys: [id]}}
"""


@pytest.fixture
def shop(
    postgres: PostgresServer, pg_schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PgLake:
    """A project that writes to the test's schema."""
    monkeypatch.setenv("SHOP_PASSWORD", postgres.password)
    lake = PgLake(postgres.dsn, pg_schema)
    erp: dict[str, Any] = {
        "type": "postgres",
        "host": postgres.host,
        "port": postgres.port,
        "database": postgres.database,
        "user": postgres.user,
        "password": "${env:SHOP_PASSWORD}",
    }
    connections = {"lake": {"type": "lake", "root": "lake"}, "erp": erp}
    head = f"project: shop\nlease_ttl: 1s\nconnections: {json.dumps(connections)}\npipelines:\n"
    table = json.dumps(str(lake / "orders").partition(":")[2])
    (tmp_path / "floodmark.yaml").write_text(head + ERP.replace("@orders", table))
    return lake


@pytest.mark.postgres
@pytest.mark.parametrize("point", ["sink.before_commit:2", "sink.after_commit:2"])
def test_delta_through_spark_into_postgres_once_whatever_crashes(
    spark: SparkSession, shop: PgLake, tmp_path: Path, point: str
) -> None:
    crash.append_rows(tmp_path, "lake/orders", [(1, 10), (2, 200)])
    with crash.armed(point), pytest.raises(failpoints.FailpointReached):
        project_of(tmp_path, spark).run()

    again = project_of(tmp_path, spark).run()

    assert again.exit_code == 0, again.outcomes
    assert [(row["id"], row["amount"]) for row in (shop / "orders").rows()] == [(1, 10)]
    aside = (shop / "orders_quarantine").rows()
    assert [(row["id"], row["quarantine_reason"]) for row in aside] == [(2, "check(amount < 100)")]
    assert table_rows(tmp_path / "lake/copy") == [(1, 10)]
    assert len((shop / "orders").history()) == 1
