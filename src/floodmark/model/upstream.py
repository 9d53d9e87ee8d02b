"""What a pipeline may say about an upstream beyond its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import Any, Literal, TypeGuard, get_args

from floodmark.errors import ConfigError
from floodmark.model import cursor_marks, durations, marks
from floodmark.model.file_marks import AnyMark
from floodmark.model.marks import TimeMark
from floodmark.model.query import CURSOR_FORMATS, Query, QueryFormat, WindowKind, query_of
from floodmark.model.window import NOTHING_PROCESSED

OnFeedGap = Literal["snapshot", "fail"]
OnSchemaChange = Literal["evolve", "fail", "reload"]
OnRecreated = Literal["fail", "reload"]
OnLostRange = Literal["fail", "snapshot", "accept"]
OnNullTime = Literal["fail", "ignore"]
PreferredMethod = Literal["feed", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamOptions:
    """How an upstream is read; raises ConfigError FM-CONFIG-007 for a value that is not allowed.

    All pipelines of a scope say the same about an upstream: they share its windows.
    """

    baseline: int | str | None = None
    """A first batch reads what follows this version, by feed; None: the whole table. With a
    `time_column` an ISO time takes the place of the version, of a database a mark as JSON."""
    method: PreferredMethod | None = None
    """snapshot: always the whole table. feed: changes also where a snapshot would be simpler."""
    on_feed_gap: OnFeedGap = "snapshot"
    """Where the change feed does not cover what comes next."""
    on_schema_change: OnSchemaChange = "evolve"
    """Where the next version changes the schema; what lies before it is read first."""
    on_recreated: OnRecreated = "fail"
    """Where another table stands in the place of the one that was processed."""
    on_lost_range: OnLostRange = "fail"
    """Where commits that were not planned yet are gone from the log."""
    time_column: str | None = None
    """Versions are not used: a batch reads the rows whose value of this column is new."""
    settle: str | None = None
    """How far the end of a time window stays behind now; None: it may reach now."""
    on_null_time: OnNullTime = "fail"
    """Rows without a value in the time column belong into no window; ignore: they are never read."""
    format: QueryFormat | None = None
    """Of an upstream with a time column; None: Delta if it has a log, else Parquet. sql: what a node
    reads of a database, whose cursor is the `time_column`. source: the same of a web API or plug-in. files: what a node reads of a folder or glob."""
    latest_at: int | None = field(default=None, compare=False)
    """What "latest" meant when the pipeline was registered; set by floodmark."""
    latest_mark: AnyMark | None = field(default=None, compare=False)
    """The same for an upstream with a time column."""

    def __post_init__(self) -> None:
        for name in ("time_column", "settle"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise _refused(name, value, "text, or nothing")
        is_allowed, wanted = _baselines_of(self)
        if not is_allowed(self.baseline):
            raise _refused("baseline", self.baseline, wanted)
        _check_time_options(self)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise _refused(name, value, ", ".join(map(str, allowed)))

    @property
    def first_after(self) -> int:
        """The version after which the first window starts; -1 for the whole table."""
        if self.baseline == "latest" and self.latest_at is not None:
            return self.latest_at
        return self.baseline if isinstance(self.baseline, int) else NOTHING_PROCESSED

    def as_query(self, found_format: QueryFormat = "parquet") -> Query | None:
        """How rows are found; None by versions. `found_format` is for where none is said."""
        if self.time_column is None:
            return None
        return query_of(self.time_column, self.format or found_format)

    @property
    def has_versions(self) -> bool:
        """Whether windows are versions of a table."""
        return self.time_column is None

    @property
    def kind(self) -> WindowKind:
        """What windows are measured by."""
        query = self.as_query()
        return "version" if query is None else query.kind

    @property
    def is_by_reader(self) -> bool:
        """Whether only the reader of a node can look: a path alone does not tell how."""
        return self.has_cursor or (self.time_column is not None and self.format == "files")

    @property
    def has_cursor(self) -> bool:
        """Whether a reader puts rows aside that lie between two values, or all of them."""
        return self.time_column is not None and self.format in CURSOR_FORMATS

    def first_mark(self, like: AnyMark) -> AnyMark | None:
        """The mark after which the first window starts; None for everything.

        `like` is a mark of the same column; raises ValueError if the baseline is of another type.
        """
        if self.baseline == "latest":
            return self.latest_mark
        if not isinstance(self.baseline, str):
            return None
        if self.has_cursor:
            return cursor_marks.decoded(self.baseline)
        if not isinstance(like, TimeMark):
            raise ValueError(f"{self.baseline} is a time, {like.text} is none")  # noqa: TRY004 a wrong value
        return marks.typed(like.type, self.baseline)

    @property
    def settle_seconds(self) -> float | None:
        return None if self.settle is None else durations.seconds_of(self.settle)


@dataclass(frozen=True, slots=True)
class Upstream(UpstreamOptions):
    """An upstream with options, where `register` takes a name: `fm.Upstream("lake/a", baseline=5)`."""

    name: str
    lookup: bool = field(default=False, kw_only=True)
    """A table that batches freeze for the pipeline; it neither holds a batch nor triggers one."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise _refused("name", self.name, "a path, a URI or a catalog name")
        UpstreamOptions.__post_init__(self)

    @property
    def options(self) -> UpstreamOptions:
        """The options without the name."""
        return UpstreamOptions(**{f.name: getattr(self, f.name) for f in fields(UpstreamOptions)})


_BASELINES = 'a version from 0 up, "latest", or nothing for the whole table'
_TIME_BASELINES = 'an ISO time like 2026-01-01T00:00:00Z, "latest", or nothing for the whole table'
_MARK_BASELINES = 'a mark as JSON, "latest", or nothing for all rows'
_FILE_BASELINES = '"latest", or nothing for all files'
_CHOICES: dict[str, tuple[Any, ...]] = {
    "method": (*get_args(PreferredMethod), None),
    "on_feed_gap": get_args(OnFeedGap),
    "on_schema_change": get_args(OnSchemaChange),
    "on_recreated": get_args(OnRecreated),
    "on_lost_range": get_args(OnLostRange),
    "on_null_time": get_args(OnNullTime),
    "format": (*get_args(QueryFormat), None),
}


def _baselines_of(options: UpstreamOptions) -> tuple[Callable[[object], bool], str]:
    """What a baseline may be, and that in words."""
    if options.time_column is None:
        return _is_baseline, _BASELINES
    if options.has_cursor:
        return _is_mark_baseline, _MARK_BASELINES
    if options.is_by_reader:
        return _is_file_baseline, _FILE_BASELINES
    return _is_time_baseline, _TIME_BASELINES


def _is_file_baseline(value: object) -> bool:
    return value is None or value == "latest"


def _is_mark_baseline(value: object) -> bool:
    if value is None or value == "latest":
        return True
    try:
        return isinstance(value, str) and bool(cursor_marks.decoded(value))
    except ValueError:
        return False


def _is_baseline(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 0
    return value is None or value == "latest"


def _is_time_baseline(value: object) -> bool:
    if value is None or value == "latest":
        return True
    return isinstance(value, str) and (_is_iso(value, datetime) or _is_iso(value, date))


def _is_iso(text: str, kind: type[date]) -> bool:
    try:
        kind.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_time_options(options: UpstreamOptions) -> None:
    """What is said about windows of time is said together with the column they go by."""
    if options.time_column is None:
        for name in ("settle", "on_null_time", "format"):
            value = getattr(options, name)
            if value not in (None, "fail"):
                raise _refused(name, value, f"{name} together with time_column")
    elif not options.time_column.strip():
        raise _refused("time_column", options.time_column, "the name of a column")
    elif options.method is not None:
        raise _refused("method", options.method, "no method: a time column is read by query")
    if options.settle is not None:
        try:
            durations.seconds_of(options.settle)
        except (ValueError, AttributeError):
            raise _refused("settle", options.settle, durations.ALLOWED) from None


def _refused(name: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f"{name} of an upstream cannot be {value!r}",
        rule="upstream_option",
        allowed=allowed,
        state="nothing was journaled",
        next="correct the option",
    )


DEFAULT_OPTIONS = UpstreamOptions()


def is_lookup(one: str | Upstream) -> TypeGuard[Upstream]:
    return isinstance(one, Upstream) and one.lookup


def names_of(upstreams: Iterable[str | Upstream]) -> list[str]:
    """The names of upstreams, with or without options."""
    return [one.name if isinstance(one, Upstream) else one for one in upstreams]
