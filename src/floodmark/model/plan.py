"""What planning takes and gives: facts about upstreams in, a draft of a batch out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from floodmark.model.cursor_marks import MarkType
from floodmark.model.delta import SnapshotSize, TableFacts, VersionFacts
from floodmark.model.file_marks import AnyMark
from floodmark.model.query import Query
from floodmark.model.state import Fallback
from floodmark.model.upstream import OnLostRange
from floodmark.model.window import Caution, Window

DEFAULT_SCOPE = "default"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Which upstreams of a scope to plan, by stored name."""

    upstreams: tuple[str, ...]
    scope: str = DEFAULT_SCOPE
    max_versions: int | None = None
    fallback: Fallback | None = None
    on_lost_range: OnLostRange | None = None
    """Overrules what the upstreams' options say, for this request."""


@dataclass(frozen=True, slots=True)
class Before:
    """What a table was like before a version."""

    feed_enabled: bool
    schema_fingerprint: str
    schema_json: str


@dataclass(frozen=True, slots=True)
class TimeFacts:
    """What the time or cursor column of an upstream shows beyond a mark, as far as it is settled."""

    type: MarkType | Literal["files"]
    newest: AnyMark | None
    """None where nothing is new."""
    oldest: AnyMark | None = None
    rows: int | None = None
    """Rows after the mark, through `newest`."""
    bytes: int | None = None
    waiting: int | None = None
    """Rows that are not settled yet, or lie in the future."""
    nulls: int | None = None
    """Rows without a value, in the whole upstream."""
    note: str | None = None
    """How it was learned, where that is worth a word."""
    warning: Caution | None = None
    """What was seen beside the news."""
    items: int | None = None
    """How many are new, of things that are counted: files, records of an answer."""
    since: datetime | None = None
    """Since when the oldest of them is there."""

    @property
    def counts_items(self) -> bool:
        """Whether news are counted one by one, so that none is zero."""
        return self.type == "files"


@dataclass(frozen=True, slots=True)
class Probe:
    """What the log of an upstream shows beyond its watermark."""

    facts: TableFacts
    versions: tuple[VersionFacts, ...] = ()
    """The commits that follow what was processed, as far as planning needs them: from the oldest
    one that is left, in a row; empty on a first run."""
    size: SnapshotSize | None = None
    """The whole table at its newest version, where a snapshot may be planned."""
    before: Before | None = None
    """The table before the first of `versions`, where the watermark does not tell."""
    enabled_size: SnapshotSize | None = None
    """The whole table at the first of `versions` that switches the feed on, where it was off."""
    query: Query | None = None
    """Set where the upstream has no versions, or none that are used."""
    time: TimeFacts | None = None
    """What is new by `query`; None where only an engine could look."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A batch for one pipeline that is behind the watermark of its scope; not journaled."""

    pipeline: str
    scope: str
    upstreams: tuple[str, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A batch that is not journaled."""

    scope: str
    windows: tuple[Window, ...]
    required: Mapping[str, tuple[str, ...]]
    seeds: tuple[Seed, ...] = ()
    """What has to be processed before it, each by one pipeline."""

    @property
    def has_news(self) -> bool:
        return any(window.has_news for window in self.windows)
