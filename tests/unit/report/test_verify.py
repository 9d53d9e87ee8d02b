"""`verify` must find what is wrong: each test breaks one thing behind the product's back."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake

import floodmark as fm
from floodmark.control.events.bodies import (
    Advanced,
    Amended,
    Body,
    Cancelled,
    Event,
    Failed,
    Leased,
    Planned,
    Reset,
    SinkWritten,
    Succeeded,
)
from floodmark.control.published.tables import TABLES
from floodmark.deltalog import Storage
from floodmark.model.state import Holder, SinkDone
from floodmark.model.window import VersionWindow, Window
from floodmark.report.verify import CHECKS, gather

APP = "floodmark/c/p/sink/0"


def window(after: int, through: int, upstream: str = "/a") -> Window:
    return VersionWindow(
        upstream=upstream,
        method="feed",
        after=after,
        through=through,
        reason="",
        table_id="id",
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=through,
    )


def plan(number: int, *windows: Window) -> Planned:
    return Planned(f"b{number}", number, "default", windows, {"p": ("/a",)})


def lease(number: int, epoch: int | None = None) -> Leased:
    return Leased(f"b{number}", "p", epoch or number, f"r{number}", Holder("h", "", 1, ""), 2.0)


def done(number: int, target: str, version: int, epoch: int | None = None) -> SinkWritten:
    sink = SinkDone("sink", APP, target, "id", version, 1)
    return SinkWritten(f"b{number}", "p", epoch or number, sink)


def succeeded(number: int, epoch: int | None = None) -> Succeeded:
    return Succeeded(f"b{number}", "p", epoch or number)


def good_batch(number: int, target: str) -> list[Body]:
    return [
        plan(number, window(number - 2, number - 1)),
        lease(number),
        done(number, target, number - 1),
        succeeded(number),
        Advanced(f"b{number}", {"/a": number - 1}),
    ]


def write(target: str, number: int, windows: dict[str, list[int]] | None = None) -> None:
    said = {"batch_id": f"b{number}", "windows": windows or {"/a": [number - 1, number - 1]}}
    properties = CommitProperties(
        app_transactions=[Transaction(APP, number)],
        custom_metadata={"userMetadata": json.dumps({"floodmark": said})},
    )
    write_deltalake(target, pa.table({"x": [1]}), mode="append", commit_properties=properties)


def failing(bodies: Sequence[Body]) -> set[str]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    events = [Event(seq, body, uuid.uuid4().hex, "t", at) for seq, body in enumerate(bodies, 1)]
    evidence = gather(events, Storage())
    return {name for name, _, check in CHECKS if list(check(evidence))}


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "sink")


def done_with_other_rows(target: str, rows: int) -> SinkWritten:
    sink = SinkDone("sink", APP, target, "id", 0, 1, misread={"/a": rows})
    return SinkWritten("b1", "p", 1, sink)


def amended(*, as_read: bool) -> Amended:
    return Amended("b1", "p", 1, replace(window(-1, 0), method="lost", as_read=as_read))


def test_a_sound_history_passes_every_check(target: str) -> None:
    write(target, 1)
    write(target, 2)

    assert failing([*good_batch(1, target), *good_batch(2, target)]) == set()


BROKEN: dict[str, tuple[str, list[Body]]] = {
    "gap": ("G1", [plan(1, window(-1, 0)), plan(2, window(1, 2))]),
    "overlap": ("G1", [plan(1, window(-1, 3)), plan(2, window(2, 5))]),
    "planned twice": ("G2", [plan(1, window(-1, 0)), plan(1, window(0, 1))]),
    "cancelled after a lease": ("G2", [plan(1, window(-1, 0)), lease(1), Cancelled("b1")]),
    "advanced early": ("G4", [plan(1, window(-1, 0)), Advanced("b1", {"/a": 0})]),
    "advanced past the plan": (
        "G5",
        [plan(1, window(-1, 0)), lease(1), succeeded(1), Advanced("b1", {"/a": 5})],
    ),
    "moved back": (
        "G5",
        [
            plan(1, window(-1, 3)),
            lease(1),
            succeeded(1),
            Advanced("b1", {"/a": 3}),
            plan(2, window(3, 2)),
            lease(2),
            succeeded(2),
            Advanced("b2", {"/a": 2}),
        ],
    ),
    "finished out of order": (
        "G7",
        [
            plan(1, window(-1, 0)),
            plan(2, window(0, 1)),
            lease(2),
            succeeded(2),
            lease(1),
            succeeded(1),
        ],
    ),
    "record of an older epoch": (
        "G8",
        [plan(1, window(-1, 0)), lease(1, 1), lease(1, 2), succeeded(1, 1)],
    ),
    "failed after success": (
        "G8",
        [plan(1, window(-1, 0)), lease(1), succeeded(1), Failed("b1", "p", 1, "x")],
    ),
}


def advanced(number: int, after: int, through: int) -> list[Body]:
    """A batch of the one upstream that is finished."""
    return [
        plan(number, window(after, through)),
        lease(number),
        succeeded(number),
        Advanced(f"b{number}", {"/a": through}),
    ]


@pytest.mark.parametrize("version", [-1, 1, 9])
def test_a_reset_is_no_gap_no_overlap_and_no_step_back(version: int) -> None:
    reset = Reset("default", "/a", version, "id")

    bodies = [*advanced(1, -1, 3), reset, *advanced(2, version, version + 2)]

    assert failing(bodies) == set()


def test_a_reset_excuses_only_what_it_says() -> None:
    elsewhere = Reset("default", "/b", 1, "id")

    assert failing([*advanced(1, -1, 3), elsewhere, *advanced(2, 1, 3)]) == {"G1", "G5"}
    past = [*advanced(1, -1, 3), Reset("default", "/a", 1, "id"), *advanced(2, 2, 5)]
    assert failing(past) == {"G1"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_journal_fails_its_check(name: str) -> None:
    guarantee, bodies = BROKEN[name]

    assert guarantee in failing(bodies)


@pytest.mark.parametrize("decided", [[], [amended(as_read=False)]])
def test_a_success_over_rows_that_nobody_accepted_is_found(
    target: str, decided: list[Body]
) -> None:
    write(target, 1)
    bodies: list[Body] = [plan(1, window(-1, 0)), lease(1), done_with_other_rows(target, 23)]

    assert failing([*bodies, *decided, succeeded(1)]) == {"rows"}
    assert failing([*bodies, *decided]) == set()
    # The last word of the operator counts; a write that was made anew may have taken others.
    assert failing([*bodies, *decided, amended(as_read=True), succeeded(1)]) == set()
    assert failing([*bodies, *decided, done(1, target, 0), succeeded(1)]) == set()


def test_a_batch_applied_twice_fails_g3(target: str) -> None:
    write(target, 1)
    write(target, 1)

    assert "G3" in failing(good_batch(1, target))


def test_a_receipt_that_is_not_in_the_sink_fails_g3(target: str) -> None:
    write_deltalake(target, pa.table({"x": [1]}))

    assert "G3" in failing(good_batch(1, target))


def test_a_sink_that_is_gone_fails_g3(target: str) -> None:
    assert "G3" in failing(good_batch(1, target))


def test_a_sink_written_from_another_window_fails_g6(target: str) -> None:
    write(target, 1, {"/a": [0, 9]})

    assert failing(good_batch(1, target)) == {"G6"}


def test_batches_applied_out_of_order_fail_g7(target: str) -> None:
    write(target, 2)
    write(target, 1)

    assert "G7" in failing([plan(1, window(-1, 0)), lease(1), done(1, target, 1), succeeded(1)])


def _removed(table: Path) -> None:
    shutil.rmtree(table)


def _doubled(table: Path) -> None:
    rows = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT * FROM t").read_all()
    write_deltalake(table, rows, mode="append")


def _unreadable(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.write_bytes(b"PAR1")


def _without_its_files(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.unlink()


def _broken_log(table: Path) -> None:
    newest = max((table / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text()[:40])


@pytest.mark.parametrize(
    "damage", [_removed, _doubled, _unreadable, _without_its_files, _broken_log]
)
@pytest.mark.parametrize("table", [table.name for table in TABLES])
def test_published_tables_that_differ_are_found_and_mended(
    tmp_path: Path, table: str, damage: Callable[[Path], None]
) -> None:
    upstream = str(tmp_path / "orders")
    write_deltalake(upstream, pa.table({"id": [1]}))
    coordinator = fm.Coordinator(str(tmp_path / "control"), actor="t")
    coordinator.register("p", [upstream])
    batch_id = str(coordinator.create_batch([upstream]).batch_id)
    coordinator.record_run("p", batch_id, status="SUCCESS")
    coordinator.finalize_batch(batch_id)
    damage(tmp_path / "control" / table)

    found = _not_ok(coordinator)
    warned = [
        (f.name, f.next)
        for f in coordinator.admin.doctor()
        if f.name.startswith("table ") and not f.ok
    ]
    is_complete = coordinator.admin.rebuild_tables()

    assert found == ["tables"]
    assert warned == [(f"table {table}", "floodmark state rebuild")]
    assert is_complete
    assert _not_ok(coordinator) == []
    assert [f.ok for f in coordinator.admin.doctor() if f.name == "published tables"] == [True]


def _not_ok(coordinator: fm.Coordinator) -> list[Any]:
    return [finding.name for finding in coordinator.verify() if not finding.ok]
