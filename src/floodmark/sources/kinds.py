"""One source for all kinds of windows: each goes to the source of its kind."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from floodmark.errors import SourceError
from floodmark.model.delta import TableFacts
from floodmark.model.plan import TimeFacts
from floodmark.model.window import (
    AnswerWindow,
    CursorWindow,
    FilesWindow,
    Settlement,
    TimeWindow,
    VersionWindow,
    Window,
)
from floodmark.sources import KindQuerySource, KindSource


class SourceOfAllKinds:
    """Reads each window by the source of its kind."""

    def __init__(
        self,
        versions: KindSource[VersionWindow],
        times: KindQuerySource[TimeWindow],
        cursors: KindQuerySource[CursorWindow] | None = None,
        files: KindQuerySource[FilesWindow] | None = None,
        answers: KindQuerySource[AnswerWindow] | None = None,
    ) -> None:
        self._sources: dict[type[Window], Any] = {
            VersionWindow: versions,
            TimeWindow: times,
            CursorWindow: cursors,
            FilesWindow: files,
            AnswerWindow: answers,
        }

    def check(self, window: Window) -> TableFacts:
        """See `Source.check`; raises FM-SOURCE-011 for a window whose end is not frozen."""
        if window.deferred:
            raise not_frozen(window)
        facts: TableFacts = self._of(window).check(window)
        return facts

    def settled(self, window: Window, choice: Settlement) -> Window | None:
        """See `Source.settled`."""
        amended: Window | None = self._of(window).settled(window, choice)
        return amended

    def read(self, window: Window) -> Any:
        """See `Source.read`."""
        if window.deferred:
            raise not_frozen(window)
        return self._of(window).read(window)

    def table(self, window: Window, at_version: int) -> Any:
        """See `Source.table`."""
        if window.deferred:
            raise not_frozen(window)
        return self._of(window).table(window, at_version)

    def look(self, window: Window, now: datetime, settle_seconds: float | None) -> TimeFacts:
        """See `QuerySource.look`."""
        facts: TimeFacts = self._of(window).look(window, now, settle_seconds)
        return facts

    def _of(self, window: Window) -> Any:
        source = self._sources.get(type(window))
        if source is None:
            raise ValueError(f"nothing here reads {window.upstream}")
        return source


def not_frozen(window: Window) -> SourceError:
    """The error for whoever would read a window before its end is fixed."""
    return SourceError(
        "FM-SOURCE-011",
        "the end of a window is not frozen yet",
        where=window.upstream,
        found=window.reason,
        allowed="a window whose end the first run of its batch has frozen",
        state="nothing was read",
        next="floodmark run; for a pipeline that runs elsewhere record RUNNING first, then ask for"
        " its inputs",
    )
