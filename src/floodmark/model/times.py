"""Windows of time: what becomes of one when its end is known."""

from __future__ import annotations

from dataclasses import replace

from floodmark.errors import PlanError
from floodmark.model import marks
from floodmark.model.file_marks import AnyMark, FilesMark, any_mark
from floodmark.model.marks import TimeMark
from floodmark.model.plan import TimeFacts
from floodmark.model.state import Mark
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import CURSOR_FORMATS, Window


def with_end(place: Window, facts: TimeFacts, options: UpstreamOptions) -> Window:
    """A window with what is new, from one that stands or is deferred.

    One that was deferred and finds nothing new stays one step, of no rows. Raises FM-PLAN-024 for
    rows that belong into no window.
    """
    if facts.nulls and options.on_null_time == "fail":
        raise _null_times(place, facts.nulls)
    begin, end = any_mark(place.start_mark), facts.newest
    if end is None and not place.deferred:
        reason = f"no news{_waiting(facts)}{_note(facts)}"
        return replace(place, reason=reason, warning=facts.warning)
    return replace(
        place,
        through_version=place.after_version + 1,
        reason=f"{span_text(place, begin, end)}{_waiting(facts)}{_note(facts)}",
        bytes=facts.bytes,
        rows=facts.rows,
        start_at=facts.oldest.instant if facts.oldest else None,
        end_at=end.instant if end else None,
        end_mark=end.encoded() if end else place.start_mark,
        deferred=False,
        warning=facts.warning,
    )


def start_of(mark: Mark | None, options: UpstreamOptions) -> str | None:
    """The mark after which news are looked for.

    Of a baseline only the text is known before anybody has looked at the column.
    """
    if mark is not None:
        return mark.mark
    if options.baseline == "latest":
        return options.latest_mark
    if options.format in CURSOR_FORMATS:
        return options.baseline if isinstance(options.baseline, str) else None
    return None if options.baseline is None else _guessed(str(options.baseline)).encoded()


def _guessed(text: str) -> TimeMark:
    for kind in ("date", "timestamp", "timestamp_ntz"):
        try:
            return marks.typed(kind, text)
        except ValueError:
            continue
    raise ValueError(text)


def span_text(window: Window, begin: AnyMark | None, end: AnyMark | None) -> str:
    """Which rows a window holds, for people."""
    column = window.query.column if window.query else ""
    if window.query is not None and window.query.is_whole:
        return "no cursor is said, so every run reads all rows"
    if isinstance(end, FilesMark):
        return _list_text(begin, end)
    if end is None or begin == end:
        return f"no row has a new {column}"
    if begin is None:
        return f"every row with {column} through {end.text}"
    rows = f"rows with {column} after {begin.text} through {end.text}"
    if window.kind == "cursor":
        return f"{rows}; late ones as far back as the overlap"
    return f"{rows}; a row that comes later with an older value is not seen"


def _list_text(begin: AnyMark | None, end: FilesMark) -> str:
    if end.what == "records":
        return f"a new answer, {end.text}"
    before = begin.count if isinstance(begin, FilesMark) else 0
    new = end.count - before
    return f"{new:,} new {'file' if new == 1 else 'files'} ({end.count:,} seen in total)"


def _waiting(facts: TimeFacts) -> str:
    what = "file" if facts.type == "files" else "row"
    what, wait = (what, "waits") if facts.waiting == 1 else (f"{what}s", "wait")
    return f"; {facts.waiting:,} newer {what} {wait} to settle" if facts.waiting else ""


def _note(facts: TimeFacts) -> str:
    return f"; {facts.note}" if facts.note else ""


def _null_times(window: Window, count: int) -> PlanError:
    column = window.query.column if window.query else ""
    return PlanError(
        "FM-PLAN-024",
        f"rows of {window.upstream} have no value in {column}",
        found=f"{count:,} rows where {column} is NULL: no window would ever hold them",
        allowed="a value in every row",
        state="nothing was read; the committed watermark stays",
        next="fill them; or say on_null_time: ignore for the upstream: they are never read then",
    )
