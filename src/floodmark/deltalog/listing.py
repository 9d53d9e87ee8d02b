"""What the file names in a `_delta_log` say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

_DIGITS = 20
_JSON = ".json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: the files that hold it."""

    version: int
    names: tuple[str, ...]


class Listing:
    """The commits and checkpoints of one look at a log folder; not to be changed."""

    __slots__ = ("checkpoints", "commits", "earliest", "highest", "latest")

    commits: frozenset[int]
    """Versions with a commit file."""
    checkpoints: tuple[Checkpoint, ...]
    """Complete checkpoints, oldest first; of several for one version the single-file one."""
    latest: int
    """The end of the run of commits that follows the newest checkpoint, or version 0.

    -1 where there is neither; lower than `highest` where the log has a hole.
    """
    highest: int
    """The highest version that any file name mentions."""
    earliest: int
    """The oldest version from which every commit file through `latest` is there."""

    def __init__(
        self,
        commits: frozenset[int],
        checkpoints: tuple[Checkpoint, ...] = (),
        compacted_through: int = -1,
    ) -> None:
        newest = checkpoints[-1].version if checkpoints else -1
        self.commits = commits
        self.checkpoints = checkpoints
        self.highest = max(max(commits, default=-1), newest, compacted_through)
        self.latest = _run_end(commits, newest)
        self.earliest = _run_start(commits, self.latest)

    @property
    def is_empty(self) -> bool:
        return not self.commits and not self.checkpoints

    def missing(self, first: int, last: int) -> list[int]:
        """The versions of an inclusive range that have no commit file."""
        return [v for v in range(first, last + 1) if v not in self.commits]

    def checkpoint_at(self, version: int) -> Checkpoint | None:
        """The newest complete checkpoint at or before a version."""
        usable = [c for c in self.checkpoints if c.version <= version]
        return usable[-1] if usable else None


@dataclass
class _Found:
    commits: list[int] = field(default_factory=list)
    whole: dict[int, str] = field(default_factory=dict)
    parts: dict[tuple[int, int], dict[int, str]] = field(default_factory=dict)
    compacted_through: int = -1


def _run_end(commits: frozenset[int], version: int) -> int:
    while version + 1 in commits:
        version += 1
    return version


def _run_start(commits: frozenset[int], version: int) -> int:
    while version in commits:
        version -= 1
    return version + 1


def commit_name(version: int) -> str:
    """The file name of a commit."""
    return f"{version:020d}.json"


def listing_of(names: Iterable[str]) -> Listing:
    """Sort the names of a log folder; names that are not of the log are passed over."""
    found = _Found()
    for name in names:
        head = name[:_DIGITS]
        if len(head) == _DIGITS and head.isascii() and head.isdigit():
            _sort_in(found, int(head), name, name[_DIGITS:])
    if not (found.whole or found.parts):
        return Listing(frozenset(found.commits), (), found.compacted_through)
    return Listing(frozenset(found.commits), _complete(found), found.compacted_through)


def _sort_in(found: _Found, version: int, name: str, rest: str) -> None:
    if rest == _JSON:
        found.commits.append(version)
    elif rest.startswith(".checkpoint."):
        _sort_in_checkpoint(found, version, name, rest.split("."))
    elif rest.endswith(".compacted.json"):
        end = rest[1 : 1 + _DIGITS]
        if end.isascii() and end.isdigit():
            found.compacted_through = max(found.compacted_through, int(end))


def _sort_in_checkpoint(found: _Found, version: int, name: str, words: list[str]) -> None:
    """`v.checkpoint.parquet`, `v.checkpoint.<uuid>.json|parquet`, `v.checkpoint.<i>.<n>.parquet`."""
    match words:
        case ["", "checkpoint", "parquet"]:
            found.whole[version] = name
        case ["", "checkpoint", _, "parquet" | "json"]:
            found.whole.setdefault(version, name)
        case ["", "checkpoint", part, count, "parquet"] if part.isdigit() and count.isdigit():
            found.parts.setdefault((version, int(count)), {})[int(part)] = name


def _complete(found: _Found) -> tuple[Checkpoint, ...]:
    complete = {v: Checkpoint(v, (name,)) for v, name in found.whole.items()}
    for (version, count), parts in found.parts.items():
        if sorted(parts) == list(range(1, count + 1)):
            names = tuple(parts[i] for i in sorted(parts))
            complete.setdefault(version, Checkpoint(version, names))
    return tuple(complete[v] for v in sorted(complete))
