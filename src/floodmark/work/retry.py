"""Trying again: how often, and after which waits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Chance = Callable[[float, float], float]
"""A number between two, each as likely as any other."""

any_number: Chance = random.SystemRandom().uniform
"""Numbers of the system: nobody else's seed makes two processes wait for the same time."""

_DOUBLINGS = 60
"""More of them change nothing: every wait has an end."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often something is tried, and how long is waited in between."""

    first_seconds: float
    """The first wait; each further one is twice as long, if the waits grow."""
    attempts: float = math.inf
    """How often in all, the first time included."""
    longest_seconds: float = math.inf
    """No wait is longer."""
    limit_seconds: float = math.inf
    """What asks for a longer wait is not tried again."""
    grows: bool = True
    jitter: float = 0.0
    """The share of a wait that chance may take away, so that those that failed together do not come
    back together."""

    def wait_seconds(self, failed: int, chance: Chance = any_number) -> float:
        """The wait after so many attempts have failed.

        >>> policy = RetryPolicy(1.0, longest_seconds=60.0)
        >>> [policy.wait_seconds(failed) for failed in range(1, 9)]
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        """
        grown = 2.0 ** min(failed - 1, _DOUBLINGS) if self.grows else 1.0
        longest = min(self.first_seconds * grown, self.longest_seconds)
        return chance(longest * (1 - self.jitter), longest) if self.jitter else longest

    def allows(self, failed: int, wait_seconds: float = 0.0) -> bool:
        """Whether another attempt follows, after that wait."""
        return failed < self.attempts and wait_seconds <= self.limit_seconds
