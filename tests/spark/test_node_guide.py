"""The project of docs/guides/pipelines.md, run as it stands there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.node_projects import table_rows

from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("raw_names")]

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/pipelines.md"
FILES = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COLUMNS = "order_id int, order_date date, status string, amount double, updated_at timestamp"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in FILES.findall(GUIDE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text)
    yield tmp_path
    sys.modules.pop("steps", None)


def order(number: int | None, amount: float, day: int, status: str = "Open ") -> tuple[Any, ...]:
    return number, date(2026, 1, day), status, amount, datetime(2026, 1, day, tzinfo=UTC)


def add(spark: SparkSession, shop: Path, *orders: tuple[Any, ...]) -> None:
    frame = spark.createDataFrame(list(orders), COLUMNS).coalesce(1)
    writer = frame.write.format("delta").option("delta.enableChangeDataFeed", "true")
    writer.mode("append").save(str(shop / "lake/inbox/orders"))


def project_of(shop: Path, spark: SparkSession) -> Project:
    return Project.load(shop, session=lambda: spark)


def rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return table_rows(path, ", ".join(columns))


def test_the_guide_from_the_first_run_to_a_check_that_fails(
    shop: Path, spark: SparkSession
) -> None:
    silver, gold = shop / "lake/silver/orders", shop / "lake/gold/orders"
    add(spark, shop, order(1, 10.0, 1), order(2, -1.0, 1), order(3, 30.0, 1, "lost"))
    project = project_of(shop, spark)
    assert {plan.scope: plan.after for plan in project.plan()}["report"] == ("orders",)

    first = project.run()

    assert first.exit_code == 0, first.outcomes
    assert rows(silver, "order_id", "status") == [(1, "open"), (3, "lost")]
    aside = rows(shop / "lake/silver/orders_quarantine", "order_id", "quarantine_reason")
    assert aside == [(2, "check(amount >= 0)")]
    assert rows(gold, "order_id", "is_deleted") == [(1, False), (3, False)]
    (run,) = project.coordinator.status(first.batches[0].batch.batch_id)[0].runs.values()
    assert run.metrics["expect.orders.known_status"] == "1"
    assert run.metrics["expect.orders.check(amount >= 0)"] == "1"
    detail = spark.sql("DESCRIBE DETAIL raw.orders").collect()[0]
    assert list(detail["clusteringColumns"]) == ["order_date"]
    assert detail["properties"]["delta.autoOptimize.optimizeWrite"] == "true"

    loaded = dict(rows(silver, "order_id", "loaded_at"))
    paid = order(1, 11.0, 2, "paid"), order(3, 29.0, 1, "paid")
    add(spark, shop, *paid, order(4, 4.0, 2), order(None, 5.0, 3))
    second = project.run()

    error = second.outcomes[0].error
    assert error is not None
    assert error.code == "FM-RUN-009"
    assert "node orders" in (error.where or "")
    assert "floodmark.yaml" in (error.where or "")
    assert rows(silver, "order_id") == [(1,), (3,)]
    text = (shop / "floodmark.yaml").read_text()
    (shop / "floodmark.yaml").write_text(
        text.replace("{not_null: order_id}", "{not_null: order_id, action: drop}")
    )

    again = project_of(shop, spark).run()

    assert again.exit_code == 0, again.outcomes
    assert again.outcomes[0].already_applied == "raw_orders"
    assert [outcome.rows_read for outcome in again.outcomes] == [4, 5]
    assert rows(gold, "order_id", "amount") == [(1, 11), (3, 29), (4, 4)]
    changed = {n: (a, b) for n, a, b in rows(silver, "order_id", "loaded_at", "changed_at")}
    assert changed[1][0] == loaded[1] < changed[1][1]
    assert len(rows(shop / "lake/raw/orders", "amount")) == 7
    assert all(finding.ok for finding in project.verify())


STRATEGIES = """\
project: shop
pipelines:
  - pipeline: customers
    nodes:
      - name: all
        read: {path: ./inbox}
        transform: [{python: steps_of_strategies:upper}]
        expect:
          - {unique: id, action: warn, name: once}
          - {range: {column: id, max: 90}, action: drop, name: small}
        write: {path: ./all, merge: {keys: [id]}}
      - {name: first, depends_on: [all], write: {path: ./first, merge: {keys: [id], strategy: append_only}}}
      - {name: blocked, depends_on: [all], write: {path: ./blocked, merge: {keys: [id], strategy: delete_match, deletes: soft}}}
"""  # fmt: skip


def test_strategies_counts_and_the_changes_of_a_merge(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "floodmark.yaml").write_text(STRATEGIES)
    (tmp_path / "steps_of_strategies.py").write_text(
        "def upper(frame, context):\n"
        "    return context.sql('SELECT * EXCEPT (name), upper(name) AS name FROM input')\n"
    )
    schema = "id int, name string"
    feed = {"delta.enableChangeDataFeed": "true"}

    def put(where: str, *given: tuple[Any, ...], columns: str = schema) -> None:
        frame = spark.createDataFrame(list(given), columns).coalesce(1)
        frame.write.format("delta").options(**feed).mode("append").save(str(tmp_path / where))

    put("inbox", (1, "a"), (1, "a"), (2, "b"), (99, "z"))
    flags = "id int, name string, is_deleted boolean, deleted_at timestamp"
    put("blocked", (2, "x", False, None), (7, "y", False, None), columns=flags)
    project = project_of(tmp_path, spark)

    summary = project.run()

    assert summary.exit_code == 0, summary.outcomes
    (run,) = project.coordinator.status()[0].runs.values()
    assert (run.metrics["expect.all.once"], run.metrics["expect.all.small"]) == ("2", "1")
    assert rows(tmp_path / "blocked", "id", "is_deleted") == [(2, True), (7, False)]

    spark.sql(f"UPDATE delta.`{tmp_path}/inbox` SET name = 'c' WHERE id = 2")
    spark.sql(f"DELETE FROM delta.`{tmp_path}/inbox` WHERE id = 1")
    second = project.run()

    assert second.exit_code == 0, second.outcomes
    assert rows(tmp_path / "all", "id", "name") == [(2, "C")]
    assert rows(tmp_path / "first", "id", "name") == [(1, "A"), (2, "B")]
    assert json.dumps(summary.held) == "[]"
