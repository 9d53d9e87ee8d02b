"""Streams from Python: what can be known without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError

EVENTS: dict[str, Any] = {
    "pipelineId": "events",
    "extract": {
        "topic": "events",
        "schemaName": "event",
        "connectionParams": {"kafka.bootstrap.servers": "localhost:9092"},
    },
    "load": {
        "table": "public.events",
        "createTable": True,
        "connectionParams": {"host": "localhost", "database": "shop", "user": "writer"},
        "credentialId": "writer",
    },
    "streamingConfigJson": {"offsetStore": "database", "triggerMode": "availableNow"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/event.ddl").write_text("id BIGINT NOT NULL, kind STRING")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_mapping_is_the_stream_of_a_file_that_says_the_same(folder: Path) -> None:
    (folder / "events.json").write_text(json.dumps(EVENTS))

    of_file, of_mapping = fm.Stream.load("events.json"), fm.Stream.of(EVENTS, root=folder)

    assert of_mapping.settings == of_file.settings
    assert of_mapping.definition.settings.definition == of_file.definition.settings.definition
    assert (of_mapping.id, of_mapping.columns) == ("events", ("id", "kind"))
    assert repr(of_mapping) == "Stream events: kafka events -> postgresql public.events"


def test_errors_of_a_mapping_come_all_at_once_with_their_keys(folder: Path) -> None:
    broken = {**EVENTS, "load": {**EVENTS["load"], "tabel": "x"}, "triger": 1}

    with pytest.raises(ConfigError) as caught:
        fm.Stream.of(broken, root=folder)

    text = str(caught.value)
    assert "tabel" in text
    assert "triger" in text


def test_streams_of_a_project_are_found_by_name(folder: Path) -> None:
    project = {"project": "shop", "pipelines": [], "streams": [EVENTS]}
    (folder / "floodmark.yaml").write_text(json.dumps(project))

    assert [stream.id for stream in fm.Stream.all(folder)] == ["events"]
    assert fm.Stream.load("events", project=folder).settings == fm.Stream.all()[0].settings
    with pytest.raises(ConfigError) as caught:
        fm.Stream.load("event", project=folder)
    assert (caught.value.code, caught.value.allowed) == ("FM-CONFIG-008", "events; nearest: events")


def test_a_name_without_a_project_says_so(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        fm.Stream.load("events")
    assert caught.value.allowed == "a file, or a stream of a project; here is no project"
    with pytest.raises(ConfigError) as caught:
        fm.Stream.load("events.json")
    assert caught.value.code == "FM-CONFIG-001"


def test_the_sql_of_its_tables_needs_no_login(folder: Path) -> None:
    statements = fm.Stream.of(EVENTS, root=folder).tables()
    assert any("batch_tracker" in statement for statement in statements)
