"""A running stream whose database goes away and comes back: its breaker, as it is seen outside."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.streams import Place, event, until

from floodmark.config import load_stream
from floodmark.engines.postgres_server import OwnServer, running
from floodmark.engines.spark import local_session
from floodmark.streaming.parts import access_of, notes_of, runner_of
from floodmark.streaming.running.health import served
from floodmark.streaming.running.metrics import StreamNumbers
from floodmark.streaming.together import Told

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

SECONDS = 60
OFTEN = {
    "retryConfig": {"strategy": "fixed", "initialDelaySeconds": 1, "maxAttempts": 100},
    "circuitBreakerConfig": {"failureThreshold": 2, "resetTimeoutSeconds": 2},
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnServer]:
    """A server of the test's own: it is stopped and started again."""
    with running() as made:
        monkeypatch.setenv("FLOODMARK_CREDENTIAL_PG", made.password)
        yield made


@pytest.fixture
def own(place: Place, server: OwnServer) -> Place:
    """The stream of the test, into that server."""
    made = replace(place, postgres=server)
    address = {"host": server.host, "port": server.port, "database": server.database}
    made.said["load"]["connectionParams"] = {**address, "user": server.user}
    made.ask("CREATE SCHEMA $schema")
    return made


def test_it_opens_while_the_database_is_away_and_closes_once_it_is_back(
    own: Place, server: OwnServer
) -> None:
    own.send(*map(event, range(5)))
    path = own.write(streamingConfigJson={"triggerMode": "continuous"}, errorHandlingConfig=OFTEN)
    access = access_of(load_stream(path))
    numbers = StreamNumbers(own.name)
    told = Told([numbers, notes_of(access)])
    stream = runner_of(access, local_session, watcher=told)
    thread = threading.Thread(target=stream.run, daemon=True)
    with served([numbers], "127.0.0.1", 0) as port:
        thread.start()
        try:
            until(lambda: sample(port, "floodmark_stream_records_written_total") == 5, SECONDS)
            before = sample(port, "floodmark_stream_breaker_state"), health(port)
            server.stop()
            own.send(*map(event, range(5, 10)))

            until(lambda: sample(port, "floodmark_stream_breaker_state") == 2, SECONDS)
            opened = health(port)
            retries = sample(port, "floodmark_stream_retries_total")
            server.start()
            until(lambda: sample(port, "floodmark_stream_records_written_total") == 10, SECONDS)
            closed = sample(port, "floodmark_stream_breaker_state"), health(port)
        finally:
            stream.stop.set()
            thread.join(SECONDS)

    assert before == closed == (0, 200)
    assert opened == 503
    assert retries >= 2
    assert not thread.is_alive()
    ids = own.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")
    assert ids == [(list(range(10)),)]
    assert own.ask("SELECT sum(record_count) FROM $schema.batch_tracker") == [(10,)]


def sample(port: int, name: str) -> float:
    """A number of /metrics; -1 where it is not told yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families: Any = text_string_to_metric_families(answer.read().decode())
    return next((s.value for f in families for s in f.samples if s.name == name), -1.0)


def health(port: int) -> int:
    """The status of /healthz."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
