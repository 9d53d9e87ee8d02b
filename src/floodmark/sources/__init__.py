"""The door of the sources: what is new, and exactly that."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol, TypeVar

from floodmark.model.delta import TableFacts
from floodmark.model.plan import TimeFacts
from floodmark.model.window import Settlement, Window

W = TypeVar("W", bound=Window)


class KindSource(Protocol[W]):
    """Reads frozen windows of one kind.

    `Any` stands for the engine's frame: a Spark DataFrame, or an Arrow table without Spark.
    """

    def check(self, window: W) -> TableFacts:
        """Prove from the log that the window can be read exactly, before anything is read.

        Raises SourceError (FM-SOURCE-*) if the table is another one, part of the range is gone,
        the feed does not cover it or the schema moved; the run then fails and writes nothing.
        """

    def settled(self, window: W, choice: Settlement) -> W | None:
        """The same range read in another way, if it is lost as it was planned; None if it is not.

        Asks for every data file. snapshot: the whole table at the window's end, FM-SOURCE-010 if
        that is gone too. accept: what is left at the end of the range, which may be nothing.
        """

    def read(self, window: W) -> Any:
        """The rows of the window with the three change columns; empty, with schema, for a NOOP."""

    def table(self, window: W, at_version: int) -> Any:
        """The whole upstream as of `at_version`, without change columns; -1 gives it empty."""


class KindQuerySource(KindSource[W], Protocol[W]):
    """Reads upstreams without versions, and finds out itself what is new in them."""

    def look(self, window: W, now: datetime, settle_seconds: float | None) -> TimeFacts:
        """What is new after the start of a window, as far as it is settled; see `TimeFacts`.

        Raises FM-SOURCE-007 if the column is not there or not of the type of its marks.
        """


class Source(KindSource[Window], Protocol):
    """Reads frozen windows of all kinds: each goes to the source of its own."""


class QuerySource(KindQuerySource[Window], Protocol):
    """The same, and looks for what is new where there are no versions."""
