"""Windows: what of one upstream a batch covers, and how it is read; one type for each kind.

Nobody outside of the model, of planning and of the source of a kind asks which kind a window is:
what others have to know is a property that every kind answers. A new kind is one more type here, its
query in `model.query` and its line in `model.stored`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, get_args

from floodmark.model.copying import replace
from floodmark.model.cursor_marks import CursorMark, is_after
from floodmark.model.delta import ChangeKind
from floodmark.model.file_marks import AnswerMark, AnyMark, FilesMark
from floodmark.model.marks import TimeMark
from floodmark.model.query import (
    CursorQuery,
    EveryRow,
    FileList,
    Format,
    Query,
    QueryFormat,
    TimeQuery,
    WholeAnswer,
    WindowKind,
)
from floodmark.model.window_answers import WindowAnswers

if TYPE_CHECKING:
    from floodmark.model.state import Mark
    from floodmark.model.upstream import UpstreamOptions

__all__ = [
    "NOTHING_PROCESSED",
    "AnswerWindow",
    "Caution",
    "CursorWindow",
    "FilesWindow",
    "Format",
    "Method",
    "QueryFormat",
    "QueryWindow",
    "Settlement",
    "TimeWindow",
    "VersionWindow",
    "Window",
    "WindowKind",
    "WindowStatus",
    "window_of",
]

WindowStatus = Literal["PENDING", "NOOP"]
Method = Literal["feed", "snapshot", "snapshot+feed", "lost", "query"]
"""feed: the changes of the versions. snapshot: the whole table at the end. snapshot+feed: the whole
table at `feed_after_version`, then the changes. lost: the range, or its part through
`feed_after_version`, is gone and its loss was accepted; what is left is read as changes. query: the
rows between two marks, of an upstream without versions; of files, snapshot then means as they are
now, and lost without those that are not as planned."""
Settlement = Literal["snapshot", "accept"]
"""Ways forward where a planned range is lost."""

NOTHING_PROCESSED = -1
"""The number before the first: where an upstream stands of which nothing was processed yet."""
_BEFORE_ALL = -(2**63)

_AS_IN_A_FIRST_RUN = "a lost target is rebuilt: read as in a first run"


@dataclass(frozen=True, slots=True)
class Caution:
    """What stops nothing, and should be known; `next` says what can be done about it."""

    text: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Window(WindowAnswers):
    """What one batch covers of one upstream; fixed once it is planned.

    `after` is excluded and `through` included; `start` and `end` show the same range inclusive at
    both ends, as tables, JSON and commands do. They are the numbers of versions. An upstream without
    versions counts its windows instead: each is one step further, and its marks say from where to
    where.
    """

    upstream: str
    """The name under which the upstream is stored: an absolute path or URI."""
    method: Method
    after: int
    through: int
    reason: str
    """Why this method and this end, for people."""
    table_id: str
    schema_fingerprint: str = ""
    start_at: datetime | None = None
    """When the oldest row in the window came: the commit time of its first version."""
    end_at: datetime | None = None
    """When the newest came."""
    bytes: int | None = None
    rows: int | None = None
    """Rows a read of the window gives; None where that is not known."""
    reload: bool = False
    """Whether the window begins a new table that took the place of the one processed before."""
    location: str | None = None
    """Where the table is, if it moved after the upstream got its name."""
    warning: Caution | None = None
    """What was seen beside the news when the window was planned."""
    as_read: bool = False
    """Whether the operator takes the rows that are read, whatever number the log says."""

    @classmethod
    def of(cls, window: Window) -> Self:
        """The window, for whoever reads only this kind; raises TypeError for another."""
        if not isinstance(window, cls):
            raise TypeError(f"{window.upstream}: a {type(window).__name__}, not a {cls.__name__}")
        return window

    # What every kind tells ------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """Where the table is."""
        return self.location or self.upstream

    @property
    def start(self) -> int:
        """The first version or step, inclusive."""
        return self.after + 1

    @property
    def end(self) -> int:
        """The last version or step, inclusive."""
        return self.through

    @property
    def versions(self) -> int:
        """How many versions, or steps, the window covers; 0 where there is no news."""
        return self.through - self.after

    @property
    def has_news(self) -> bool:
        return self.through > self.after

    @property
    def status(self) -> WindowStatus:
        """PENDING where there is something to process, NOOP where there is not."""
        return "PENDING" if self.versions else "NOOP"

    @property
    def is_first(self) -> bool:
        """Whether nothing of the upstream was processed before the window."""
        return self.after == NOTHING_PROCESSED

    @property
    def is_empty_so_far(self) -> bool:
        """Whether nothing of the upstream is processed once the window is."""
        return self.through == NOTHING_PROCESSED

    # How it is read -------------------------------------------------------------------------------

    @property
    def shows_all_rows(self) -> bool:
        """Whether all rows of the upstream are among those that are read."""
        return self.is_whole

    def row_versions(self) -> Iterator[int]:
        """The numbers that rows of the window carry."""
        yield self.through

    def whole(self) -> Self:
        """All of the upstream at the end of the window, whether that has news or not."""
        raise NotImplementedError

    def as_first_run(self, options: UpstreamOptions) -> Self:
        """The window that a first run would have, with the same end."""
        raise NotImplementedError

    def taken_as_read(self, rows: int) -> Self:
        """The same range with so many rows, whatever its log says."""
        if self.as_read:
            return self
        reason = f"{rows:,} rows are read, the log says {self.rows:,}: accepted as they are read"
        return replace(self, reason=reason, rows=rows, as_read=True)

    # What is compared with it ---------------------------------------------------------------------

    def is_committed_span(self, mark: Mark) -> bool:
        """Whether what the window covers lies within what is committed, in the same way."""
        return mark.kind == self.kind

    def ends_at(self, mark: Mark) -> bool:
        """Whether the window ends where the watermark stands."""
        return (self.through, self.through_mark) == (mark.version, mark.mark)

    # How it is shown and recorded -----------------------------------------------------------------

    @property
    def after_version(self) -> int:
        """`after`, as scripts of others know it."""
        return self.after

    @property
    def through_version(self) -> int:
        """`through`, as scripts of others know it."""
        return self.through

    @property
    def shown_in_full(self) -> str:
        """The upstream with its range, for the errors of writes."""
        return f"{self.upstream} through {self.end_mark}"

    def recorded(self) -> dict[str, Any] | None:
        """What commits say about the window beside its numbers; None where those tell all."""
        return None

    # What of it may be missing --------------------------------------------------------------------

    def span(self) -> tuple[int, int] | None:
        """What the window covers, inclusive, in numbers that can be compared; None if it has none."""
        return self.start, self.end

    @property
    def end_number(self) -> int:
        """Where the upstream stands behind the window, in the numbers of `span`."""
        return self.through

    def __repr__(self) -> str:
        from floodmark.model.stored import stored_window

        stored = stored_window(self)
        values = {each.name: getattr(stored, each.name) for each in fields(stored)}
        values |= {"start_mark": self.start_mark, "end_mark": self.end_mark}
        return f"Window({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from floodmark.model.stored import window_schema

        return window_schema(handler)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VersionWindow(Window):
    """Versions of a Delta table, as its log numbers them."""

    covers_one_step: ClassVar[bool] = False

    feed_enabled: bool = field()
    latest_version: int = field()
    changes: frozenset[ChangeKind] = frozenset()
    feed_after_version: int | None = None
    """Set for snapshot+feed and lost: changes are read of the versions after this one only."""

    @property
    def kind(self) -> WindowKind:
        return "version"

    @property
    def is_whole(self) -> bool:
        return self.method == "snapshot"

    @property
    def shows_all_rows(self) -> bool:
        return self.snapshot_version is not None

    @property
    def snapshot_version(self) -> int | None:
        if self.method == "snapshot":
            return self.through
        return self.feed_after_version if self.method == "snapshot+feed" else None

    @property
    def feed_start(self) -> int | None:
        after = self.after if self.method == "feed" else self.feed_after_version
        return None if after is None or after >= self.through else after + 1

    @property
    def is_counted(self) -> bool:
        return self.has_news and self.rows is not None and not self.as_read

    @property
    def has_log(self) -> bool:
        return True

    def is_read_whole(self, *, as_asked: bool) -> bool:
        return as_asked or (not self.feed_enabled and self.method != "lost")

    def is_older_than(self, latest_version: int) -> bool:
        return latest_version > self.through

    def row_versions(self) -> Iterator[int]:
        if self.snapshot_version is not None:
            yield self.snapshot_version
        if self.feed_start is not None:
            yield from range(self.feed_start, self.through + 1)

    def whole(self) -> Self:
        """See `Window.whole`; one that the scope has not processed yet as the plan has seen it."""
        return replace(
            self,
            method="snapshot",
            after=NOTHING_PROCESSED,
            through=self.latest_version if self.is_empty_so_far else self.through,
            reason=f"read whole; {self.reason}",
            start_at=None,
            bytes=None,
            rows=None,
            changes=frozenset(),
            feed_after_version=None,
        )

    def as_first_run(self, options: UpstreamOptions) -> Self:
        """A snapshot; for an upstream with a baseline, all that follows it."""
        if self.is_empty_so_far:
            return self  # nothing of it is processed yet: it is as empty in a first run
        after = options.first_after
        is_whole = after == NOTHING_PROCESSED
        return replace(
            self,
            method="snapshot" if is_whole else "feed",
            after=after,
            reason=_AS_IN_A_FIRST_RUN,
            start_at=None,
            bytes=None,
            rows=None,
            # Not looked up: a write of such changes has to say what it does with each kind.
            changes=frozenset() if is_whole else frozenset(get_args(ChangeKind)),
            feed_after_version=None,
        )

    def taken_as_read(self, rows: int) -> Self:
        """See `Window.taken_as_read`."""
        if self.as_read:
            return self
        return _in_one_way(Window.taken_as_read(self, rows))

    @property
    def start_version(self) -> int:
        return self.start

    @property
    def end_version(self) -> int:
        return self.end

    @property
    def shown_versions(self) -> int | None:
        return self.versions

    def processed_version(self, *, is_completed: bool) -> int:
        return self.end if is_completed else self.after

    def shown_range(self, mark_text: Callable[[AnyMark | None], str]) -> str:  # noqa: ARG002 see Window
        return f"{self.start}-{self.end}"

    @property
    def shown_end(self) -> str:
        return f"version {self.through}"

    @property
    def shown_in_full(self) -> str:
        return f"{self.upstream} [{self.start}, {self.end}]"

    @property
    def shown_lookup(self) -> str:
        return f"at version {self.through}"

    def span(self) -> tuple[int, int] | None:
        return self.start if self.snapshot_version is None else 0, self.end


VW = TypeVar("VW", bound=VersionWindow)


def _in_one_way(window: VW) -> VW:
    """A run may amend a range to one way of reading only, and to no change feed."""
    if window.method == "snapshot+feed" or (window.method == "feed" and not window.has_news):
        return replace(window, method="snapshot", feed_after_version=None)
    if window.method != "feed":
        return window
    return replace(window, method="lost", feed_after_version=window.after)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QueryWindow(Window):
    """Rows of an upstream without versions, between two marks."""

    late_rows: ClassVar[str] = ""
    """What becomes of rows that come later with an older value, for people."""

    query: Query = field()
    after_mark: AnyMark | None = None
    through_mark: AnyMark | None = None
    deferred: bool = False

    @property
    def kind(self) -> WindowKind:
        return self.query.kind

    @property
    def is_frozen(self) -> bool:
        return self.through_mark is not None

    @property
    def is_whole(self) -> bool:
        return self.is_first and self.after_mark is None and self.method != "lost"

    def whole(self) -> Self:
        return replace(
            self,
            after=NOTHING_PROCESSED,
            through=max(self.through, 0),
            after_mark=None,
            reason=f"read whole; {self.reason}",
            start_at=None,
            bytes=None,
            rows=None,
        )

    def as_first_run(self, options: UpstreamOptions) -> Self:
        if self.is_empty_so_far:
            return self
        end = self.through_mark
        return replace(
            self,
            after=NOTHING_PROCESSED,
            after_mark=None if end is None else options.first_mark(end),
            reason=_AS_IN_A_FIRST_RUN,
            start_at=None,
            rows=None,
        )

    def rows_text(self, begin: AnyMark | None, end: AnyMark | None) -> str:
        """Which rows lie between two marks, for people."""
        if end is None or begin == end:
            return f"no row has a new {self.query.column}"
        if begin is None:
            return f"every row with {self.query.column} through {end.text}"
        return (
            f"rows with {self.query.column} after {begin.text} through {end.text}{self.late_rows}"
        )

    def recorded(self) -> dict[str, Any] | None:
        return {
            "kind": self.kind,
            "column": self.query.column,
            "format": self.query.format,
            "table_id": self.table_id,
            "start": self.start_mark,
            "end": self.end_mark,
        }

    def span(self) -> tuple[int, int] | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TimeWindow(QueryWindow):
    """Rows whose value of a time column lies between two times."""

    is_replayable: ClassVar[bool] = False
    late_rows: ClassVar[str] = "; a row that comes later with an older value is not seen"

    query: TimeQuery = field()
    after_mark: TimeMark | None = None
    through_mark: TimeMark | None = None

    def is_committed_span(self, mark: Mark) -> bool:
        begin, end, committed = self.after_mark, self.through_mark, mark.mark
        if self.query != mark.query or self.deferred:
            return False
        if end is None or committed is None:  # a step of no rows, at the beginning
            return begin == end
        first = begin or end
        if not isinstance(committed, TimeMark) or len({end.type, first.type, committed.type}) > 1:
            return False
        return first.number <= end.number <= committed.number

    def span(self) -> tuple[int, int] | None:
        begin = _BEFORE_ALL if self.after_mark is None else self.after_mark.number + 1
        return begin, _BEFORE_ALL if self.through_mark is None else self.through_mark.number

    @property
    def end_number(self) -> int:
        return self.through if self.through_mark is None else self.through_mark.number


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CursorWindow(QueryWindow):
    """Rows of a database or another source between two values of a cursor, or all of them."""

    is_landed: ClassVar[bool] = True
    is_replayable: ClassVar[bool] = False
    late_rows: ClassVar[str] = "; late ones as far back as the overlap"

    query: CursorQuery | EveryRow = field()
    after_mark: CursorMark | None = None
    through_mark: CursorMark | None = None

    @property
    def reads_every_row(self) -> bool:
        return isinstance(self.query, EveryRow)

    @property
    def is_whole(self) -> bool:
        if self.reads_every_row:
            return True
        return self.is_first and self.after_mark is None and self.method != "lost"

    def rows_text(self, begin: AnyMark | None, end: AnyMark | None) -> str:
        if self.reads_every_row:
            return "no cursor is said, so every run reads all rows"
        return QueryWindow.rows_text(self, begin, end)

    @property
    def meets_again(self) -> bool:
        is_next = not self.is_first and self.after_mark is not None
        return is_next and self.has_news and not self.is_whole

    def is_range_of(self, mark: Mark) -> bool:
        """A range of values has two ends of the column's type, the last one committed."""
        if not self.has_news:
            return True
        begin, end, committed = self.after_mark, self.through_mark, mark.mark
        if begin is None or end is None or self.query != mark.query:
            return False
        if committed is None or isinstance(committed, FilesMark | AnswerMark):
            return False
        is_one_type = begin.type == end.type == committed.type
        return is_one_type and not is_after(begin, end) and not is_after(end, committed)

    @property
    def lost_marks(self) -> tuple[AnyMark | None, AnyMark | None]:
        """All that follows the mark was read, but no late rows before it."""
        return None, self.after_mark


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilesWindow(QueryWindow):
    """Files that are on one list and not on the list before it."""

    query: FileList = field()
    after_mark: FilesMark | None = None
    through_mark: FilesMark | None = None

    def rows_text(self, begin: AnyMark | None, end: AnyMark | None) -> str:
        if not isinstance(end, FilesMark):
            return QueryWindow.rows_text(self, begin, end)
        before = begin.count if isinstance(begin, FilesMark) else 0
        new = end.count - before
        again = f", {end.again:,} changed" if end.again and begin != end else ""
        return f"{new:,} new {'file' if new == 1 else 'files'}{again} ({end.count:,} seen in total)"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnswerWindow(QueryWindow):
    """One whole answer of a web API."""

    query: WholeAnswer = field()
    after_mark: AnswerMark | None = None
    through_mark: AnswerMark | None = None

    @property
    def is_whole(self) -> bool:
        return self.method != "lost"

    def rows_text(self, begin: AnyMark | None, end: AnyMark | None) -> str:
        if end is None:
            return QueryWindow.rows_text(self, begin, end)
        return f"a new answer, {end.text}"

    def is_read_whole(self, *, as_asked: bool) -> bool:  # noqa: ARG002 see Window
        return True


_TYPES: dict[type[Query], type[QueryWindow]] = {
    TimeQuery: TimeWindow,
    CursorQuery: CursorWindow,
    EveryRow: CursorWindow,
    FileList: FilesWindow,
    WholeAnswer: AnswerWindow,
}


def window_of(query: Query, **values: Any) -> QueryWindow:
    """The window of a query, of its type; `values` are those of `QueryWindow`."""
    return _TYPES[type(query)](query=query, **values)
