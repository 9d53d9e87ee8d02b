"""What a stream that keeps state has to say, and what does not go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from floodmark.config import LoadedStream, load_stream
from floodmark.errors import ConfigError, ConfigErrors

WATERMARK = {"eventTimeColumn": "at", "delayThreshold": "10 minutes"}
WINDOWS = {"window": "5 minutes", "groupBy": ["kind"], "measures": {"n": "count(*)"}}
KEYS = {"columns": ["id"]}


def with_watermark(run: dict[str, Any]) -> dict[str, Any]:
    return {"watermark": WATERMARK, **run}


def loaded(
    tmp_path: Path,
    run: dict[str, Any],
    load: dict[str, Any] | None = None,
    errors: dict[str, Any] | None = None,
) -> LoadedStream:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/event.ddl").write_text("id BIGINT NOT NULL, at TIMESTAMP, kind STRING")
    (tmp_path / "schemas/result.ddl").write_text("n BIGINT, total INT")
    said = {
        "pipelineId": "events",
        "extract": {
            "topic": "events",
            "schemaName": "event",
            "connectionParams": {"kafka.bootstrap.servers": "localhost:9092"},
        },
        "load": {
            "table": "events",
            "connectionParams": {"host": "localhost", "database": "shop"},
            **(load or {}),
        },
        "streamingConfigJson": {"checkpointLocation": "checkpoint", **run},
        "errorHandlingConfig": errors or {},
    }
    path = tmp_path / "stream.json"
    path.write_text(json.dumps(said))
    return load_stream(path)


UPSERT = {"writeMode": "upsert"}


@pytest.mark.parametrize(
    ("run", "load", "key", "says"),
    [
        ({"aggregate": WINDOWS, "outputMode": "update"}, {}, "load", "every change"),
        (
            {"deduplicate": KEYS, "stateTimeout": "1 minute"},
            {},
            "stateTimeout",
            "before its records are late",
        ),
        ({"aggregate": {**WINDOWS, "window": "0 seconds"}}, {}, "window", "no time"),
        ({"aggregate": {**WINDOWS, "slide": "6 minutes"}}, {}, "slide", "in none"),
        (
            {"aggregate": {**WINDOWS, "measures": {"Kind": "max(kind)"}}},
            {},
            "Kind",
            "there twice",
        ),
        (
            {"aggregate": {**WINDOWS, "measures": {"window_end": "max(at)"}}},
            {},
            "window_end",
            "there twice",
        ),
        ({"aggregate": {**WINDOWS, "groupBy": ["kin"]}}, {}, "groupBy", "no column kin"),
        ({"aggregate": WINDOWS}, {"schemaName": "result"}, "schemaName", "does not give: total"),
        (
            {"aggregate": WINDOWS, "outputMode": "update"},
            {**UPSERT, "upsertKeys": ["kind"]},
            "upsertKeys",
            "window_start is not in the key",
        ),
        (
            {"aggregate": WINDOWS, "outputMode": "update"},
            {**UPSERT, "upsertKeys": ["window_start"]},
            "upsertKeys",
            "kind is not in the key",
        ),
        (
            {"aggregate": WINDOWS, "outputMode": "update"},
            {**UPSERT, "upsertKeys": ["window_start", "kind", "n"]},
            "upsertKeys",
            "there is no column n",
        ),
    ],
)
def test_what_does_not_go_together_is_named(
    tmp_path: Path, run: dict[str, Any], load: dict[str, Any], key: str, says: str
) -> None:
    with pytest.raises((ConfigError, ConfigErrors)) as caught:
        loaded(tmp_path, with_watermark(run), load)

    found = list(getattr(caught.value, "errors", [caught.value]))
    assert any(key in str(each) and says in str(each) for each in found), found


@pytest.mark.parametrize("run", [{"aggregate": WINDOWS}, {"deduplicate": KEYS}])
def test_state_needs_a_watermark(tmp_path: Path, run: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, run)

    assert (caught.value.code, caught.value.allowed) == ("FM-CONFIG-004", "watermark")


def test_a_table_of_windows_has_their_columns_and_their_key(tmp_path: Path) -> None:
    stream = loaded(
        tmp_path, with_watermark({"aggregate": WINDOWS, "outputMode": "update"}), UPSERT
    )

    assert stream.columns == ("window_start", "window_end", "kind", "n")
    assert stream.settings.keys == ("window_start", "window_end", "kind")


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, 600.0), ("10 minutes", 600.0), ("2 hours", 7200.0)]
)
def test_state_is_kept_for_the_longer_of_delay_and_timeout(
    tmp_path: Path, timeout: str | None, seconds: float
) -> None:
    more = {"stateTimeout": timeout} if timeout else {}

    stream = loaded(tmp_path, with_watermark({"deduplicate": KEYS, **more}))

    assert stream.settings.streaming.state_seconds == seconds
    assert not stream.warnings


def test_complete_output_forgets_no_window_whatever_is_said(tmp_path: Path) -> None:
    run = {"aggregate": WINDOWS, "outputMode": "complete", "stateTimeout": "1 hour"}

    stream = loaded(tmp_path, with_watermark(run), {"writeMode": "overwrite"})

    assert ["keeps every window" in str(warning) for warning in stream.warnings] == [True]


DELTA = {"sinkType": "delta", "path": "lake/events", "connectionParams": {}}


@pytest.mark.parametrize("where", [{"table": "late"}, {"dlqTopic": "late"}])
def test_late_records_of_a_delta_table_have_no_place_of_their_own(
    tmp_path: Path, where: dict[str, str]
) -> None:
    run = {"lateDataConfig": {"strategy": "separateStream", **where}}

    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, with_watermark(run), DELTA)

    assert caught.value.code == "FM-CONFIG-015"
    assert "stay beside it" in str(caught.value)


def test_a_delta_table_sends_dead_letters_and_late_records_to_kafka(tmp_path: Path) -> None:
    run = {"lateDataConfig": {"strategy": "sendToDLQ", "dlqTopic": "late"}}
    errors = {"dlqConfig": {"dlqType": "kafka", "topic": "dead"}}

    stream = loaded(tmp_path, with_watermark(run), DELTA, errors)

    assert stream.settings.sends_letters


def test_a_delta_table_is_exactly_once_whatever_is_said(tmp_path: Path) -> None:
    stream = loaded(tmp_path, {"enableIdempotence": False}, DELTA)

    assert ["has its receipt in any case" in str(each) for each in stream.warnings] == [True]
