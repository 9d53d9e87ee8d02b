"""Which rows of an upstream without versions come next: a window of time, one step of a count."""

from __future__ import annotations

from floodmark.errors import PlanError
from floodmark.model import (
    NOTHING_PROCESSED,
    AnyMark,
    CursorMark,
    CursorWindow,
    Mark,
    Probe,
    Query,
    QueryWindow,
    TimeQuery,
    UpstreamOptions,
    Window,
    start_of,
    window_of,
    with_end,
)
from floodmark.model.copying import replace
from floodmark.model.cursor_marks import just_before
from floodmark.next_steps import command
from floodmark.plan import faults


def next_window(upstream: str, probe: Probe, mark: Mark | None, options: UpstreamOptions) -> Window:
    """The window that follows the watermark; NOOP if nothing is new, deferred if nobody could look.

    Raises PlanError where the upstream was processed in another way, is another one than before,
    or has rows without a time.
    """
    refuse_other_way(upstream, mark, probe.query)
    if isinstance(probe.query, TimeQuery) and probe.query.form == "delta":
        faults.refuse_unreadable(upstream, probe.facts)
    is_other = mark is not None and mark.table_id != probe.facts.table_id
    if mark is not None and is_other and options.on_recreated == "fail":
        raise faults.recreated(upstream, probe.facts, mark)
    standing = standing_window(upstream, probe, None if is_other else mark)
    begin = start_of(None if is_other else mark, options)
    place = replace(standing, after_mark=begin, through_mark=begin, reload=is_other)
    if probe.time is None:
        return _deferred(place)
    return with_end(place, probe.time, options)


def standing_window(upstream: str, probe: Probe, mark: Mark | None) -> QueryWindow:
    """No news: the upstream at its mark."""
    if probe.query is None:
        raise ValueError(f"{upstream} has versions")
    step = mark.version if mark else NOTHING_PROCESSED
    return window_of(
        probe.query,
        upstream=upstream,
        method="query",
        after=step,
        through=step,
        reason="no news",
        table_id=probe.facts.table_id,
        schema_fingerprint=probe.facts.schema_fingerprint,
        bytes=0,
        rows=0,
        after_mark=mark.mark if mark else None,
        through_mark=mark.mark if mark else None,
        location=probe.facts.path if probe.facts.path != upstream else None,
    )


def between(upstream: str, probe: Probe, after: int, begin: AnyMark | None, mark: Mark) -> Window:
    """The rows from where a pipeline stands to the watermark."""
    if probe.facts.table_id != mark.table_id:
        raise faults.recreated(upstream, probe.facts, mark)
    refuse_other_way(upstream, mark, probe.query)
    standing = standing_window(upstream, probe, mark)
    if after >= mark.version:
        return replace(standing, reason="no news here")
    end = mark.mark
    return replace(
        standing,
        after=after,
        reason=f"seed: {standing.rows_text(begin, end)}",
        bytes=None,
        rows=None,
        after_mark=begin,
        end_at=end.instant if end else None,
    )


def chosen(upstream: str, probe: Probe, mark: Mark, first: CursorMark, last: CursorMark) -> Window:
    """The rows of a range of values, both included, as they are now; counted as the last step."""
    if probe.facts.table_id != mark.table_id:
        raise faults.recreated(upstream, probe.facts, mark)
    refuse_other_way(upstream, mark, probe.query)
    standing = standing_window(upstream, probe, mark)
    return replace(
        standing,
        after=mark.version - 1,
        reason=f"backfill: rows with {standing.query.column} from {first.text} through {last.text}",
        bytes=None,
        rows=None,
        start_at=first.instant,
        end_at=last.instant,
        after_mark=just_before(first),
        through_mark=last,
    )


def refuse_other_way(upstream: str, mark: Mark | None, query: Query | None) -> None:
    """What was processed by versions does not go on by time, nor by another column (FM-PLAN-023)."""
    if mark is None or mark.query == query:
        return
    raise PlanError(
        "FM-PLAN-023",
        f"{upstream} was processed in another way",
        found=f"now {_way(query)}; the watermark was reached {_way(mark.query)}",
        allowed=f"as before: {_way(mark.query)}",
        state="nothing was planned; the committed watermark stays",
        next="put the options of the upstream back; or begin anew: "
        + command("state", "reset", "--scope", mark.scope, "--upstream", upstream, "--yes"),
    )


def _deferred(place: QueryWindow) -> Window:
    what = "this database" if isinstance(place, CursorWindow) else place.query.format
    return replace(
        place,
        through=place.after + 1,
        reason=f"deferred: only Spark looks into {what}; the first run of the batch freezes the end",
        bytes=None,
        rows=None,
        through_mark=None,
        deferred=True,
    )


def _way(query: Query | None) -> str:
    return "by versions" if query is None else query.text
