"""What one node hands to the next: rows that are the same however often they are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from floodmark.errors import FloodmarkError, RunError
from floodmark.model.delta import VersionFacts, enable_feed_command
from floodmark.model.receipt import WriteResult
from floodmark.model.window import Method, Window
from floodmark.model.write import CHANGE_COLUMNS, WriteSpec
from floodmark.run.context import Run

T = TypeVar("T")
Make = Callable[[], Any]

WHOLE = (None, "", "true", '["true"]')
"""Predicates of an overwrite that leaves no row."""
LANDED_PREFIX = "_landed"
"""Landed rows keep their change columns under names that are no change columns."""


@dataclass(frozen=True)
class Output:
    """Rows, not yet computed."""

    make: Make
    """A frame of the rows; each call may compute them anew."""
    windows: tuple[Window, ...]
    """Where they come from, for the rules of whoever writes them."""
    is_replayable: bool
    """Whether computing them again gives the same rows: every window above is of versions or files."""
    whole: Output | None = None
    """The same as a first run would see it, for a node that was added later; None if this is it."""


def read_by(run: Run, window: Window, make: Make) -> Output:
    """What a node reads of an upstream."""
    first = run.first_window(window)
    is_replayable = window.kind in ("version", "files")
    whole = Output(lambda: run.read(first), (first,), is_replayable) if first else None
    return Output(make, (window,), is_replayable, whole)


def committed(run: Run, node: str, result: WriteResult) -> Output:
    """What a node's write committed in this batch, also if an earlier attempt made it.

    An append, merge or replace_where: its rows from the change feed of that commit, deletes among
    them. An overwrite: the whole table. While a lost target below is rebuilt: the whole table too, since
    that reads as a first run would.
    """

    def output(*, whole: bool) -> Output:
        window = committed_window(run, node, result, whole=whole)
        return Output(lambda: run.read(window), (window,), is_replayable=True)

    now = output(whole=False)
    has_more = now.windows[0].method == "feed" and result.version > 0
    return replace(now, whole=output(whole=True)) if has_more else now


def committed_window(run: Run, node: str, result: WriteResult, *, whole: bool = False) -> Window:
    """The version of a target that holds a node's rows, as a window."""
    log, version = run.log_of(result.target), result.version
    facts, commit = log.facts(), log.versions(version, version)[0]
    is_whole = whole or run.rebuilds or replaces_all_rows(commit)
    method: Method = "snapshot" if is_whole else "feed"
    _, fingerprint = log.schema_at(version)
    return Window(
        upstream=result.target,
        method=method,
        after_version=version - 1,
        through_version=version,
        reason=f"what node {node} committed in this batch",
        table_id=facts.table_id,
        feed_enabled=log.feed_enabled_at(version),
        schema_fingerprint=fingerprint,
        latest_version=facts.latest_version,
        start_at=commit.committed_at,
        end_at=commit.committed_at,
        bytes=commit.bytes,
        rows=None if is_whole else commit.rows,
        changes=frozenset() if is_whole else commit.kinds,
    )


def replaces_all_rows(commit: VersionFacts) -> bool:
    """Whether a write put a whole table in the place of another."""
    parameters = commit.parameters
    return parameters.get("mode") == "Overwrite" and parameters.get("predicate") in WHOLE


def refuse_without_feed(run: Run, node: str, target: str, children: list[str]) -> None:
    """Raise FM-RUN-008 before a write whose committed rows nobody could read."""
    facts = run.log_of(target).facts()
    if facts.feed_enabled:
        return
    raise RunError(
        "FM-RUN-008",
        f"other nodes read what node {node} writes, and its target has no change feed",
        where=f"pipeline {run.pipeline}, {target}",
        found=f"read by {', '.join(children)}; delta.enableChangeDataFeed is off",
        allowed="a target with the change feed on, as floodmark creates it",
        state="this node wrote nothing; earlier writes of this run stand and are not repeated",
        next=f"{enable_feed_command(target)}, then: floodmark retry {run.batch.batch_id}",
    )


def landed(run: Run, name: str, output: Output, readers: Sequence[WriteSpec]) -> Output:
    """The same rows, computed once and put aside for the writes that read them."""

    def land() -> Window:
        rows = run.land(name, lambda: stored(output.make()), output.windows, readers)
        return committed_window(run, name, rows)

    window = once(land)
    return Output(lambda: unstored(run.read(window())), output.windows, is_replayable=True)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """The function, called by the first who asks; others wait and get the same, also its error."""
    guard = threading.Lock()
    found: list[T] = []
    failed: list[BaseException] = []

    def given() -> T:
        with guard:
            if failed:
                raise copy(failed[0]) if isinstance(failed[0], FloodmarkError) else failed[0]
            if not found:
                # Whatever it is, it is raised for everybody who needs the rows.
                try:
                    found.append(make())
                except BaseException as error:
                    failed.append(error)
                    raise
            return found[0]

    return given


def stored(frame: Any) -> Any:
    """A frame as it is landed."""
    return _renamed(frame, {name: f"{LANDED_PREFIX}{name}" for name in CHANGE_COLUMNS})


def unstored(frame: Any) -> Any:
    """A landed frame as it was: the feed's own change columns go, its own come back."""
    names = {f"{LANDED_PREFIX}{name}": name for name in CHANGE_COLUMNS}
    return _renamed(without_columns(frame, CHANGE_COLUMNS), names)


def _renamed(frame: Any, names: dict[str, str]) -> Any:
    if hasattr(frame, "withColumnsRenamed"):
        return frame.withColumnsRenamed(names)
    return frame.rename_columns([names.get(name, name) for name in frame.column_names])


def without_columns(frame: Any, names: tuple[str, ...]) -> Any:
    """A frame without these columns, as far as it has them; Spark's or Arrow's."""
    if hasattr(frame, "withColumnsRenamed"):
        return frame.drop(*names)
    return frame.drop_columns([name for name in names if name in frame.column_names])
