"""What one node hands to the next: rows that are the same however often they are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from floodmark.errors import FloodmarkError, RunError, SourceError
from floodmark.model import (
    CHANGE_COLUMNS,
    Method,
    VersionFacts,
    VersionWindow,
    Window,
    WriteResult,
    WriteSpec,
    enable_feed_command,
    metadata_of,
)
from floodmark.next_steps import command, then_retry
from floodmark.run.context import Pass
from floodmark.run.landed import UNREADABLE, whole_window
from floodmark.run.nodes.counted import counted
from floodmark.sources import RowCount

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
    has_news: bool
    """Whether anything above has news in this batch."""
    whole: Output | None = None
    """The same as a first run would see it, for a node that was added later; None if this is it."""
    standing: Output | None = None
    """The rows with all of every table that is read whole, with news or without: what other nodes
    join, union and query. None if nothing above is read whole."""
    target: Output | None = None
    """The whole table that a write by key has changed: what other nodes join and query."""
    is_read_whole: bool = False
    """Whether `standing` is all there is, not only what is new beside what is whole."""
    counts: tuple[RowCount, ...] = ()
    """The numbers of rows to compare with the plan when the rows have been read."""


def read_by(
    run: Pass, window: Window, make: Make, *, is_read_whole: bool, is_observed: bool
) -> Output:
    """What a node reads of an upstream; its rows are counted as they are read, or before it."""
    # A rebuild reads a window of which the plan has no number.
    make = counted(run, window, make) if run.reads.rebuilds and window.has_news else make
    count = RowCount(window, make, is_observed=is_observed)
    first, standing = run.reads.first_window(window), window.whole()
    is_replayable = window.is_replayable
    is_news = window.has_news and window.method == "snapshot"

    def all_of(given: Window) -> Output:
        def make_all() -> Any:
            if given is standing:
                count.frame()  # all of it is what is new, where a table is read whole
            if not given.is_frozen:
                raise _not_frozen(run, given)
            return run.reads.read(given)

        is_counted = given is standing and is_news and window.is_counted
        make_counted = make_all if is_counted else counted(run, given, make_all)
        return Output(make_counted, (given,), is_replayable, has_news=True)

    return Output(
        count.frame,
        (window,),
        is_replayable,
        has_news=window.has_news,
        whole=all_of(first) if first else None,
        standing=all_of(standing) if is_read_whole else None,
        is_read_whole=is_read_whole,
        counts=(count,),
    )


def looked_up(run: Pass, window: Window) -> Output:
    """All of a table as the batch has frozen it; it has no news, and no rule of a write asks for it."""
    given = window.whole()
    make = counted(run, given, lambda: run.reads.read(given))
    rows = Output(make, (given,), is_replayable=True, has_news=False)
    return replace(rows, windows=(), standing=rows, is_read_whole=True)


def _not_frozen(run: Pass, window: Window) -> RunError:
    return RunError(
        "FM-RUN-010",
        "the batch has not frozen what a node reads whole",
        where=f"pipeline {run.pipeline}, batch {run.batch.batch_id}, {window.upstream}",
        found="no pipeline of the scope has committed a batch with an answer of it yet",
        allowed="an answer that the batch has planned, or one before it",
        state="nothing was written by this node; the committed watermark stays",
        next=f"give the pipeline a scope of its own (scope: {run.pipeline}): it then begins with"
        " everything; and " + command("cancel", run.batch.batch_id),
    )


def committed(run: Pass, node: str, result: WriteResult, made: Output) -> Output:
    """What a node's write committed in this batch, also if an earlier attempt made it.

    An append, merge or replace_where: its rows from the change feed of that commit, deletes among
    them. An overwrite: the whole table. While a lost target below is rebuilt: the whole table too, since
    that reads as a first run would. Nothing where the rows that were `made` have no news, though an
    empty commit, or one with the same rows, has kept the receipt.
    """

    def output(window: Window) -> Output:
        def make() -> Any:
            if why := commit_loss(run, result):
                raise commit_gone(run, node, result, why)
            return run.reads.read(window)

        return Output(make, (window,), is_replayable=True, has_news=window.has_news)

    try:
        window = committed_window(run, node, result)
    except SourceError as error:
        if error.code not in UNREADABLE:
            raise
        raise commit_gone(run, node, result, f"{error.title}: {error.found}") from error
    is_whole = window.method == "snapshot"
    table = output(replace(window, method="snapshot", rows=None, changes=frozenset()))
    none = replace(window, after=window.through, rows=0, bytes=0)
    news = output(window if made.has_news else none)
    return replace(
        news,
        whole=table if not made.has_news or (not is_whole and result.version > 0) else None,
        standing=table if is_whole or made.standing is not None else None,
        target=table,
        is_read_whole=is_whole or made.is_read_whole,
    )


def committed_window(run: Pass, node: str, result: WriteResult) -> VersionWindow:
    """The version of a target that holds a node's rows, as a window."""
    log, version = run.reads.log_of(result.target), result.version
    facts, commit = log.facts(), log.versions(version, version)[0]
    is_whole = run.reads.rebuilds or replaces_all_rows(commit)
    method: Method = "snapshot" if is_whole else "feed"
    _, fingerprint = log.schema_at(version)
    return VersionWindow(
        upstream=result.target,
        method=method,
        after=version - 1,
        through=version,
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


def commit_loss(run: Pass, result: WriteResult) -> str:
    """Why the nodes below cannot read what a write has committed; empty if they can.

    Files are asked for where somebody else has committed since: a VACUUM removes those that were put
    together with others.
    """
    log, version = run.reads.log_of(result.target), result.version
    try:
        later = log.versions(version + 1, log.facts().latest_version)
        (commit,) = log.versions(version, version)
        if (
            all(metadata_of(other.user_metadata) for other in later)
            and not run.reads.accepts_lost_rows
        ):
            return ""
        is_whole = run.reads.rebuilds or replaces_all_rows(commit)
        lost = (
            log.lost_snapshot_files(version) if is_whole else log.lost_feed_files(version, version)
        )
    except SourceError as error:
        if error.code not in UNREADABLE:
            raise
        return f"{error.title}: {error.found}"
    return f"{len(lost)} data files of version {version}, {lost[0]} among them" if lost else ""


def commit_gone(run: Pass, node: str, result: WriteResult, why: str) -> RunError:
    """The error for rows that a node has committed and the nodes below it cannot read any more."""
    batch = run.batch.batch_id
    return RunError(
        "FM-RUN-013",
        f"the nodes below node {node} cannot read any more what it has committed",
        where=f"pipeline {run.pipeline}, batch {batch}, {result.target} version {result.version}",
        found=why,
        allowed="the commit of the node, and the files that it names",
        state=f"the target of node {node} holds its rows; the nodes below it wrote nothing, and the"
        " committed watermark stays",
        next="put the files back, "
        + then_retry(batch)
        + f"; or let the nodes below read what node {node} was given to write: "
        + command("retry", batch, "--on-lost-range", "accept")
        + " (where a source without versions has changed meanwhile, they get other rows)",
    )


def landed_window(run: Pass, node: str, landed: WriteResult) -> VersionWindow:
    """The table with the rows of a landing as a window: all there is, wherever its files are now."""
    version, log = run.landings.landed_version(landed), run.reads.log_of(landed.target)
    reason = f"what node {node} put aside in this batch"
    return whole_window(landed.target, log, version, reason)


def replaces_all_rows(commit: VersionFacts) -> bool:
    """Whether a write put a whole table in the place of another."""
    parameters = commit.parameters
    return parameters.get("mode") == "Overwrite" and parameters.get("predicate") in WHOLE


def refuse_without_feed(run: Pass, node: str, target: str, children: list[str]) -> None:
    """Raise FM-RUN-008 before a write whose committed rows nobody could read."""
    facts = run.reads.log_of(target).facts()
    if facts.feed_enabled:
        return
    raise RunError(
        "FM-RUN-008",
        f"other nodes read what node {node} writes, and its target has no change feed",
        where=f"pipeline {run.pipeline}, {target}",
        found=f"read by {', '.join(children)}; delta.enableChangeDataFeed is off",
        allowed="a target with the change feed on, as floodmark creates it",
        state="nothing was written by this node; a retry skips the nodes that finished",
        next=enable_feed_command(target) + ", " + then_retry(run.batch.batch_id),
    )


def landed(run: Pass, name: str, output: Output, readers: Sequence[WriteSpec]) -> Output:
    """The same rows, computed once and put aside for the writes that read them."""

    def land() -> VersionWindow:
        rows = run.landings.land(name, lambda: stored(output.make()), output.windows, readers)
        # No target has them yet. Rows that an earlier attempt put aside were compared by it.
        for count in output.counts:
            count.refuse_misread()
        return landed_window(run, name, rows)

    window = once(land)
    again = replace(output, make=lambda: unstored(run.reads.read(window())), is_replayable=True)
    return replace(again, counts=())


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


def no_rows_of(frame: Any) -> Any:
    """The columns of a frame without a row; Spark's or Arrow's."""
    return frame.limit(0) if hasattr(frame, "withColumnsRenamed") else frame.slice(0, 0)


def rows_only(frame: Any) -> Any:
    """The rows that inserts and updates left behind, without the change columns."""
    from floodmark.sinks import UPSERTS, upserts

    if hasattr(frame, "withColumnsRenamed"):
        has_type = CHANGE_COLUMNS[0] in frame.columns
        return upserts(frame) if has_type else frame.drop(*CHANGE_COLUMNS)
    if CHANGE_COLUMNS[0] in frame.column_names:
        import pyarrow as pa
        import pyarrow.compute as pc

        kinds = pa.array(UPSERTS)
        frame = frame.filter(pc.is_in(frame[CHANGE_COLUMNS[0]], value_set=kinds))
    return without_columns(frame, CHANGE_COLUMNS)
