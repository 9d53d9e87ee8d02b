"""Signs of life of lease holders: one small object each, outside the journal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from floodmark.deltalog import Storage
from floodmark.model import Clock


class Heartbeats(Protocol):
    """Where holders leave their signs of life."""

    def beat(self, run_id: str, count: int) -> None:
        """Leave a new sign; raises OSError if that is not possible."""

    def last(self, run_id: str) -> str | None:
        """The newest sign of a run, None if it never left one. Only its change means something."""

    def clear(self, run_id: str) -> None:
        """Remove the sign of a run that has ended."""


class SignsOfLife(Heartbeats, Protocol):
    """Where holders leave their signs of life, and what leaves them for a run of this process."""

    def pulse(self, run_id: str, ttl_seconds: float, clock: Clock) -> Pulse:
        """What beats for a run while it is entered."""


class FileHeartbeats:
    """Signs of life as files below `<control>/_heartbeats`."""

    def __init__(self, control: str, storage: Storage) -> None:
        self._folder = f"{control}/_heartbeats"
        self._storage = storage

    def beat(self, run_id: str, count: int) -> None:
        self._storage.write(f"{self._folder}/{run_id}", str(count).encode())

    def last(self, run_id: str) -> str | None:
        try:
            return self._storage.read(f"{self._folder}/{run_id}").decode()
        except FileNotFoundError:
            return None

    def clear(self, run_id: str) -> None:
        self._storage.delete(f"{self._folder}/{run_id}")

    def pulse(self, run_id: str, ttl_seconds: float, clock: Clock) -> Pulse:
        """See `SignsOfLife.pulse`: a thread beats."""
        return Pulse(self, run_id, ttl_seconds, clock)


class Pulse:
    """Beats for one run from a thread of its own, and knows when it last succeeded."""

    def __init__(
        self, heartbeats: Heartbeats, run_id: str, ttl_seconds: float, clock: Clock
    ) -> None:
        self._heartbeats = heartbeats
        self._run_id = run_id
        self._ttl = ttl_seconds
        self._clock = clock
        self._count = 0
        self._last_beat = clock.monotonic()
        self._guard = threading.Lock()

    def __enter__(self) -> Self:
        self._try_beat()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pulse {self._run_id}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        # A storage that hangs must not keep a run that has ended; a late sign tells nothing wrong.
        self._thread.join(self._ttl)
        # A sign that stays behind only tells of a run that has ended.
        with suppress(OSError):
            self._heartbeats.clear(self._run_id)

    def beat(self) -> None:
        """Leave a sign now; raises OSError if that is not possible."""
        with self._guard:
            self._count += 1
            self._heartbeats.beat(self._run_id, self._count)
            self._last_beat = self._clock.monotonic()

    def is_late(self) -> bool:
        """Whether the last sign is so old that others may soon think the run dead."""
        return self._clock.monotonic() - self._last_beat > self._ttl / 2

    def _run(self) -> None:
        while not self._stop.wait(self._ttl / 3):
            self._try_beat()

    def _try_beat(self) -> None:
        # A beat that failed shows in `is_late`; the run then stops itself.
        with suppress(OSError):
            self.beat()


PulseFactory = Callable[[str, float], Pulse]
