"""Windows: which versions of an upstream a batch covers, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from floodmark.model.delta import ChangeKind

WindowStatus = Literal["PENDING", "NOOP"]
Method = Literal["feed", "snapshot", "snapshot+feed", "lost"]
"""feed: the changes of the versions. snapshot: the whole table at the end. snapshot+feed: the whole
table at `feed_after_version`, then the changes. lost: the range, or its part through
`feed_after_version`, is gone and its loss was accepted; what is left is read as changes."""
Settlement = Literal["snapshot", "accept"]
"""Ways forward where a planned range is lost."""

NOTHING_PROCESSED = -1
"""The committed version of an upstream of which nothing was processed yet."""


@dataclass(frozen=True, slots=True)
class Window:
    """The versions of one upstream that one batch covers; fixed once it is planned.

    `after_version` is excluded and `through_version` included; `start` and `end` show the same
    range inclusive at both ends, as tables, JSON and commands do.
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
    kind: Literal["version"] = "version"
    feed_after_version: int | None = None
    """Set for snapshot+feed and lost: changes are read of the versions after this one only."""
    reload: bool = False
    """Whether the window begins a new table that took the place of the one processed before."""

    @property
    def start(self) -> int:
        """The first version, inclusive."""
        return self.after_version + 1

    @property
    def end(self) -> int:
        """The last version, inclusive."""
        return self.through_version

    @property
    def versions(self) -> int:
        """How many versions the window covers; 0 where there is no news."""
        return self.through_version - self.after_version

    @property
    def snapshot_version(self) -> int | None:
        """The version at which the whole table is read; None where it is not."""
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
