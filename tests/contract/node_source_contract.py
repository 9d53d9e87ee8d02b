"""What every source promises to the nodes that read it; run on each by test_node_sources.py.

One story is told for each source, in one project with a pipeline for each scenario, and looked at by
all tests: two runs of everything cost as much as two runs of one thing after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.support import crash

from floodmark.errors import FloodmarkError
from floodmark.failpoints import FailpointReached
from floodmark.project import Project, RunSummary

Row = tuple[int, int | None]
"""(id, number): numbers stand for values of the cursor, in their order; None for NULL."""
Opened = Callable[[Path], Project]
"""Opens the project of a folder on the engine of the test."""

SCENARIOS = (
    "ties",
    "late",
    "nulls_skip",
    "nulls_include",
    "schema",
    "died_reading",
    "died_writing",
)
REFUSED = "nulls_fail"

HEAD = """\
project: contract
lease_ttl: 1s
jobs: 2
connections:
  lake: {type: lake, root: lake}
"""
PIPELINE = """\
  - pipeline: NAME
    nodes:
      - name: NAME
        read: {READ}
        write: {connection: lake, path: out/NAME, mode: append, on_schema_change: add_columns}
"""


class Door(ABC):
    """One kind of source: how rows get into it, and how a node reads it."""

    kinds: ClassVar[tuple[str, ...]]
    """The types of its marks; scenarios take them in turn."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Scenarios that do not apply, each with the reason."""
    forgets_late_rows: ClassVar[bool] = False
    """Whether a row that comes later than the overlap is not seen."""
    points: ClassVar[Mapping[str, str]] = {
        "died_reading": "sink.before_commit",
        "died_writing": "sink.after_commit",
    }
    """Where a run dies after it has read, and after it has written."""
    refusal: ClassVar[str | None] = None
    """The error for rows without a cursor, where nothing is said about them."""

    connections: str = ""
    """Lines below `connections` of the project."""

    @abstractmethod
    def create(self, table: str, kind: str) -> None:
        """An empty table with the columns id and at."""

    @abstractmethod
    def add(self, table: str, kind: str, *rows: Row, more: str | None = None) -> None:
        """Rows, all at once; `more` is the value of a column that they have beside the others."""

    def change(self, table: str) -> None:
        """Give the table the column `more`, where its rows do not do that themselves."""
        del table

    @abstractmethod
    def read(self, table: str, kind: str, scenario: str) -> str:
        """What stands in the braces of `read`."""

    def mark(self, kind: str, number: int) -> str | None:
        """What the committed mark of a value has in its text; None where it is no value."""
        del kind, number
        return None

    def has(self, scenario: str) -> bool:
        return scenario not in self.lacks


class Story:
    """The scenarios of one source, from the first run to one without news."""

    def __init__(self, door: Door, root: Path, opened: Opened) -> None:
        self.door, self.root, self._opened = door, root, opened
        self.names = [name for name in SCENARIOS if door.has(name)]
        kinds = door.kinds
        self.kinds = {name: kinds[i % len(kinds)] for i, name in enumerate(self.names)}
        self.refusals: list[FloodmarkError] = []
        self.last = RunSummary()
        self.versions: dict[str, int] = {}

    def tell(self) -> None:
        """All of it, once."""
        self._begin()
        for name, point in self.door.points.items():
            with crash.armed(point), pytest.raises(FailpointReached):
                self.project.run(name)
        self._run(exclude=tuple(self.door.points))
        self._go_on()
        self._run()
        self.versions = {name: self._table(name).version() for name in self.names}
        self.last = self._run()

    def _begin(self) -> None:
        for name in (*self.names, *([REFUSED] if self.door.refusal else ())):
            kind = self.kinds.setdefault(name, self.door.kinds[0])
            second = None if name.startswith("nulls") else 10 if name == "late" else 2
            self.door.create(name, kind)
            self.door.add(name, kind, (1, 1), (2, second))
        pipelines = "".join(map(self._pipeline, self.kinds))
        text = f"{HEAD}{self.door.connections}pipelines:\n{pipelines}"
        (self.root / "floodmark.yaml").write_text(text)

    def _pipeline(self, name: str) -> str:
        read = self.door.read(name, self.kinds[name], name)
        return PIPELINE.replace("READ", read).replace("NAME", name)

    def _go_on(self) -> None:
        """What is new for the second run; of the ties a part comes after it was planned."""
        self._add("ties", (3, 2), (4, 3))
        self.project.freeze("ties")
        self._add("ties", (5, 4), (6, 3))
        self._add("late", (3, 9), (4, 2), (5, 11))
        self._add("nulls_skip", (3, 3), (4, None))
        self._add("nulls_include", (3, 3), (4, None))
        self.door.change("schema")
        self.door.add("schema", self.kinds["schema"], (3, 3), more="x")
        for name in self.door.points:
            self._add(name, (3, 3))

    def _add(self, name: str, *rows: Row) -> None:
        if self.door.has(name):
            self.door.add(name, self.kinds[name], *rows)

    @property
    def project(self) -> Project:
        return self._opened(self.root)

    def _run(self, **options: Any) -> RunSummary:
        summary = self.project.run(**options)
        for outcome in summary.outcomes:
            if outcome.error:
                raise outcome.error
        self.refusals += summary.refused
        return summary

    # What tests look at ---------------------------------------------------------------------------

    def batches(self, name: str) -> list[list[int]]:
        """The ids that each commit has added to the target."""
        before: Counter[int] = Counter()
        found = []
        for version in range(self._table(name).version() + 1):
            ids = Counter(row["id"] for row in self.rows(name, version))
            found.append(sorted((ids - before).elements()))
            before = ids
        return [ids for ids in found if ids]

    def rows(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        table = self._table(name)
        if version is not None:
            table.load_as_version(version)
        answer = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        found: list[dict[str, Any]] = pa.table(answer.read_all()).to_pylist()
        return found

    def marks(self) -> dict[str, str]:
        """The committed marks by scope, which is the scenario."""
        return {c.scope: str(c.mark) for c in self.project.coordinator.checkpoints()}

    def _table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.root / "lake/out" / name))


class NodeSourceContract:
    """The promises. A scenario that does not apply says why, in `Door.lacks`."""

    def test_a_first_run_reads_everything(self, story: Story) -> None:
        assert {name: story.batches(name)[0] for name in story.names} == {
            name: [1] if name == "nulls_skip" else [1, 2] for name in story.names
        }

    def test_a_second_run_reads_only_what_is_new(self, story: Story) -> None:
        for name in ("schema", *story.door.points):
            assert story.batches(name) == [[1, 2], [3]], name

    def test_without_news_nothing_is_run_and_nothing_is_written(self, story: Story) -> None:
        assert not story.last.batches
        now = {
            name: DeltaTable(str(story.root / "lake/out" / name)).version() for name in story.names
        }
        assert now == story.versions

    def test_rows_that_come_after_the_plan_belong_to_the_next_batch(self, story: Story) -> None:
        _, second, third = story.batches("ties")
        assert 4 in second
        assert 5 in third

    def test_rows_that_tie_with_the_mark_come_once_also_late(self, story: Story) -> None:
        if not story.door.has("late ties"):
            assert story.door.lacks["late ties"]
            return
        found = [i for batch in story.batches("ties") for i in batch]
        assert sorted(found) == [1, 2, 3, 4, 5, 6]

    def test_late_rows_within_the_overlap_come_once(self, story: Story) -> None:
        if not story.door.has("late"):
            assert story.door.lacks["late"]
            return
        late = [3, 5] if story.door.forgets_late_rows else [3, 4, 5]
        assert story.batches("late") == [[1, 2], late]

    def test_rows_without_a_cursor_do_what_is_said_about_them(self, story: Story) -> None:
        expected = {"nulls_skip": [[1], [3]], "nulls_include": [[1, 2], [3, 4]]}
        for name, batches in expected.items():
            if story.door.has(name):
                assert story.batches(name) == batches, name
            else:
                assert story.door.lacks[name]
        assert {error.code for error in story.refusals} == {story.door.refusal} - {None}

    def test_marks_keep_type_and_value(self, story: Story) -> None:
        newest = {"ties": 4, "late": 11}
        marks = story.marks()
        for name in story.names:
            expected = story.door.mark(story.kinds[name], newest.get(name, 3))
            assert expected is None or expected in marks[name], name

    def test_a_new_column_reaches_the_target(self, story: Story) -> None:
        more = {row["id"]: row["more"] for row in story.rows("schema")}
        assert more == {1: None, 2: None, 3: "x"}

    def test_a_run_that_died_is_finished_with_the_rows_it_was_planned_with(
        self, story: Story
    ) -> None:
        for name in story.door.points:
            planned, later = story.batches(name)
            assert (planned, later) == ([1, 2], [3]), name
        assert [f.text for f in story.project.verify() if not f.ok] == []
        assert not list((story.root / "lake/_control").glob("landing/batch_*"))
