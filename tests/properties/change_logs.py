"""Random histories of a table, the change feed Delta would show of them, and what is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Row = tuple[int, str]
"""(key, value)"""
Change = tuple[int, str, str, int]
"""(key, value, change type, version)"""


@dataclass
class History:
    """A table of unique keys that is changed commit by commit; the plain Python oracle."""

    rows: dict[int, str] = field(default_factory=dict)
    feed: list[Change] = field(default_factory=list)
    version: int = 0

    def commit(self, steps: list[tuple[Any, ...]]) -> None:
        """One commit: every step acts on the rows as they were before it, as a MERGE does.

        A key is touched by one step at most, else the commit would be ambiguous.
        """
        self.version += 1
        before = dict(self.rows)
        touched: set[int] = set()
        for kind, key, value, other in steps:
            if key in touched or other in touched:
                continue
            if self._apply(before, kind, key, value, other):
                touched |= {key, other} if kind == "rekey" else {key}

    def _apply(self, before: dict[int, str], kind: str, key: int, value: str, other: int) -> bool:
        if kind == "insert" and key not in before:
            self._put(key, value, "insert")
        elif kind == "update" and key in before:
            self._log(key, before[key], "update_preimage")
            self._put(key, value, "update_postimage")
        elif kind == "delete" and key in before:
            self._log(key, before[key], "delete")
            del self.rows[key]
        elif kind == "rekey" and key in before and other not in before:
            self._log(key, before[key], "update_preimage")
            del self.rows[key]
            self._put(other, value, "update_postimage")
        else:
            return False
        return True

    def overwrite(self, rows: dict[int, str]) -> None:
        """INSERT OVERWRITE: the feed shows every old row deleted and every new one inserted."""
        self.version += 1
        for key, value in self.rows.items():
            self._log(key, value, "delete")
        self.rows = {}
        for key, value in rows.items():
            self._put(key, value, "insert")

    def swap(self, one: int, two: int) -> None:
        """UPDATE that swaps two keys: each has a pre-image and a post-image in one version."""
        if one == two or one not in self.rows or two not in self.rows:
            return
        self.version += 1
        first, second = self.rows[one], self.rows[two]
        self._log(one, first, "update_preimage")
        self._log(two, second, "update_preimage")
        self._put(two, first, "update_postimage")
        self._put(one, second, "update_postimage")

    def _put(self, key: int, value: str, kind: str) -> None:
        self.rows[key] = value
        self._log(key, value, kind)

    def _log(self, key: int, value: str, kind: str) -> None:
        self.feed.append((key, value, kind, self.version))


KEYS = st.integers(0, 5)
VALUES = st.sampled_from("abcdefgh")
STEPS = st.tuples(st.sampled_from(["insert", "update", "delete", "rekey"]), KEYS, VALUES, KEYS)
COMMITS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.lists(STEPS, max_size=4).map(lambda steps: ("commit", steps)),
    st.dictionaries(KEYS, VALUES, max_size=4).map(lambda rows: ("overwrite", rows)),
    st.tuples(KEYS, KEYS).map(lambda keys: ("swap", keys)),
)


@dataclass(frozen=True)
class Batches:
    """A history cut into batches: the changes of each, and the table after each."""

    feeds: list[list[Change]]
    states: list[dict[int, str]]


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    history = History()
    feeds: list[list[Change]] = []
    states: list[dict[int, str]] = []
    for _ in range(draw(st.integers(1, 3))):
        start = len(history.feed)
        for kind, what in draw(st.lists(COMMITS, min_size=1, max_size=5)):
            if kind == "commit":
                history.commit(what)
            elif kind == "overwrite":
                history.overwrite(what)
            else:
                history.swap(*what)
        feeds.append(draw(st.permutations(history.feed[start:])))
        states.append(dict(history.rows))
    return Batches(feeds, states)
