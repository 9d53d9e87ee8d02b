"""The kinds of sources: which folder reads which windows, and one source over all of them.

A new kind is a folder beside this file, whose `read.py` has a function `source`, and a line in
`_FOLDERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from floodmark.model import (
    AnswerWindow,
    CursorWindow,
    FilesWindow,
    Settlement,
    TableFacts,
    TimeFacts,
    TimeWindow,
    VersionWindow,
    Window,
)
from floodmark.sources.faults import not_frozen
from floodmark.sources.source import (
    KindSource,
    Looker,
    LookSpec,
    Readers,
    Resolver,
    SparkAccess,
    reader_of,
)

_FOLDERS: Mapping[type[Window], str] = {
    VersionWindow: "delta",
    TimeWindow: "time",
    CursorWindow: "cursor",
    FilesWindow: "files",
    AnswerWindow: "http",
}

Make = Callable[[], Any]
"""Makes the source of a kind."""


class Sources:
    """Reads each window by the source of its kind. See `Source`."""

    def __init__(
        self, makes: Mapping[type[Window], Make], readers: Readers | None = None, spark: Any = None
    ) -> None:
        self._makes = makes
        self._readers = readers or {}
        self._spark = spark
        self._sources: dict[type[Window], KindSource[Any]] = {}

    @classmethod
    def on_spark(cls, access: SparkAccess) -> Sources:
        """The sources of all kinds through a Spark session."""
        makes = {kind: partial(_loaded, folder, access) for kind, folder in _FOLDERS.items()}
        return cls(makes, access.readers, access.spark)

    def check(self, window: Window) -> TableFacts:
        """See `KindSource.check`; raises FM-SOURCE-011 for a window whose end is not frozen."""
        return self._of_frozen(window).check(window)

    def resolved(self, window: Window, choice: Settlement) -> Window | None:
        """See `Resolver.resolved`."""
        source = self._of(window)
        return source.resolved(window, choice) if isinstance(source, Resolver) else None

    def read(self, window: Window) -> Any:
        """See `KindSource.read`; raises FM-SOURCE-011 as `check` does."""
        return self._of_frozen(window).read(window)

    def table(self, window: Window, at_version: int) -> Any:
        """See `KindSource.table`; raises FM-SOURCE-011 as `check` does."""
        return self._of_frozen(window).table(window, at_version)

    def look(self, window: Window, spec: LookSpec) -> TimeFacts | None:
        """See `Looker.look`; the session of these sources is asked where `spec` has none."""
        source = self._of(window)
        looker = source if isinstance(source, Looker) else reader_of(self._readers, window.upstream)
        return looker.look(window, replace(spec, spark=spec.spark or self._spark))

    def _of_frozen(self, window: Window) -> KindSource[Any]:
        if window.deferred:
            raise not_frozen(window)
        return self._of(window)

    def _of(self, window: Window) -> KindSource[Any]:
        kind = type(window)
        if kind not in self._sources:
            if kind not in self._makes:
                raise ValueError(f"nothing here reads {window.upstream}")
            self._sources[kind] = self._makes[kind]()
        return self._sources[kind]


def _loaded(folder: str, access: SparkAccess) -> Any:
    """The source of a folder, which is imported when its first window comes."""
    return import_module(f"floodmark.sources.{folder}.read").source(access)
