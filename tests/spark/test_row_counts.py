"""Rows that Spark reads of a table whose log contradicts its checkpoint, or its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.crash import armed
from tests.support.jvm import java, java_session
from tests.support.node_projects import table_rows
from tests.unit.run.nodes.test_row_counts import batch_of, error_of

from floodmark.engines.jvm import observed_rows
from floodmark.engines.postgres_server import PostgresServer
from floodmark.failpoints import FailpointReached
from floodmark.project import Project
from floodmark.sources import row_counts as counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROJECT = """\
project: shop
pipelines:
  - pipeline: orders
    parallel: 1
    nodes:
      - name: copy
        read: {path: ./orders, READ}
        write: {path: ./copy, WRITE}
"""
SECOND = """\
      - name: filtered
        read: {path: ./orders}
        transform: [{filter_rows: id > 4}]
        write: {path: ./filtered, mode: append, changes: log}
"""


JOINED = """depends_on: [news, known]
        transform: [sql: SELECT n.* FROM input n JOIN known k ON k.id = n.id]"""
LOOKED_UP = """\
      - {name: news, read: {path: ./news}}
      - {name: known, read: {path: ./orders, lookup: true}}
"""


class Shop:
    """A table `orders` that Spark wrote: 5 rows in version 0, and a project that copies it."""

    def __init__(self, spark: SparkSession, root: Path, text: str) -> None:
        self.spark, self.root = spark, root
        (root / "floodmark.yaml").write_text(text)
        self.add(0, 5)

    def add(self, first: int, last: int) -> None:
        rows = self.spark.range(first, last, 1, 1).write.format("delta").mode("append")
        rows.option("delta.enableChangeDataFeed", "true").save(str(self.root / "orders"))

    def commit(self, version: int) -> Path:
        return self.root / "orders/_delta_log" / f"{version:020d}.json"

    def promise(self, version: int, rows: int) -> None:
        """Let the commit of a version say that its file has other rows."""
        commit = self.commit(version)
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if add := action.get("add"):
                add["stats"] = json.dumps({**json.loads(add["stats"]), "numRecords": rows})
        self._rewrite(commit, actions)

    def _rewrite(self, commit: Path, actions: list[dict[str, Any]]) -> Callable[[], object]:
        original = commit.read_text()
        # What Spark wrote beside it to check the file and the table would no longer be right.
        for name in (f".{commit.name}.crc", f"{commit.stem}.crc", f".{commit.stem}.crc.crc"):
            commit.with_name(name).unlink(missing_ok=True)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return partial(commit.write_text, original)

    def replace_file(self, version: int, *ids: int) -> Callable[[], object]:
        """Let the commit of a version name a file with other rows; gives the way back."""
        pq.write_table(
            pa.table({"id": pa.array(ids, pa.int64())}), self.root / "orders/other.parquet"
        )
        commit = self.commit(version)
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if add := action.get("add"):
                add["path"] = "other.parquet"
                add["size"] = (self.root / "orders/other.parquet").stat().st_size
        return self._rewrite(commit, actions)

    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark)

    def ids(self, table: str = "copy") -> list[int]:
        return [row[0] for row in table_rows(self.root / table, "id")]

    def mark(self) -> int | None:
        marks = self.project().coordinator.look.state().marks
        mark = marks.get(("orders", str(self.root / "orders")))
        return mark.version if mark else None

    def problems(self) -> list[str]:
        return [finding.text for finding in self.project().verify() if not finding.ok]


@pytest.fixture
def recounts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was counted by a read of its own, in order; the count itself is the real one."""
    numbers: list[int] = []
    rows_in = counts.rows_in

    def counted(frame: object) -> int:
        numbers.append(rows_in(frame))
        return numbers[-1]

    monkeypatch.setattr(counts, "rows_in", counted)
    return numbers


def test_a_whole_table_is_counted_before_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    text = PROJECT.replace("READ", "method: snapshot").replace("WRITE", "mode: overwrite")
    shop = Shop(spark, tmp_path, text)
    # The checkpoint of a writer that had put 23 rows there; the commits tell of the first 5.
    shop.add(5, 23)
    _checkpoint(spark, tmp_path / "orders")
    shop.promise(1, 0)

    summary = shop.project().run()

    error = error_of(summary)
    assert (error.code, error.found) == ("FM-SOURCE-064", "23 rows are read, the log says 5")
    assert not (tmp_path / "copy").exists()
    assert error_of(shop.project().retry(batch_of(summary))).code == "FM-SOURCE-064"
    assert shop.mark() is None
    accepted = shop.project().retry(batch_of(summary), on_lost_range="accept")
    assert accepted.exit_code == 0
    assert shop.ids() == list(range(23))
    assert (shop.mark(), shop.problems()) == (1, [])


def test_a_table_that_is_looked_up_is_counted_before_the_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = PROJECT.replace("./orders, READ", "./news").replace("WRITE", "mode: append")
    text = text.replace("read: {path: ./news}", JOINED)
    shop = Shop(spark, tmp_path, text + LOOKED_UP)
    shop.add(5, 23)
    _checkpoint(spark, tmp_path / "orders")
    shop.promise(1, 0)
    news = spark.range(3, 8, 1, 1).write.format("delta")
    news.option("delta.enableChangeDataFeed", "true").save(str(tmp_path / "news"))

    summary = shop.project().run()

    error = error_of(summary)
    assert (error.code, error.found) == ("FM-SOURCE-064", "23 rows are read, the log says 5")
    assert not (tmp_path / "copy").exists()
    accepted = shop.project().retry(batch_of(summary), on_lost_range="accept")
    assert accepted.exit_code == 0, [outcome.error for outcome in accepted.outcomes]
    assert (shop.ids(), shop.problems()) == (list(range(3, 8)), [])


def _checkpoint(spark: SparkSession, table: Path) -> None:
    jvm = java(spark)
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    log.forTable(java_session(spark), str(table)).checkpoint()


@pytest.mark.parametrize("way", ["accept", "put back"])
def test_a_feed_is_counted_while_it_is_written(
    spark: SparkSession, tmp_path: Path, recounts: list[int], way: str
) -> None:
    write = "mode: append, changes: log" if way == "accept" else "merge: {keys: [id]}"
    text = PROJECT.replace(", READ", "").replace("WRITE", write) + SECOND
    shop = Shop(spark, tmp_path, text)
    assert shop.project().run().exit_code == 0
    shop.add(5, 9)
    assert shop.project().run().exit_code == 0
    assert recounts == [5, 5]  # each node counts the whole table of its first run, and no feed
    written = len(shop.ids())
    shop.add(9, 14)
    repair = shop.replace_file(2, *range(9, 32))

    summary = shop.project().run()

    error = error_of(summary)
    assert (error.code, error.found) == ("FM-SOURCE-065", "23 rows are read, the log says 5")
    assert (shop.ids(), shop.mark()) == (list(range(32)), 1)
    # Its receipt tells the retry that the rows are there; what it took is not forgotten.
    again = shop.project().retry(batch_of(summary))
    assert error_of(again).code == "FM-SOURCE-065"
    assert (shop.ids(), shop.mark()) == (list(range(32)), 1)

    if way == "accept":
        end = 32
        settled = shop.project().retry(batch_of(summary), on_lost_range="accept")
    else:
        end = 14
        repair()
        before = f"delta.`{tmp_path / 'copy'}` TO VERSION AS OF 1"
        spark.sql(f"RESTORE TABLE {before}")
        assert len(shop.ids()) == written
        settled = shop.project().retry(batch_of(summary), on_lost_target="accept")

    assert settled.exit_code == 0, [outcome.error for outcome in settled.outcomes]
    assert (shop.ids(), shop.ids("filtered")) == (list(range(end)), list(range(5, end)))
    assert (shop.mark(), shop.problems()) == (2, [])
    shop.add(32, 33)
    assert shop.project().run().exit_code == 0
    assert shop.ids() == [*range(end), 32]


def test_a_process_that_ended_before_its_journal_leaves_the_difference_to_the_retry(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = PROJECT.replace(", READ", "").replace("WRITE", "mode: append, changes: log")
    shop = Shop(spark, tmp_path, text)
    assert shop.project().run().exit_code == 0
    shop.add(5, 9)
    shop.replace_file(1, *range(5, 28))
    with armed("run.before_done"), pytest.raises(FailpointReached):
        shop.project().run()
    assert (shop.ids(), shop.mark()) == (list(range(28)), 0)
    (batch,) = shop.project().coordinator.current_plan()

    for _ in range(2):
        error = error_of(shop.project().retry(str(batch.batch_id)))
        assert (error.code, error.found) == ("FM-SOURCE-065", "23 rows are read, the log says 4")
        assert (shop.ids(), shop.mark()) == (list(range(28)), 0)

    accepted = shop.project().retry(str(batch.batch_id), on_lost_range="accept")
    assert accepted.exit_code == 0
    assert (shop.ids(), shop.mark(), shop.problems()) == (list(range(28)), 1, [])


TWO_NODES = """\
project: shop
pipelines:
  - pipeline: orders
    nodes:
      - {name: orders, read: {path: ./orders}}
      - {name: copy, depends_on: [orders], write: {path: ./copy, merge: {keys: [id]}}}
      - name: filtered
        depends_on: [orders]
        transform: [{filter_rows: id > 4}]
        write: {path: ./filtered, mode: append, changes: log}
"""


@pytest.mark.parametrize("parallel", [1, 2])
def test_nodes_that_share_a_read_are_both_held_and_neither_counts_twice(
    spark: SparkSession, tmp_path: Path, recounts: list[int], parallel: int
) -> None:
    text = TWO_NODES.replace("orders\n    nodes", f"orders\n    parallel: {parallel}\n    nodes", 1)
    shop = Shop(spark, tmp_path, text)
    assert shop.project().run().exit_code == 0
    assert recounts == [5]  # the whole table of the first run, once for both
    shop.add(5, 9)
    assert shop.project().run().exit_code == 0
    assert recounts == [5]
    shop.add(9, 14)
    shop.replace_file(2, *range(9, 32))

    summary = shop.project().run()

    assert error_of(summary).code == "FM-SOURCE-065"
    assert shop.mark() == 1
    for _ in range(2):  # whichever of the two is written by now
        assert error_of(shop.project().retry(batch_of(summary))).code == "FM-SOURCE-065"
        assert shop.mark() == 1
    assert shop.project().retry(batch_of(summary), on_lost_range="accept").exit_code == 0
    assert (shop.ids(), shop.ids("filtered")) == (list(range(32)), list(range(5, 32)))
    assert (shop.mark(), shop.problems()) == (2, [])


@pytest.mark.postgres
@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "beside a Delta table"])
def test_a_feed_that_goes_to_a_database_is_counted_before_its_commit(
    spark: SparkSession,
    tmp_path: Path,
    postgres: PostgresServer,
    pg_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_shared: bool,
) -> None:
    """Its rows are fetched in pieces, of which Spark tells no observation."""
    monkeypatch.setenv("ERP_PASSWORD", postgres.password)
    table = '"' + pg_schema.replace('"', '""') + '".copy'
    erp = {name: getattr(postgres, name) for name in ("host", "port", "database", "user")}
    erp |= {"type": "postgres", "password": "${env:ERP_PASSWORD}"}
    text = TWO_NODES.replace("path: ./copy", f"connection: erp, table: {json.dumps(table)}")
    text = text.replace("pipelines:", f"connections: {{erp: {json.dumps(erp)}}}\npipelines:", 1)
    shop = Shop(spark, tmp_path, text if is_shared else text.partition("      - name: filt")[0])

    def ids() -> list[int]:
        with psycopg.connect(postgres.dsn) as connection:
            rows = connection.execute(f"SELECT id FROM {table} ORDER BY id".encode()).fetchall()
        return [row[0] for row in rows]

    assert shop.project().run().exit_code == 0
    shop.add(5, 9)
    shop.replace_file(1, *range(5, 28))

    summary = shop.project().run()

    error = error_of(summary)
    assert (error.code, error.found) == ("FM-SOURCE-064", "23 rows are read, the log says 4")
    assert (ids(), shop.mark()) == (list(range(5)), 0)
    assert error_of(shop.project().retry(batch_of(summary))).code == "FM-SOURCE-064"
    assert shop.project().retry(batch_of(summary), on_lost_range="accept").exit_code == 0
    assert (ids(), shop.mark(), shop.problems()) == (list(range(28)), 1, [])
    if is_shared:
        assert shop.ids("filtered") == list(range(5, 28))


def test_spark_tells_what_an_action_has_read_and_no_more(spark: SparkSession) -> None:
    read, by_write = observed_rows(spark.range(100))
    assert by_write(0) is None  # nothing has read it yet
    read.write.format("noop").mode("overwrite").save()
    assert by_write(30) == 100

    pruned, by_join = observed_rows(spark.range(100))
    pruned.join(spark.range(0), "id").write.format("noop").mode("overwrite").save()
    # Nothing or 0, as the plan has it; so such a number alone proves no difference.
    assert by_join(30) in (None, 0)
