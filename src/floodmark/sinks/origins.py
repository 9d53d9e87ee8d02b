"""Which upstream a row comes from, told by the version and the commit time that the row carries.

Versions of two tables are not comparable, so a merge of several upstreams has to know whose a version
is. Rows carry no name of their upstream; the windows say which versions each one has, and where two
have the same number, the times of the two commits tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import SourceError
from floodmark.model import Window, epoch_micros
from floodmark.model.names import is_catalog_name

EARLIEST, LATEST = -(2**62), 2**62
"""Bounds in microseconds, before and after every time that a row can carry."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Rows of this version, with a commit time in [low, high) in microseconds, come from there."""

    upstream: str
    version: int
    low: int = EARLIEST
    high: int = LATEST

    @property
    def needs_time(self) -> bool:
        """Whether the version alone does not tell."""
        return (self.low, self.high) != (EARLIEST, LATEST)


def origins_of(windows: Iterable[Window], storage: Storage) -> tuple[Origin, ...]:
    """Whose each version is, where rows of several upstreams may be in one frame; else nothing.

    Two commits of one version and the same millisecond cannot be told apart and are left out, as are
    overlapping versions of a table whose log only its catalog can read.
    """
    fresh = [window for window in windows if window.has_news]
    if len({window.upstream for window in fresh}) < 2:
        return ()
    read = {window.upstream: (window, set(window.row_versions())) for window in fresh}
    owners: dict[int, list[str]] = {}
    for upstream, (_, versions) in read.items():
        for version in versions:
            owners.setdefault(version, []).append(upstream)
    shared = {version for version, upstreams in owners.items() if len(upstreams) > 1}
    times = {
        u: _times(window, versions & shared, storage) for u, (window, versions) in read.items()
    }
    told: list[Origin] = []
    for version, upstreams in sorted(owners.items()):
        told += _of_version(version, {u: times[u].get(version) for u in upstreams})
    return tuple(told)


def _times(window: Window, versions: set[int], storage: Storage) -> dict[int, int]:
    """The commit times of some versions, in microseconds, as far as they are known."""
    if not versions:
        return {}
    if not window.has_log or is_catalog_name(window.place):
        return _in_micros({window.through: window.end_at})
    log = DeltaLog(window.place, storage)
    return _in_micros({version: _committed_at(log, version) for version in versions})


def _committed_at(log: DeltaLog, version: int) -> datetime | None:
    """None where retention took the commit file: a snapshot can be read without it."""
    try:
        return log.versions(version, version)[0].committed_at
    except SourceError as error:
        if error.code != "FM-SOURCE-002":
            raise
        return None


def _in_micros(times: dict[int, datetime | None]) -> dict[int, int]:
    return {version: epoch_micros(at) for version, at in times.items() if at is not None}


def _of_version(version: int, times: dict[str, int | None]) -> Iterator[Origin]:
    """Each upstream gets the times nearer to its own commit than to any other's.

    Nearer, not equal: Spark moves a commit time by a millisecond where files of the log were written
    in the same one, and delta-rs shows the time of the writer, not that of the file.
    """
    if len(times) == 1:
        (upstream,) = times
        yield Origin(upstream, version)
        return
    known = sorted((at, upstream) for upstream, at in times.items() if at is not None)
    if len(known) < len(times) or len({at for at, _ in known}) < len(known):
        return
    instants = [at for at, _ in known]
    bounds = [EARLIEST, *_middles(instants), LATEST]
    for number, (_, upstream) in enumerate(known):
        yield Origin(upstream, version, bounds[number], bounds[number + 1])


def _middles(instants: Sequence[int]) -> list[int]:
    return [(one + two + 1) // 2 for one, two in pairwise(instants)]
