"""A lost store, restored from what every commit of its targets says about its batch.

Targets know which batch they hold, from which windows, by which pipeline and under which receipt.
They do not know who else was registered, what failed, or what was written elsewhere; the result
says so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Any

from floodmark.control.events.bodies import Rebuilt
from floodmark.control.registry import definition_hash
from floodmark.control.rules.snapshots import snapshot_of
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import ControlError, SourceError
from floodmark.model import (
    DEFAULT_SCOPE,
    NOTHING_PROCESSED,
    AnyMark,
    Ledger,
    Mark,
    Pipeline,
    PlannedBatch,
    Query,
    SinkDone,
    State,
    VersionWindow,
    Window,
    metadata_of,
    query_of,
    window_of,
)
from floodmark.model.file_marks import any_mark

REASON = "restored from the commits of the targets"
_FORWARD = re.compile(r"floodmark/([^/]+)/([^/]+)/(.+)/([0-9]+)")
"""The app id of forward and seed batches: control id, pipeline, write name, generation."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one commit of a target says about a batch."""

    target: str
    table_id: str
    version: int
    at: datetime
    app_id: str
    write: tuple[str, str]
    """(pipeline, write name)."""
    generation: int
    control_id: str
    batch_id: str
    seq: int
    scope: str | None
    kind: str
    windows: Mapping[str, tuple[int, int]]
    marks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the windows of upstreams without versions stand for."""

    @property
    def pipeline(self) -> str:
        return self.write[0]


@dataclass(frozen=True)
class Known:
    """A pipeline as its owner describes it: floodmark.yaml, or a call."""

    scope: str
    upstreams: tuple[str, ...]


@dataclass
class Findings:
    """Everything the targets say, by what it is needed for."""

    control_id: str
    batch_seq: int
    traces: list[Trace]
    known: Mapping[str, Known]
    newest: dict[tuple[str, str], Trace] = field(default_factory=dict)
    """The newest commit of each (pipeline, write name), of its newest generation."""

    def __post_init__(self) -> None:
        for trace in sorted(self.traces, key=lambda t: (t.generation, t.seq)):
            self.newest[trace.write] = trace

    def pipelines(self) -> dict[str, Known]:
        """Who wrote, and who is said to exist."""
        found = dict(self.known)
        for trace in sorted(self.traces, key=lambda t: t.seq):
            if trace.pipeline not in self.known:
                scope = trace.scope or DEFAULT_SCOPE
                found[trace.pipeline] = Known(scope, tuple(trace.windows))
        return found

    def scope_of(self, trace: Trace) -> str:
        return trace.scope or self.pipelines()[trace.pipeline].scope


LedgerOf = Callable[[str], Ledger | None]
"""The receipts of a target that has no log; None for one that has."""


def _shown_by(
    target: str, storage: Storage, ledger_of: LedgerOf
) -> tuple[Ledger, list[tuple[str, int]]]:
    """What a target shows of its writes, and the receipts it holds."""
    ledger = ledger_of(target)
    if ledger is not None:
        return ledger, [item for c in ledger.commits for item in c.transactions.items()]
    log = DeltaLog(target, storage)
    facts = log.facts()
    commits = log.versions(facts.earliest_version, facts.latest_version)
    return Ledger(facts.table_id, tuple(commits)), list(log.transactions().items())


def read_traces(
    targets: Iterable[str], storage: Storage, ledger_of: LedgerOf = lambda _: None
) -> tuple[list[Trace], dict[str, int]]:
    """The commits of ours in the targets, and the highest number of every control id."""
    traces: list[Trace] = []
    highest: dict[str, int] = defaultdict(int)
    for target in targets:
        ledger, receipts = _shown_by(target, storage, ledger_of)
        for app_id, seq in receipts:
            match = _FORWARD.fullmatch(app_id)
            if match:
                highest[match[1]] = max(seq, highest[match[1]])
        for commit in ledger.commits:
            said = metadata_of(commit.user_metadata)
            for app_id, seq in commit.transactions.items():
                match = _FORWARD.fullmatch(app_id)
                if match and said.get("seq") == seq:
                    traces.append(
                        Trace(
                            target=target,
                            table_id=ledger.table_id,
                            version=commit.version,
                            at=commit.committed_at,
                            app_id=app_id,
                            write=(match[2], match[3]),
                            generation=int(match[4]),
                            control_id=match[1],
                            batch_id=said["batch_id"],
                            seq=seq,
                            scope=said.get("scope"),
                            kind=said.get("kind", "forward"),
                            windows={u: (a, b) for u, (a, b) in said["windows"].items()},
                            marks=said.get("marks", {}),
                        )
                    )
    return traces, highest


def gather(
    targets: Sequence[str],
    known: Mapping[str, Known],
    storage: Storage,
    ledger_of: LedgerOf = lambda _: None,
) -> Findings:
    """What the targets say; raises FM-CONTROL-024 if they belong to no store, or to several."""
    traces, highest = read_traces(targets, storage, ledger_of)
    ids = {trace.control_id for trace in traces}
    if len(ids) != 1:
        raise _no_single_store(targets, ids)
    control_id = ids.pop()
    return Findings(control_id, highest[control_id], traces, known)


def rebuilt(
    findings: Findings, targets: Sequence[str], storage: Storage, actor: str, now: datetime
) -> tuple[Rebuilt, list[str]]:
    """The first event of the restored store, and what could not be restored.

    Every upstream stands at the end of its newest batch, if all writes that are known hold that
    batch. If one does not, the batch is open again under its old id, number and windows: the
    writes that are there are found by their receipts, the others follow.
    """
    tables = _Tables(storage, _told_marks(findings))
    pipelines = findings.pipelines()
    batches = {b.batch_id: b for b in _open_batches(findings, pipelines, tables, actor)}
    held = {(b.scope, u): b for b in batches.values() for u in b.windows}
    ends = _ends(findings)
    marks, seeded, seeded_marks = {}, {}, {}
    for (scope, upstream), trace in ends.items():
        batch = held.get((scope, upstream))
        _, end = trace.windows[upstream]
        version = batch.windows[upstream].after if batch else end
        if version != NOTHING_PROCESSED:
            table = tables.describe(upstream, version)
            marks[scope, upstream] = Mark(
                scope,
                upstream,
                version,
                *table,
                trace.batch_id,
                now,
                actor,
                tables.query(upstream),
                tables.mark_at(upstream, version),
            )
        for name, pipeline in pipelines.items():
            if pipeline.scope == scope and upstream in pipeline.upstreams:
                done = _processed(findings, name, upstream)
                seeded[name, upstream] = min(done, version)
                seeded_marks[name, upstream] = tables.mark_at(upstream, seeded[name, upstream])
    state = State(
        control_id=findings.control_id,
        batch_seq=findings.batch_seq,
        pipelines={n: _pipeline(n, p, now) for n, p in pipelines.items()},
        marks=marks,
        batches=batches,
        seeded_through={k: v for k, v in seeded.items() if v != NOTHING_PROCESSED},
        seeded_marks={k: mark for k, mark in seeded_marks.items() if mark is not None},
        sinks={t.app_id: _sink_done(t, findings) for t in findings.newest.values()},
    )
    return Rebuilt(snapshot_of(state, keep_windows=0), tuple(targets)), _missing(findings)


# What the targets imply ---------------------------------------------------------------------------


def _ends(findings: Findings) -> dict[tuple[str, str], Trace]:
    """The newest commit with news of each upstream of each scope.

    Newest by batch, not by version: a table that was recreated counts from 0 again.
    """
    return {
        (findings.scope_of(trace), upstream): trace
        for trace in sorted(findings.traces, key=lambda t: t.seq)
        for upstream, (start, end) in trace.windows.items()
        if start <= end
    }


def _processed(findings: Findings, pipeline: str, upstream: str) -> int:
    """How far every write of a pipeline has come with an upstream."""
    through = {
        trace.write: trace.windows[upstream][1]
        for trace in sorted(findings.traces, key=lambda t: t.seq)
        if trace.pipeline == pipeline and upstream in trace.windows
    }
    return min(through.values(), default=NOTHING_PROCESSED)


def _open_batches(
    findings: Findings, pipelines: Mapping[str, Known], tables: _Tables, actor: str
) -> Iterable[PlannedBatch]:
    """Batches that some write of a pipeline that reads them does not hold yet.

    Only the newest of an upstream can be one: the next is planned when it is finished.
    """
    forward = [trace for trace in findings.traces if trace.kind == "forward"]
    ends = _ends(findings)
    newest = {trace.batch_id: None for trace in ends.values() if trace in forward}
    for batch_id in newest:
        traces = [trace for trace in forward if trace.batch_id == batch_id]
        scope = findings.scope_of(traces[0])
        # Upstreams that no commit of the batch names had no news in it.
        spans = {u: _no_news(trace, u) for (s, u), trace in ends.items() if s == scope}
        spans |= {u: span for trace in traces for u, span in trace.windows.items()}
        fresh = {upstream for upstream, (start, end) in spans.items() if start <= end}
        writers = {write[0] for write in findings.newest}
        required = {
            name: p.upstreams
            for name, p in pipelines.items()
            if p.scope == scope and name in writers and fresh & set(p.upstreams)
        }
        behind = [
            trace
            for trace in findings.newest.values()
            if trace.pipeline in required and trace.seq < traces[0].seq
        ]
        if behind:
            yield PlannedBatch(
                batch_id=batch_id,
                seq=traces[0].seq,
                scope=scope,
                planned_at=min(trace.at for trace in traces),
                planned_by=actor,
                windows={
                    u: tables.window(u, *spans[u])
                    for u in dict.fromkeys(u for us in required.values() for u in us)
                    if u in spans
                },
                required={n: tuple(u for u in us if u in spans) for n, us in required.items()},
            )


def _no_news(trace: Trace, upstream: str) -> tuple[int, int]:
    """The empty range behind what a commit holds of an upstream."""
    _, end = trace.windows[upstream]
    return end + 1, end


def _missing(findings: Findings) -> list[str]:
    """What the targets cannot tell, in words."""
    texts = [
        "failed, cancelled and external runs, row counts and the times of the runs",
        "pipelines that never wrote to one of these targets, unless floodmark.yaml names them",
        "names of a catalog and lookups: the next run resolves and registers them again",
    ]
    writers = {write[0] for write in findings.newest}
    texts += [
        f"how far {name} had come: none of these targets holds a commit of it; name its targets "
        "too, else it starts from the beginning"
        for name in findings.known
        if name not in writers
    ]
    return [*texts, *_holes(findings)]


def _holes(findings: Findings) -> Iterable[str]:
    by_write: dict[tuple[tuple[str, str], str], list[tuple[int, int]]] = defaultdict(list)
    for trace in findings.traces:
        for upstream, (start, end) in trace.windows.items():
            if start <= end:
                by_write[trace.write, upstream].append((start, end))
    for ((pipeline, name), upstream), spans in by_write.items():
        ordered = sorted(spans)
        for (_, before), (after, _) in pairwise(ordered):
            if after > before + 1:
                yield (
                    f"whether {pipeline} had processed versions {before + 1}-{after - 1} of "
                    f"{upstream}: no commit of its write {name} names them; they count as processed"
                )


def _pipeline(name: str, known: Known, now: datetime) -> Pipeline:
    text = definition_hash(name, known.scope, known.upstreams)
    return Pipeline(name, known.scope, known.upstreams, text, now)


def _sink_done(trace: Trace, findings: Findings) -> SinkDone:
    return SinkDone(
        write_name=trace.write[1],
        app_id=trace.app_id,
        target=trace.target,
        table_id=trace.table_id,
        version=trace.version,
        rows_written=None,
        seq=trace.seq,
        since=min(each.seq for each in findings.traces if each.write == trace.write),
        batch_id=trace.batch_id,
    )


class _Tables:
    """The upstreams, as their logs describe them at a version."""

    def __init__(self, storage: Storage, told: Mapping[str, _Told]) -> None:
        self._log = cache(lambda upstream: DeltaLog(upstream, storage))
        self._told = told

    def query(self, upstream: str) -> Query | None:
        """How an upstream is read; None by versions."""
        told = self._told.get(upstream)
        return None if told is None else told.query

    def mark_at(self, upstream: str, step: int) -> AnyMark | None:
        """What a number of an upstream without versions stands for, as commits tell."""
        told = self._told.get(upstream)
        return told.marks.get(step) if told else None

    def describe(self, upstream: str, version: int) -> tuple[str, bool, str]:
        """Table id, feed flag and schema; the latter two of today if the log no longer tells."""
        told = self._told.get(upstream)
        if told is not None:
            return told.table_id, False, ""
        log = self._log(upstream)
        facts = log.facts()
        try:
            return facts.table_id, log.feed_enabled_at(version), log.schema_at(version)[1]
        except SourceError as error:
            if error.code != "FM-SOURCE-002":
                raise
            return facts.table_id, facts.feed_enabled, facts.schema_fingerprint

    def window(self, upstream: str, start: int, end: int) -> Window:
        """The window as it must have been planned: the versions are certain, the way to read them
        follows from the log.
        """
        if upstream in self._told:
            return self._query_window(upstream, start, end)
        log = self._log(upstream)
        table_id, feed, schema = self.describe(upstream, end)
        versions = log.versions(start, end) if start > 0 else []
        is_feed = start > 0 and self.describe(upstream, start - 1)[1]
        return VersionWindow(
            upstream=upstream,
            method="feed" if is_feed or start > end else "snapshot",
            after=start - 1,
            through=end,
            reason=REASON,
            table_id=table_id,
            feed_enabled=feed,
            schema_fingerprint=schema,
            latest_version=log.facts().latest_version,
            changes=frozenset(kind for version in versions for kind in version.kinds),
        )

    def _query_window(self, upstream: str, start: int, end: int) -> Window:
        told = self._told[upstream]
        mark = told.marks.get(end)
        return window_of(
            told.query,
            upstream=upstream,
            method="query",
            after=start - 1,
            through=end,
            reason=REASON,
            table_id=told.table_id,
            end_at=mark.instant if mark else None,
            after_mark=told.marks.get(start - 1),
            through_mark=mark,
        )


@dataclass(frozen=True)
class _Told:
    """What commits tell about an upstream without versions."""

    query: Query
    table_id: str
    marks: Mapping[int, AnyMark | None]
    """The mark of every step that begins or ends a window."""


def _told_marks(findings: Findings) -> dict[str, _Told]:
    found: dict[str, _Told] = {}
    for trace in sorted(findings.traces, key=lambda t: t.seq):
        for upstream, said in trace.marks.items():
            start, end = trace.windows[upstream]
            known = found[upstream].marks if upstream in found else {}
            begins, ends = any_mark(said["start"]), any_mark(said["end"])
            query = query_of(said["column"], said["format"])
            marks = {**known, start - 1: begins, end: ends}
            found[upstream] = _Told(query, said["table_id"], marks)
    return found


def _no_single_store(targets: Sequence[str], ids: set[str]) -> ControlError:
    return ControlError(
        "FM-CONTROL-024",
        "the targets belong to several stores" if ids else "the targets hold no batch of a store",
        where=", ".join(targets),
        found=f"commits of the stores {', '.join(sorted(ids))}"
        if ids
        else "no commit of floodmark",
        allowed="targets that one control store has written",
        state="nothing was restored",
        next="name the targets of one store",
    )
