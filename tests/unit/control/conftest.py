from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.control.events.bodies import (
    Advanced,
    Body,
    Created,
    Event,
    Leased,
    Planned,
    Registered,
    SinkWritten,
    Succeeded,
)
from floodmark.control.rules.folding import apply
from floodmark.model.state import Holder, SinkDone, State
from floodmark.model.window import VersionWindow, Window

AT = datetime(2026, 1, 1, tzinfo=UTC)
HOLDER = Holder("host", "boot", 1, "start")


def window(upstream: str, after: int, through: int, **options: Any) -> VersionWindow:
    return VersionWindow(
        upstream=upstream,
        method="feed",
        after=after,
        through=through,
        reason="",
        table_id=options.get("table_id", f"id of {upstream}"),
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=through,
    )


@dataclass
class Story:
    """Events one after the other, with short words for the usual ones."""

    state: State = field(default_factory=State)
    events: list[Event] = field(default_factory=list)

    def then(self, *bodies: Body) -> Story:
        for body in bodies:
            event = Event(self.state.seq + 1, body, f"op{self.state.seq}", "tester", AT)
            self.state = apply(self.state, event)
            self.events.append(event)
        return self

    def register(self, pipeline: str, *upstreams: str, scope: str = "default") -> Story:
        return self.then(Registered(pipeline, scope, upstreams, "h"))

    def plan(self, *windows: Window, scope: str = "default", **options: Any) -> Story:
        return self.then(self.planned(*windows, scope=scope, **options))

    def planned(self, *windows: Window, scope: str = "default", **options: Any) -> Planned:
        number = options.get("number", self.state.batch_seq + 1)
        required = options.get("required", self.state.required_pipelines(scope, windows))
        return Planned(options.get("batch_id", f"b{number}"), number, scope, windows, required)

    def lease(self, batch_id: str, pipeline: str, **options: Any) -> Story:
        return self.then(self.leased(batch_id, pipeline, **options))

    def leased(self, batch_id: str, pipeline: str, **options: Any) -> Leased:
        epoch = options.get("epoch", self.state.epochs.get(pipeline, 0) + 1)
        run_id = options.get("run_id", f"run{epoch}")
        return Leased(batch_id, pipeline, epoch, run_id, HOLDER, 60, options.get("replaces"))

    def succeed(self, batch_id: str, *pipelines: str) -> Story:
        for pipeline in pipelines:
            self.lease(batch_id, pipeline)
            self.then(Succeeded(batch_id, pipeline, self.state.epochs[pipeline]))
        return self

    def advance(self, batch_id: str, **upstreams: int) -> Story:
        return self.then(Advanced(batch_id, {f"/u/{u}": v for u, v in upstreams.items()}))

    def sink_written(self, batch_id: str, pipeline: str, epoch: int) -> SinkWritten:
        done = SinkDone("w", f"app/{pipeline}", "/t/1", "id", 1, 1)
        return SinkWritten(batch_id, pipeline, epoch, done)


@pytest.fixture
def story() -> Story:
    """A store in which P reads a and b, and Q reads b."""
    return Story().then(Created("c")).register("P", "/u/a", "/u/b").register("Q", "/u/b")


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]
