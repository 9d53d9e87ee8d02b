"""Streams from Kafka into a table, exactly once: `story` tells how one runs.

ledger    the memory of a stream in its target
records   records of Kafka: read, judged, counted
load      a batch into its target
outbox    dead letters and late records on their way to Kafka
position  where a stream goes on
running   what goes on around a run
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.streaming.ledger.protocol import StreamLedger
    from floodmark.streaming.moving import adopted_checkpoint, moved_to, rewound
    from floodmark.streaming.parts import access_of, ledger_of, runner_of, statements_of
    from floodmark.streaming.running.health import served
    from floodmark.streaming.running.metrics import StreamNumbers
    from floodmark.streaming.running.watching import StreamWatcher
    from floodmark.streaming.status import StreamStatus, sign_of_life, status_of
    from floodmark.streaming.stopping import stop_runner
    from floodmark.streaming.telling import errors_of
    from floodmark.streaming.together import (
        SharedSession,
        StreamOutcome,
        announced,
        run_together,
    )

# Loaded on first use: executors import modules of this room, and need none of these.
_HOMES = {
    "SharedSession": "together",
    "StreamLedger": "ledger.protocol",
    "StreamNumbers": "running.metrics",
    "StreamOutcome": "together",
    "StreamStatus": "status",
    "StreamWatcher": "running.watching",
    "access_of": "parts",
    "adopted_checkpoint": "moving",
    "announced": "together",
    "errors_of": "telling",
    "ledger_of": "parts",
    "moved_to": "moving",
    "rewound": "moving",
    "run_together": "together",
    "runner_of": "parts",
    "served": "running.health",
    "sign_of_life": "status",
    "statements_of": "parts",
    "status_of": "status",
    "stop_runner": "stopping",
}

__all__ = [
    "SharedSession",
    "StreamLedger",
    "StreamNumbers",
    "StreamOutcome",
    "StreamStatus",
    "StreamWatcher",
    "access_of",
    "adopted_checkpoint",
    "announced",
    "errors_of",
    "ledger_of",
    "moved_to",
    "rewound",
    "run_together",
    "runner_of",
    "served",
    "sign_of_life",
    "statements_of",
    "status_of",
    "stop_runner",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"floodmark.streaming.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
