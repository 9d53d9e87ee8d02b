"""Rows at the edge of a window, against an oracle that sees every row that ever was."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.sources.sql.edges import Edge, Identity, Row, decoded, fresh, next_edge

OVERLAPS = st.integers(0, 4)


@dataclass
class Upstream:
    """A table that others write to, and a reader of it by windows."""

    overlap: int
    identity: Identity
    includes_nulls: bool = False
    rows: list[Row] = field(default_factory=list)
    applied: list[Row] = field(default_factory=list)
    high: int | None = None
    edge: Edge = field(default_factory=Edge)

    def insert(self, *rows: Row) -> None:
        self.rows += rows

    def window(self, *arriving: Row) -> None:
        """Probe; rows arrive; then read what the probe has fixed."""
        known = [row["at"] for row in self.rows if row["at"] is not None]
        if not known and self.high is None and not self.includes_nulls:
            return self.insert(*arriving)
        high = max([*known, *([] if self.high is None else [self.high])], default=0)
        self.insert(*arriving)
        low = None if self.high is None else self.high - self.overlap
        read = [row for row in self.rows if self._is_read(row["at"], low, high)]
        self.applied += fresh(read, self.edge, self.identity)
        stored = next_edge(read, self.identity, lambda at: at >= high - self.overlap)
        self.edge, self.high = decoded(stored.encoded()), high
        return None

    def _is_read(self, at: int | None, low: int | None, high: int) -> bool:
        if at is None:
            return self.includes_nulls
        return (low is None or at >= low) and at <= high


def flattened(rows: list[Row]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)


arrivals = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=5)


@given(OVERLAPS, st.booleans(), st.lists(st.tuples(arrivals, arrivals), max_size=6))
def test_every_row_within_the_overlap_is_applied_exactly_once(
    overlap: int, has_keys: bool, steps: list[Any]
) -> None:
    identity = Identity("at", ("id",) if has_keys else ())
    upstream = Upstream(overlap, identity)
    number = 0

    def made(pairs: list[tuple[int, int]]) -> list[Row]:
        """Rows no earlier than the overlap allows: ties and late rows among them."""
        nonlocal number
        rows: list[Row] = []
        for ahead, name in pairs:
            number += 1
            earliest = 0 if upstream.high is None else upstream.high - overlap
            # Without keys rows may be equal in everything.
            own = {"id": number} if has_keys else {}
            rows.append({**own, "at": max(0, earliest) + ahead, "name": name})
        return rows

    for before, during in steps:
        upstream.insert(*made(before))
        upstream.window(*made(during))
    upstream.window()

    assert flattened(upstream.applied) == flattened(upstream.rows)


def test_a_late_tie_is_neither_lost_nor_doubled() -> None:
    upstream = Upstream(0, Identity("at"))
    upstream.insert({"at": 5, "v": "a"})
    upstream.window()
    upstream.insert({"at": 5, "v": "b"}, {"at": 5, "v": "a"})

    upstream.window()
    upstream.window()

    assert flattened(upstream.applied) == flattened(upstream.rows)


def test_a_late_row_below_the_overlap_is_not_seen() -> None:
    upstream = Upstream(2, Identity("at"))
    upstream.insert({"at": 10, "v": 1})
    upstream.window()
    upstream.insert({"at": 8, "v": 2}, {"at": 7, "v": 3})

    upstream.window()

    assert [row["v"] for row in upstream.applied] == [1, 2]


def test_an_update_moves_the_cursor_and_is_applied_again() -> None:
    upstream = Upstream(5, Identity("at", ("id",)))
    upstream.insert({"id": 1, "at": 1, "v": "old"})
    upstream.window()
    upstream.rows = [{"id": 1, "at": 2, "v": "new"}]

    upstream.window()

    assert [row["v"] for row in upstream.applied] == ["old", "new"]


@pytest.mark.parametrize("includes_nulls", [True, False])
def test_rows_without_a_cursor_are_applied_once_or_never(includes_nulls: bool) -> None:
    upstream = Upstream(0, Identity("at"), includes_nulls)
    upstream.insert({"at": None, "v": 1}, {"at": 1, "v": 2})
    upstream.window()
    upstream.insert({"at": None, "v": 3}, {"at": None, "v": 1})

    upstream.window()
    upstream.window()

    expected = [2, 1, 3, 1] if includes_nulls else [2]
    assert sorted(row["v"] for row in upstream.applied) == sorted(expected)


def test_values_of_different_types_are_different_rows() -> None:
    identity = Identity("at")
    values = [1, 1.0, "1", True, None, b"1", [1], {"1": 1}]

    assert len({identity.of({"at": 0, "v": value}) for value in values}) == len(values)


@pytest.mark.parametrize("text", ["[]", '{"a": "x"}', "no"])
def test_what_is_no_edge_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(text)
