"""One log event per stage of the work, from the library itself.

A notebook, a scheduler or a service sees what happens without any set-up: where nobody has given
the root logger a handler, the library writes to standard error through a handler of its own logger.
The root logger is never touched. `FLOODMARK_LOG` is `text` (the default), `json` or `off`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Protocol

from floodmark.observe.logs import JsonLines, PlainLines

VARIABLE = "FLOODMARK_LOG"
STAGES = (
    "planned",
    "started",
    "wrote",
    "succeeded",
    "failed",
    "finalized",
    "held",
    "stream_batch",
)
"""What happens, in the order of the work: a contract, extended and never renamed."""


class Tell(Protocol):
    """Takes the events of stages: `stage`, or a double."""

    def __call__(self, name: str, text: str, /, **fields: object) -> None: ...


_logger = logging.getLogger("floodmark.stages")
_guard = threading.Lock()


class OwnHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes for as long as nobody has set up logging: then whoever did has the events."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether nobody else shows the event."""
        return not logging.getLogger().handlers and bool(super().filter(record))


def stage(name: str, text: str, /, **fields: object) -> None:
    """Log that a stage is done: `text` for people, `fields` (names, counts, seconds) for machines.

    Records have the fields as `record.floodmark`, a mapping whose `stage` is the name.
    """
    _set_up_once()
    if _logger.isEnabledFor(logging.INFO):
        known = {key: value for key, value in fields.items() if value is not None}
        _logger.info("%s", text, extra={"floodmark": {"stage": name, **known}})


def _set_up_once() -> None:
    """Give floodmark's logger a handler, unless it has one or logging is set up already."""
    logger = logging.getLogger("floodmark")
    if logger.handlers or logging.getLogger().handlers:
        return
    with _guard:
        if not logger.handlers:
            logger.addHandler(_handler(os.environ.get(VARIABLE, "text").strip().lower()))
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.INFO)


def _handler(form: str) -> logging.Handler:
    if form == "off":
        return logging.NullHandler()
    handler = OwnHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else PlainLines())
    return handler
