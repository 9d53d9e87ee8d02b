"""What one pass over a pipeline's function reads, and what it has to know of its batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from floodmark.deltalog import DeltaLog, Storage, absolute, is_delta_table
from floodmark.errors import ConfigError, RunError
from floodmark.model import (
    DEFAULT_OPTIONS,
    AnyMark,
    PlannedBatch,
    UpstreamOptions,
    Window,
    marks_of,
)
from floodmark.run.engine import Engine
from floodmark.run.lost_targets import first_run_windows
from floodmark.sources.delta import rows_by_log

if TYPE_CHECKING:
    from floodmark.sources import Readers
    from floodmark.transforms import Step

W = TypeVar("W", bound=Window)

NameOf = Callable[[str], str]
"""Turns a name as the user writes it into the stored one."""


class Reads:
    """The windows of a pass, and everything that is read in it.

    A pass calls the pipeline's function once, with the windows of its batch or with those of a
    first run; see `run.lost_targets`.
    """

    def __init__(
        self,
        *,
        batch: PlannedBatch,
        pipeline: str,
        engine: Engine,
        name_of: NameOf,
        storage: Storage,
        rebuilds_from: Mapping[str, UpstreamOptions] | None = None,
        options: Mapping[str, UpstreamOptions] | None = None,
        loads_anew: bool = False,
        readers: Readers | None = None,
        lookups: Collection[str] | None = None,
        accepts_lost_rows: bool = False,
    ) -> None:
        self.batch = batch
        self.pipeline = pipeline
        self.windows: tuple[Window, ...] = tuple(
            batch.window_for(pipeline, upstream) for upstream in batch.upstreams_of(pipeline)
        )
        frozen = batch.lookups_of(pipeline)
        self.lookups: Mapping[str, Window] = {
            name: window for name, window in frozen.items() if lookups is None or name in lookups
        }
        """What the batch has frozen for the pipeline to look up, whole."""
        self.begins = all(window.is_first for window in self.windows)
        """Whether the batch loads everything that the pipeline reads."""
        self.spans = {w.upstream: (w.start, w.end) for w in self.windows}
        self.marks = marks_of(self.windows)
        """Spans and marks of the batch, which every commit tells; also in a rebuilding pass."""
        self.rebuilds = rebuilds_from is not None
        """Whether this pass writes lost targets anew, from the windows of a first run."""
        if rebuilds_from is not None:
            self.windows = first_run_windows(self.windows, rebuilds_from)
        self.readers = readers or {}
        """What reads upstreams of databases."""
        self.loads_anew = loads_anew
        """Whether first runs replace what their targets hold, also what others wrote."""
        self.accepts_lost_rows = accepts_lost_rows
        """Whether rows of this batch that are gone, landed or committed, are made once more."""
        self.storage = storage
        self._options = options or {}
        self._engine = engine
        self._name_of = name_of

    @property
    def spark(self) -> Any:
        """The session; None where the engine has none."""
        return self._engine.spark

    def window(self, name: str) -> Window:
        """The window of an upstream or lookup, by the name as registered or as stored."""
        stored = self._name_of(name)
        for window in (*self.windows, *self.lookups.values()):
            if window.upstream in (name, stored):
                return window
        raise RunError(
            "FM-RUN-003",
            f"pipeline {self.pipeline} does not read {name}",
            where=f"batch {self.batch.batch_id}",
            allowed=", ".join(window.upstream for window in self.windows),
            state="nothing was read; earlier writes of this run stand and are not repeated",
            next=f"register {name} as an upstream of {self.pipeline}",
        )

    def table(self, name: str, at: Literal["end", "before"] = "end") -> Any:
        """The whole upstream, without change columns, at the batch's frozen version.

        `at="before"` gives it as it was just before the window: a join of changes needs one side
        of each. Raises FM-RUN-003 for an upstream that the pipeline is not registered for.
        """
        if at not in ("end", "before"):
            raise ConfigError(
                "FM-CONFIG-007",
                f"run.table has no at={at!r}",
                rule="unknown_choice",
                allowed="end, before",
                state="nothing was read",
                next="correct the call",
            )
        window = self.window(name)
        version = window.through if at == "end" else window.after
        return self._engine.source().table(window, version)

    def read(self, window: Window) -> Any:
        """The rows of any window, proven readable first."""
        return self._engine.source().read(window)

    def stored_name(self, name: str) -> str:
        """The name under which an upstream or lookup is stored."""
        return self._name_of(name)

    def transformed(
        self, steps: Sequence[Step], frame: Any, others: Mapping[str, Any], root: Path
    ) -> Any:
        """A frame after the steps of a node, in the engine of the run."""
        return self._engine.transformed(steps, frame, others, root)

    def first_window(self, window: W) -> W | None:
        """The window as a first run would have it; None if it is that already."""
        if not self.batch.is_ordered or self.rebuilds:
            return None
        first = window.as_first_run(self._options.get(window.upstream, DEFAULT_OPTIONS))
        is_same = (first.after, first.after_mark) == (window.after, window.after_mark)
        return None if is_same else first

    def baseline_of(self, window: Window) -> AnyMark | None:
        """The mark before which the pipeline reads nothing of an upstream without versions."""
        options = self._options.get(window.upstream)
        end = window.through_mark
        return options.first_mark(end) if options is not None and end is not None else None

    def path_of(self, target: str) -> str:
        """The absolute path of a target that is given by path."""
        return absolute(target, self._name_of("."))

    def log_of(self, path: str) -> DeltaLog:
        """The log of a table."""
        return DeltaLog(path, self.storage)

    def has_table(self, target: str) -> bool:
        """Whether there is a Delta table at a target that is given by path."""
        return is_delta_table(self.path_of(target), self.storage)

    def rows_by_log(self, window: Window) -> int | None:
        """How many rows the log of a table says that a window has; None where it does not say."""
        return rows_by_log(window, self.storage, self.spark)

    def check(self, windows: Iterable[Window]) -> None:
        """Prove the feed windows again: frames are read only now, and Spark tolerates holes."""
        source = self._engine.source()
        for window in windows:
            if window.has_news and window.feed_start is not None:
                source.check(window)
