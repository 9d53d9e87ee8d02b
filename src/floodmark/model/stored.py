"""The stored form of windows, watermarks and queries: how the journal has them.

The only place that turns one into the other. A row of the journal is read into typed values once,
and whatever holds them never sees the text. Its names are older than the types: what is `after` in a
window is stored as `after_version`, what is a mark as JSON text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from floodmark.model.delta import ChangeKind, enable_feed_command
from floodmark.model.file_marks import AnyMark
from floodmark.model.query import Query, QueryFormat, WindowKind, query_of
from floodmark.model.state import Mark
from floodmark.model.window import Caution, Method, VersionWindow, Window, window_of
from floodmark.next_steps import aside


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query, as options spell it."""

    column: str
    format: QueryFormat


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """A window of any kind; what a kind does not have is left out."""

    upstream: str
    method: Method
    after_version: int
    through_version: int
    reason: str
    table_id: str
    feed_enabled: bool
    schema_fingerprint: str
    latest_version: int
    start_at: datetime | None = None
    end_at: datetime | None = None
    bytes: int | None = None
    rows: int | None = None
    changes: frozenset[ChangeKind] = frozenset()
    kind: WindowKind = "version"
    feed_after_version: int | None = None
    reload: bool = False
    query: Query | None = None
    start_mark: AnyMark | None = None
    end_mark: AnyMark | None = None
    deferred: bool = False
    location: str | None = None
    warning: Caution | None = None
    as_read: bool = False


@dataclass(frozen=True, slots=True)
class StoredMark:
    """A watermark; `version` counts windows where versions do not apply."""

    scope: str
    upstream: str
    version: int
    table_id: str
    feed_enabled: bool
    schema_fingerprint: str
    batch_id: str
    advanced_at: datetime
    advanced_by: str
    kind: WindowKind = "version"
    query: Query | None = None
    mark: AnyMark | None = None


def stored_window(window: Window) -> StoredWindow:
    """A window as it is stored."""
    return StoredWindow(
        upstream=window.upstream,
        method=window.method,
        after_version=window.after,
        through_version=window.through,
        reason=window.reason,
        table_id=window.table_id,
        feed_enabled=window.feed_enabled,
        schema_fingerprint=window.schema_fingerprint,
        latest_version=window.latest_version,
        start_at=window.start_at,
        end_at=window.end_at,
        bytes=window.bytes,
        rows=window.rows,
        changes=window.changes,
        kind=window.kind,
        feed_after_version=window.feed_after_version,
        reload=window.reload,
        query=window.query,
        start_mark=window.after_mark,
        end_mark=window.through_mark,
        deferred=window.deferred,
        location=window.location,
        warning=window.warning,
        as_read=window.as_read,
    )


def read_window(stored: StoredWindow) -> Window:
    """The window that was stored, of its type."""
    values: dict[str, Any] = {
        "upstream": stored.upstream,
        "method": stored.method,
        "after": stored.after_version,
        "through": stored.through_version,
        "reason": _reason(stored),
        "table_id": stored.table_id,
        "schema_fingerprint": stored.schema_fingerprint,
        "start_at": stored.start_at,
        "end_at": stored.end_at,
        "bytes": stored.bytes,
        "rows": stored.rows,
        "reload": stored.reload,
        "location": stored.location,
        "warning": stored.warning,
        "as_read": stored.as_read,
    }
    if stored.query is None:
        return VersionWindow(
            **values,
            feed_enabled=stored.feed_enabled,
            latest_version=stored.latest_version,
            changes=stored.changes,
            feed_after_version=stored.feed_after_version,
        )
    return window_of(
        stored.query,
        **values,
        after_mark=stored.start_mark,
        through_mark=stored.end_mark,
        deferred=stored.deferred,
    )


def _reason(stored: StoredWindow) -> str:
    """The reason; a statement behind it is a part of its own again."""
    offered = aside(enable_feed_command(stored.location or stored.upstream))
    if not stored.reason.endswith(offered):
        return stored.reason
    return stored.reason.removesuffix(offered) + offered


def stored_mark(mark: Mark) -> StoredMark:
    """A watermark as it is stored."""
    return StoredMark(
        mark.scope,
        mark.upstream,
        mark.version,
        mark.table_id,
        mark.feed_enabled,
        mark.schema_fingerprint,
        mark.batch_id,
        mark.advanced_at,
        mark.advanced_by,
        mark.kind,
        mark.query,
        mark.mark,
    )


def read_mark(stored: StoredMark) -> Mark:
    """The watermark that was stored."""
    return Mark(
        stored.scope,
        stored.upstream,
        stored.version,
        stored.table_id,
        stored.feed_enabled,
        stored.schema_fingerprint,
        stored.batch_id,
        stored.advanced_at,
        stored.advanced_by,
        stored.query,
        stored.mark,
    )


# What pydantic asks for -----------------------------------------------------------------------------


def window_schema(handler: Any) -> Any:
    """How windows are read and written in events."""
    return _schema(handler, StoredWindow, read_window, stored_window)


def mark_schema(handler: Any) -> Any:
    """The same for watermarks."""
    return _schema(handler, StoredMark, read_mark, stored_mark)


def query_schema(handler: Any) -> Any:
    """The same for queries."""

    def read(stored: StoredQuery) -> Query:
        return query_of(stored.column, stored.format)

    return _schema(handler, StoredQuery, read, lambda query: StoredQuery(*query.spelled))


def _schema(handler: Any, stored: type[Any], read: Any, write: Any) -> Any:
    from pydantic_core import core_schema

    form = handler.generate_schema(stored)
    return core_schema.no_info_after_validator_function(
        read,
        form,
        serialization=core_schema.plain_serializer_function_ser_schema(write, return_schema=form),
    )
