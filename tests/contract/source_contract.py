"""What every Delta source promises; run on each implementation by test_sources.py."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.windows import planned_window

from floodmark.errors import SourceError
from floodmark.model.window import VersionWindow
from floodmark.model.write import CHANGE_COLUMNS
from floodmark.sources import KindSource, Resolver

Row = dict[str, Any]


class DeltaTables(KindSource[VersionWindow], Resolver[VersionWindow], Protocol):
    """A source of Delta tables: it reads them, and notices what they lost."""


class Harness:
    """A source, a way to see the rows of its frames, and a table to read."""

    def __init__(self, source: DeltaTables, rows_of: Callable[[Any], list[Row]]) -> None:
        self.source = source
        self._rows_of = rows_of

    def changes(self, window: VersionWindow) -> list[tuple[Any, ...]]:
        frame = self.source.read(window)
        assert list(frame.columns if hasattr(frame, "sparkSession") else frame.column_names) == [
            "id",
            *CHANGE_COLUMNS,
        ]
        columns = ("id", *CHANGE_COLUMNS[:2])
        return sorted(tuple(row[c] for c in columns) for row in self._rows_of(frame))


def append(path: Path, *ids: int) -> None:
    write_deltalake(path, pa.table({"id": pa.array(ids, pa.int64())}), mode="append")


def switch_feed(path: Path, state: str) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": state})


class SourceContract:
    """The promises."""

    @pytest.fixture
    def up(self, tmp_path: Path) -> Path:
        """0 and 1 without feed, 2 switches it on, 3 inserts, 4 deletes, 5 inserts."""
        path = tmp_path / "up"
        append(path, 1, 2)
        append(path, 3)
        switch_feed(path, "true")
        append(path, 4)
        DeltaTable(path).delete("id = 1")
        append(path, 5)
        return path

    def test_a_feed_window_gives_exactly_its_changes(self, harness: Harness, up: Path) -> None:
        found = harness.changes(planned_window(up, "feed", 2, 4))
        assert found == [(1, "delete", 4), (4, "insert", 3)]

    def test_a_snapshot_gives_the_table_at_the_end_as_inserts(
        self, harness: Harness, up: Path
    ) -> None:
        assert harness.changes(planned_window(up, "snapshot", 0, 1)) == [
            (i, "insert", 1) for i in (1, 2, 3)
        ]

    def test_snapshot_and_feed_give_the_table_and_then_the_changes(
        self, harness: Harness, up: Path
    ) -> None:
        found = harness.changes(planned_window(up, "snapshot+feed", 0, 4, feed=2))

        whole = [(i, "insert", 2) for i in (1, 2, 3)]
        assert found == sorted([*whole, (1, "delete", 4), (4, "insert", 3)])

    def test_of_a_lost_range_only_what_follows_is_read(self, harness: Harness, up: Path) -> None:
        assert harness.changes(planned_window(up, "lost", 2, 5, feed=4)) == [(5, "insert", 5)]

    def test_a_wholly_lost_range_is_an_empty_frame_even_of_another_table(
        self, harness: Harness, up: Path
    ) -> None:
        gone = replace(planned_window(up, "lost", 2, 5), table_id="another", through=99)
        assert harness.changes(gone) == []

    def test_a_feed_that_was_off_at_the_start_is_refused(self, harness: Harness, up: Path) -> None:
        with pytest.raises(SourceError) as caught:
            harness.source.check(planned_window(up, "feed", 0, 4))
        assert caught.value.code == "FM-SOURCE-004"

    def test_a_window_that_can_be_read_is_not_settled(self, harness: Harness, up: Path) -> None:
        assert harness.source.resolved(planned_window(up, "feed", 2, 5), "snapshot") is None
        assert harness.source.resolved(planned_window(up, "snapshot", 0, 1), "accept") is None

    def test_lost_files_are_resolved_by_a_snapshot_or_by_what_is_left(
        self, harness: Harness, up: Path
    ) -> None:
        planned = planned_window(up, "feed", 2, 5)
        shutil.rmtree(up / "_change_data", ignore_errors=True)
        commit = (up / f"_delta_log/{4:020d}.json").read_text().splitlines()
        removed = [
            action["remove"]["path"] for action in map(json.loads, commit) if "remove" in action
        ]
        for path in removed:
            os.unlink(up / path)

        snapshot = harness.source.resolved(planned, "snapshot")
        left = harness.source.resolved(planned, "accept")

        assert snapshot is not None
        assert left is not None
        assert harness.changes(snapshot) == [(i, "insert", 5) for i in (2, 3, 4, 5)]
        assert (snapshot.method, snapshot.rows, snapshot.end) == ("snapshot", 4, 5)
        assert harness.changes(left) == [(5, "insert", 5)]
        assert (left.method, left.rows, left.start, left.end) == ("lost", 1, 3, 5)

    def test_changes_before_a_type_change_keep_their_type(self, harness: Harness, up: Path) -> None:
        planned = planned_window(up, "feed", 4, 5)
        texts = pa.table({"id": pa.array(["x"], pa.string())})
        write_deltalake(up, texts, mode="overwrite", schema_mode="overwrite")

        assert harness.changes(planned) == [(5, "insert", 5)]
