"""Windows of time: what becomes of one when its end is known."""

from __future__ import annotations

from floodmark.errors import PlanError
from floodmark.model import cursor_marks, marks
from floodmark.model.copying import replace
from floodmark.model.file_marks import AnyMark
from floodmark.model.marks import TimeMark
from floodmark.model.plan import TimeFacts
from floodmark.model.state import Mark
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import QueryWindow, Window


def with_end(place: Window, facts: TimeFacts, options: UpstreamOptions) -> Window:
    """A window with what is new, from one that stands or is deferred.

    One that was deferred and finds nothing new stays one step, of no rows. Raises FM-PLAN-024 for
    rows that belong into no window.
    """
    if not isinstance(place, QueryWindow):
        raise TypeError(f"{place.upstream} has versions: its end is known")
    if facts.nulls and options.on_null_time == "fail":
        raise _null_times(place, facts.nulls)
    begin, end = place.after_mark, facts.newest
    if end is None and not place.deferred:
        reason = f"no news{_waiting(facts)}{_note(facts)}"
        return replace(place, reason=reason, warning=facts.warning)
    return replace(
        place,
        through=place.after + 1,
        reason=f"{place.rows_text(begin, end)}{_waiting(facts)}{_note(facts)}",
        bytes=facts.bytes,
        rows=facts.rows,
        start_at=facts.oldest.instant if facts.oldest else None,
        end_at=end.instant if end else None,
        through_mark=end or begin,
        deferred=False,
        warning=facts.warning,
    )


def start_of(mark: Mark | None, options: UpstreamOptions) -> AnyMark | None:
    """The mark after which news are looked for.

    Of a baseline only the text is known before anybody has looked at the column.
    """
    if mark is not None:
        return mark.mark
    if options.baseline == "latest":
        return options.latest_mark
    if options.baseline is None:
        return None
    if options.has_cursor:
        return cursor_marks.decoded(str(options.baseline))
    return _guessed(str(options.baseline))


def _guessed(text: str) -> TimeMark:
    for kind in ("date", "timestamp", "timestamp_ntz"):
        try:
            return marks.typed(kind, text)
        except ValueError:
            continue
    raise ValueError(text)


def _waiting(facts: TimeFacts) -> str:
    what = "file" if facts.type == "files" else "row"
    what, wait = (what, "waits") if facts.waiting == 1 else (f"{what}s", "wait")
    return f"; {facts.waiting:,} newer {what} {wait} to settle" if facts.waiting else ""


def _note(facts: TimeFacts) -> str:
    return f"; {facts.note}" if facts.note else ""


def _null_times(window: QueryWindow, count: int) -> PlanError:
    column = window.query.column
    return PlanError(
        "FM-PLAN-024",
        f"rows of {window.upstream} have no value in {column}",
        found=f"{count:,} rows where {column} is NULL: no window would ever hold them",
        allowed="a value in every row",
        state="nothing was read; the committed watermark stays",
        next="fill them; or say on_null_time: ignore for the upstream: they are never read then",
    )
