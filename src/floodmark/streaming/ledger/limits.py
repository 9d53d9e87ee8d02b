"""How long the target may take for a batch: what takes longer is ended, and tried again."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from floodmark.engines.jobs import TaggedJobs
from floodmark.errors import StreamError
from floodmark.next_steps import STREAM, command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.postgres import Connection

CANCEL_SECONDS = 5
"""How long a server is given to hear that a statement shall end, and how soon it is told again."""
CANCELS = 3
"""A server that hears nothing loses its connection then."""


@dataclass(frozen=True, slots=True)
class WriteLimit:
    """How long a batch of a stream may take, and what is said of it when it takes longer."""

    stream: str
    where: str
    seconds: float


@contextmanager
def within(limit: WriteLimit, end: Callable[[int], None]) -> Iterator[None]:
    """Call `end` after so long, again and again, until the block is over; raises FM-STREAM-055.

    `end` is told how often it was called before. A block that comes to its end all the same has.
    """
    is_over, is_late = threading.Event(), threading.Event()

    def watch() -> None:
        if is_over.wait(limit.seconds):
            return
        is_late.set()
        for number in range(1_000_000):
            with suppress(Exception):  # whoever is to be ended may be gone
                end(number)
            if is_over.wait(CANCEL_SECONDS):
                return

    threading.Thread(target=watch, name="floodmark write limit", daemon=True).start()
    try:
        yield
    except Exception as error:
        if is_late.is_set():
            raise _too_late(limit) from error
        raise
    finally:
        is_over.set()


def statements_within(connection: Connection, limit: WriteLimit) -> AbstractContextManager[None]:
    """The same for what a connection does in the block, its COMMIT included."""

    def end(number: int) -> None:
        if number < CANCELS:
            connection.cancel_safe(timeout=CANCEL_SECONDS)
            return
        # Nobody answers: whoever waits for this connection is told that it is lost.
        with socket.socket(fileno=os.dup(connection.fileno())) as lost:
            lost.shutdown(socket.SHUT_RDWR)

    return within(limit, end)


@contextmanager
def jobs_within(spark: SparkSession, limit: WriteLimit) -> Iterator[None]:
    """The same for the jobs of Spark that the block starts: those alone are cancelled."""
    jobs = TaggedJobs(spark, f"floodmark-{uuid4().hex}")
    with jobs.begun(), within(limit, lambda _: jobs.cancel()):
        yield


def _too_late(limit: WriteLimit) -> StreamError:
    return StreamError(
        "FM-STREAM-055",
        "the target took too long for a batch of a stream",
        stream=limit.stream,
        where=limit.where,
        found=f"no end after {limit.seconds:g} s",
        allowed="load.writeTimeout",
        state="rows and offsets are one commit: all there or nothing, and the next attempt finds out",
        next="look what the target waits for, or raise writeTimeout; then: "
        + command("stream", "run", STREAM),
        retryable=True,
    )
