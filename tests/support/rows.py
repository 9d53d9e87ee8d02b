"""What targets hold in a schedule: how windows are read, and which versions are where.

A part of the judge (testing.truth).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache

from floodmark.model.file_marks import AnyMark
from floodmark.model.marks import TimeMark
from floodmark.model.window import VersionWindow, Window

FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)

Span = tuple[int, int]
"""Versions, inclusive at both ends; empty where the second is smaller. Of an upstream without
versions the values of its column, which the simulator counts as well."""

Way = tuple[Span, str, int | None]
"""How a window is read: its versions, the method, and the version after which changes are read."""


@cache
def value_of(mark: AnyMark | None) -> int:
    """The number of a value; marks of the simulator are days after the first one."""
    return (mark.instant - FIRST_DAY).days if isinstance(mark, TimeMark) else -1


def day_of(number: int) -> date:
    """The value of a number."""
    return (FIRST_DAY + timedelta(days=number)).date()


def span_of(window: Window) -> Span:
    """What a window holds; nothing while its end is deferred."""
    if isinstance(window, VersionWindow):
        return window.after + 1, window.through
    start = value_of(window.after_mark) + 1
    return start, start - 1 if window.deferred else value_of(window.through_mark)


def way_of(window: Window) -> Way:
    return span_of(window), window.method, window.feed_after_version


def given_by(way: Way) -> range:
    """The versions whose rows a read gives."""
    (start, end), method, after = way
    if start > end:
        return range(0)
    if method == "lost":
        return range(end + 1 if after is None else after + 1, end + 1)
    return range(0 if method == "snapshot" else start, end + 1)


def first_run(ways: list[Way]) -> Way:
    """How a first run would read a range; `ways` begins with how it was planned."""
    (_, end), method, _ = ways[0]
    if end < 0:
        return ways[0]  # nothing of it is processed yet
    return (0, end), method if method == "query" else "snapshot", None


@dataclass
class SinkTruth:
    """One write of a pipeline: which batches, and how far each upstream, are in its target."""

    target: str
    batches: set[int] = field(default_factory=set)
    """Those that were applied at some time."""
    through: dict[str, int] = field(default_factory=dict)
    there: dict[int, tuple[int, dict[str, range]]] = field(default_factory=dict)
    """Batch -> when it was committed, and with which versions, as far as nobody took it away."""
    over_a_loss: set[int] = field(default_factory=set)
    """Batches that were committed while rows were missing that nobody had given up."""
    missing: dict[str, set[int]] = field(default_factory=dict)
    """Versions that the target should hold and does not."""
    declared: dict[str, set[int]] = field(default_factory=dict)
    """Versions whose loss an operator accepted."""
    losses: list[int] = field(default_factory=list)
    """When somebody took rows away, where nobody has settled that."""
    was_hurt: bool = False
    rebuilds: bool = False
    """Whether the next write has to bring everything."""
    awaits_record: bool = False
    """Whether a rebuild was decided and no record says that it is done."""

    def lacks(self) -> bool:
        return any(self._undeclared(u) for u in self.missing)

    def _undeclared(self, upstream: str) -> set[int]:
        through = self.through.get(upstream, -1)
        lost = self.missing[upstream] - self.declared.get(upstream, set())
        return {version for version in lost if version <= through}

    def holds_rows(self) -> bool:
        return any(
            through >= 0 and not set(range(through + 1)) <= self.missing.get(u, set())
            for u, through in self.through.items()
        )

    def declare(self) -> None:
        for upstream, versions in self.missing.items():
            self.declared.setdefault(upstream, set()).update(versions)

    def start_again(self) -> None:
        for kept in (self.through, self.missing, self.declared):
            kept.clear()

    def forget_rows(self) -> None:
        """The write that comes replaces all that is there."""
        self.start_again()
        self.there.clear()

    def lose_all(self, moment: int) -> None:
        """Every row is gone."""
        self.missing = {u: set(range(t + 1)) for u, t in self.through.items()}
        self._hurt(moment)
        self.there.clear()

    def lose_since(self, moment: int, kept: int) -> None:
        """What was committed after `kept` is gone; where that is nothing, nothing was lost."""
        self.was_hurt = True  # of what others lost there, it may be asked too
        gone = [seq for seq, (at, _) in self.there.items() if at > kept]
        if gone:
            self._hurt(moment)
        for seq in gone:
            for upstream, versions in self.there.pop(seq)[1].items():
                self.missing.setdefault(upstream, set()).update(versions)

    def _hurt(self, moment: int) -> None:
        self.was_hurt = True
        self.rebuilds = self.rebuilds or self.awaits_record
        if self.there:
            self.losses.append(moment)

    def move(self, upstream: str, version: int) -> None:
        """An operator says that the target stands at a version."""
        skipped = set(range(self.through.get(upstream, -1) + 1, version + 1))
        for kept in (self.missing, self.declared):
            kept[upstream] = kept.get(upstream, set()) | skipped
        self.through[upstream] = version

    def add(self, upstream: str, way: Way) -> None:
        """The rows of one read are there now."""
        (start, end), given = way[0], given_by(way)
        if start > end:
            return
        accepted = set(range(start, end + 1)) - set(given)
        missing = self.missing.setdefault(upstream, set())
        missing -= set(given)
        missing |= accepted
        self.declared.setdefault(upstream, set()).update(accepted)
        self.through[upstream] = max(end, self.through.get(upstream, -1))
