"""Which part of a database each read gives, against a source that somebody goes on writing to.

The ranges are those that runs use; rows and edges are plain Python. tests/spark/test_landed_once.py
plays such histories on Spark and PostgreSQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.edge_model import Edge, Row, fresh, next_edge

from floodmark.model.cursor_marks import CursorMark, ValueMark
from floodmark.model.query import CursorQuery
from floodmark.model.window import NOTHING_PROCESSED, CursorWindow
from floodmark.run.nodes.cursor_ranges import (
    edge_beginning,
    landed_bounds,
    near_bounds,
    older_bounds,
)
from floodmark.sources.cursor.database import SqlReader
from floodmark.sources.cursor.edges import Identity
from floodmark.sources.cursor.jdbc import JdbcConnection
from floodmark.sources.cursor.sql.queries import Beginning, Bounds, SqlRelation

IDENTITY = Identity("at", ("id",))


def mark(value: int) -> ValueMark:
    return ValueMark("int", value)


def lies_within(row: Row, bounds: Bounds) -> bool:
    at, low, high = int(row["at"]), bounds.low, bounds.high
    is_below = at < number(high) if bounds.excludes_high else at <= number(high)
    if low is None:
        return is_below
    return is_below and (at > number(low) if bounds.excludes_low else at >= number(low))


def number(value: CursorMark) -> int:
    assert isinstance(value.value, int)
    return value.value


@dataclass
class Kept:
    """The edge of a step."""

    begin: Beginning
    edge: Edge


@dataclass
class Batch:
    window: CursorWindow
    landed: tuple[Bounds, list[Row]] | None = None
    done: set[str] = field(default_factory=set)


@dataclass
class Story:
    """One pipeline of some nodes over one table."""

    rows: list[Row] = field(default_factory=list)
    overlap: int = 0
    baseline: int | None = None
    targets: dict[str, list[Row]] = field(default_factory=lambda: {"n0": []})
    awaiting_everything: set[str] = field(default_factory=set)
    edges: dict[int, Kept] = field(default_factory=dict)
    step: int = NOTHING_PROCESSED
    end: CursorMark | None = None
    batch: Batch | None = None

    @property
    def reader(self) -> SqlReader:
        relation = SqlRelation("postgres", "at", table="orders", overlap=self.overlap)
        return SqlReader("sql://erp/orders", relation, lambda: JdbcConnection("postgres"))

    @property
    def newest(self) -> int:
        return max([row["at"] for row in self.rows], default=0)

    def insert(self, *ahead: int) -> None:
        newest = self.newest
        self.rows += [
            {"id": len(self.rows) + n, "at": newest + each} for n, each in enumerate(ahead)
        ]

    def attempt(self, dies_after: int | None = None) -> None:
        """Plan where nothing is open, then: 1 land, 2 keep the edge, 3 write node by node."""
        self.batch = self.batch or self.planned()
        if self.batch is None:
            return
        deaths = iter([False] * dies_after + [True]) if dies_after is not None else iter(())
        window = self.batch.window
        if window.has_news:
            self.land(window)
            if next(deaths, False):
                return
            self.keep_edge(window)
            if next(deaths, False):
                return
        for name in self.targets:
            if name not in self.batch.done:
                self.write(name)
                if next(deaths, False):
                    return
        self.step, self.end = window.through, window.through_mark
        self.batch = None

    def planned(self) -> Batch | None:
        newest = mark(self.newest) if self.rows else None
        has_news = newest is not None and (self.end is None or self.newest > number(self.end))
        if not has_news and (self.end is None or not self.awaiting_everything):
            return None
        start = self.end
        if start is None and self.baseline is not None:
            start = mark(self.baseline)
        through = self.step + 1 if has_news else self.step
        window = CursorWindow(
            upstream="sql://erp/orders",
            method="query",
            after=self.step,
            through=through,
            reason="",
            table_id="sql://erp/orders#1",
            query=CursorQuery("at", "sql"),
            after_mark=start,
            through_mark=newest if has_news else self.end,
        )
        return Batch(window)

    def land(self, window: CursorWindow) -> None:
        assert self.batch is not None
        if self.batch.landed is not None:
            return
        bounds = self.bounds(window)
        self.batch.landed = bounds, [row for row in self.rows if lies_within(row, bounds)]

    def bounds(self, window: CursorWindow) -> Bounds:
        before = self.edges.get(window.after)
        bounds = landed_bounds(
            window,
            self.reader,
            edge=before.begin if before is not None else None,
            baseline=None if self.baseline is None else mark(self.baseline),
            is_first_run=False,
            is_ordered=True,
        )
        return Bounds.decoded(bounds.encoded())

    def keep_edge(self, window: CursorWindow) -> None:
        assert self.batch is not None
        assert self.batch.landed is not None
        if window.through in self.edges:
            return
        bounds, rows = self.batch.landed
        begin = edge_beginning(self.reader, bounds)
        edge = next_edge(rows, IDENTITY, lambda at: at >= number(begin.mark))
        self.edges[window.through] = Kept(begin, edge)

    def write(self, name: str) -> None:
        assert self.batch is not None
        window = self.batch.window
        if name in self.awaiting_everything:
            self.targets[name] = self.whole(window)
            self.awaiting_everything.discard(name)
        elif window.has_news:
            assert self.batch.landed is not None
            before = self.edges.get(window.after, Kept(Beginning(mark(0)), Edge()))
            self.targets[name] = self.targets[name] + fresh(
                self.batch.landed[1], before.edge, IDENTITY
            )
        self.batch.done.add(name)

    def whole(self, window: CursorWindow) -> list[Row]:
        assert self.batch is not None
        if window.has_news:
            assert self.batch.landed is not None
            part, rows = self.batch.landed
        else:
            kept = self.edges[window.through]
            assert window.through_mark is not None
            part = near_bounds(self.reader, window.through_mark, kept.begin)
            near = [row for row in self.rows if lies_within(row, part)]
            rows = [row for row in near if row not in fresh(near, kept.edge, IDENTITY)]
        floor = None if self.baseline is None else mark(self.baseline)
        older = older_bounds(self.reader, part, floor)
        if older is None:
            return rows
        return [row for row in self.rows if lies_within(row, older)] + rows

    def add_node(self) -> None:
        name = f"n{len(self.targets)}"
        self.targets[name] = []
        if self.step != NOTHING_PROCESSED or self.batch is not None:
            self.awaiting_everything.add(name)

    def lose(self, position: int) -> None:
        name = sorted(self.targets)[position % len(self.targets)]
        self.targets[name] = []
        self.awaiting_everything.add(name)
        if self.batch is not None:
            self.batch.done.discard(name)


ACTIONS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("insert"), st.lists(st.integers(0, 30), min_size=1, max_size=4)),
    st.tuples(st.just("overlap"), st.sampled_from([0, 5, 40, 200])),
    st.tuples(st.just("attempt"), st.none() | st.integers(0, 3)),
    st.tuples(st.just("node"), st.none()),
    st.tuples(st.just("lose"), st.integers(0, 5)),
)


def play(story: Story, actions: list[tuple[str, Any]]) -> None:
    for what, value in actions:
        if what == "insert":
            story.insert(*value)
        elif what == "overlap":
            story.overlap = value
        elif what == "attempt":
            story.attempt(value)
        elif what == "node" and len(story.targets) < 4:
            story.add_node()
        elif what == "lose":
            story.lose(value)
    for _ in range(2):
        story.attempt()
        story.insert(0, 1)
    story.attempt()


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from([None, 10]), st.lists(ACTIONS, max_size=25))
def test_every_target_equals_the_source_whatever_is_edited_added_lost_or_killed(
    baseline: int | None, actions: list[tuple[str, Any]]
) -> None:
    story = Story(baseline=baseline)
    story.insert(5, 5, 20)

    play(story, actions)

    wanted = sorted(row["id"] for row in story.rows if baseline is None or row["at"] > baseline)
    for name, rows in story.targets.items():
        assert sorted(row["id"] for row in rows) == wanted, name


@pytest.mark.parametrize("excludes_low", [True, False])
def test_bounds_come_back_as_they_were_kept(excludes_low: bool) -> None:
    bounds = Bounds(mark(3), mark(9), excludes_low=excludes_low, has_nulls=True)

    assert Bounds.decoded(bounds.encoded()) == bounds
    assert Bounds.decoded(Bounds(None, mark(9)).encoded()).low is None
