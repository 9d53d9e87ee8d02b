"""What a database does for a batch of a stream has a limit, its COMMIT too."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from tests.services.stream_places import ME, StreamPlace, at, batch, put

from floodmark.engines import postgres_server
from floodmark.engines.postgres_server import OwnServer
from floodmark.errors import StreamError
from floodmark.postgres import connector, run
from floodmark.streaming.ledger import limits
from floodmark.streaming.ledger.postgres import Applied, Claim, Load, Loaded, PostgresLedger
from floodmark.streaming.load.rows import PostgresLoad
from floodmark.streaming.load.staging import Staging
from floodmark.streaming.load.target import TargetSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.postgres import Cursor

pytestmark = pytest.mark.postgres

LOCALLY = " options='-c synchronous_commit=local'"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """Its commits wait for a standby that never comes."""
    with postgres_server.running({"synchronous_standby_names": "nobody"}) as found:
        yield found


@pytest.fixture
def place(server: OwnServer) -> Iterator[StreamPlace]:
    found = StreamPlace(server.dsn + LOCALLY, "public")
    found.query("CREATE TABLE numbers (n bigint)")
    yield found
    found.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def begun(place: StreamPlace, dsn: str, seconds: float) -> tuple[PostgresLedger, Claim]:
    ready = place.ledger()
    ready.ensure()
    claim = ready.claim(ME, ready.stored())
    claim = ready.move(claim, at(0), "begins", begins_incarnation=False)
    ready.close()
    return PostgresLedger(connector(dsn), "numbers", "public", seconds), claim


def test_a_statement_that_does_not_end_is_ended_and_the_batch_tried_again(
    place: StreamPlace,
) -> None:
    ledger, claim = begun(place, place.dsn, 1.0)

    def hangs(cursor: Cursor) -> Loaded:
        run(cursor, "SELECT pg_sleep(300)")
        return put(cursor, place.table, [1])

    began = time.monotonic()
    with pytest.raises(StreamError) as caught:
        ledger.commit(claim, batch(claim, 1, 0, 1), hangs)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-055", True)
    assert time.monotonic() - began < 60
    done = ledger.commit(claim, batch(claim, 1, 0, 1), lambda c: put(c, place.table, [0]))
    assert isinstance(done, Applied)
    assert place.numbers() == [0]
    ledger.close()


def test_a_commit_that_waits_for_a_standby_for_ever_ends(
    place: StreamPlace, server: OwnServer
) -> None:
    """The server has it on its own disk by then, and says so: rows and offsets are there."""
    ledger, claim = begun(place, server.dsn, 1.0)

    done = ledger.commit(claim, batch(claim, 1, 0, 1), lambda c: put(c, place.table, [0]))

    assert isinstance(done, Applied)
    assert place.numbers() == [0]
    ledger.close()


def test_a_backend_that_hears_nothing_loses_its_connection(
    place: StreamPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CANCEL_SECONDS", 0.3)
    ledger, claim = begun(place, place.dsn, 0.5)
    stopped: list[int] = []

    def frozen(cursor: Cursor) -> Loaded:
        row = run(cursor, "SELECT pg_backend_pid()").fetchone()
        assert row is not None
        stopped.append(int(row[0]))
        os.kill(stopped[0], signal.SIGSTOP)
        return put(cursor, place.table, [1])

    try:
        with pytest.raises(StreamError) as caught:
            ledger.commit(claim, batch(claim, 1, 0, 1), frozen)
    finally:
        os.kill(stopped[0], signal.SIGCONT)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-055", True)
    done = ledger.commit(claim, batch(claim, 1, 0, 1), lambda c: put(c, place.table, [0]))
    assert isinstance(done, Applied)
    assert place.numbers() == [0]
    ledger.close()


SLOW = """\
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(300); RETURN new; END';
CREATE TRIGGER slow BEFORE INSERT ON numbers FOR EACH ROW WHEN (new.n = 7) EXECUTE FUNCTION slow()
"""
HELD_UP = {"by a lock": "LOCK TABLE public.numbers IN SHARE MODE", "in its middle": "SELECT 1"}


@pytest.mark.parametrize("how", HELD_UP)
@pytest.mark.parametrize("is_staged", [False, True], ids=["copied", "staged"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_that_are_held_up_end_in_time_and_the_next_attempt_writes_each_once(
    place: StreamPlace, how: str, is_staged: bool, mode: str
) -> None:
    place.query("ALTER TABLE numbers ADD PRIMARY KEY (n)")
    if how == "in its middle":
        place.query(SLOW)
    ledger, claim = begun(place, place.dsn, 1.0)
    numbers = pa.table({"n": pa.array(range(10), pa.int64())})
    load = loading(place, numbers, mode, is_staged=is_staged)
    with psycopg.connect(place.dsn) as other:
        other.execute(HELD_UP[how].encode())
        began = time.monotonic()

        with pytest.raises(StreamError) as caught:
            ledger.commit(claim, batch(claim, 1, 0, 10), load)

        seconds = time.monotonic() - began
    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-055", True)
    assert "all there or nothing" in (caught.value.state or "")
    assert seconds < 30
    assert (place.numbers(), batches(place)) == ([], [0])
    place.query("DROP TRIGGER IF EXISTS slow ON numbers; DROP FUNCTION IF EXISTS slow()")
    for _ in range(2):
        done = ledger.commit(claim, batch(claim, 1, 0, 10), load)
    assert place.numbers() == list(range(10))
    assert batches(place) == [0, 1]
    assert not isinstance(done, Applied)
    ledger.close()


def batches(place: StreamPlace) -> list[int]:
    """Those of the tracker: 0 is the beginning."""
    return [row["batch_id"] for row in place.tracker()]


def loading(place: StreamPlace, numbers: pa.Table, mode: Any, *, is_staged: bool) -> Load:
    """What writes a batch: through the driver, or from tables that tasks have staged."""
    keys = ("n",) if mode == "upsert" else ()
    spec = TargetSpec("public.numbers", mode, keys)
    if not is_staged:
        load = PostgresLoad(spec)
        return lambda cursor: load.apply(cursor, numbers)
    staging = Staging(connector(place.dsn), "numbers", "public", spec)
    plan = staging.planned(numbers.schema)
    results = [row for told in plan.task(numbers.to_batches()) for row in told.to_pylist()]
    ready = plan.staged(results)
    return lambda cursor: staging.apply(cursor, ready)


@pytest.mark.spark
def test_a_task_whose_backend_hears_nothing_is_given_up_and_its_rows_come_once(
    place: StreamPlace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped as its machine would be: no limit of a statement is heard there."""
    spec = TargetSpec("public.numbers")
    staging = Staging(connector(place.dsn), "numbers", "public", spec)
    frame = spark.range(0, 10, 1, 1).selectExpr("id AS n")
    staging.stage(frame)  # Spark starts its workers
    staging = replace(staging, write_seconds=1.0)
    monkeypatch.setattr("floodmark.streaming.load.staging.CANCEL_SECONDS", 9.0)
    place.query(PAUSE)
    stopped: list[int] = []
    watcher = threading.Thread(target=stop_first, args=(place, stopped))
    watcher.start()
    began = time.monotonic()

    try:
        with pytest.raises(StreamError) as caught:
            staging.stage(frame)
    finally:
        watcher.join()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        place.query("DROP EVENT TRIGGER pause")

    assert stopped
    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-055", True)
    assert time.monotonic() - began < 60
    ledger, claim = begun(place, place.dsn, 60)
    ready = replace(staging, write_seconds=60).stage(frame)
    done = ledger.commit(claim, batch(claim, 1, 0, 10), lambda c: staging.apply(c, ready))
    assert isinstance(done, Applied)
    assert place.numbers() == list(range(10))
    ledger.close()


PAUSE = """\
CREATE FUNCTION pause() RETURNS event_trigger LANGUAGE plpgsql AS
'BEGIN IF current_setting(''application_name'') = ''floodmark staging'' THEN
PERFORM pg_sleep(0.9); END IF; END';
CREATE EVENT TRIGGER pause ON ddl_command_start EXECUTE FUNCTION pause()
"""
ASLEEP = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    " AND application_name = 'floodmark staging'"
)


def stop_first(place: StreamPlace, stopped: list[int]) -> None:
    """Stop the backend of the first task that pauses."""
    deadline = time.monotonic() + 60
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        while not stopped and time.monotonic() < deadline:
            for (pid,) in connection.execute(ASLEEP).fetchall():
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
            time.sleep(0.01)
