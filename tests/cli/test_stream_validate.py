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
