"""Rows that are read, compared with those that were planned.

A plan knows from the log how many rows a range has. A reader may see others: where a checkpoint
and the commits of a table contradict each other, or where it misreads a file that the log describes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from floodmark.errors import SourceError
from floodmark.model import Window
from floodmark.next_steps import BATCH, THEN_RETRY, command

OBSERVATION_SECONDS = 10.0
"""How long Spark's event queue may take to tell what a write has read, before that is counted."""


def rows_in(frame: Any) -> int:
    """How many rows a frame has, counted by the engine that reads them; Spark's or Arrow's."""
    if not hasattr(frame, "sparkSession"):
        return int(frame.num_rows)
    from floodmark.engines.jvm import rows_of

    return rows_of(frame)


class RowCount:
    """The rows of one window as they are read in one run.

    A whole version is counted before anything is made of it, from the footers of its files: to
    observe it would keep Spark from skipping files. A change feed is observed while a write reads
    it (`is_observed`), or counted like a whole version. The observed number may be too high (a
    repeated task counts again) or too low (a join or a limit needs no more rows), so a number other
    than the planned one is counted again, exactly, before it is believed.
    """

    def __init__(
        self, window: Window, make: Callable[[], Any], *, is_observed: bool = True
    ) -> None:
        self.window = window
        self._is_observed = is_observed and window.method != "snapshot"
        self._make = make
        self._guard = threading.Lock()
        self._frame: Any = None
        self._observed: Callable[[float], int | None] | None = None

    def frame(self) -> Any:
        """The rows; raises FM-SOURCE-064 if they were counted at once and are not those planned."""
        if not self.window.is_counted:
            return self._make()
        with self._guard:
            if self._frame is None:
                self._frame = self._counted(self._make())
            return self._frame

    def misread(self) -> int | None:
        """The number of rows that a write has read, if it is not the planned one.

        Asked after the first action on the frame has ended. None also where the rows were counted
        before it, or nothing has asked for the frame.
        """
        if self._observed is None or self._observed(OBSERVATION_SECONDS) == self.window.rows:
            return None
        return self.recounted()

    def refuse_misread(self) -> None:
        """Raise FM-SOURCE-064 where the rows are not those planned, and no target has them yet."""
        rows = self.misread()
        if rows is not None:
            raise other_rows(self.window, rows)

    def recounted(self) -> int | None:
        """The same, counted now."""
        if not self.window.is_counted:
            return None
        rows = rows_in(self._make())
        return None if rows == self.window.rows else rows

    def _counted(self, frame: Any) -> Any:
        if self._is_observed and _is_observable(frame):
            from floodmark.engines.jvm import observed_rows

            observed, self._observed = observed_rows(frame)
            return observed
        rows = rows_in(frame)
        if rows != self.window.rows:
            raise other_rows(self.window, rows)
        return frame


def _is_observable(frame: Any) -> bool:
    if not hasattr(frame, "sparkSession"):
        return False
    from floodmark.engines.jvm import is_connect

    return not is_connect(frame.sparkSession)


def other_rows(window: Window, rows: int) -> SourceError:
    """The error for a window that has other rows than its log says."""
    return SourceError(
        "FM-SOURCE-064",
        "the rows that are read are not as many as the table's log says",
        where=window.upstream,
        found=f"{rows:,} rows are read, the log says {window.rows:,}",
        allowed="one number of rows: commits, checkpoint and files of the table tell the same",
        state="nothing was written from these rows; the committed watermark stays",
        next="repair the table, "
        + THEN_RETRY
        + "; or take the rows as they are read: "
        + command("retry", BATCH, "--on-lost-range", "accept")
        + "; or the whole table at the planned end: --on-lost-range snapshot",
        details={"window": f"versions {window.start} to {window.end} by {window.method}"},
    )


def written_with_other_rows(window: Window, rows: int, write: str) -> SourceError:
    """The error for rows that were found to be others when they were committed already."""
    error = other_rows(window, rows)
    error.code = "FM-SOURCE-065"
    error.title = f"the write {write} took other rows than the table's log says"
    error.state = (
        "the rows are in their target, and a retry does not repeat them; the run stays FAILED and"
        " the committed watermark where it is until you decide"
    )
    error.next = (
        "look at the target; if its rows are right: "
        + command("retry", BATCH, "--on-lost-range", "accept")
        + "; if not, put the target back as it was before the batch, repair the table,"
        " then: " + command("retry", BATCH, "--on-lost-target", "accept")
    )
    return error
