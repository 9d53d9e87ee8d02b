"""Requests to a runner through its ledger: one contract for PostgreSQL and for Delta."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.engines.postgres_server import PostgresServer
from floodmark.streaming.delta_ledger import DeltaLedger
from floodmark.streaming.ledger import Ledger, Loaded
from floodmark.streaming.requests import Listener

from .stream_places import ME, StreamPlace, batch, put

if TYPE_CHECKING:
    from floodmark.engines.postgres import Cursor

pytestmark = pytest.mark.postgres


@pytest.fixture(params=["postgres", "delta"])
def ledger(
    request: pytest.FixtureRequest, postgres: PostgresServer, pg_schema: str, tmp_path: Path
) -> Iterator[Ledger | DeltaLedger]:
    made: Ledger | DeltaLedger = DeltaLedger(str(tmp_path / "events"), "numbers")
    if request.param == "postgres":
        made = StreamPlace(postgres.dsn, pg_schema).ledger()
    made.ensure()
    yield made
    made.close()


def claimed(ledger: Ledger | DeltaLedger) -> str:
    return str(ledger.claim(ME, ledger.stored()).claim_id)


def heard(ledger: Ledger | DeltaLedger, claim_id: str, seconds: float) -> bool:
    """Whether the runner with a claim hears a request; it ends in any case."""
    stop = threading.Event()
    listener = Listener(ledger.twin(), stop, "numbers", claim_id, look_seconds=0.02)
    with listener.listening():
        return stop.wait(seconds)


def test_the_runner_that_is_meant_ends_and_answers(ledger: Ledger | DeltaLedger) -> None:
    claim_id, before = claimed(ledger), ledger.stored()

    ledger.ask_to_stop(claim_id, "me")
    ledger.ask_to_stop(claim_id, "me too")
    asked = ledger.has_ended(claim_id)

    assert not asked
    assert heard(ledger, claim_id, 30)
    assert ledger.has_ended(claim_id)
    assert ledger.stored() == before


def test_a_later_runner_does_not_take_the_request_for_its_own(
    ledger: Ledger | DeltaLedger,
) -> None:
    first = claimed(ledger)
    ledger.ask_to_stop(first, "me")

    second = claimed(ledger)

    assert not heard(ledger, second, 0.2)
    assert not ledger.has_ended(first)


def test_a_runner_that_ends_by_itself_answers_a_request_that_it_had_not_heard(
    ledger: Ledger | DeltaLedger,
) -> None:
    claim_id, stop = claimed(ledger), threading.Event()

    with Listener(ledger.twin(), stop, "numbers", claim_id, look_seconds=60).listening():
        ledger.ask_to_stop(claim_id, "me")

    assert not stop.is_set()
    assert ledger.has_ended(claim_id)


def test_a_runner_that_nobody_asked_says_that_it_has_ended(ledger: Ledger | DeltaLedger) -> None:
    claim_id = claimed(ledger)
    before = ledger.has_ended(claim_id)

    assert not heard(ledger, claim_id, 0.2)
    assert (before, ledger.has_ended(claim_id)) == (False, True)


def test_a_batch_that_is_under_way_does_not_hold_up_the_request(
    postgres: PostgresServer, pg_schema: str
) -> None:
    place = StreamPlace(postgres.dsn, pg_schema)
    place.query("CREATE TABLE numbers (n bigint)")
    runner, asker = place.ledger(), place.ledger()
    runner.ensure()
    claim = runner.claim(ME, runner.stored())

    def load(cursor: Cursor) -> Loaded:
        asker.ask_to_stop(str(claim.claim_id), "me")
        return put(cursor, place.table, [1])

    runner.commit(claim, batch(claim, 0, 0, 1), load)

    assert asker.is_asked_to_stop(str(claim.claim_id))
    runner.close()
    asker.close()
