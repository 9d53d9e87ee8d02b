"""Projects of nodes on real Delta tables, without Spark: for tests and crash matrices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support import crash
from tests.support.outsides import AFTER_A_CRASH, ON_ARROW

from floodmark.coordinator import Outside
from floodmark.project import Project


def open_project(root: Path, text: str | None = None, outside: Outside = AFTER_A_CRASH) -> Project:
    """The project in a folder, on the double of an engine; each call knows only what is stored."""
    if text is not None:
        (root / "floodmark.yaml").write_text(text)
    return Project.load(root, session=lambda: None, outside=outside)


def table_rows(path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    """The rows of a Delta table, sorted."""
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"SELECT {columns} FROM t")
    return sorted(tuple(row.values()) for row in pa.table(found.read_all()).to_pylist())


# A story of two batches, for crash matrices -------------------------------------------------------

STORY = """\
project: shop
lease_ttl: 2s
jobs: 1
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw/orders, merge: {keys: [id]}}
      - name: silver
        depends_on: [raw]
        write: {connection: lake, path: silver/orders, merge: {keys: [id], deletes: soft}}
      - name: log
        depends_on: [raw]
        write: {connection: lake, path: silver/log, mode: append, changes: log}
  - pipeline: events
    nodes:
      - name: recent
        read: {connection: lake, path: events, incremental: {cursor: at, type: timestamp}}
      - {name: one, depends_on: [recent], write: {connection: lake, path: one, mode: append}}
      - {name: two, depends_on: [one], write: {connection: lake, path: two, merge: {keys: [id]}}}
      - {name: three, depends_on: [recent], write: {connection: lake, path: three, mode: append}}
"""
TARGETS = ("raw/orders", "silver/orders", "silver/log", "one", "two", "three")


def build_story(root: str) -> None:
    """The project and its tables, before the first batch."""
    place = Path(root)
    (place / "floodmark.yaml").write_text(STORY)
    crash.build_lake(place)
    add_events(place, 1, 2, 3)


def tell_story(root: str) -> None:
    """Two batches of each pipeline; called again, what is done already is skipped."""
    place = Path(root)
    _run(place)
    crash.grow_lake(place)
    if crash.open_table(place, "lake/events").version() == 0:
        add_events(place, 4, 5)
    _run(place)


def _run(place: Path) -> None:
    for error in [o.error for o in open_project(place, outside=ON_ARROW).run().outcomes if o.error]:
        raise error


def story_end(root: str) -> dict[str, Any]:
    """What must be the same after any crash."""
    place = Path(root)
    coordinator = open_project(place).coordinator
    landing = place / "lake/_control/landing"
    return {
        "rows": {f"lake/{each}": _stable_rows(place / "lake" / each) for each in TARGETS},
        "receipts": {each: crash.receipts_of(place / "lake" / each) for each in TARGETS},
        "marks": sorted(
            (c.upstream.removeprefix(root), c.version) for c in coordinator.checkpoints()
        ),
        "problems": [finding.text for finding in coordinator.verify() if not finding.ok],
        "landed": sorted(each.name for each in landing.iterdir()) if landing.exists() else [],
    }


def _stable_rows(path: Path) -> list[list[str]]:
    """The rows without the times of commits, which a retry may move."""
    from deltalake import DeltaTable

    moving = ("change_ts", "deleted_at")
    columns = [f.name for f in DeltaTable(str(path)).schema().fields if f.name not in moving]
    return [[str(value) for value in row] for row in table_rows(path, ", ".join(columns))]


def add_events(place: Path, *ids: int) -> None:
    """Rows of the events, an hour apart."""
    from deltalake import write_deltalake

    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = pa.array([start + timedelta(hours=i) for i in ids], pa.timestamp("us", "UTC"))
    table = pa.table({"id": pa.array(ids, pa.int64()), "at": at})
    feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(place / "lake/events"), table, mode="append", configuration=feed)
