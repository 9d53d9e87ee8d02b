"""Errors of a stream say which stream they are of, and its commands as they can be typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.config import LoadedStream
from floodmark.errors import FloodmarkError

_UNNAMED = re.compile(r"(floodmark stream (?:run|status|tables|reset))(?=$|[,;]| --)")
"""A command without the name that it needs: at the end of a sentence, or before its options."""


@contextmanager
def errors_of(stream: LoadedStream) -> Iterator[None]:
    """Every error of the block names the stream."""
    try:
        yield
    except FloodmarkError as error:
        name_stream(error, stream)
        raise


def name_stream(error: FloodmarkError, stream: LoadedStream) -> None:
    """Let an error of anything below a stream name it in `where` and in `next`; twice is once."""
    known = f"stream {stream.settings.pipeline_id}"
    where = error.where or ""
    if known not in where and f"stream {stream.called}" not in where:
        error.where = f"{known}, {where}" if where else known
    if error.next:
        error.next = _UNNAMED.sub(lambda found: f"{found[1]} {stream.called}", error.next)
