"""Errors of a stream say which stream they are of, and its commands as they can be typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.config import LoadedStream
from floodmark.errors import FloodmarkError
from floodmark.next_steps import STREAM, filled


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
    error.name_stream(stream.settings.pipeline_id)
    if error.next:
        error.next = filled(error.next, STREAM, stream.called)
