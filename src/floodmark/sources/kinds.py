"""One source for all kinds of windows: each goes to the source of its kind."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from floodmark.errors import SourceError
from floodmark.model.delta import TableFacts
from floodmark.model.plan import TimeFacts
from floodmark.model.window import Settlement, Window
from floodmark.sources import QuerySource, Source


class SourceOfAllKinds:
    """Reads windows of versions by one source, all others by that of their kind."""

    def __init__(
        self,
        versions: Source,
        times: QuerySource,
        cursors: QuerySource | None = None,
        files: QuerySource | None = None,
    ) -> None:
        self._versions = versions
        self._others = {"time": times, "cursor": cursors, "files": files}

    def check(self, window: Window) -> TableFacts:
        """See `Source.check`; raises FM-SOURCE-011 for a window whose end is not frozen."""
        if window.deferred:
            raise not_frozen(window)
        return self._of(window).check(window)

    def settled(self, window: Window, choice: Settlement) -> Window | None:
        """See `Source.settled`."""
        return self._of(window).settled(window, choice)

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
        return self._query_source(window).look(window, now, settle_seconds)

    def _of(self, window: Window) -> Source:
        return self._versions if window.kind == "version" else self._query_source(window)

    def _query_source(self, window: Window) -> QuerySource:
        found = self._others.get(window.kind)
        if found is None:
            raise ValueError(f"nothing here reads {window.upstream}")
        return found


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
