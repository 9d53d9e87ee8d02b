"""Random histories of changes, cut into batches, and what is left if they are applied one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

VERSIONS, BATCHES, KEYS = 5, 3, 2
UPSERTS = ("insert", "update_postimage")
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """A row of a change feed."""

    key: int
    value: str
    n: int | None
    """What `sequence_by` names; late rows have a lower one than rows before them."""
    kind: str
    version: int

    @property
    def at(self) -> datetime:
        return AT + timedelta(seconds=self.version)

    @property
    def is_upsert(self) -> bool:
        return self.kind in UPSERTS


@dataclass(frozen=True)
class History:
    """The changes of a few keys, by version, and the batch that each version comes in."""

    versions: tuple[tuple[Change, ...], ...]
    batches: tuple[int, ...]

    def batch(self, number: int) -> list[Change]:
        cut = zip(self.versions, self.batches, strict=True)
        return [change for version, batch in cut if batch == number for change in version]


KINDS = ("insert", "update_postimage", "delete", "update_preimage")
ROWS = st.tuples(
    st.integers(1, KEYS), st.sampled_from("abcdef"), st.none() | st.integers(1, 4),
    st.sampled_from(KINDS),
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn, *, has_sequence: bool) -> History:
    versions = []
    for number in range(1, VERSIONS + 1):
        rows = [Change(*row, version=number) for row in draw(st.lists(ROWS, max_size=3))]
        # One row of each claim: which of two tied rows wins is no matter of cuts.
        claims = {(c.key, rank(c), c.n if has_sequence else None): c for c in rows}
        versions.append(tuple(claims.values()))
    cuts = draw(st.lists(st.integers(0, BATCHES - 1), min_size=VERSIONS, max_size=VERSIONS))
    return History(tuple(versions), tuple(sorted(cuts)))


def drawn(count: int, *, has_sequence: bool = True) -> list[History]:
    """The same histories in every run."""
    cases: list[History] = []

    @given(histories(has_sequence=has_sequence))
    @settings(max_examples=count, database=None, derandomize=True, phases=[Phase.generate])
    def collect(case: History) -> None:
        cases.append(case)

    collect()
    return cases


def rank(change: Change) -> int:
    return {"update_preimage": 0, "delete": 1}.get(change.kind, 2)


def order(n: int | None) -> int:
    """NULLs come last of all, so they are the oldest."""
    return -1 if n is None else n


def left(
    history: History, *, sequence: bool, deletes: str, strategy: str = "upsert"
) -> dict[int, Change]:
    """The change that each key shows after all versions, applied one after the other."""
    shown: dict[int, Change] = {}
    for version in history.versions:
        for key, change in last_of_version(
            version, only_upserts=strategy != "upsert" or deletes == "ignore"
        ).items():
            old = shown.get(key)
            is_older = sequence and old is not None and order(change.n) < order(old.n)
            if is_older or (old is not None and strategy == "append_only"):
                continue
            if change.is_upsert or deletes == "soft":
                shown[key] = change
            else:
                shown.pop(key, None)
    return shown


def last_of_version(version: Sequence[Change], *, only_upserts: bool) -> dict[int, Change]:
    rows = [c for c in version if c.is_upsert or not only_upserts]
    ordered = sorted(rows, key=lambda c: (rank(c), order(c.n)))
    return {change.key: change for change in ordered}


def with_rows_older_than_a_delete(history: History) -> set[int]:
    """The keys of which a row comes after a delete that is newer: the target has forgotten that one."""
    keys, deleted = set(), dict.fromkeys(range(1, KEYS + 1), -1)
    for version in history.versions:
        for key, change in last_of_version(version, only_upserts=False).items():
            if not change.is_upsert:
                deleted[key] = max(deleted[key], order(change.n))
            elif order(change.n) < deleted[key]:
                keys.add(key)
    return keys
