"""The published tables under several projectors at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from floodmark.control.events.bodies import Created
from floodmark.control.published import projections
from floodmark.control.published.projections import Projector
from floodmark.control.published.reading import read_published
from floodmark.control.published.tables import TABLES
from floodmark.deltalog import Storage

from .conftest import Story, window

GROWING = {"watermarks": "batch_id", "pipeline_checkpoints": "run_id", "history": "seq"}


class Overtaken(Projector):
    """A projector that another one always overtakes between its look at a table and its commit."""

    def _commit(self, handle: Any, rows: pa.Table, seq: int, **options: Any) -> None:
        Projector(self.control, self.storage).compact()
        super()._commit(handle, rows, seq, **options)


def publish(projector: Projector, batches: int) -> Story:
    """Plan, run and advance some batches; the tables are refreshed after each step of each."""
    story = Story().then(Created("c")).register("p", "/u/orders")
    for number in range(batches):
        batch = f"b{number + 1}"
        steps = (
            lambda n=number: story.plan(window("/u/orders", n - 1, n)),
            lambda b=batch: story.succeed(b, "p"),
            lambda b=batch, n=number: story.advance(b, orders=n),
        )
        for step in steps:
            step()
            for event in story.events:
                projector.observe(event, story.state)
            projector.refresh(story.state)
    return story


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store whose tables have many small files."""
    publish(Projector(str(tmp_path), Storage()), batches=6)
    return str(tmp_path)


def rows(store: str, table: str) -> list[dict[str, Any]]:
    found = read_published(f"{store}/{table}", Storage(), "SELECT * FROM t")
    assert found is not None
    return sorted(pa.table(found).to_pylist(), key=repr)


def files(store: str, table: str) -> int:
    return len(DeltaTable(f"{store}/{table}").file_uris())


def test_compaction_joins_small_files_and_keeps_rows_and_marker(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "SMALL_FILES", 5)
    projector = Projector(store, Storage())
    before = {table.name: rows(store, table.name) for table in TABLES}
    marker = projector.published_through("history")

    projector.compact()

    assert {table.name: rows(store, table.name) for table in TABLES} == before
    assert projector.published_through("history") == marker > 0
    assert {table: files(store, table) for table in GROWING} == dict.fromkeys(GROWING, 1)


def test_two_compactions_at_once_leave_every_row_once(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "SMALL_FILES", 5)
    before = {table: rows(store, table) for table in GROWING}

    Overtaken(store, Storage()).compact()

    assert {table: rows(store, table) for table in GROWING} == before


def test_a_refresh_overtaken_by_a_compaction_leaves_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "SMALL_FILES", 3)
    store = str(tmp_path)

    story = publish(Overtaken(store, Storage()), batches=5)

    assert sorted(row["seq"] for row in rows(store, "history")) == [e.seq for e in story.events]
    assert len(rows(store, "watermarks")) == 5
    assert len(rows(store, "committed_watermarks")) == 1
    assert len(rows(store, "pipeline_checkpoints")) == 2 * 5
