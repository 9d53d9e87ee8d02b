"""`floodmark stream validate`, and the streams of a project in `floodmark validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodmark.cli.main import main

SEED = Path(__file__).parents[1] / "fixtures/streams/production-events.json"


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    for name in ("event-schema", "event-table-schema"):
        (tmp_path / f"schemas/{name}.ddl").write_text("id BIGINT, event_timestamp TIMESTAMP")
    path = tmp_path / "stream.json"
    path.write_text(SEED.read_text())
    return path


def test_a_fine_stream_is_told_with_its_warnings(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stream", "validate", str(stream)]) == 0

    said = capsys.readouterr().out
    assert "production-events-pipeline: the stream is fine" in said
    assert "of two limits the smaller one rules: 50,000 records a batch" in said


def test_json_holds_the_stream_in_its_proper_spelling(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stream", "validate", str(stream), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["settings"] == json.loads(SEED.read_text())
    assert document["limit"] == 50_000
    assert [warning["code"] for warning in document["warnings"]] == ["FM-CONFIG-024"] * 2


def test_a_broken_stream_exits_2_with_every_error(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = stream.read_text().replace('"append"', '"apend"')
    stream.write_text(text)

    assert main(["stream", "validate", str(stream), "--json"]) == 2

    errors = json.loads(capsys.readouterr().out)["error"]["errors"]
    assert [error["where"].split(": ")[1] for error in errors] == [
        "load.writeMode",
        "streamingConfigJson.outputMode",
    ]


def test_the_streams_of_a_project_are_validated_with_it(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stream.parent
    (folder / "floodmark.yaml").write_text("project: shop\n")
    (folder / "streams").mkdir()
    (folder / "streams/events.json").write_text(SEED.read_text())

    assert main(["validate", "--project", str(folder)]) == 0
    assert "streams: production-events-pipeline" in capsys.readouterr().out
    assert main(["stream", "validate", "production-events-pipeline", "--project", str(folder)]) == 0
    assert main(["stream", "validate", "production-event", "--project", str(folder)]) == 2
    assert "nearest: production-events-pipeline" in capsys.readouterr().err

    (folder / "streams/events.json").write_text(SEED.read_text().replace("kafka-1:9092", "kafka-1"))
    assert main(["validate", "--project", str(folder)]) == 2
    assert "host:port" in capsys.readouterr().err


def test_the_sql_of_its_tables_needs_no_login(
    stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stream", "tables", str(stream), "--json"]) == 0

    statements = json.loads(capsys.readouterr().out)["statements"]
    made = [
        each.split("(")[0].split()[-1] for each in statements if each.startswith("CREATE TABLE")
    ]
    assert made == [
        f'"public"."{name}"'
        for name in (
            "floodmark_stream",
            "batch_tracker",
            "floodmark_dead_letters",
            "floodmark_outbox",
            "floodmark_stream_requests",
        )
    ]
    assert statements[-1] == 'GRANT INSERT ON "public"."production_events" TO "etl_writer"'


def test_a_name_that_is_neither_file_nor_stream_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["stream", "validate", "clicks", "--json"]) == 2
    nowhere = json.loads(capsys.readouterr().out)["error"]
    assert main(["stream", "validate", "clicks.json", "--json"]) == 2
    no_file = json.loads(capsys.readouterr().out)["error"]

    assert (nowhere["code"], nowhere["title"]) == ("FM-CONFIG-008", "there is no stream clicks")
    assert nowhere["allowed"] == "a file, or a stream of a project; here is no project"
    assert (no_file["code"], no_file["where"]) == ("FM-CONFIG-001", "clicks.json")
    assert no_file["next"] == "name a file that is there: floodmark stream validate FILE"


def test_a_login_that_nobody_has_is_told_with_its_stream(
    stream: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOODMARK_CREDENTIAL_KAFKA_PROD_SASL", raising=False)

    assert main(["stream", "run", str(stream), "--json"]) == 2

    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["where"]) == ("FM-CONFIG-023", "stream production-events-pipeline")
