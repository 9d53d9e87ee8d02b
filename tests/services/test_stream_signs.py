"""Signs of life of a runner, seen from outside of its process: PostgreSQL and Delta alike."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.main import main
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import StreamError
from floodmark.streaming.delta_ledger import BESIDE, REQUESTS, DeltaLedger
from floodmark.streaming.ledger import ClaimFacts, Ledger
from floodmark.streaming.requests import GONE_SECONDS, Listener, SignOfLife

from .stream_places import ME, StreamPlace

pytestmark = pytest.mark.postgres

NOBODY_HERE = ClaimFacts(holder="another-machine, process 17")
PROJECT = """\
project: shop
connections:
  events: {{type: kafka, bootstrap_servers: ["127.0.0.1:1"]}}
  target:
    type: postgres
    host: {host}
    port: {port}
    database: {database}
    user: {user}
    password: ${{env:PG_PASSWORD}}
streams:
  - pipelineId: numbers
    extract: &extract {{connection: events, topic: numbers, schemaName: event}}
    load: {load}
    streaming: {streaming}
  - pipelineId: away
    extract: *extract
    load: {{sinkType: delta, table: away, path: away}}
    streaming: {{checkpointLocation: checkpoint_away}}
"""


class Signs:
    """A ledger of a stream, and a way to let time pass for its signs."""

    def __init__(self, ledger: Ledger | DeltaLedger, place: StreamPlace) -> None:
        self.ledger = ledger
        self.place = place

    def claimed(self, facts: ClaimFacts = ME) -> str:
        return str(self.ledger.claim(facts, self.ledger.stored()).claim_id)

    def of(self, claim_id: str) -> SignOfLife:
        sign = self.ledger.sign_of_life(claim_id)
        assert sign is not None
        return sign

    def pass_by(self, seconds: float) -> None:
        if isinstance(self.ledger, Ledger):
            self.place.query(
                "UPDATE floodmark_stream_requests"
                f" SET runner_seen_at = runner_seen_at - make_interval(secs => {seconds})"
            )
            return
        for sign in Path(f"{self.ledger.path}{BESIDE}/{REQUESTS}").glob("alive-*"):
            at = sign.stat().st_mtime - seconds
            os.utime(sign, (at, at))

    def run(self, claim_id: str, act: Callable[[], object], stops: bool = False) -> None:
        """A runner that does `act` while it listens."""
        stop = threading.Event()
        listener = Listener(
            self.ledger.twin(), stop, "numbers", claim_id, look_seconds=0.02, sign_seconds=0.02
        )
        with listener.listening():
            if stops:
                stop.set()
            act()

    def until_young(self, claim_id: str) -> None:
        deadline = time.monotonic() + 30
        while self.of(claim_id).is_gone:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture(params=["postgres", "delta"])
def signs(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path
) -> Iterator[Signs]:
    place = StreamPlace(postgres.dsn, f"signs_{uuid.uuid4().hex[:8]}")
    place.query(f"CREATE SCHEMA {place.schema}")
    ledger: Ledger | DeltaLedger = DeltaLedger(str(tmp_path / "lake/numbers"), "numbers")
    if request.param == "postgres":
        ledger = place.ledger()
    ledger.ensure()
    yield Signs(ledger, place)
    ledger.close()
    place.query(f"DROP SCHEMA {place.schema} CASCADE")


def refused() -> None:
    raise StreamError("FM-STREAM-005", "the database did not do what was asked")


def test_a_runner_that_is_killed_right_behind_its_claim_is_missed(signs: Signs) -> None:
    claim_id = signs.claimed()
    before = signs.of(claim_id)

    signs.pass_by(GONE_SECONDS)

    assert not before.is_gone
    assert before.seconds_ago < 30
    assert signs.of(claim_id).is_gone


def test_a_runner_at_work_gives_signs_also_behind_a_request_to_end(signs: Signs) -> None:
    claim_id = signs.claimed()
    signs.pass_by(2 * GONE_SECONDS)

    signs.run(claim_id, lambda: signs.until_young(claim_id), stops=True)

    assert signs.of(claim_id).has_ended


def test_an_end_that_nobody_asked_for_is_missed_and_any_other_is_not(signs: Signs) -> None:
    failed = signs.claimed()
    with pytest.raises(StreamError):
        signs.run(failed, refused)
    signs.pass_by(GONE_SECONDS)
    after_error = signs.of(failed)
    done = signs.claimed()
    signs.run(done, lambda: None)
    signs.pass_by(GONE_SECONDS)
    after_end = signs.of(done)
    stopped = signs.claimed()
    with pytest.raises(StreamError):
        signs.run(stopped, refused, stops=True)
    signs.pass_by(GONE_SECONDS)

    assert (after_error.is_gone, after_error.has_ended) == (True, False)
    assert (after_end.is_gone, after_end.has_ended) == (False, True)
    assert not signs.of(stopped).is_gone


def test_a_runner_that_was_fenced_is_not_taken_for_the_one_behind_it(signs: Signs) -> None:
    first, second = signs.claimed(), signs.claimed()
    signs.pass_by(GONE_SECONDS)

    signs.ledger.give_sign(first)
    signs.ledger.note_end(first)

    assert signs.of(second).is_gone
    assert not signs.ledger.has_ended(second)


def test_starts_leave_one_sign_and_not_a_file_each(tmp_path: Path) -> None:
    signs = Signs(DeltaLedger(str(tmp_path / "numbers"), "numbers"), StreamPlace("", "none"))
    signs.ledger.ensure()

    for _ in range(3):
        signs.run(signs.claimed(), lambda: None)

    assert len(list(tmp_path.rglob("alive-*"))) == len(list(tmp_path.rglob("ended-*"))) == 1


def test_tables_of_an_older_floodmark_tell_of_no_sign(signs: Signs) -> None:
    claim_id = signs.claimed()
    if isinstance(signs.ledger, Ledger):
        signs.place.query("ALTER TABLE floodmark_stream_requests DROP COLUMN runner_seen_at")
    else:
        Path(f"{signs.ledger.path}{BESIDE}/{REQUESTS}/alive-{claim_id}").unlink()

    assert signs.ledger.sign_of_life(claim_id) is None
    signs.ledger.ensure()  # which gives the table its column again
    signs.ledger.give_sign(claim_id)
    assert not signs.of(claim_id).is_gone


@pytest.fixture
def project(
    signs: Signs, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Two streams: one of the ledger, and one whose target cannot be read."""
    monkeypatch.setenv("PG_PASSWORD", postgres.password)
    is_table = isinstance(signs.ledger, Ledger)
    load = (
        f"{{connection: target, table: {signs.place.schema}.numbers}}"
        if is_table
        else "{sinkType: delta, table: numbers, path: lake/numbers}"
    )
    streaming = "{offsetStore: database}" if is_table else "{checkpointLocation: checkpoint}"
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/event.ddl").write_text("id BIGINT NOT NULL")
    (tmp_path / f"away{BESIDE}/_delta_log").mkdir(parents=True)
    (tmp_path / f"away{BESIDE}/_delta_log/00000000000000000000.json").write_text("no JSON")
    settings = PROJECT.format(
        host=postgres.host,
        port=postgres.port,
        database=postgres.database,
        user=postgres.user,
        load=load,
        streaming=streaming,
    )
    (tmp_path / "floodmark.yaml").write_text(settings)
    return tmp_path


def told(project: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """What `floodmark metrics` tells of runners, without the project that all of them name."""
    out = project / "shop.prom"
    main(["metrics", "--project", str(project), "--out", str(out)])
    capsys.readouterr()
    lines = [line for line in out.read_text().splitlines() if line.startswith("floodmark_stream")]
    names = (line.rsplit(" ", 1) for line in lines)
    return {name.replace(',project="shop"', ""): float(value) for name, value in names}


def test_metrics_see_from_outside_that_a_runner_is_gone(
    signs: Signs, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim_id = signs.claimed(NOBODY_HERE)
    alive = told(project, capsys)
    signs.pass_by(GONE_SECONDS)
    gone = told(project, capsys)
    signs.ledger.note_end(claim_id)
    ended = told(project, capsys)

    key = '{pipeline_id="numbers"}'
    assert (alive[f"floodmark_stream_runner_gone{key}"]) == 0
    assert alive[f"floodmark_stream_runner_sign_age_seconds{key}"] < GONE_SECONDS
    assert gone[f"floodmark_stream_runner_gone{key}"] == 1
    assert gone[f"floodmark_stream_runner_sign_age_seconds{key}"] > GONE_SECONDS
    assert ended[f"floodmark_stream_runner_gone{key}"] == 0
    assert f"floodmark_stream_runner_sign_age_seconds{key}" not in ended
    assert gone[f"floodmark_stream_runner_known{key}"] == 1
    assert gone['floodmark_stream_runner_known{pipeline_id="away"}'] == 0


def test_status_knows_a_runner_of_another_machine_by_its_signs(
    signs: Signs, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_id = signs.claimed(NOBODY_HERE)
    monkeypatch.chdir(project)

    def shown() -> dict[str, Any]:
        main(["stream", "status", "numbers", "--json"])
        document = json.loads(capsys.readouterr().out)
        (stream,) = document["streams"]
        return dict(stream)

    alive = shown()
    signs.pass_by(GONE_SECONDS)
    gone = shown()
    main(["stream", "status", "numbers"])
    words = " ".join(capsys.readouterr().out.split())
    signs.ledger.note_end(claim_id)
    ended = shown()

    assert [each["is_running"] for each in (alive, gone, ended)] == [True, False, False]
    assert [each["has_ended"] for each in (alive, gone, ended)] == [False, False, True]
    assert gone["seconds_since_sign_of_life"] > GONE_SECONDS
    assert "not running; no sign of life for 1 min" in words
