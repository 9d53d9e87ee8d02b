"""The library tells each stage of its work, with names and counts, wherever it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.observe import STAGES

Append = Callable[..., str]


@dataclass
class Told:
    """Keeps what is told."""

    events: list[tuple[str, str, Mapping[str, object]]] = field(default_factory=list)

    def __call__(self, name: str, text: str, /, **fields: object) -> None:
        self.events.append((name, text, fields))

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.events]

    def of(self, name: str) -> tuple[str, Mapping[str, object]]:
        ((text, fields),) = [(text, fields) for each, text, fields in self.events if each == name]
        return text, fields


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def coordinator(tmp_path: Path, told: Told) -> fm.Coordinator:
    outside = replace(ON_ARROW, tell=told)
    return fm.Coordinator(str(tmp_path / "_control"), actor="t", outside=outside)


def copy(target: Path, upstream: str) -> Callable[[Mapping[str, Any], Any], None]:
    def function(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[upstream], str(target), mode="append")

    return function


def test_each_stage_is_one_event_in_the_order_of_the_work(
    coordinator: fm.Coordinator, told: Told, grow: Append, tmp_path: Path
) -> None:
    orders = grow("orders", 1)
    coordinator.register("report", [orders])

    batch = coordinator.create_batch()
    coordinator.run_pipeline("report", str(batch.batch_id), copy(tmp_path / "out", orders))
    coordinator.finalize_batch(str(batch.batch_id))

    assert told.names == ["planned", "started", "wrote", "succeeded", "finalized"]
    assert told.of("planned")[1]["upstreams"] == [orders]
    text, wrote = told.of("wrote")
    assert text == f"report wrote 1 row to {tmp_path / 'out'}"
    assert (wrote["rows_written"], wrote["pipeline"], wrote["batch"]) == (
        1,
        "report",
        batch.batch_id,
    )
    assert told.of("succeeded")[1]["rows_read"] == 1
    assert told.of("finalized")[1]["advanced"] == [orders]


def test_a_failure_and_what_it_holds_are_told(
    coordinator: fm.Coordinator, told: Told, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("report", [orders])
    batch_id = str(coordinator.create_batch().batch_id)

    def fails(inputs: object, run: object) -> None:
        raise ValueError("no such rate")

    with pytest.raises(ValueError, match="no such rate"):
        coordinator.run_pipeline("report", batch_id, fails)
    coordinator.finalize_batch(batch_id)

    assert told.names == ["planned", "started", "failed", "finalized", "held"]
    assert told.of("failed")[1]["error"] == "ValueError: no such rate"
    assert told.of("held")[1]["waiting_for"] == ["report"]


def test_an_open_batch_is_told_as_such_and_no_news_not_at_all(
    coordinator: fm.Coordinator, told: Told, grow: Append
) -> None:
    coordinator.register("report", [grow("orders", 1)])
    first = coordinator.create_batch()
    coordinator.create_batch()
    assert [fields["reused"] for _, _, fields in told.events] == [False, True]

    coordinator.run_pipeline("report", str(first.batch_id), lambda inputs, run: None)
    coordinator.finalize_batch(str(first.batch_id))
    told.events.clear()
    assert coordinator.create_batch().status == "NOOP"
    coordinator.preview()
    assert told.events == []


def test_without_an_argument_it_is_floodmarks_log(
    tmp_path: Path, grow: Append, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = fm.Coordinator(str(tmp_path / "_control"), actor="t", outside=ON_ARROW)
    coordinator.register("report", [grow("orders", 1)])
    with caplog.at_level(logging.INFO, logger="floodmark.stages"):
        coordinator.create_batch()

    (record,) = [each for each in caplog.records if each.name == "floodmark.stages"]
    assert record.getMessage().startswith("batch batch_")
    assert record.floodmark["stage"] in STAGES  # type: ignore[attr-defined]
