"""What a database does for a batch of a stream has a limit, its COMMIT too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.services.stream_places import ME, StreamPlace, at, batch, put

from floodmark.engines import postgres_server
from floodmark.engines.postgres_server import OwnServer
from floodmark.errors import StreamError
from floodmark.postgres import connector, run
from floodmark.streaming.ledger import limits
from floodmark.streaming.ledger.postgres import Applied, Claim, Loaded, PostgresLedger

if TYPE_CHECKING:
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
    found.query("DROP TABLE numbers, floodmark_stream, batch_tracker")


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
