"""Cursors finer than a microsecond, in a database that has them: nothing is lost, nothing delayed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.jvm import java

from floodmark.engines import jars
from floodmark.model.cursor_marks import CursorMark, mark_of
from floodmark.model.query import CursorQuery
from floodmark.model.window import NOTHING_PROCESSED, CursorWindow
from floodmark.sources import LookSpec
from floodmark.sources.cursor import jdbc
from floodmark.sources.cursor.database import SqlReader
from floodmark.sources.cursor.sql.literals import last_literal
from floodmark.sources.cursor.sql.parts import Parts
from floodmark.sources.cursor.sql.queries import Bounds, SqlRelation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Finer:
    """A table of H2 with times of nine digits, which Spark reads as a database of Oracle's kind."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.url = f"jdbc:h2:file:{folder}/db;MODE=Oracle;DATABASE_TO_UPPER=TRUE"
        loader = java(spark).org.apache.spark.util.Utils
        self.driver = loader.classForName("org.h2.Driver", True, False).newInstance()
        self.run("CREATE TABLE orders (id INT, at TIMESTAMP(9))")
        self.windows: list[list[int]] = []
        self.mark: CursorMark | None = None

    def run(self, text: str) -> None:
        properties = java(self.spark).java.util.Properties()
        connection = self.driver.connect(self.url, properties)
        try:
            connection.createStatement().execute(text)
        finally:
            connection.close()

    def insert(self, number: int, clock: str) -> None:
        self.run(f"INSERT INTO orders VALUES ({number}, TIMESTAMP '2026-01-01 {clock}')")

    @property
    def reader(self) -> SqlReader:
        options = {"driver": "org.h2.Driver"}
        return SqlReader(
            "sql://erp/orders",
            SqlRelation("oracle", "at", table="orders"),
            lambda: jdbc.JdbcConnection("oracle", url=self.url, options=options),
            kind="timestamp_ntz",
        )

    def window(self) -> list[int]:
        """What the next window reads, behind the mark before it; nothing where there is no news."""
        window = CursorWindow(
            upstream="sql://erp/orders",
            method="query",
            after=NOTHING_PROCESSED,
            through=0,
            reason="",
            table_id="",
            query=CursorQuery("at", "sql"),
            after_mark=self.mark,
        )
        facts = self.reader.look(window, LookSpec(NOW, spark=self.spark))
        assert facts is not None
        if facts.newest is None:
            return []
        newest = facts.newest
        bounds = Bounds(self.mark, newest, excludes_low=self.mark is not None)  # type: ignore[arg-type]
        self.mark = newest  # type: ignore[assignment]
        return ids(self.reader.frame(self.spark, bounds))


def ids(frame: Any) -> list[int]:
    return sorted(int(row[0]) for row in frame.select("id").collect())


@pytest.fixture
def finer(spark: SparkSession, tmp_path: Path) -> Finer:
    for path in jars.paths("h2"):
        spark.sql(f"ADD JAR '{path}'")
    return Finer(spark, tmp_path)


def test_the_newest_row_comes_with_its_own_window_and_once(finer: Finer) -> None:
    finer.insert(1, "08:00:00.123456")
    finer.insert(2, "08:00:00.123456789")
    first = finer.window()
    finer.insert(3, "08:00:00.123457")
    finer.insert(4, "08:00:00.123457001")
    second = finer.window()
    finer.insert(5, "08:00:01.999999999")
    third = finer.window()

    assert (first, second, third, finer.window()) == ([1, 2], [3, 4], [5], [])


def test_reads_in_parts_and_queries_of_windows_have_them_too(finer: Finer) -> None:
    for number in range(1, 9):
        finer.insert(number, f"08:00:00.12345678{number}")
    reader, newest = finer.reader, mark_of(datetime.fromisoformat("2026-01-01 08:00:00.123456"))

    parts = jdbc.read_in_parts(finer.spark, reader.jdbc(), "SELECT * FROM orders", Parts("at", 3))
    query = f"SELECT * FROM orders WHERE at <= {last_literal('oracle', newest)}"

    assert ids(parts) == ids(jdbc.read(finer.spark, reader.jdbc(), query)) == list(range(1, 9))
