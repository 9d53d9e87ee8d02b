"""Jobs of Spark that belong together, told apart by a tag of the thread that starts them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TaggedJobs:
    """Jobs that can be cancelled together. Saves work only: nothing may rest on it.

    Spark Connect has no context, and no jobs that could be told apart by thread.
    """

    def __init__(self, spark: Any, tag: str) -> None:
        self._context = getattr(spark, "sparkContext", None)
        self._tag = tag

    @property
    def can_be_told(self) -> bool:
        """Whether there are jobs that have tags."""
        return self._context is not None

    @contextmanager
    def begun(self) -> Iterator[None]:
        """What this thread starts in the block is one of them."""
        if self._context is None:
            yield
            return
        self._context.addJobTag(self._tag)
        try:
            yield
        finally:
            self._context.removeJobTag(self._tag)

    def cancel(self) -> None:
        """Cancel what runs of them."""
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)
