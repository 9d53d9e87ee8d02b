"""Errors of a stream name it, and the commands that they offer can be typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodmark.config import LoadedStream, load_stream
from floodmark.errors import StreamError
from floodmark.next_steps import STREAM, command
from floodmark.streaming.telling import errors_of, name_stream

SEED = Path(__file__).parents[2] / "fixtures/streams/production-events.json"


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedStream:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schemas").mkdir()
    for name in ("event-schema", "event-table-schema"):
        (tmp_path / f"schemas/{name}.ddl").write_text("id BIGINT, event_timestamp TIMESTAMP")
    (tmp_path / "clicks.json").write_text(
        json.dumps({**json.loads(SEED.read_text()), "pipelineId": "clicks"})
    )
    return load_stream(Path("clicks.json"))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (command("stream", "run", STREAM), "floodmark stream run clicks.json"),
        (
            "mend it, then: " + command("stream", "run", STREAM),
            "mend it, then: floodmark stream run clicks.json",
        ),
        (
            command("stream", "run", STREAM) + "; else: " + command("stream", "tables", STREAM),
            "floodmark stream run clicks.json; else: floodmark stream tables clicks.json",
        ),
        (
            command("stream", "reset", STREAM, "--to", "latest"),
            "floodmark stream reset clicks.json --to latest",
        ),
        (command("stream", "run", "other.json"), "floodmark stream run other.json"),
        ("a text without a command", "a text without a command"),
    ],
)
def test_an_offered_command_names_the_stream(stream: LoadedStream, said: str, told: str) -> None:
    error = StreamError("FM-STREAM-005", "no", next=said)

    name_stream(error, stream)
    name_stream(error, stream)

    assert (error.next, error.where) == (told, "stream clicks")


@pytest.mark.parametrize(("name", "where"), [("clicks", "batch 7"), ("clicks.json", "table t")])
def test_what_names_its_stream_stays(stream: LoadedStream, name: str, where: str) -> None:
    with pytest.raises(StreamError) as caught, errors_of(stream):
        raise StreamError("FM-STREAM-005", "no", stream=name, where=where)

    assert caught.value.where == f"stream {name}, {where}"


def test_what_is_below_a_stream_is_told_with_it(stream: LoadedStream) -> None:
    error = StreamError("FM-STREAM-021", "no", where="topic t at b:1")

    name_stream(error, stream)

    assert error.where == "stream clicks, topic t at b:1"
