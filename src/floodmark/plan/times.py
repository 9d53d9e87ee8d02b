"""Which rows of an upstream without versions come next: a window of time, one step of a count."""

from __future__ import annotations

import shlex

from floodmark.errors import PlanError
from floodmark.model.copying import replace
from floodmark.model.cursor_marks import CursorMark, just_before
from floodmark.model.file_marks import any_mark
from floodmark.model.plan import Probe
from floodmark.model.state import Mark
from floodmark.model.times import span_text, start_of, with_end
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import NO_VERSION, NOTHING_PROCESSED, Query, Window
from floodmark.plan import faults


def next_window(upstream: str, probe: Probe, mark: Mark | None, options: UpstreamOptions) -> Window:
    """The window that follows the watermark; NOOP if nothing is new, deferred if nobody could look.

    Raises PlanError where the upstream was processed in another way, is another one than before,
    or has rows without a time.
    """
    refuse_other_way(upstream, mark, probe.query)
    if probe.query is not None and probe.query.format == "delta":
        faults.refuse_unreadable(upstream, probe.facts)
    is_other = mark is not None and mark.table_id != probe.facts.table_id
    if mark is not None and is_other and options.on_recreated == "fail":
        raise faults.recreated(upstream, probe.facts, mark)
    standing = standing_window(upstream, probe, None if is_other else mark)
    begin = start_of(None if is_other else mark, options)
    place = replace(standing, start_mark=begin, end_mark=begin, reload=is_other)
    if probe.time is None:
        return _deferred(place)
    return with_end(place, probe.time, options)


def standing_window(upstream: str, probe: Probe, mark: Mark | None) -> Window:
    """No news: the upstream at its mark."""
    step = mark.version if mark else NOTHING_PROCESSED
    return Window(
        upstream=upstream,
        method="query",
        after_version=step,
        through_version=step,
        reason="no news",
        table_id=probe.facts.table_id,
        feed_enabled=False,
        schema_fingerprint=probe.facts.schema_fingerprint,
        latest_version=NO_VERSION,
        bytes=0,
        rows=0,
        kind=probe.query.kind if probe.query else "time",
        query=probe.query,
        start_mark=mark.mark if mark else None,
        end_mark=mark.mark if mark else None,
        location=probe.facts.path if probe.facts.path != upstream else None,
    )


def between(upstream: str, probe: Probe, after: int, begin: str | None, mark: Mark) -> Window:
    """The rows from where a pipeline stands to the watermark."""
    if probe.facts.table_id != mark.table_id:
        raise faults.recreated(upstream, probe.facts, mark)
    refuse_other_way(upstream, mark, probe.query)
    standing = standing_window(upstream, probe, mark)
    if after >= mark.version:
        return replace(standing, reason="no news here")
    end = any_mark(mark.mark)
    return replace(
        standing,
        after_version=after,
        reason=f"seed: {span_text(standing, any_mark(begin), end)}",
        bytes=None,
        rows=None,
        start_mark=begin,
        end_at=end.instant if end else None,
    )


def chosen(upstream: str, probe: Probe, mark: Mark, first: CursorMark, last: CursorMark) -> Window:
    """The rows of a range of values, both included, as they are now; counted as the last step."""
    if probe.facts.table_id != mark.table_id:
        raise faults.recreated(upstream, probe.facts, mark)
    refuse_other_way(upstream, mark, probe.query)
    standing = standing_window(upstream, probe, mark)
    column = probe.query.column if probe.query else ""
    return replace(
        standing,
        after_version=mark.version - 1,
        reason=f"backfill: rows with {column} from {first.text} through {last.text}",
        bytes=None,
        rows=None,
        start_at=first.instant,
        end_at=last.instant,
        start_mark=just_before(first).encoded(),
        end_mark=last.encoded(),
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
        next="put the options of the upstream back; or begin anew: floodmark state reset --scope"
        f" {mark.scope} --upstream {shlex.quote(upstream)} --yes",
    )


def _deferred(place: Window) -> Window:
    is_database = place.kind == "cursor"
    what = "this database" if is_database else place.query.format if place.query else ""
    return replace(
        place,
        through_version=place.after_version + 1,
        reason=f"deferred: only Spark looks into {what}; the first run of the batch freezes the end",
        bytes=None,
        rows=None,
        end_mark=None,
        deferred=True,
    )


def _way(query: Query | None) -> str:
    if query is None:
        return "by versions"
    if query.kind == "files":
        return "as a whole answer" if query.is_answer else "file by file"
    if query.is_whole:
        return "as a whole, without a cursor"
    what = "cursor" if query.kind == "cursor" else "time column"
    return f"by the {what} {query.column} ({query.format})"
