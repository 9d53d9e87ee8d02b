"""The project of docs/guides/lookups.md, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.node_projects import table_rows

from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.as_users]

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/lookups.md"
FILES = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ORDERS = "id int, customer int, product int, quantity int"


def test_facts_meet_their_dimensions_with_news_and_without(
    tmp_path: Path, spark: SparkSession
) -> None:
    for name, text in FILES.findall(GUIDE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text)
    lake = tmp_path / "lake"

    def put(table: str, columns: str, *rows: tuple[Any, ...], mode: str = "append") -> None:
        frame = spark.createDataFrame(list(rows), columns).coalesce(1)
        writer = frame.write.format("delta").option("delta.enableChangeDataFeed", "true")
        writer.mode(mode).save(str(lake / table))

    def run() -> int:
        project = Project.load(tmp_path, session=lambda: spark)
        summary = project.run()
        assert summary.exit_code == 0, [outcome.error for outcome in summary.outcomes]
        return len(summary.batches)

    def sales() -> list[tuple[Any, ...]]:
        return table_rows(lake / "sales", "id, region, price")

    def known_sales() -> list[tuple[Any, ...]]:
        return table_rows(lake / "known_sales", "id, region, amount")

    put("countries", "code string, region string", ("CH", "alps"), ("DK", "north"))
    put("customers", "customer int, country string", (7, "CH"), (8, "DK"))
    put("products", "product int, price int, note string", (1, 10, ""), (2, 20, ""))
    put("orders", ORDERS, (1, 7, 1, 3), (2, 9, 2, 1))

    assert run() == 1
    assert sales() == [(1, "alps", 10), (2, None, 20)]
    assert known_sales() == [(1, "alps", 30)]

    put("orders", ORDERS, (3, 8, 2, 2))  # nothing is new in any dimension
    assert run() == 1
    assert sales() == [(1, "alps", 10), (2, None, 20), (3, "north", 20)]
    assert known_sales() == [(1, "alps", 30), (3, "north", 40)]

    put("customers", "customer int, country string", (9, "DK"))
    assert run() == 0  # a lookup starts no batch

    put("countries", "code string, region string", ("CH", "Alps"), ("DK", "N"), mode="overwrite")
    put("products", "product int, price int, note string", (1, 11, ""), mode="overwrite")
    put("orders", ORDERS, (4, 9, 1, 1), (5, 7, 2, 1))
    assert run() == 1
    assert sales()[3:] == [(4, "N", 11), (5, "Alps", None)]
    assert known_sales() == [(1, "alps", 30), (3, "north", 40), (4, "N", 11)]
    project = Project.load(tmp_path)
    assert sorted(Path(lag.upstream).name for lag in project.coordinator.lag()) == [
        "orders",
        "products",
    ]
    assert [finding.text for finding in project.verify() if not finding.ok] == []
