"""Time as an argument: wall time for records, monotonic time for waiting."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the product asks of time. Only `monotonic` may decide anything."""

    def now(self) -> datetime:
        """The wall time in UTC, for people and records."""

    def monotonic(self) -> float:
        """Seconds that never go back, for leases and timeouts."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class FrozenClock:
    """A clock that moves only when told to; sleeping moves it."""

    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    elapsed: float = field(default=0.0)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.elapsed += seconds


def epoch_micros(at: datetime) -> int:
    """Microseconds since 1970 in UTC, exactly: a float would lose some of them."""
    delta = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
