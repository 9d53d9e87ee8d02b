"""What commands tell of a runner by its signs of life, seen from outside of its process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.ledger_contract import claimed
from tests.contract.ledger_places import DeltaLedgers, LedgerPlace, PostgresLedgers

from floodmark.cli.main import main
from floodmark.engines.postgres_server import PostgresServer
from floodmark.streaming.ledger.delta import BESIDE
from floodmark.streaming.ledger.postgres import ClaimFacts
from floodmark.streaming.ledger.requests import GONE_SECONDS

from .stream_places import StreamPlace

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


@pytest.fixture(params=["postgres", "delta"])
def place(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path
) -> Iterator[LedgerPlace]:
    if request.param == "delta":
        yield DeltaLedgers(tmp_path / "lake/numbers")
        return
    # A name that the file of a project can say.
    database = StreamPlace(postgres.dsn, f"signs_{uuid.uuid4().hex[:8]}")
    database.query(f"CREATE SCHEMA {database.schema}")
    yield PostgresLedgers(database)
    database.query(f"DROP SCHEMA {database.schema} CASCADE")


@pytest.fixture
def project(
    place: LedgerPlace, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Two streams: one of the ledger, and one whose target cannot be read."""
    monkeypatch.setenv("PG_PASSWORD", postgres.password)
    load, streaming = (
        "{sinkType: delta, table: numbers, path: lake/numbers}",
        "{checkpointLocation: checkpoint}",
    )
    if isinstance(place, PostgresLedgers):
        load = f"{{connection: target, table: {place.place.schema}.numbers}}"
        streaming = "{offsetStore: database}"
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


@pytest.fixture
def claim_id(place: LedgerPlace) -> str:
    """Of a runner of another machine."""
    ledger = place.ledger()
    ledger.ensure()
    taken = claimed(ledger, NOBODY_HERE)
    ledger.close()
    return taken


def end(place: LedgerPlace, claim_id: str) -> None:
    ledger = place.ledger()
    ledger.note_end(claim_id)
    ledger.close()


def told(project: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """What `floodmark metrics` tells of runners, without the project that all of them name."""
    out = project / "shop.prom"
    main(["metrics", "--project", str(project), "--out", str(out)])
    capsys.readouterr()
    lines = [line for line in out.read_text().splitlines() if line.startswith("floodmark_stream")]
    names = (line.rsplit(" ", 1) for line in lines)
    return {name.replace(',project="shop"', ""): float(value) for name, value in names}


def test_metrics_see_from_outside_that_a_runner_is_gone(
    place: LedgerPlace, claim_id: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alive = told(project, capsys)
    place.let_pass(GONE_SECONDS)
    gone = told(project, capsys)
    end(place, claim_id)
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
    place: LedgerPlace,
    claim_id: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)

    def shown() -> dict[str, Any]:
        main(["stream", "status", "numbers", "--json"])
        document = json.loads(capsys.readouterr().out)
        (stream,) = document["streams"]
        return dict(stream)

    alive = shown()
    place.let_pass(GONE_SECONDS)
    gone = shown()
    main(["stream", "status", "numbers"])
    words = " ".join(capsys.readouterr().out.split())
    end(place, claim_id)
    ended = shown()

    assert [each["is_running"] for each in (alive, gone, ended)] == [True, False, False]
    assert [each["has_ended"] for each in (alive, gone, ended)] == [False, False, True]
    assert gone["seconds_since_sign_of_life"] > GONE_SECONDS
    assert "not running; no sign of life for 1 min" in words
