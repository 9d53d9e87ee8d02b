"""The Spark session of a project: started when, and only when, there is something to run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from floodmark.engines.catalog import is_in_memory
from floodmark.errors import SetupError
from floodmark.project.definitions import Definitions
from floodmark.project.outcomes import Watcher


class Session:
    """Starts Spark once for all pipelines of a project, and hands it to the coordinator."""

    def __init__(self, definitions: Definitions, make: Callable[[], Any] | None = None) -> None:
        self._definitions = definitions
        self._make = make or partial(_local_session, definitions.file.settings.spark)
        self._failure: SetupError | None = None
        self._starting = threading.Lock()
        self.has_started = False

    def ensure_session(self, watcher: Watcher) -> None:
        """Start Spark if it is not there; raises SetupError, once found, without trying again."""
        with self._starting:
            if self.has_started:
                return
            if self._failure is not None:
                raise self._failure
            self._start(watcher)

    def connect_names(self, scopes: Iterable[str], watcher: Watcher) -> None:
        """Start Spark if a catalog name of these scopes has to be asked for; the run uses it too."""
        if self._definitions.unresolved(scopes):
            self.ensure_session(watcher)

    def try_again(self) -> None:
        """Forget a failed start: the next call of a user may have better luck."""
        self._failure = None

    def _start(self, watcher: Watcher) -> None:
        if not _has_active_session():
            watcher.starting_session()
        coordinator = self._definitions.coordinator
        try:
            coordinator.spark = self._make()
        except SetupError as error:
            self._failure = error
            raise
        if is_in_memory(coordinator.spark):  # nobody could read tables registered there
            coordinator.store.schema = None
        self.has_started = True


def _local_session(conf: Mapping[str, str]) -> Any:
    from floodmark.engines.spark import local_session

    return local_session(conf)


def _has_active_session() -> bool:
    """Whether somebody has started Spark in this process; asks without importing it."""
    if "pyspark.sql" not in sys.modules:
        return False
    from floodmark.engines.spark import active_session

    return active_session() is not None
