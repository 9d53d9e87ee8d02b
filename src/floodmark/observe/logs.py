"""Setting up the standard logging for a command; a library leaves it to its host."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime

from floodmark.observe.text import visible
from floodmark.secrecy import masked


def configure_logging(*, is_verbose: bool = False, as_json: bool = False) -> None:
    """Send floodmark's log events to standard error; called again it replaces the set-up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logger = logging.getLogger("floodmark")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if is_verbose else logging.INFO)
    logger.propagate = False
    # A command tells of its stages on the screen; as a log they are for whoever asks for more.
    logging.getLogger("floodmark.stages").setLevel(logging.DEBUG if is_verbose else logging.WARNING)
    root = logging.getLogger()
    if not is_verbose and not root.handlers:
        # Libraries log what they also raise (py4j each interrupt, with its traceback); without a
        # handler Python would print it.
        root.addHandler(logging.NullHandler())
    if not is_verbose:
        # delta-rs writes what it raises, and what it tries on the way, to standard error: lines of
        # a thousand characters. It looks here once, when it is imported.
        os.environ.setdefault("RUST_LOG", "off")


class PlainLines(logging.Formatter):
    """`floodmark: message`, one line per event, control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of an event; a traceback follows it on lines of its own."""
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        lines = [f"floodmark: {level}{visible(masked(record.getMessage()))}"]
        return "\n".join([*lines, *_trace(record)])


class JsonLines(logging.Formatter):
    """One JSON object per event."""

    def format(self, record: logging.LogRecord) -> str:
        """The object of an event."""
        event: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": masked(record.getMessage()),
            **_fields(record),
        }
        if trace := _trace(record):
            event["traceback"] = trace
        return json.dumps(event, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What an event of a stage carries for machines; texts without secrets."""
    fields = getattr(record, "floodmark", {})
    return {key: masked(v) if isinstance(v, str) else v for key, v in fields.items()}


def _trace(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[1] is None:
        return []
    text = masked("".join(traceback.format_exception(record.exc_info[1])))
    return [visible(line) for line in text.splitlines()]
