"""Warnings before it hurts: what a store, its upstreams and its targets look like."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from floodmark.control import ControlReader
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import FloodmarkError
from floodmark.model import (
    NO_TABLE_ID,
    Finding,
    Lag,
    Ledger,
    Mark,
    SinkDone,
    State,
    TableFacts,
    bad,
    enable_feed_command,
    good,
    pipeline_of,
    unreadable_features,
)
from floodmark.model.names import ASK_CATALOG, is_catalog_name, is_of_project, is_of_source
from floodmark.next_steps import Next, command, statement
from floodmark.report.places import located

HOUR, DAY = 3_600.0, 86_400.0
UNFOLDED_EVENTS = 1_000
"""A journal with more events than this since it was last folded takes long to open."""

_INTERVAL = re.compile(r"(?:interval )?([0-9]+(?:\.[0-9]+)?) ([a-z]+?)s?")
_SECONDS = {
    "millisecond": 0.001,
    "second": 1.0,
    "minute": 60.0,
    "hour": HOUR,
    "day": DAY,
    "week": 7 * DAY,
}
_RETENTIONS = {
    "delta.logRetentionDuration": (30 * DAY, "its log"),
    "delta.deletedFileRetentionDuration": (7 * DAY, "files that VACUUM may remove"),
}
"""Property -> what Delta does without it, and what it keeps."""
_RECEIPTS = "delta.setTransactionRetentionDuration"


# The store ----------------------------------------------------------------------------------------


def examine_store(reader: ControlReader, control: str, storage: Storage) -> list[Finding]:
    """Whether the store can be read and written, whether it is kept up, which batches wait."""
    try:
        state = reader.state()
        unfolded = sum(event.kind != "SNAPSHOT" for event in reader.events())
    except FloodmarkError as error:
        text = f"{error.title}: {error.found}" if error.found else error.title
        return [bad("control store", text, _way_out(error, control))]
    if not state.control_id:
        return [good("control store", f"none yet at {control}; the first run creates it")]
    findings = [good("control store", f"{control}, {state.seq} events")]
    findings += _writable(control, storage)
    if unfolded > UNFOLDED_EVENTS:
        text = f"{unfolded} events were not folded: every command reads all of them"
        findings.append(bad("journal", text, command("upkeep")))
    return [*findings, *_open_batches(state)]


def _way_out(error: FloodmarkError, control: str) -> str:
    if error.code != "FM-CONTROL-002":
        return error.next or ""
    if error.retryable:
        return "mend what the text names, then: " + command("doctor")
    return (
        f"put {control}/_journal back from the newest copy; without one move {control} away, then: "
        + command("state", "rebuild", "--from-targets", "TARGET...")
    )


def _writable(control: str, storage: Storage) -> Iterator[Finding]:
    """By trying it: permissions do not tell about read-only mounts, quotas and full disks."""
    probe = f"{control}/_heartbeats/doctor_{uuid.uuid4().hex}"
    try:
        storage.write(probe, b"")
        storage.delete(probe)
    except OSError as error:
        text = f"cannot be written: {type(error).__name__}: {error.strerror or error}"
        yield bad("control store", text, f"make {control} writable, then: " + command("doctor"))


def _open_batches(state: State) -> Iterator[Finding]:
    for batch in state.open_batches():
        waiting = ", ".join(batch.unfinished_pipelines()) or "finalize"
        text = f"{batch.batch_id} is {batch.status}, waiting for {waiting}"
        is_fine = batch.status != "FAILED"
        yield Finding("open batch", is_fine, text, command("retry", batch.batch_id))


# Upstreams ----------------------------------------------------------------------------------------


def examine_upstream(
    upstream: str,
    marks: Sequence[Mark],
    lags: Sequence[Lag],
    state: State,
    storage: Storage,
    *,
    may_come: bool = False,
) -> list[Finding]:
    """Whether an upstream can be planned, how it will be read, and whether it forgets too early.

    One that `may_come` is written by the project, so it may be missing until it is read first.
    """
    if is_of_project(upstream) or any(not mark.has_versions for mark in marks):
        if is_of_source(upstream):
            return [good(upstream, "a web API or a plug-in: only planning asks it")]
        return _examine_by_marks(upstream, lags)
    try:
        place = state.place_of(upstream)
        if is_catalog_name(place):
            return [good(upstream, ASK_CATALOG)]
        facts = DeltaLog(place, storage).facts()
    except FloodmarkError as error:
        if may_come and not marks and error.code == _NOTHING_THERE:
            return [good(upstream, "not there yet: the first run of its pipeline creates it")]
        return [bad(upstream, error.title, error.next)]
    findings = [_feed(upstream, facts), *_unknown_features(upstream, facts)]
    for mark in marks:
        if mark.table_id != facts.table_id:
            text = f"recreated: table id {facts.table_id} is not {mark.table_id} (FM-PLAN-005)"
            way = command("state", "reset", "--scope", mark.scope, "--upstream", upstream, "--yes")
            findings.append(bad(upstream, text, way))
        elif facts.earliest_version > mark.version + 1:
            text = f"versions {mark.version + 1}-{facts.earliest_version - 1} are gone from its log"
            findings.append(bad(upstream, text, _read_anew(upstream, mark.scope, state)))
    seconds = max([lag.seconds_behind or 0.0 for lag in lags], default=0.0)
    return [*findings, *_retention(facts, seconds, batch_interval(state, upstream))]


_BY_MARKS = {
    "files": "files; new ones are found by name",
    "time": "new rows are found by a time column",
    "cursor": "new rows are found by a cursor column, or all are read each time",
}
"""How rows are found where there are no versions."""


def _examine_by_marks(upstream: str, lags: Sequence[Lag]) -> list[Finding]:
    seen = {lag.warning: None for lag in lags if lag.warning}
    if seen:
        return [bad(upstream, caution.text, caution.next) for caution in seen]
    if not lags:
        return [good(upstream, "no plan has looked at it yet; to look: " + command("plan"))]
    text = _BY_MARKS.get(lags[0].kind, "new rows are found by a column")
    if any(lag.is_known for lag in lags):
        return [good(upstream, text)]
    return [bad(upstream, f"{text}; could not be looked at")]


def _read_anew(upstream: str, scope: str, state: State) -> str:
    """The command that gets over versions that the log no longer has."""
    held = state.open_windows.get((scope, upstream))
    if held is not None:
        return command("retry", held, "--on-lost-range", "snapshot")
    readers = [p.name for p in state.active_in(scope) if upstream in p.upstreams]
    return command("run", *readers, "--on-lost-range", "snapshot")


def _feed(upstream: str, facts: TableFacts) -> Finding:
    if facts.feed_enabled:
        return good(upstream, f"version {facts.latest_version}, change feed on")
    text = f"version {facts.latest_version}, change feed off: each batch reads the whole table"
    return bad(upstream, text, enable_feed_command(facts.path))


def batch_interval(state: State, upstream: str) -> float | None:
    """Seconds between two batches of an upstream, as observed; None with fewer than two."""
    times = sorted(
        batch.planned_at
        for batch in state.batches.values()
        if batch.kind == "forward" and upstream in batch.windows and not batch.is_cancelled
    )
    waits = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    return median(waits) if waits else None


def _retention(facts: TableFacts, lag: float, interval: float | None) -> Iterator[Finding]:
    """What is kept must outlive the lag of today, and two batches."""
    for name, (default, what) in _RETENTIONS.items():
        said = facts.properties.get(name)
        kept = default if said is None else seconds_of_interval(said)
        if kept is None:
            yield bad(facts.path, f"{name} is {said}: not understood")
            continue
        needed = max(lag, 2 * (interval or 0.0))
        if kept < needed:
            why = f"it is {_span(lag)} behind" if lag > kept else _pace(interval)
            days = int(2 * needed // DAY) + 1
            way = _set_property(facts.path, name, f"interval {days} days")
            yield bad(facts.path, f"{what}: kept for {_span(kept)}, but {why}", way)


def _pace(interval: float | None) -> str:
    return f"batches come every {_span(interval or 0.0)}"


# Targets ------------------------------------------------------------------------------------------


def examine_target(
    sink: SinkDone,
    state: State,
    storage: Storage,
    ledger_of: Callable[[str], Ledger | None] = lambda _: None,
    root: str | None = None,
) -> list[Finding]:
    """Whether a target is there, keeps its receipts and can be read."""
    if sink.table_id == NO_TABLE_ID:
        return [good(sink.target, "files: written at least once, nothing to look at")]
    try:
        ledger = ledger_of(sink.target)
        if ledger is not None:
            return [_examine_ledger(sink, ledger)]
        sink = located(sink, root, storage)
        facts = DeltaLog(sink.target, storage).facts()
    except FloodmarkError as error:
        way = _write_anew(sink, state) if error.code in _NO_TABLE else error.next
        return [bad(sink.target, f"a target of {sink.write_name}: {error.title}", way)]
    if sink.table_id and facts.table_id != sink.table_id:
        text = f"a target of {sink.write_name}: another table than the one that was written"
        return [bad(sink.target, text, _write_anew(sink, state))]
    findings = list(_unknown_features(sink.target, facts))
    if _RECEIPTS in facts.properties:
        text = f"{_RECEIPTS} is set: the target forgets its receipts, rows could come twice"
        path = sink.target.replace("`", "``")
        way = statement(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('{_RECEIPTS}')")
        findings.append(bad(sink.target, text, way))
    return findings or [good(sink.target, f"version {facts.latest_version}, keeps its receipts")]


_NOTHING_THERE = "FM-PLAN-001"
_NO_TABLE = (_NOTHING_THERE, "FM-PLAN-002")


def _write_anew(sink: SinkDone, state: State) -> str:
    """The commands that bring a lost target back from its upstreams."""
    pipeline = pipeline_of(sink.app_id)
    owed = state.open_batches_of(pipeline)
    if owed:
        return command("retry", owed[0].batch_id, pipeline, "--on-lost-target", "rebuild")
    return (
        command("refresh", pipeline)
        + " && "
        + command("run", pipeline, "--on-lost-target", "rebuild")
    )


def _examine_ledger(sink: SinkDone, ledger: Ledger) -> Finding:
    if sink.table_id and ledger.table_id != sink.table_id:
        text = f"a target of {sink.write_name}: {ledger.table_id}, not {sink.table_id} as written"
        return bad(sink.target, text, command("verify"))
    return good(sink.target, f"{len(ledger.commits)} receipts")


def _unknown_features(path: str, facts: TableFacts) -> Iterator[Finding]:
    unknown = sorted(unreadable_features(facts))
    if unknown:
        text = f"has features that this version cannot read: {', '.join(unknown)}"
        yield bad(path, text, statement(f"ALTER TABLE delta.`{path}` DROP FEATURE {unknown[0]}"))


# --------------------------------------------------------------------------------------------------


def seconds_of_interval(text: str) -> float | None:
    """The seconds of an interval as table properties spell it; None if it is none.

    >>> seconds_of_interval("interval 30 days"), seconds_of_interval("interval 1 week")
    (2592000.0, 604800.0)
    """
    match = _INTERVAL.fullmatch(text.strip().lower())
    if match is None or match[2] not in _SECONDS:
        return None
    return float(match[1]) * _SECONDS[match[2]]


def _set_property(path: str, name: str, value: str) -> Next:
    escaped = path.replace("`", "``")
    return statement(f"ALTER TABLE delta.`{escaped}` SET TBLPROPERTIES ('{name}' = '{value}')")


def _span(seconds: float) -> str:
    for unit, size in (("days", DAY), ("hours", HOUR), ("minutes", 60.0)):
        if seconds >= 2 * size or unit == "minutes":
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
