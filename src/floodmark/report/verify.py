"""`floodmark verify`: the guarantees, checked on what is really there.

The checks read the events one by one and the sinks' own logs; they do not use the fold's rules, so
a mistake in those is found here. It is also the oracle of the crash and soak tests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.control import ControlReader, all_events
from floodmark.control.events import (
    Advanced,
    Amended,
    Body,
    Cancelled,
    Created,
    Event,
    Failed,
    Frozen,
    Leased,
    Paused,
    Planned,
    Rebuilt,
    Registered,
    Removed,
    Reset,
    SinkWritten,
    Snapshot,
    Succeeded,
    TargetSettled,
)
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import FloodmarkError
from floodmark.model import (
    NO_TABLE_ID,
    Finding,
    Ledger,
    SinkDone,
    VersionFacts,
    Window,
    bad,
    good,
    metadata_of,
)
from floodmark.report.places import located
from floodmark.report.published import WAY_OUT, Shown, published_tables

SHOWN = 3
"""How many problems of one guarantee are spelled out."""


@dataclass
class Evidence:
    """Everything the checks look at."""

    events: list[Event]
    commits: dict[str, list[VersionFacts]] = field(default_factory=dict)
    """The readable commits of each sink, by target."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Sinks whose log could not be read, and why."""
    forgotten_through: int = 0
    """Batches up to this number were lost with the store and restored from the sinks."""
    places: dict[str, str] = field(default_factory=dict)
    """Where targets are that moved with their project."""

    def bodies(self, *kinds: type[Any]) -> Iterator[Any]:
        return (event.body for event in self.events if isinstance(event.body, kinds))

    def plans(self) -> dict[str, Planned]:
        return {body.batch_id: body for body in self.bodies(Planned)}

    def baselines(self, scope: str, upstream: str) -> set[int]:
        """Where pipelines asked a first range of an upstream to start after."""
        known = [body for body in self.bodies(Registered) if body.scope == scope]
        known += [p for body in self.bodies(Snapshot) for p in body.pipelines if p.scope == scope]
        return {one.options[upstream].first_after for one in known if upstream in one.options}

    def ends(self) -> dict[tuple[str, str], str | None]:
        """(batch, upstream) -> the mark through which an upstream without versions is read."""
        found = {
            (b.batch_id, w.upstream): w.end_mark for b in self.bodies(Planned) for w in b.windows
        }
        for body in self.bodies(Frozen):
            found[body.batch_id, body.window.upstream] = body.window.end_mark
        return found

    def advanced(self) -> dict[str, set[str]]:
        """The upstreams of each batch that have advanced."""
        found: dict[str, set[str]] = defaultdict(set)
        for body in self.bodies(Advanced):
            found[body.batch_id].update(body.upstreams)
        return found

    def released(self) -> set[tuple[str, str]]:
        """(batch, upstream) whose range was given up with the only pipeline that read it."""
        return {
            (batch_id, upstream)
            for body in self.bodies(Paused, Removed)
            for batch_id, upstreams in body.released.items()
            for upstream in upstreams
        }

    def sinks(self) -> Iterator[tuple[SinkWritten, SinkDone]]:
        """The writes that must still be there: a loss that the operator settled ends its own."""
        standing: dict[tuple[str, str], list[SinkWritten]] = defaultdict(list)
        for body in self.bodies(SinkWritten, TargetSettled):
            written = standing[body.pipeline, body.sink.write_name]
            if isinstance(body, SinkWritten):
                written.append(body)
            else:
                written.clear()
        kept = (body for written in standing.values() for body in written)
        return (
            (body, replace(body.sink, target=self.place_of(body.sink.target)))
            for body in kept
            if body.sink.table_id != NO_TABLE_ID
        )

    def place_of(self, target: str) -> str:
        return self.places.get(target, target)

    def accepted(self) -> dict[str, int]:
        """The version up to which each target was taken as it was found."""
        settled = [body.sink for body in self.bodies(TargetSettled)]
        return {self.place_of(sink.target): sink.accepted_version for sink in settled}


LedgerOf = Callable[[str], Ledger | None]
"""The receipts of a target that has no log; None for one that has."""


def verify_store(
    reader: ControlReader,
    control: str,
    storage: Storage,
    ledger_of: LedgerOf = lambda _: None,
    root: str | None = None,
) -> list[Finding]:
    """One finding for each guarantee, and one for the published tables. Changes nothing.

    Targets that moved with the project's folder are looked for below `root`.
    """
    evidence = gather(all_events(reader, control, storage), storage, ledger_of, root)
    findings = [_finding(name, text, check(evidence)) for name, text, check in CHECKS]
    findings.append(_tables(published_tables(reader, control, storage)))
    if evidence.events and isinstance(evidence.events[0].body, Snapshot):
        text = f"events before {evidence.events[0].seq} are in no table any more and not checked"
        findings.append(bad("history", text, "restore the history table, or its archive"))
    return findings


def _tables(tables: Sequence[Shown]) -> Finding:
    """What is not shown yet is no problem: a command was killed, and the next one shows it."""
    problems = [problem for each in tables for problem in each.problems]
    problems += [f"{each.table} cannot be read: {each.damage}" for each in tables if each.damage]
    found = _finding("tables", _TABLES_TEXT, problems, WAY_OUT)
    if not found.ok:
        return found
    behind = max(each.events_behind for each in tables)
    if not behind:
        return found
    return good(
        "tables", f"{_TABLES_TEXT}, {behind} events ago; the next run brings them up to date"
    )


def spelled_out(event: Event) -> list[Event]:
    """A store that was rebuilt begins with what its first event stands for, one by one."""
    if not isinstance(event.body, Rebuilt):
        return [event]
    state = event.body.state
    resets = [Reset(m.scope, m.upstream, m.version, m.table_id) for m in state.marks]
    plans = [
        Planned(b.batch_id, b.seq, b.scope, tuple(b.windows.values()), b.required)
        for b in state.batches
    ]
    bodies: list[Body] = [Created(state.control_id), *resets, *plans]
    return [replace(event, body=body) for body in bodies]


def gather(
    events: list[Event],
    storage: Storage,
    ledger_of: LedgerOf = lambda _: None,
    root: str | None = None,
) -> Evidence:
    """Read the log, or the receipts, of every sink that any run wrote to, once."""
    evidence = Evidence([each for event in events for each in spelled_out(event)])
    rebuilt = [event.body.state for event in events if isinstance(event.body, Rebuilt)]
    evidence.forgotten_through = rebuilt[0].batch_seq if rebuilt else 0
    written = {sink.target: sink for _, sink in evidence.sinks()}
    found = {target: _place(sink, root, storage) for target, sink in written.items()}
    evidence.places = {target: place for target, place in found.items() if place != target}
    for _, sink in evidence.sinks():
        if sink.target not in evidence.commits and sink.target not in evidence.unreadable:
            try:
                evidence.commits[sink.target] = commits_of(sink.target, storage, ledger_of)
            except FloodmarkError as error:  # becomes a failed check of that sink
                evidence.unreadable[sink.target] = error.title
    return evidence


def _place(sink: SinkDone, root: str | None, storage: Storage) -> str:
    try:
        return located(sink, root, storage).target
    except FloodmarkError:  # comes again, as a failed check, where its commits are read
        return sink.target


def commits_of(target: str, storage: Storage, ledger_of: LedgerOf) -> list[VersionFacts]:
    """What a target shows of its writes."""
    ledger = ledger_of(target)
    if ledger is not None:
        return list(ledger.commits)
    log = DeltaLog(target, storage)
    facts = log.facts()
    return list(log.versions(facts.earliest_version, facts.latest_version))


# The guarantees -----------------------------------------------------------------------------------


def disjoint_and_gapless(evidence: Evidence) -> Iterator[str]:
    """G1: between two resets the ranges of an upstream leave no gap and do not overlap."""
    cancelled = {body.batch_id for body in evidence.bodies(Cancelled)}
    advanced = evidence.advanced()
    released = evidence.released()
    begins: dict[tuple[str, str], int] = {}
    ranges: dict[tuple[str, str, int], list[Window]] = defaultdict(list)
    starts = [-1]
    for body in evidence.bodies(Planned, Reset):
        if isinstance(body, Reset):
            begins[body.scope, body.upstream] = len(starts)
            starts.append(body.version)
            continue
        given_up = {u for batch_id, u in released if batch_id == body.batch_id}
        for window in body.windows if body.batch_kind == "forward" else ():
            is_kept = body.batch_id not in cancelled or window.upstream in advanced[body.batch_id]
            if window.has_news and is_kept and window.upstream not in given_up:
                if window.reload:  # another table: its versions begin anew
                    begins[body.scope, window.upstream] = len(starts)
                    starts.append(-1)
                begin = begins.get((body.scope, window.upstream), 0)
                ranges[body.scope, window.upstream, begin].append(window)
    for (scope, upstream, begin), windows in ranges.items():
        expected = starts[begin]
        for window in sorted(windows, key=lambda w: w.after):
            if expected == -1 and window.after in evidence.baselines(scope, upstream):
                expected = window.after
            if window.after != expected:
                yield f"{scope} {upstream}: a range starts at {window.start}, not {expected + 1}"
            expected = window.through


def immutable_plans(evidence: Evidence) -> Iterator[str]:
    """G2: one plan for a batch, one batch for a number, one end, no leased window cancelled."""
    plans = list(evidence.bodies(Planned))
    frozen = Counter((body.batch_id, body.window.upstream) for body in evidence.bodies(Frozen))
    for (batch_id, upstream), count in frozen.items():
        if count > 1:
            yield f"the end of {upstream} in {batch_id} was frozen {count} times"
    for name, values in (
        ("id", [p.batch_id for p in plans]),
        ("number", [p.batch_seq for p in plans]),
    ):
        for value, count in Counter(values).items():
            if count > 1:
                yield f"batch {name} {value} was planned {count} times"
    leased: set[str] = set()
    for body in evidence.bodies(Leased, Cancelled):
        if isinstance(body, Leased):
            leased.add(body.batch_id)
        elif body.batch_id in leased and _was_still_read(evidence, body.batch_id):
            yield f"batch {body.batch_id} was cancelled after a lease"


def _was_still_read(evidence: Evidence, batch_id: str) -> bool:
    """Whether a cancelled batch left a window that one of its pipelines reads."""
    plan, advanced = evidence.plans().get(batch_id), evidence.advanced()[batch_id]
    left = {w.upstream for w in plan.windows if w.has_news} - advanced if plan else set()
    if plan is None or plan.batch_kind in ("backfill", "replay"):
        return False
    return any(left & set(upstreams) for upstreams in plan.required.values())


def exactly_once_in_sinks(evidence: Evidence) -> Iterator[str]:
    """G3: a batch is in a sink once, and a successful run is in all its sinks."""
    for target, reason in evidence.unreadable.items():
        yield f"{target} cannot be read: {reason}"
    for target, commits in evidence.commits.items():
        carried = Counter(item for commit in commits for item in commit.transactions.items())
        for (app_id, seq), count in carried.items():
            if app_id.startswith("floodmark/") and count > 1:
                yield f"{target} holds batch {seq} of {app_id} {count} times"
    plans = evidence.plans()
    for done, sink in evidence.sinks():
        readable, plan = evidence.commits.get(sink.target), plans.get(done.batch_id)
        if readable is not None and plan and not _holds(readable, sink, plan.batch_seq):
            yield f"{sink.target} does not hold {done.batch_id} of {done.pipeline}"
    accepted = evidence.accepted()
    for target, commits in evidence.commits.items():
        written = [sink.version for _, sink in evidence.sinks() if sink.target == target]
        since = max(min(written), accepted.get(target, -1))
        yield from _restored(target, commits, written, since)


def _restored(
    target: str, commits: Sequence[VersionFacts], written: Sequence[int], since: int
) -> Iterator[str]:
    """Each RESTORE after a version that has taken rows of ours away."""
    kept = _kept(commits)
    for commit in commits:
        if commit.operation != "RESTORE" or commit.version <= since:
            continue
        earlier = {version for version in written if since <= version < commit.version}
        if not earlier <= kept:
            yield f"{target} was restored by version {commit.version}: rows may be gone"


def _kept(commits: Sequence[VersionFacts]) -> set[int]:
    """The versions whose rows the newest one still builds on: a RESTORE may have been taken back."""
    by_version = {commit.version: commit for commit in commits}
    kept: set[int] = set()
    at = commits[-1].version if commits else -1
    while at in by_version:
        commit = by_version[at]
        if commit.operation == "RESTORE":
            back_to = commit.parameters.get("version", "")
            at = int(back_to) if back_to.isdigit() else -1
        else:
            kept.add(at)
            at -= 1
    return kept


def _holds(commits: list[VersionFacts], sink: SinkDone, seq: int) -> bool:
    """Whether the commit that the journal names carries the receipt, or is gone from the log."""
    if commits and sink.version < commits[0].version:
        return True
    found = [commit for commit in commits if commit.version == sink.version]
    return bool(found) and found[0].transactions.get(sink.app_id) == seq


def safe_watermarks(evidence: Evidence) -> Iterator[str]:
    """G4: nothing advances before every required pipeline that reads it has succeeded."""
    plans = evidence.plans()
    succeeded: set[tuple[str, str]] = set()
    planned: set[str] = set()
    for event in evidence.events:
        body = event.body
        if isinstance(body, Succeeded):
            succeeded.add((body.batch_id, body.pipeline))
        elif isinstance(body, Paused | Removed):
            # Batches that are planned already no longer wait for it.
            succeeded |= {(batch_id, body.pipeline) for batch_id in planned}
        elif isinstance(body, Planned):
            planned.add(body.batch_id)
        elif isinstance(body, Advanced) and body.batch_id in plans:
            for pipeline, upstreams in plans[body.batch_id].required.items():
                early = set(upstreams) & set(body.upstreams)
                if early and (body.batch_id, pipeline) not in succeeded:
                    yield f"{min(early)} advanced in {body.batch_id} before {pipeline} succeeded"


def monotone_watermarks(evidence: Evidence) -> Iterator[str]:
    """G5: a watermark never moves back but by a reset, and never past what was planned."""
    plans = evidence.plans()
    marks: dict[tuple[str, str], int] = {}
    for body in evidence.bodies(Advanced, Reset):
        if isinstance(body, Reset):
            marks[body.scope, body.upstream] = body.version
            continue
        plan = plans.get(body.batch_id)
        ends = {w.upstream: w.through for w in plan.windows} if plan else {}
        reloads = {w.upstream for w in plan.windows if w.reload} if plan else set()
        for upstream, version in body.upstreams.items():
            key = (plan.scope if plan else "", upstream)
            if upstream in reloads:  # another table: its versions begin anew
                marks.pop(key, None)
            if version <= marks.get(key, -1):
                yield f"{upstream} moved from {marks[key]} to {version}"
            if plan and ends.get(upstream) != version:
                yield f"{upstream} advanced to {version}, planned was {ends.get(upstream)}"
            marks[key] = version


def exact_ranges(evidence: Evidence) -> Iterator[str]:
    """G6: every sink commit names the very windows that were planned for its batch."""
    plans = evidence.plans()
    ends = evidence.ends()
    for target, commits in evidence.commits.items():
        for commit in commits:
            said = metadata_of(commit.user_metadata)
            plan = plans.get(said.get("batch_id", ""))
            if plan:
                planned = {w.upstream: [w.start, w.end] for w in plan.windows}
                for upstream, span in said.get("windows", {}).items():
                    if planned.get(upstream) != span:
                        yield f"{target} version {commit.version}: {upstream} {span} was not planned"
                for upstream, said_marks in said.get("marks", {}).items():
                    end = said_marks.get("end")
                    if end != ends.get((plan.batch_id, upstream)):
                        yield f"{target} version {commit.version}: {upstream} {end} was not planned"


def known_writers(evidence: Evidence) -> Iterator[str]:
    """G11: every batch that a sink holds under our name is one that the journal knows."""
    plans = evidence.plans()
    control_ids = {event.body.key for event in evidence.events if event.kind == "CREATE"}
    for target, commits in evidence.commits.items():
        for commit in commits:
            said = metadata_of(commit.user_metadata)
            is_ours = said.get("control_id") in control_ids
            is_news = said.get("seq", 0) > evidence.forgotten_through
            if is_ours and is_news and said.get("batch_id") not in plans:
                yield f"{target} version {commit.version} holds {said.get('batch_id')}"


def in_order(evidence: Evidence) -> Iterator[str]:
    """G7: batches of a pipeline are leased and applied in the order of their numbers."""
    for target, commits in evidence.commits.items():
        newest: dict[str, int] = {}
        for commit in commits:
            for app_id, seq in commit.transactions.items():
                if app_id.startswith("floodmark/") and seq <= newest.get(app_id, 0):
                    yield f"{target} version {commit.version}: batch {seq} after {newest[app_id]}"
                newest[app_id] = max(seq, newest.get(app_id, 0))
    plans = evidence.plans()
    ordered = {b for b, plan in plans.items() if plan.batch_kind in ("forward", "seed")}
    finished: dict[str, int] = {}
    for event in evidence.events:
        body = event.body
        if isinstance(body, Succeeded) and body.batch_id in ordered:
            seq = plans[body.batch_id].batch_seq
            if seq < finished.get(body.pipeline, 0):
                yield f"{body.pipeline} finished batch {seq} after a later one"
            finished[body.pipeline] = seq


def fenced(evidence: Evidence) -> Iterator[str]:
    """G8: only the newest lease records anything, and success is final."""
    newest: dict[tuple[str, str], int] = {}
    finished: set[tuple[str, str]] = set()
    for event in evidence.events:
        body = event.body
        if isinstance(body, Leased | Frozen | SinkWritten | TargetSettled | Succeeded | Failed):
            run = (body.batch_id, body.pipeline)
            if run in finished:
                yield f"{event.kind} of {body.pipeline} in {body.batch_id} after its success"
            if isinstance(body, Leased):
                newest[run] = body.epoch
            elif newest.get(run) != body.epoch:
                yield f"{event.kind} of {body.pipeline} in {body.batch_id} by epoch {body.epoch}"
            if isinstance(body, Succeeded):
                finished.add(run)


def counted_rows(evidence: Evidence) -> Iterator[str]:
    """No run succeeded over a write that took other rows than its log says, unaccepted."""
    misread: dict[tuple[str, str], dict[str, Mapping[str, int]]] = defaultdict(dict)
    accepted: dict[tuple[str, str, str], bool] = {}
    for body in evidence.bodies(SinkWritten, TargetSettled, Amended, Succeeded):
        run = (body.batch_id, body.pipeline)
        if isinstance(body, Amended):
            accepted[*run, body.window.upstream] = body.window.as_read
        elif isinstance(body, SinkWritten | TargetSettled):
            misread[run][body.sink.write_name] = body.sink.misread
        else:
            for write, taken in misread[run].items():
                for upstream, rows in taken.items():
                    if not accepted.get((*run, upstream)):
                        yield f"{write} of {body.batch_id} took {rows} rows of {upstream}: unaccepted"


_TABLES_TEXT = "the published tables show what the journal says"

CHECKS: tuple[tuple[str, str, Callable[[Evidence], Iterable[str]]], ...] = (
    ("G1", "plans are disjoint and leave no gap", disjoint_and_gapless),
    ("G2", "plans never change", immutable_plans),
    ("G3", "every batch is in every sink exactly once", exactly_once_in_sinks),
    ("G4", "watermarks advance only after all pipelines succeeded", safe_watermarks),
    ("G5", "watermarks never move back but by a reset", monotone_watermarks),
    ("G6", "sinks were written from exactly the planned windows", exact_ranges),
    ("G7", "batches of a pipeline apply in order", in_order),
    ("G8", "only the newest lease records, success is final", fenced),
    ("rows", "writes took as many rows as the logs promise", counted_rows),
    ("G11", "sinks hold no batch that this store has forgotten", known_writers),
)


def _finding(name: str, text: str, problems: Iterable[str], next: str | None = None) -> Finding:
    found = list(problems)
    if not found:
        return good(name, text)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return bad(name, f"{'; '.join(found[:SHOWN])}{more}", next)
