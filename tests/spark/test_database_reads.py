"""Nodes that read a real PostgreSQL through Spark: planned, run, retried, each row once."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from tests.spark.database_shop import Shop, shop
from tests.support import crash

from floodmark.errors import FloodmarkError
from floodmark.failpoints import FailpointReached
from floodmark.project import Project
from floodmark.sources.cursor import SqlReader

pytestmark = [pytest.mark.spark, pytest.mark.postgres]
__all__ = ["shop"]

BY_ID = "incremental: {cursor: id}"


def test_a_baseline_is_never_read_behind_also_not_by_the_overlap(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 9), (2, 11)")
    shop.node("incremental: {cursor: at, overlap: 5, keys: [id], baseline: 10}")
    shop.run()
    shop.run_sql("INSERT INTO orders VALUES (3, 10), (4, 11), (5, 12)")
    shop.run()

    assert shop.rows() == [(2, 11), (4, 11), (5, 12)]


def test_a_window_that_dies_is_finished_with_the_rows_that_were_put_aside(shop: Shop) -> None:
    shop.run_sql(
        "CREATE TABLE orders (id int, at int, n text); INSERT INTO orders VALUES (0, 0, '')"
    )
    shop.node("incremental: {cursor: at, overlap: 5, keys: [id]}")
    shop.run()
    shop.run_sql("INSERT INTO orders VALUES (1, 10, 'new')")
    with crash.armed("edge.after_write"), pytest.raises(FailpointReached):
        shop.run()
    # What happens in the database meanwhile belongs to the next window.
    shop.run_sql("UPDATE orders SET n = 'changed' WHERE id = 1")
    shop.run_sql("INSERT INTO orders VALUES (2, 8, 'late'), (3, 12, '')")
    with crash.armed("edge.before_remove"), pytest.raises(FailpointReached):
        shop.run()
    shop.run()

    assert shop.rows() == [(0, 0, ""), (1, 10, "new"), (2, 8, "late"), (3, 12, "")]
    assert [f.text for f in shop.project.verify() if not f.ok] == []


def test_an_overlap_that_is_made_longer_doubles_nothing(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (2, 10)")
    shop.node(BY_ID.replace("id", "at"))
    shop.run()
    shop.node("incremental: {cursor: at, overlap: 100, keys: [id]}")
    shop.run_sql("INSERT INTO orders VALUES (3, 10), (4, 20)")
    shop.run()
    shop.run_sql("INSERT INTO orders VALUES (5, 15), (6, 30)")
    shop.run()

    assert shop.rows() == [(1, 1), (2, 10), (3, 10), (4, 20), (5, 15), (6, 30)]


def test_a_database_that_only_spark_can_ask_is_frozen_by_the_run(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at timestamptz)")
    shop.run_sql("INSERT INTO orders VALUES (1, '2026-01-01 00:00:00.000001Z')")
    shop.node("incremental: {cursor: at, overlap: 1s, keys: [id]}")

    def without_driver() -> Project:
        project = shop.project
        readers = project.coordinator.store.readers
        project.coordinator.store.readers = {
            key: replace(reader, connect=None)
            for key, reader in readers.items()
            if isinstance(reader, SqlReader)
        }
        return project

    (planned,) = without_driver().plan()
    first = without_driver().run()
    nothing = without_driver().run()
    shop.run_sql("INSERT INTO orders VALUES (2, '2026-01-01 00:00:00Z'), (3, '2026-01-02Z')")
    second = without_driver().run()

    assert planned.windows[0].deferred
    assert [each.exit_code for each in (first, nothing, second)] == [0, 0, 0], second.outcomes
    assert [o.rows_written for o in nothing.outcomes] == [0]
    assert shop.rows("lake/orders", "id") == [(1,), (2,), (3,)]


def test_a_lost_edge_is_refused_until_the_loss_is_accepted(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1)")
    shop.node("incremental: {cursor: at, overlap: 5, keys: [id]}")
    shop.run()
    shutil.rmtree(shop.root / "lake/_control/edges")
    shop.run_sql("INSERT INTO orders VALUES (2, 1), (3, 3)")
    with pytest.raises(FloodmarkError) as caught:
        shop.run()
    assert caught.value.code == "FM-SOURCE-037"
    assert shop.rows() == [(1, 1)]

    (batch,) = shop.project.coordinator.current_plan()
    done = shop.project.retry(str(batch.batch_id), on_lost_range="accept")
    shop.run_sql("INSERT INTO orders VALUES (4, 2), (5, 5)")
    shop.run()

    assert done.exit_code == 0
    assert shop.rows() == [(1, 1), (3, 3), (4, 2), (5, 5)]


def test_edges_go_with_an_export_and_with_a_renamed_pipeline(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (2, 5)")
    read = "incremental: {cursor: at, overlap: 5, keys: [id]}"
    shop.node(read, query="query: 'SELECT * FROM ORDERS'")
    shop.run()
    shop.project.coordinator.admin.export_state(str(shop.root / "store.jsonl"))
    shutil.rmtree(shop.root / "lake/_control")
    shop.project.coordinator.admin.import_state(str(shop.root / "store.jsonl"))
    shop.project.coordinator.admin.rename("orders", "sales")
    file = shop.root / "floodmark.yaml"
    file.write_text(
        file.read_text().replace("pipeline: orders", "pipeline: sales\n    scope: orders")
    )
    shop.run_sql("INSERT INTO orders VALUES (3, 4), (4, 6)")
    shop.run()

    assert shop.rows() == [(1, 1), (2, 5), (3, 4), (4, 6)]
    assert [each.name for each in (shop.root / "lake/_control/edges").iterdir()] == ["sales"]


def test_without_a_cursor_every_run_reads_all_rows_by_several_connections(shop: Shop) -> None:
    shop.run_sql(
        "CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (9, NULL)"
    )
    shop.node("partition: {column: at, parts: 3}", "merge: {keys: [id], missing: delete}")
    shop.run()
    shop.run_sql("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (2, 2), (3, 40)")
    second = shop.run()

    assert shop.rows() == [(2, 2), (3, 40), (9, None)]
    assert len(second.batches) == 1


# A node that is added later, a target that is lost ------------------------------------------------


def test_a_node_added_later_and_a_lost_target_get_all_rows_once(shop: Shop) -> None:
    read = "read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, overlap: 5, keys: [id]}}"
    one = f"  - pipeline: orders\n    nodes:\n      - name: one\n        {read}\n"
    write = "        write: {connection: lake, path: PATH, mode: append}\n"
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (2, 10)")
    shop.write(one + write.replace("PATH", "one"))
    shop.run()
    two = f"      - name: two\n        {read}\n" + write.replace("PATH", "two")
    shop.write(one + write.replace("PATH", "one") + two)
    shop.run_sql("INSERT INTO orders VALUES (3, 9), (4, 11)")
    shop.run()
    added = shop.rows("lake/two")

    shutil.rmtree(shop.root / "lake/one")
    shop.run_sql("INSERT INTO orders VALUES (5, 10), (6, 12)")
    with pytest.raises(FloodmarkError):
        shop.run()
    (batch,) = shop.project.coordinator.current_plan()
    rebuilt = shop.project.retry(str(batch.batch_id), on_lost_target="rebuild")
    shop.run_sql("INSERT INTO orders VALUES (7, 13)")
    shop.run()

    assert added == [(1, 1), (2, 10), (3, 9), (4, 11)]
    assert rebuilt.exit_code == 0, rebuilt.outcomes
    everything = [(1, 1), (2, 10), (3, 9), (4, 11), (5, 10), (6, 12), (7, 13)]
    assert shop.rows("lake/one") == everything
    assert shop.rows("lake/two") == everything


# The two-query way --------------------------------------------------------------------------------

SEED = """\
  - pipeline: orders_load
    nodes:
      - name: load_orders
        read:
          connection: erp
          format: postgres
          table: 'ORDERS'
          options:
            query: |
              SELECT * FROM ORDERS
              WHERE updated_at > (SELECT COALESCE(MAX(updated_at), '1900-01-01') FROM raw.orders)
        write:
          connection: lake
          format: delta
          path: raw/orders
          mode: append
          register_table: raw.orders
          first_run_query: SELECT * FROM ORDERS
          options:
            cluster_by: order_date
            optimize_write: true
  - pipeline: bronze
    nodes:
      - name: orders
        read:
          connection: erp
          format: postgres
          query: |
            SELECT * FROM ORDERS
            WHERE created_at > @last_run_timestamp
        write:
          connection: lake
          format: delta
          path: bronze/orders
          mode: append
          first_run_query: SELECT * FROM ORDERS  # Full load on day 1
          options:
            cluster_by: [order_date]
"""


def add_order(shop: Shop, number: int, day: int) -> None:
    at = f"'2026-01-{day:02} 08:00:00.00000{number}'"
    shop.run_sql(f"INSERT INTO orders VALUES ({number}, '2026-01-{day:02}', {at}, {at})")


@pytest.mark.usefixtures("raw_names")
def test_the_projects_of_the_seeds_run_twice(shop: Shop) -> None:
    shop.run_sql(
        "CREATE TABLE orders (id int, order_date date, created_at timestamp, updated_at timestamp)"
    )
    add_order(shop, 1, 1)
    add_order(shop, 2, 2)
    shop.write(SEED)
    shop.run()
    first = [shop.rows(path, "id") for path in ("lake/raw/orders", "lake/bronze/orders")]
    add_order(shop, 3, 3)
    second = shop.run()
    third = shop.run()

    assert first == [[(1,), (2,)]] * 2
    for path in ("lake/raw/orders", "lake/bronze/orders"):
        assert shop.rows(path, "id") == [(1,), (2,), (3,)], path
    assert [outcome.rows_written for outcome in second.outcomes] == [1, 1]
    assert not third.batches
    detail = shop.spark.sql("DESCRIBE DETAIL raw.orders").collect()[0]
    assert list(detail["clusteringColumns"]) == ["order_date"]
    assert detail["properties"]["delta.autoOptimize.optimizeWrite"] == "true"


TWO_QUERIES = """\
  - pipeline: orders
    nodes:
      - name: load
        read:
          connection: erp
          query: SELECT id, at FROM ORDERS WHERE at >= :window_start AND id < 100
          incremental: {cursor: at}
        write:
          connection: lake
          TARGET
          mode: MODE
          first_run_query: SELECT id, at FROM ORDERS
"""


def two_queries(shop: Shop, target: str = "path: orders", mode: str = "append") -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (100, 2)")
    shop.write(TWO_QUERIES.replace("TARGET", target).replace("MODE", mode))


def put(shop: Shop, path: str, *rows: tuple[int, int]) -> None:
    frame = shop.spark.createDataFrame(list(rows), "id int, at int")
    frame.write.format("delta").mode("append").save(str(shop.root / path))


def test_a_missing_target_by_path_is_a_first_run_and_the_next_one_uses_the_other_query(
    shop: Shop,
) -> None:
    two_queries(shop)
    shop.run()
    first = shop.rows()
    shop.run_sql("INSERT INTO orders VALUES (101, 3), (2, 4)")
    shop.run()

    assert first == [(1, 1), (100, 2)]
    assert shop.rows() == [(1, 1), (2, 4), (100, 2)]


def test_a_missing_target_by_catalog_name_is_a_first_run(shop: Shop) -> None:
    two_queries(shop, "table: gold.first_runs")
    shop.run()

    assert shop.spark.table("gold.first_runs").count() == 2
    shop.spark.sql("DROP TABLE gold.first_runs")


def test_an_empty_target_counts_as_a_first_run(shop: Shop) -> None:
    two_queries(shop)
    put(shop, "lake/orders")
    shop.run()

    assert shop.rows() == [(1, 1), (100, 2)]


def test_a_folder_without_files_is_a_first_run_and_one_that_died_is_finished(shop: Shop) -> None:
    two_queries(shop, "format: parquet\n          path: files")
    # The files are there, and the journal does not know.
    with crash.armed("sink.after_commit:3"), pytest.raises(FailpointReached):
        shop.run()
    shop.run()
    shop.run_sql("INSERT INTO orders VALUES (101, 3), (2, 4)")
    shop.run()

    files = shop.spark.read.parquet(str(shop.root / "lake/files"))
    assert sorted(map(tuple, files.collect())) == [(1, 1), (2, 4), (100, 2)]


def test_a_target_with_rows_of_others_is_no_first_run_unless_that_is_forced(shop: Shop) -> None:
    two_queries(shop)
    put(shop, "lake/orders", (7, 7))
    with pytest.raises(FloodmarkError) as caught:
        shop.run()
    assert caught.value.code == "FM-SOURCE-030"
    assert shop.rows() == [(7, 7)]

    shop.run(force_first_run=True)

    assert shop.rows() == [(1, 1), (100, 2)]


def test_a_first_run_that_died_half_way_is_finished(shop: Shop) -> None:
    two_queries(shop)
    for point in ("landing.after_write", "sink.after_commit:2"):
        with crash.armed(point), pytest.raises(FailpointReached):
            shop.run()
    shop.run_sql("INSERT INTO orders VALUES (3, 3)")
    shop.run()

    assert shop.rows() == [(1, 1), (3, 3), (100, 2)]


def test_a_forced_first_run_overwrites_by_its_query_and_goes_on_from_there(shop: Shop) -> None:
    two_queries(shop, mode="merge\n          merge: {keys: [id], audit: {updated_at: loaded}}")
    shop.run()
    shop.run_sql("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (101, 2), (3, 3)")

    shop.run(force_first_run=True)
    forced = shop.rows("lake/orders", "id", "at")
    shop.run_sql("INSERT INTO orders VALUES (102, 4), (4, 4)")
    shop.run()

    assert forced == [(3, 3), (100, 2), (101, 2)]
    assert shop.rows("lake/orders", "id", "at") == [(3, 3), (4, 4), (100, 2), (101, 2)]
    shop.node(BY_ID)
    with pytest.raises(FloodmarkError) as caught:
        shop.run(force_first_run=True)
    assert caught.value.code == "FM-CONFIG-007"


def test_a_full_refresh_replaces_what_the_target_holds(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (2, 2)")
    shop.node("incremental: {cursor: at, overlap: 5, keys: [id]}")
    shop.run()
    shop.run_sql("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (3, 1), (4, 4)")
    with crash.armed("edge.after_write"), pytest.raises(FailpointReached):
        shop.run(full_refresh=True)
    shop.run(full_refresh=True)
    shop.run_sql("INSERT INTO orders VALUES (5, 3), (6, 6)")
    shop.run()

    assert shop.rows() == [(2, 2), (3, 1), (4, 4), (5, 3), (6, 6)]


def test_a_target_of_another_schema_is_refused_with_the_difference(shop: Shop) -> None:
    two_queries(shop)
    frame = shop.spark.createDataFrame([], "id int, other string")
    frame.write.format("delta").save(str(shop.root / "lake/orders"))
    with pytest.raises(FloodmarkError) as caught:
        shop.run()

    assert caught.value.code == "FM-SINK-011"
    assert "at" in str(caught.value.found)
    assert "other" in str(caught.value.found)


def test_a_column_that_disappears_from_the_database_is_told_and_nothing_is_written(
    shop: Shop,
) -> None:
    shop.run_sql("CREATE TABLE orders (id int, n text); INSERT INTO orders VALUES (1, 'a')")
    shop.node("incremental: {cursor: id, keys: [id]}")
    shop.run()
    shop.run_sql("ALTER TABLE orders DROP COLUMN n; INSERT INTO orders VALUES (2)")
    with pytest.raises(FloodmarkError) as caught:
        shop.run()
    assert (caught.value.code, caught.value.retryable) == ("FM-SINK-011", False)
    assert "n" in str(caught.value.found)
    assert shop.rows() == [(1, "a")]
    # The rows are put aside, so a step makes them fit, whatever the database has by now.
    file = shop.root / "floodmark.yaml"
    step = '        transform: [{derive_columns: {columns: {n: "CAST(NULL AS STRING)"}}}]\n'
    file.write_text(file.read_text().replace("        write:", f"{step}        write:"))
    shop.run()
    assert sorted(shop.rows("lake/orders", "id")) == [(1,), (2,)]

    shop.run_sql("ALTER TABLE orders RENAME COLUMN id TO number")
    with pytest.raises(FloodmarkError) as gone:
        shop.run()
    assert (gone.value.code, gone.value.retryable) == ("FM-SOURCE-031", False)
    assert gone.value.title == "the database has no such column"


def test_a_column_without_which_rows_cannot_be_told_apart_is_put_back_and_the_batch_goes_on(
    shop: Shop,
) -> None:
    shop.run_sql("CREATE TABLE orders (id int, n text); INSERT INTO orders VALUES (1, 'a')")
    shop.node(BY_ID)
    shop.run()
    shop.run_sql("ALTER TABLE orders RENAME COLUMN n TO m; INSERT INTO orders VALUES (2, 'b')")
    with pytest.raises(FloodmarkError) as caught:
        shop.run()
    assert caught.value.code == "FM-SOURCE-036"
    assert str(caught.value.next).startswith("put the columns back, then: floodmark retry")
    shop.run_sql("ALTER TABLE orders RENAME COLUMN m TO n")
    (batch,) = shop.project.coordinator.current_plan()
    retried = shop.project.retry(str(batch.batch_id))
    assert [o.error for o in retried.outcomes if o.error] == []
    assert shop.rows() == [(1, "a"), (2, "b")]


def test_a_target_that_cannot_be_looked_at_is_not_taken_for_a_missing_one(shop: Shop) -> None:
    two_queries(shop)
    put(shop, "lake/orders", (7, 7))
    log = shop.root / "lake/orders/_delta_log"
    for file in log.glob("*.json"):
        file.write_text("{broken")
    with pytest.raises(FloodmarkError) as caught:
        shop.run()

    assert caught.value.code in ("FM-SOURCE-008", "FM-SOURCE-009")
    assert len(list(log.glob("*.json"))) == 1


# A range once more --------------------------------------------------------------------------------

MERGED = "merge: {keys: [id], sequence_by: at, deletes: soft}"


def backfill(shop: Shop, start: str, end: str) -> None:
    summary = shop.project.backfill(f"sql://erp/{shop.orders}", start=start, end=end)
    for error in [outcome.error for outcome in summary.outcomes if outcome.error]:
        raise error


def test_a_backfill_reads_a_range_as_it_is_now_and_disturbs_no_window(shop: Shop) -> None:
    shop.run_sql(
        "CREATE TABLE orders (id int, at int, n text);"
        " INSERT INTO orders VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')"
    )
    shop.node("incremental: {cursor: at, overlap: 5, keys: [id]}", MERGED)
    shop.run()
    # Later than the overlap, a row that was corrected without a new time, and one beside the range.
    shop.run_sql(
        "INSERT INTO orders VALUES (4, 12, 'late'); UPDATE orders SET n = upper(n) WHERE id < 3"
    )

    with crash.armed("landing.after_write"), pytest.raises(FailpointReached):
        backfill(shop, "10", "19")
    (batch,) = shop.project.coordinator.current_plan()
    assert shop.project.retry(str(batch.batch_id)).exit_code == 0

    assert shop.rows("lake/orders", "id", "n") == [(1, "A"), (2, "b"), (3, "c"), (4, "late")]
    shop.run_sql("INSERT INTO orders VALUES (5, 30, 'tie'), (6, 28, 'near'), (7, 31, 'new')")
    shop.run()
    assert [row[0] for row in shop.rows("lake/orders", "id")] == [1, 2, 3, 4, 5, 6, 7]
    assert [f.text for f in shop.project.verify() if not f.ok] == []


OWN = """\
  - pipeline: orders
    nodes:
      - name: load
        read:
          connection: erp
          query: SELECT * FROM ORDERS WHERE at > (SELECT MAX(at) FROM raw.orders)
        write:
          connection: lake
          path: orders
          merge: {keys: [id], sequence_by: at, deletes: soft}
          register_table: raw.orders
          first_run_query: SELECT * FROM ORDERS
"""


@pytest.mark.usefixtures("raw_names")
def test_a_range_before_the_newest_row_of_the_target_is_read_by_the_first_query(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 10), (2, 20)")
    shop.write(OWN)
    shop.run()
    shop.run_sql("INSERT INTO orders VALUES (3, 11)")
    upstream = "sql://erp/orders.load"

    done = shop.project.backfill(upstream, start="11", end="19")

    assert done.exit_code == 0, done.outcomes
    assert shop.rows("lake/orders", "id") == [(1,), (2,), (3,)]
    own = OWN.replace("          first_run_query: SELECT * FROM ORDERS\n", "")
    shop.write(own)
    refused = shop.project.backfill(upstream, start="11", end="19")
    assert [o.error.code for o in refused.outcomes if o.error] == ["FM-SOURCE-030"]


def test_a_full_refresh_of_a_merge_that_says_so_marks_what_the_source_no_longer_has(
    shop: Shop,
) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (2, 2)")
    shop.node("incremental: {cursor: at}", MERGED.replace("soft", "soft, missing: delete"))
    shop.run()
    shop.run_sql("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (3, 3)")
    shop.run(full_refresh=True)

    assert shop.rows("lake/orders", "id", "is_deleted") == [(1, True), (2, False), (3, False)]


def test_a_full_refresh_of_a_merge_leaves_one_row_per_key(shop: Shop) -> None:
    shop.run_sql(
        "CREATE TABLE orders (id int, at int); INSERT INTO orders VALUES (1, 1), (1, 3), (1, 2)"
    )
    shop.node("incremental: {cursor: at}", "merge: {keys: [id], sequence_by: at}")
    shop.run()
    shop.run(full_refresh=True)

    assert shop.rows() == [(1, 3)]
