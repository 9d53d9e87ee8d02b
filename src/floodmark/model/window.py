"""Windows: which versions of an upstream a batch covers, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from floodmark.model.delta import ChangeKind

WindowStatus = Literal["PENDING", "NOOP"]
Method = Literal["feed", "snapshot", "snapshot+feed", "lost", "query"]
"""feed: the changes of the versions. snapshot: the whole table at the end. snapshot+feed: the whole
table at `feed_after_version`, then the changes. lost: the range, or its part through
`feed_after_version`, is gone and its loss was accepted; what is left is read as changes. query: the
rows between two marks, of an upstream without versions; of files, snapshot then means as they are
now, and lost without those that are not as planned."""
WindowKind = Literal["version", "time", "cursor", "files", "offsets"]
"""What the windows of an upstream are measured by."""
Format = Literal["delta", "parquet", "orc"]
QueryFormat = Literal[Format, "sql", "source", "files"]
"""sql: a table or query of a database. source: what a web API or a plug-in gives, by a cursor. files:
the files of a folder or glob, by their list; or the whole answer of a web API, by its content."""
CURSOR_FORMATS: tuple[QueryFormat, ...] = ("sql", "source")
"""Formats whose rows are read by a cursor column, and put aside first."""
ANSWER = "answer"
"""What stands in the place of a column where a window is one whole answer of a web API."""
Settlement = Literal["snapshot", "accept"]
"""Ways forward where a planned range is lost."""

NOTHING_PROCESSED = -1
"""The committed version of an upstream of which nothing was processed yet."""
NO_VERSION = -1
"""What is shown in the place of a version where versions do not apply."""


EVERY_ROW = "*"
"""What stands in the place of a cursor where there is none: every window holds all rows."""


@dataclass(frozen=True, slots=True)
class Query:
    """How the rows of an upstream without versions are found."""

    column: str
    format: QueryFormat

    @property
    def is_whole(self) -> bool:
        """Whether every window is all rows, since no column tells which are new."""
        return self.column == EVERY_ROW and self.format == "sql"

    @property
    def kind(self) -> WindowKind:
        """What the windows are measured by."""
        kinds: dict[QueryFormat, WindowKind] = {
            "sql": "cursor",
            "source": "cursor",
            "files": "files",
        }
        return kinds.get(self.format, "time")

    @property
    def is_answer(self) -> bool:
        """Whether a window is one whole answer."""
        return (self.column, self.format) == (ANSWER, "files")


@dataclass(frozen=True, slots=True)
class Caution:
    """What stops nothing, and should be known; `next` says what can be done about it."""

    text: str
    next: str


@dataclass(frozen=True, slots=True)
class Window:
    """The versions of one upstream that one batch covers; fixed once it is planned.

    `after_version` is excluded and `through_version` included; `start` and `end` show the same
    range inclusive at both ends, as tables, JSON and commands do. Of an upstream without versions
    they count its windows: each is one step further, from `start_mark` (excluded) to `end_mark`.
    """

    upstream: str
    """The name under which the upstream is stored: an absolute path or URI."""
    method: Method
    after_version: int
    through_version: int
    reason: str
    """Why this method and this end, for people."""
    table_id: str
    feed_enabled: bool
    schema_fingerprint: str
    latest_version: int
    """The newest version the upstream had when the window was planned."""
    start_at: datetime | None = None
    """Commit time of the first version in the window."""
    end_at: datetime | None = None
    """Commit time of the last version in the window."""
    bytes: int | None = None
    rows: int | None = None
    """Rows a read of the window gives, from the log; None where the log does not tell."""
    changes: frozenset[ChangeKind] = frozenset()
    """The kinds of change in the versions that are read by feed."""
    kind: WindowKind = "version"
    feed_after_version: int | None = None
    """Set for snapshot+feed and lost: changes are read of the versions after this one only."""
    reload: bool = False
    """Whether the window begins a new table that took the place of the one processed before."""
    query: Query | None = None
    """Set where the upstream has no versions."""
    start_mark: str | None = None
    """Where the rows begin, excluded, as typed JSON; None for the beginning of the upstream."""
    end_mark: str | None = None
    """Where the rows end, included, as typed JSON; None while nothing is there, or deferred."""
    deferred: bool = False
    """Whether the end is not known yet: the first run of the batch freezes it before it reads."""
    location: str | None = None
    """Where the table is, if it moved after the upstream got its name."""
    warning: Caution | None = None
    """What was seen beside the news when the window was planned."""
    as_read: bool = False
    """Whether the operator takes the rows that are read, whatever number the log says."""

    @property
    def place(self) -> str:
        """Where the table is."""
        return self.location or self.upstream

    @property
    def start(self) -> int:
        """The first version, inclusive."""
        return self.after_version + 1

    @property
    def end(self) -> int:
        """The last version, inclusive."""
        return self.through_version

    @property
    def start_version(self) -> int:
        """The first version as it is published: -1 where versions do not apply."""
        return self.start if self.kind == "version" else NO_VERSION

    @property
    def end_version(self) -> int:
        """The last version as it is published: -1 where versions do not apply."""
        return self.end if self.kind == "version" else NO_VERSION

    @property
    def versions(self) -> int:
        """How many versions, or steps, the window covers; 0 where there is no news."""
        return self.through_version - self.after_version

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the upstream are read, also those that were processed before."""
        is_from_the_beginning = self.after_version == NOTHING_PROCESSED and self.start_mark is None
        if self.query is not None and self.query.is_whole:
            return True
        if self.kind != "version":
            is_answer = self.query is not None and self.query.is_answer
            return (is_from_the_beginning or is_answer) and self.method != "lost"
        return self.method == "snapshot"

    @property
    def snapshot_version(self) -> int | None:
        """The version at which the whole table is read; None where it is not."""
        if self.kind != "version":
            return None
        if self.method == "snapshot":
            return self.through_version
        return self.feed_after_version if self.method == "snapshot+feed" else None

    @property
    def feed_start(self) -> int | None:
        """The first version whose changes are read; None where no changes are."""
        after = self.after_version if self.method == "feed" else self.feed_after_version
        return None if after is None or after >= self.through_version else after + 1

    @property
    def status(self) -> WindowStatus:
        """PENDING where there is something to process, NOOP where there is not."""
        return "PENDING" if self.versions else "NOOP"

    @property
    def has_news(self) -> bool:
        return self.versions > 0
