"""The screens of the command line, for people; they read well at 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.cli.call import Call, print_error
from floodmark.cli.screen import STYLES, Row, Screen, number, size
from floodmark.errors import ControlError
from floodmark.model import AnyMark, TimeMark, durations, numbered
from floodmark.model.names import NOT_RESOLVED, is_of_project
from floodmark.next_steps import Next

if TYPE_CHECKING:
    from floodmark.control.events import Event
    from floodmark.errors import FloodmarkError
    from floodmark.model import (
        Batch,
        Caution,
        Finalized,
        Finding,
        Gap,
        Held,
        Lag,
        PlannedBatch,
        RunResult,
        Stuck,
        Window,
    )
    from floodmark.project import BatchOutcome, Project, RunSummary, ScopePlan
    from floodmark.project.outcomes import PipelineOutcome

FINISHED_SHOWN = 10
MARK_WIDTH = 20
SCOPE_WIDTH = 14


def plans(screen: Screen, call: Call, scopes: Sequence[ScopePlan], out: Path | None = None) -> None:
    if not scopes:
        screen.line("no pipeline is selected: nothing to plan")
        return
    for each in scopes:
        if each.batch:
            _plan(screen, call, each.batch)
        else:
            screen.line((f"scope {each.scope}", "bold"), ": ", ("cannot be planned", "bold red"))
        for name in each.strays:
            screen.line(f"  {name} is not in floodmark.yaml and holds the scope")
            screen.line(f"  next: put it back, or: floodmark remove {name}")
        screen.line()
    for error in [each.error for each in scopes if each.error]:
        print_error(call.errors, error)
        call.errors.line()
    batches = [each.batch for each in scopes if each.batch]
    if batches:
        _plan_footer(screen, batches, out)


def _plan(screen: Screen, call: Call, batch: Batch) -> None:
    screen.line((f"scope {batch.scope}", "bold"), f": {_plan_title(batch)}")
    if batch.batch_id:
        word = "is open and has to finish first" if batch.reused else "is planned"
        screen.line(f"  {batch.batch_id} #{batch.seq} {word}")
    rows = [_window_row(call, window) for window in batch.windows]
    rows += [Row([name, "-", "-", "-", "-", "-", "-"], NOT_RESOLVED) for name in batch.unresolved]
    header = ["upstream", "status", "method", "versions", "count", "rows", "bytes"]
    screen.table(header, rows, indent=2)
    for each in batch.lookups:
        screen.line(f"  looks up {call.short(each.upstream)} {each.shown_lookup}")
    seen = (*batch.windows, *batch.lookups)
    _cautions(screen, {w.upstream: w.warning for w in seen if w.warning}, indent=2)
    for node in call.project.definitions.file_writers(
        batch.pipelines if batch.status != "NOOP" else ()
    ):
        screen.line(f"  node {node} writes files: at least once")
    for name in batch.after:
        screen.line(f"  after {name}: what is read here is known once {name} has run")
    for name in batch.seeds:
        screen.line(f"  {name} is seeded first: it has not seen all that is committed")
    for upstream in batch.unplanned:
        screen.line(f"  {call.short(upstream)} waits until that batch is finished")


def _cautions(screen: Screen, seen: Mapping[str, Caution], *, indent: int = 0) -> None:
    for upstream, each in seen.items():
        screen.line(" " * indent, ("warning", "yellow"), f"  {upstream}")
        screen.paragraph(each.text, indent=indent + 2)
        screen.paragraph("next: " + each.next, indent=indent + 2)


def _plan_title(batch: Batch) -> str:
    names = ", ".join(batch.pipelines) or "no pipeline"
    if batch.status == "NOOP":
        return "nothing new"
    return f"for {names}" if batch.batch_id else f"would run {names}"


def _window_row(call: Call, window: Window) -> Row:
    cells = [
        call.short(window.upstream),
        window.status,
        window.method if window.has_news else "-",
        _range(window),
        "-" if window.shown_versions is None else str(window.shown_versions),
        number(window.rows),
        size(window.bytes),
    ]
    return Row(cells, window.reason if window.has_news else None)


def _range(window: Window) -> str:
    if not window.has_news:
        return "-"
    if window.deferred:
        return "deferred"
    return window.shown_range(mark_text)


def _plan_footer(screen: Screen, batches: Sequence[Batch], out: Path | None) -> None:
    if all(batch.status == "NOOP" for batch in batches):
        screen.line("everything is up to date")
        return
    if any(batch.batch_id is None for batch in batches):
        screen.line("a preview: nothing was written")
    screen.line(f"next: floodmark run{f' --plan {out}' if out else ''}")


def run(screen: Screen, call: Call, summary: RunSummary) -> None:
    for outcome in summary.batches:
        _batch_outcome(screen, call, outcome)
    for error in [o.error for o in summary.outcomes if o.error] + summary.refused:
        print_error(call.errors, error)
        call.errors.line()
    _cautions(screen, summary.cautions)
    for each in summary.waiting:
        before = ", ".join(each.waiting_for)
        screen.line((each.pipeline, "bold"), f" did not run: it reads what {before} writes, which")
        screen.line("  did not finish; next: the same command again, once the cause is corrected")
    if not summary.batches and not summary.refused and not summary.waiting:
        why = "everything is up to date" if summary.has_selection else "no pipeline is selected"
        screen.line(f"{why}: nothing to run")


def _batch_outcome(screen: Screen, call: Call, outcome: BatchOutcome) -> None:
    batch = outcome.batch
    screen.line((f"{batch.batch_id}", "bold"), f"  #{batch.seq}  scope {batch.scope}")
    rows = [
        Row(
            [
                each.name,
                each.status,
                number(each.rows_read),
                number(each.rows_written),
                durations.shown(each.duration_seconds),
            ]
        )
        for each in outcome.pipelines
    ]
    if rows:
        screen.table(["pipeline", "status", "rows read", "rows written", "time"], rows, indent=2)
    for each in outcome.pipelines:
        _write_notes(screen, each)
    _advanced(screen, call, outcome.advanced, outcome.held)
    if not rows and not outcome.advanced and not outcome.held:
        screen.line("  nothing was left to do")
    if outcome.held:
        screen.line(f"  next: {_way_forward(call, outcome)}")
    screen.line()


def _write_notes(screen: Screen, outcome: PipelineOutcome) -> None:
    for write, count in outcome.ties.items():
        example = outcome.tie_examples.get(write)
        keys = "1 key" if count == 1 else f"{number(count)} keys"
        if example:
            keys = f"key {example}" if count == 1 else f"{keys}, {example} among them,"
        screen.line(
            "  ",
            ("tied", "yellow"),
            f"  {outcome.name}, {write}: {keys} had several rows that nothing puts in order; one of"
            " each was kept",
        )
    for write, columns in outcome.null_columns.items():
        screen.line(
            "  ",
            ("absent", "yellow"),
            f"  {outcome.name}, {write}: the rows did not have {columns}; NULL was written",
        )
    for write, count in outcome.rows_left_out.items():
        rows = "1 row" if count == 1 else f"{number(count)} rows"
        screen.line(
            "  ",
            ("left out", "yellow"),
            f"  {outcome.name}, {write}: a trigger of the target did not take {rows}",
        )


def _way_forward(call: Call, outcome: BatchOutcome) -> str:
    waiting = {name for held in outcome.held for name in held.waiting_for}
    missing = sorted(waiting - set(call.project.pipelines))
    if missing:
        return (
            f"{missing[0]} is not in floodmark.yaml; put it back, or: floodmark remove {missing[0]}"
        )
    known = call.project.look.state().pipelines
    resting = sorted(name for name in waiting if name in known and known[name].is_paused)
    if resting:
        return f"floodmark resume {resting[0]}"
    holders = [o.error.held_by for o in outcome.pipelines if isinstance(o.error, ControlError)]
    for who in filter(None, holders):
        return f"wait for {who}; to look: floodmark status {outcome.batch.batch_id}"
    return f"floodmark retry {outcome.batch.batch_id}"


def _advanced(screen: Screen, call: Call, advanced: Sequence[str], held: Sequence[Held]) -> None:
    for upstream in advanced:
        screen.line("  ", ("advanced", "green"), f"  {call.short(upstream)}")
    for each in held:
        screen.line("  ", ("held", "yellow"), f"      {call.short(each.upstream)}: {each.reason}")


def finalized(screen: Screen, call: Call, outcomes: Sequence[Finalized]) -> None:
    if not outcomes:
        screen.line("no batch is open: nothing to finalize")
    for outcome in outcomes:
        screen.line((outcome.batch_id, "bold"))
        _advanced(screen, call, outcome.advanced, outcome.held)
        if not outcome.advanced and not outcome.held:
            screen.line("  everything had advanced before")


def recorded(screen: Screen, result: RunResult) -> None:
    screen.line(
        f"{result.pipeline} of {result.batch_id}: ",
        (result.status, STYLES.get(result.status, "")),
    )
    if result.status == "SUCCESS":
        screen.line(f"next: floodmark finalize {result.batch_id}")


def status(screen: Screen, call: Call, batches: Sequence[PlannedBatch]) -> None:
    if not batches:
        screen.line("no batch yet; next: floodmark plan")
        return
    in_full = batches if len(batches) == 1 else [b for b in batches if b.is_open]
    for batch in in_full:
        _batch(screen, call, batch)
        screen.line()
    finished = [b for b in batches if b not in in_full]
    if not in_full:
        screen.line("no batch is open")
    if finished:
        _finished(screen, finished)


def _batch(screen: Screen, call: Call, batch: PlannedBatch) -> None:
    screen.line(
        (batch.batch_id, "bold"),
        f"  #{batch.seq}  ",
        (batch.status, STYLES.get(batch.status, "")),
        f"  scope {batch.scope}",
    )
    screen.line(f"  planned {batch.planned_at:%Y-%m-%d %H:%M:%S} UTC by {batch.planned_by}")
    screen.table(
        ["pipeline", "status", "rows read", "rows written", "time"],
        [_run_row(batch, name) for name in batch.required],
        indent=2,
    )
    screen.table(
        ["upstream", "status", "method", "versions"],
        [_upstream_row(call, batch, upstream) for upstream in batch.windows],
        indent=2,
    )
    if batch.is_open:
        word = "retry" if batch.unfinished_pipelines() else "finalize"
        screen.line(f"  next: floodmark {word} {batch.batch_id}")


def _run_row(batch: PlannedBatch, name: str) -> Row:
    run = batch.runs.get(name)
    if run is None:
        return Row([name, "-", "-", "-", "-"])
    where = "elsewhere" if run.is_external else durations.shown(run.duration_seconds)
    cells = [name, run.status, number(run.rows_read), number(run.rows_written), where]
    error = (run.error or "").strip().splitlines()
    return Row(cells, error[0][:300] if error else None)


def _upstream_row(call: Call, batch: PlannedBatch, upstream: str) -> Row:
    window = batch.shown_window(upstream)
    status = batch.window_status(upstream)
    held = batch.held_because(upstream) if batch.is_pending(upstream) else None
    method = window.method if window.has_news else "-"
    return Row([call.short(upstream), status, method, _range(window)], held)


def _finished(screen: Screen, batches: Sequence[PlannedBatch]) -> None:
    rows = [
        Row([b.batch_id, f"#{b.seq}", b.status, b.scope, f"{b.planned_at:%m-%d %H:%M}"])
        for b in batches[:FINISHED_SHOWN]
    ]
    screen.table(["finished", "seq", "status", "scope", "planned"], rows)
    if len(batches) > FINISHED_SHOWN:
        screen.line(f"and {len(batches) - FINISHED_SHOWN} more: floodmark history")


def lag(screen: Screen, call: Call, lags: Sequence[Lag]) -> None:
    if not lags:
        screen.line("no upstream is registered yet; next: floodmark plan")
        return
    # A long scope would make the lines too long: it goes with the name, which may stand alone.
    has_room = all(len(each.scope) <= SCOPE_WIDTH for each in lags)
    rows = [
        Row(
            [
                call.short(each.upstream) + ("" if has_room else f" ({each.scope})"),
                *([each.scope] if has_room else []),
                _position(each.newest),
                _position(each.reached),
                number(each.versions_behind),
                durations.shown(each.seconds_behind),
            ],
            each.reason or (each.warning.text if each.warning else None),
        )
        for each in lags
    ]
    first = ["upstream", "scope"] if has_room else ["upstream (scope)"]
    screen.table([*first, "latest", "committed", "behind", "since"], rows)


def stuck(screen: Screen, batches: Sequence[Stuck], failures: Mapping[str, int]) -> None:
    """What does not move, below a screen; nothing where everything does."""
    for each in batches:
        screen.line()
        screen.line(("stuck", "bold red"), f"  {each.batch_id}")
        screen.paragraph(each.text, indent=7)
        screen.line(f"       next: {each.next}")
    for pipeline, count in failures.items():
        if count > 1:
            screen.line()
            screen.line(("failing", "bold red"), f"  {pipeline}: {count} times in a row")


def gaps(screen: Screen, call: Call, found: Sequence[Gap]) -> None:
    if not found:
        screen.line("no gaps: every pipeline has processed what it is past")
        return
    rows = [
        Row(
            [
                call.short(gap.upstream),
                gap.scope,
                f"{gap.start}-{gap.end}" if gap.end_mark is None else _gap_text(gap),
                ", ".join(gap.pipelines),
            ],
            gap.reason,
        )
        for gap in found
    ]
    screen.table(["upstream", "scope", "versions", "never seen by"], rows)
    first = found[0]
    if is_of_project(first.upstream):  # nobody knows which values or files they were
        screen.line(f"next: floodmark run --full-refresh {first.pipelines[0]}")
        return
    screen.line(
        f"next: floodmark backfill {call.short(first.upstream)} {first.pipelines[0]} "
        f"{_gap_range(first)}"
    )
    screen.line(f"or, where the upstream has lost them: floodmark refresh {first.pipelines[0]}")


def _gap_text(gap: Gap) -> str:
    return " to ".join(map(mark_text, gap.marks))


def _gap_range(gap: Gap) -> str:
    """The options that backfill a gap: both ends included."""
    after, end = gap.marks
    if not isinstance(after, TimeMark) or not isinstance(end, TimeMark):
        return f"--start {gap.start} --end {gap.end}"
    return f"--from {numbered(after.type, after.number + 1).text} --to {end.text}"


def mark_text(mark: AnyMark | None) -> str:
    """A time to the minute, other values cut off, so that two fit into a line; reasons and JSON have
    all of it.
    """
    if mark is None:
        return "-"
    if not isinstance(mark, TimeMark):
        return mark.text if len(mark.text) <= MARK_WIDTH else f"{mark.text[:MARK_WIDTH]}..."
    return mark.text[:16].replace("T", " ") + ("Z" if mark.type == "timestamp" else "")


def _position(position: int | AnyMark | None) -> str:
    return str(position) if isinstance(position, int) else mark_text(position)


def history(screen: Screen, events: Sequence[Event]) -> None:
    if not events:
        screen.line("nothing has happened yet; next: floodmark plan")
        return
    rows = [
        Row(
            [
                str(event.seq),
                f"{event.at:%m-%d %H:%M:%S}",
                event.kind,
                event.pipeline or "",
                event.batch_id or "",
            ]
        )
        for event in events
    ]
    screen.table(["seq", "at", "what", "pipeline", "batch"], rows)


SHORT_FINDING = 62
"""A finding that fits into one line of 80 columns takes one."""


def findings(screen: Screen, call: Call, found: Sequence[Finding]) -> None:
    short = [call.short(each.name) for each in found if _is_short(call, each)]
    width = max(map(len, short), default=0)
    for finding in found:
        word = "ok" if finding.ok else "problem"
        name = call.short(finding.name)
        if _is_short(call, finding) and width + len(finding.text) < SHORT_FINDING:
            screen.line((f"{word:<8}", STYLES[word]), f" {name:<{width}} {finding.text}")
        else:
            screen.line((f"{word:<8}", STYLES[word]), f" {name}")
            screen.paragraph(finding.text, indent=9)
        if isinstance(finding.next, Next) and finding.next.is_to_be_copied:
            screen.line(f"         next: {finding.next}")
        elif finding.next:
            screen.paragraph("next: " + finding.next, indent=9)
    problems = sum(not finding.ok for finding in found)
    screen.line(f"{len(found)} checks, {problems} {'problem' if problems == 1 else 'problems'}")


def _is_short(call: Call, finding: Finding) -> bool:
    return len(call.short(finding.name)) + len(finding.text) < SHORT_FINDING


def no_store(screen: Screen, error: FloodmarkError) -> None:
    """The answer of verbs that look, in the words of the error that others raise."""
    screen.line(f"{error.title}: {error.where}")
    screen.line(f"next: {error.next}")


def validated(screen: Screen, project: Project) -> None:
    scopes = project.definitions.select()
    count = len(project.pipelines)
    word = "pipeline is" if count == 1 else "pipelines are"
    screen.line(f"{project.settings.project}: {count} {word} fine")
    for scope, pipelines in scopes.items():
        names = ", ".join(pipeline.pipeline for pipeline in pipelines)
        screen.line(f"  scope {scope}: {names}")
    if project.settings.streams:
        names = ", ".join(stream.pipeline_id for stream in project.settings.streams)
        screen.line(f"  streams: {names}")
    for name in project.definitions.unresolved():
        screen.line(f"  {name}: {NOT_RESOLVED}; or: floodmark validate --connect")
    warnings(screen, project.file.warnings)


def warnings(screen: Screen, found: Sequence[FloodmarkError]) -> None:
    """What is allowed and yet probably not meant."""
    for warning in found:
        screen.line(("warning", "yellow"), f"  {warning.title}")
        said = (("found", warning.found), ("better", warning.allowed))
        more = "".join(f"; {word} {text}" for word, text in said if text)
        screen.line(f"  {warning.where}{more}")
