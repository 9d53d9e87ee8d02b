"""The executors' path on a real server: attempts that die, race or vanish leave no row twice."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pyarrow as pa
import pytest
from tests.services.stream_places import ME, StreamPlace, batch
from tests.services.test_stream_load import AT, BAD, FAULTS, ROWS, records
from tests.support import crash

from floodmark.engines.postgres_server import OwnServer, PostgresServer, running
from floodmark.errors import StreamError
from floodmark.postgres import connector
from floodmark.streaming.ledger.batches import LoadCounts
from floodmark.streaming.ledger.postgres import Applied, Claim, PostgresLedger
from floodmark.streaming.load.staging import Staged, Staging
from floodmark.streaming.load.target import TargetSpec
from floodmark.streaming.records.late import LateRule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres


class Stage:
    """A stream whose partitions are staged by tasks that are called here, as Spark would."""

    def __init__(self, place: StreamPlace) -> None:
        self.place = place
        self.ledger: PostgresLedger = place.ledger()
        self.ledger.ensure()
        self.claim: Claim = self.ledger.claim(ME, self.ledger.stored())
        self.number = self.claim.next_batch_id

    def staging(self, mode: Any = "append", **options: Any) -> Staging:
        keys = ("id",) if mode == "upsert" else ()
        spec = TargetSpec(f'"{self.place.path}".target', mode, keys, **_of_spec(options))
        connect = connector(self.place.dsn)
        return Staging(connect, "numbers", self.place.schema, spec, **options)

    def commit(self, staging: Staging, staged: Staged) -> LoadCounts:
        start = 1000 * self.number
        planned = batch(self.claim, self.number, start, start + 1000)
        done = self.ledger.commit(self.claim, planned, lambda cursor: staging.apply(cursor, staged))
        assert isinstance(done, Applied)
        self.number += 1
        return done.counts

    def table(self, *columns: str) -> None:
        self.place.query(f"CREATE TABLE target ({', '.join(columns)})")

    def rows(self) -> list[dict[str, Any]]:
        return self.place.query("SELECT * FROM target ORDER BY 1")

    def left(self) -> list[str]:
        """Tables that are staged."""
        return list(self.persistence())

    def persistence(self) -> dict[str, str]:
        """Of tables that are staged: `p` if they are logged, `u` if not."""
        found = self.place.query(
            "SELECT relname, relpersistence::text AS how FROM pg_class WHERE relkind = 'r'"
            " AND relname LIKE 'floodmark_stg%'"
            " AND relnamespace = quote_ident(current_schema())::regnamespace"
        )
        return {row["relname"]: row["how"] for row in found}

    def letters(self) -> list[dict[str, Any]]:
        return self.place.query("SELECT * FROM floodmark_dead_letters ORDER BY kafka_offset")


def _of_spec(options: dict[str, Any]) -> dict[str, Any]:
    names = ("creates_table", "adds_columns", "columns")
    return {name: options.pop(name) for name in names if name in options}


def attempt(staging: Staging, part: pa.Table) -> list[dict[str, Any]]:
    """One attempt of a task."""
    plan = staging.planned(part.schema)
    results = list(plan.task(part.to_batches(max_chunksize=7)))
    return [row for result in results for row in result.to_pylist()]


def staged(staging: Staging, frame: pa.Table, parts: int = 3) -> Staged:
    size = -(-max(frame.num_rows, 1) // parts)
    results = [
        row for part in range(parts) for row in attempt(staging, frame.slice(part * size, size))
    ]
    return staging.planned(frame.schema).staged(results)


@pytest.fixture
def stage(postgres: PostgresServer, pg_schema: str) -> Iterator[Stage]:
    made = Stage(StreamPlace(postgres.dsn, pg_schema))
    yield made
    made.ledger.close()


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_staged_rows_are_moved_once_and_nothing_is_left(stage: Stage, mode: str) -> None:
    stage.table("id bigint PRIMARY KEY", "v text")
    staging = stage.staging(mode)

    counts = stage.commit(staging, staged(staging, records([str(n) for n in range(50)])))

    assert counts == LoadCounts(50, 50)
    assert [row["id"] for row in stage.rows()] == list(range(50))
    assert (stage.left(), staging.sweep()) == ([], 0)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_attempt_that_wrote_and_was_not_heard_leaves_no_double(stage: Stage, mode: str) -> None:
    stage.table("id bigint PRIMARY KEY", "v bigint")
    staging, frame = stage.staging(mode), records([1, 2, 3, 4])
    attempt(staging, frame.slice(0, 2))

    counts = stage.commit(staging, staged(staging, frame, 2))

    assert counts == LoadCounts(4, 4)
    assert len(stage.rows()) == 4
    assert (len(stage.left()), staging.sweep(), stage.left()) == (1, 1, [])


def test_an_attempt_that_dies_half_way_leaves_nothing(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    staging, frame = stage.staging(), records([1, 2])

    def dying() -> Iterator[pa.RecordBatch]:
        yield from frame.to_batches()
        raise RuntimeError("the executor is lost")

    with pytest.raises(RuntimeError):
        list(staging.planned(frame.schema).task(dying()))

    assert stage.left() == []


def test_misfits_and_judged_rows_become_dead_letters_and_late_ones_are_dropped(
    stage: Stage,
) -> None:
    stage.table("id bigint", "v smallint")
    frame = records(pa.array([1, 40_000, 3, 4, 5, 6], pa.int32()))
    frame = frame.append_column("_fm_bad", pa.array([None, None, "malformed", None, "late", None]))
    frame = frame.append_column("_fm_column", pa.array([None] * 6, pa.string()))
    frame = frame.append_column("_fm_key", pa.array([None] * 6, pa.binary()))
    frame = frame.append_column("_fm_value", pa.array([None, None, b"{", None, b"old", None]))
    times = pa.array([AT] * 6, pa.timestamp("us", "UTC"))
    frame = frame.append_column("_fm_event_time", times)
    staging = stage.staging(late=LateRule("at", timedelta(0)))
    ready = staged(staging, frame)

    counts = stage.commit(staging, ready)

    assert counts == LoadCounts(6, 3, 2, 1)
    assert ready.newest_event == AT
    assert [row["id"] for row in stage.rows()] == [0, 3, 5]
    found = [(one["kafka_offset"], one["reason"], one["record_value"]) for one in stage.letters()]
    assert found == [(1, "value", b"record 1"), (2, "malformed", b"{")]
    assert (staging.sweep() > 0, stage.left()) == (True, [])


def test_many_dead_letters_are_never_all_in_memory(stage: Stage) -> None:
    """60 MB of them, by a task and a driver that hold a thousand at a time."""
    stage.table("id bigint", "v smallint")
    count, size = 6_000, 10_000
    frame = records(pa.array([40_000] * count, pa.int32()))
    values = pa.array([b"x" * size] * count, pa.binary())
    frame = frame.set_column(frame.schema.get_field_index("_value"), "_value", values)
    staging = stage.staging()
    task, driver = staging.planned(frame.schema), Peak()
    with Peak() as executor:
        results = list(task.task(frame.to_batches(max_chunksize=500)))
    ready = task.staged([row for result in results for row in result.to_pylist()])

    with driver:
        counts = stage.commit(staging, ready)

    assert counts == LoadCounts(count, 0, count)
    sizes = stage.place.query(
        "SELECT sum(length(record_value)) AS held FROM floodmark_dead_letters"
    )
    assert sizes == [{"held": count * size}]
    # A thousand are 10 MB, and some texts of psycopg beside them.
    assert max(executor.megabytes, driver.megabytes) < 40


class Peak:
    """The most memory that Python's objects took within a block."""

    megabytes = 0.0

    def __enter__(self) -> Self:
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.megabytes = tracemalloc.get_traced_memory()[1] / 1024**2
        tracemalloc.stop()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_that_the_server_refuses_are_found_among_the_staged_ones(
    stage: Stage, mode: str
) -> None:
    stage.table("id bigint PRIMARY KEY", "v integer CHECK (v % 10 <> 0)")
    staging = stage.staging(mode)

    counts = stage.commit(staging, staged(staging, records(pa.array(range(100), pa.int32()))))

    assert counts == LoadCounts(100, 90, 10)
    letters = stage.letters()
    assert [one["kafka_offset"] for one in letters] == list(range(0, 100, 10))
    assert letters[1]["reason"] == "23514"
    assert letters[1]["record_value"] == b'{"v": 10, "id": 10}'


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_row_that_does_not_fit_becomes_a_dead_letter_and_the_others_are_written(
    stage: Stage, name: str, mode: str
) -> None:
    kind, values, reason, column = FAULTS[name]
    stage.place.query("CREATE TABLE known (k integer PRIMARY KEY); INSERT INTO known VALUES (1)")
    stage.place.query("CREATE DOMAIN positive AS integer CHECK (value > 0)")
    stage.table("id bigint PRIMARY KEY", f"v {kind}")
    staging = stage.staging(mode)

    counts = stage.commit(staging, staged(staging, records(values)))

    assert counts == LoadCounts(ROWS, ROWS - 1, 1)
    assert len(stage.rows()) == ROWS - 1
    (letter,) = stage.letters()
    assert letter["kafka_offset"] == BAD or name == "unique within the batch"
    assert (letter["reason"], letter["column_name"]) == (reason, column), letter["detail"]


def test_an_upsert_keeps_the_newest_of_each_key_over_all_parts(stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v text")
    frame = records(["newest", "oldest", "middle"]).set_column(
        0, "id", pa.array([1, 1, 1], pa.int64())
    )
    frame = frame.set_column(4, "_offset", pa.array([30, 10, 20], pa.int64()))
    staging = stage.staging("upsert")

    counts = stage.commit(staging, staged(staging, frame))

    assert counts == LoadCounts(3, 3, duplicates=2)
    assert stage.rows() == [{"id": 1, "v": "newest"}]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("loss", ["TRUNCATE", "DROP TABLE"])
def test_staged_rows_that_vanished_roll_the_batch_back(stage: Stage, loss: str, mode: str) -> None:
    stage.table("id bigint PRIMARY KEY", "v bigint")
    staging, frame = stage.staging(mode), records([1, 2, 3])
    ready = staged(staging, frame)
    stage.place.query(f'{loss} "{stage.left()[0]}"')

    with pytest.raises(StreamError) as caught:
        stage.commit(staging, ready)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-010", True)
    assert stage.rows() == stage.place.tracker() == []
    assert stage.commit(staging, staged(staging, frame)) == LoadCounts(3, 3)


def test_rows_that_vanished_are_missed_also_where_others_are_refused(stage: Stage) -> None:
    stage.table("id bigint", "v integer CHECK (v < 10)")
    staging, frame = stage.staging(), records(pa.array([1, 2, 10, 3], pa.int32()))
    ready = staged(staging, frame, 2)
    stage.place.query(f'TRUNCATE "{ready.parts[0].table}"')

    with pytest.raises(StreamError) as caught:
        stage.commit(staging, ready)

    assert caught.value.code == "FM-STREAM-010"
    assert stage.rows() == []


def test_a_move_that_was_rolled_back_is_tried_again_with_the_same_tables(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    staging = stage.staging()
    ready = staged(staging, records([1, 2, 3]))

    with crash.armed("stream.before_commit"), pytest.raises(BaseException, match="before_commit"):
        stage.commit(staging, ready)
    counts = stage.commit(staging, ready)

    assert counts == LoadCounts(3, 3)
    assert len(stage.rows()) == 3


def test_a_table_is_created_only_with_the_rows(stage: Stage) -> None:
    staging = stage.staging("upsert", creates_table=True)
    ready = staged(staging, records([1, 2]))
    assert stage.place.query("SELECT to_regclass('target') AS it") == [{"it": None}]

    stage.commit(staging, ready)

    assert len(stage.rows()) == 2


def test_fail_fast_stops_and_writes_nothing(stage: Stage) -> None:
    stage.table("id bigint", "v smallint")
    staging = stage.staging(fail_fast=True)
    ready = staged(staging, records(pa.array([1, 40_000], pa.int32())))

    with pytest.raises(StreamError) as caught:
        stage.commit(staging, ready)

    assert caught.value.code == "FM-STREAM-009"
    assert stage.rows() == []


def test_an_empty_frame_is_a_batch_too(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    staging = stage.staging()

    counts = stage.commit(staging, staged(staging, records(pa.array([], pa.int64()))))

    assert counts == LoadCounts(0, 0)


def test_sweeping_leaves_other_streams_and_attempts_under_way_alone(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    staging = stage.staging()
    other = Staging(staging.connect, "other", staging.schema, staging.spec)
    attempt(other, records([1]))
    others = set(stage.left())
    attempt(staging, records([1]))
    (mine,) = set(stage.left()) - others
    held = staging.connect()
    held.execute(f'LOCK TABLE "{stage.place.path}"."{mine}" IN ROW EXCLUSIVE MODE'.encode())

    assert staging.sweep() == 0
    held.close()
    assert (staging.sweep(), len(stage.left())) == (1, 1)


def test_a_runner_that_was_fenced_does_not_sweep_what_the_next_one_stages(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    staging = stage.staging()
    plan = staging.planned(records([1]).schema, 12)
    list(plan.task(records([1]).to_batches()))

    assert (staging.sweep(2), staging.sweep(11), staging.sweep(12)) == (0, 0, 1)


@pytest.fixture(scope="module")
def mortal() -> Iterator[OwnServer]:
    """A server for tests that kill it."""
    with running({"restart_after_crash": "on"}) as server:
        yield server


@pytest.fixture
def on_mortal(mortal: OwnServer) -> Iterator[Stage]:
    place = StreamPlace(mortal.dsn, "public")
    place.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    stage = Stage(place)
    stage.table("id bigint", "v integer")
    yield stage
    stage.ledger.close()


def test_a_server_that_crashed_after_the_staging_commits_nothing_empty(
    mortal: OwnServer, on_mortal: Stage
) -> None:
    staging = on_mortal.staging(is_logged=False)
    ready = staged(staging, records([1, 2, 3]))
    crash_server(mortal)

    with pytest.raises(StreamError) as caught:
        until_up(on_mortal, staging, ready)

    assert caught.value.code == "FM-STREAM-010"
    assert on_mortal.rows() == []
    again = staged(staging, records([1, 2, 3]))
    assert on_mortal.commit(staging, again) == LoadCounts(3, 3)


def test_logged_tables_outlive_a_crash_of_the_server(mortal: OwnServer, on_mortal: Stage) -> None:
    """Rows and dead letters; what is not on the disk yet when the server dies is staged again."""
    staging = on_mortal.staging()
    ready = staged(staging, records([1, 5_000_000_000, 3]))
    # The executors' commits do not wait for the disk.
    on_mortal.place.query("CHECKPOINT")
    crash_server(mortal)

    done = until_up(on_mortal, staging, ready)

    assert done == LoadCounts(3, 2, 1)
    assert [row["id"] for row in on_mortal.rows()] == [0, 2]
    assert [letter["reason"] for letter in on_mortal.letters()] == ["value"]


@pytest.mark.parametrize("is_logged", [True, False])
def test_staged_tables_are_logged_as_the_stream_says(stage: Stage, is_logged: bool) -> None:
    stage.table("id bigint", "v smallint")
    staging = stage.staging(is_logged=is_logged)

    ready = staged(staging, records(pa.array([1, 40_000], pa.int32())))

    tables = stage.persistence()
    assert len(tables) == len(ready.parts) + 1
    assert set(tables.values()) == {"p" if is_logged else "u"}
    assert stage.commit(staging, ready) == LoadCounts(2, 1, 1)


def test_a_server_that_crashes_after_a_batch_comes_back_by_itself(
    mortal: OwnServer, on_mortal: Stage
) -> None:
    """After unlogged tables were dropped it may need a second start: BUG #17731 of PostgreSQL."""
    staging = on_mortal.staging()
    for _ in range(2):
        on_mortal.commit(staging, staged(staging, records([1, 5_000_000_000, 3])))
        staging.sweep()
        crash_server(mortal)
        wait_until_up(mortal)

    assert [row["id"] for row in on_mortal.rows()] == [0, 0, 2, 2]


def crash_server(server: PostgresServer) -> None:
    """Kill a backend: the server ends all others and recovers, which empties unlogged tables."""
    victim = connector(server.dsn)()
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    victim.close()


def until_up(stage: Stage, staging: Staging, ready: Staged) -> LoadCounts:
    """Commit, trying again for as long as the server is away."""
    for _ in range(100):
        try:
            return stage.commit(staging, ready)
        except StreamError as error:
            if error.code != "FM-STREAM-005":
                raise
            time.sleep(0.1)
    raise AssertionError("the server does not come back")


def wait_until_up(server: OwnServer) -> None:
    for _ in range(100):
        try:
            connector(server.dsn)().close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server does not come back")


@pytest.mark.spark
def test_a_frame_of_spark_is_staged_by_its_tasks(spark: SparkSession, stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v text")
    frame = spark.range(0, 1_000, 1, 4).selectExpr("id", "concat('v', id % 7) AS v")
    staging = stage.staging()

    ready = staging.stage(frame)
    counts = stage.commit(staging, ready)

    assert (len(ready.parts), counts) == (4, LoadCounts(1_000, 1_000))
    assert [row["id"] for row in stage.rows()] == list(range(1_000))


@pytest.mark.spark
def test_a_task_that_fails_after_writing_leaves_no_double(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    """The first attempt of a task commits its table and then dies; Spark runs it again."""
    stage.table("id bigint", "v bigint")
    staging = stage.staging()
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    plan = staging.planned(schema)
    marker = str(tmp_path / "died")

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = list(plan.task(batches))
        is_first = not os.path.exists(marker)
        if is_first:
            open(marker, "w").close()
            raise RuntimeError("the executor is lost after its commit")
        yield from results

    from floodmark.streaming.load.stage_task import RESULT

    frame = spark.range(0, 100, 1, 2).selectExpr("id", "id AS v")
    told = frame.mapInArrow(fails_once, RESULT)
    with pytest.raises(Exception, match="lost after its commit"):
        told.collect()
    results = [row.asDict() for row in told.collect()]
    counts = stage.commit(staging, plan.staged(results))

    assert counts == LoadCounts(100, 100)
    assert len(stage.rows()) == 100
    assert staging.sweep() >= 1
    assert stage.left() == []
