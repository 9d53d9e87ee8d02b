"""The process of Spark's JVM that this process started: noted when it begins, ended when asked."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from floodmark.engines import jvm

STOP_SECONDS = 5.0
"""How long the JVM is given to end by itself and to remove its files."""

_processes: list[subprocess.Popen[bytes]] = []
"""pyspark keeps the process to itself until Java has answered, which takes seconds."""


@contextmanager
def noted() -> Iterator[None]:
    """Around the start of a session: note the process of the JVM, if one is started."""
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    popen = java_gateway.Popen

    def note(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = popen(*arguments, **options)
        _processes.append(process)
        return process

    java_gateway.Popen = note
    try:
        yield
    finally:
        java_gateway.Popen = popen


def end_while_starting() -> None:
    """End a JVM that has not answered yet; whoever waits for it gets an error."""
    if _processes and not jvm.has_answered():
        _kill()


def end(within_seconds: float) -> None:
    """End the JVM, by itself within that time, else at once; nothing where none was started.

    It leaves when its standard input ends. What it was committing is committed or is not: receipts
    decide, as after any crash.
    """
    for process in _processes:
        with suppress(OSError, ValueError):
            if process.stdin is not None:
                process.stdin.close()
        if within_seconds > 0:
            with suppress(subprocess.TimeoutExpired):
                process.wait(within_seconds)
    _kill()


def _kill() -> None:
    for process in _processes:
        process.kill()  # nothing happens to one that has ended
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
