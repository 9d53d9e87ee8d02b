"""What needs a store that exists says so where there is none, and makes none."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.coordinator.admin import Admin
from floodmark.coordinator.look import Look
from floodmark.errors import FloodmarkError
from floodmark.project import Project

Call = Callable[[fm.Coordinator, Path], Any]

MAKES_ONE = {"register", "create_batch", "plan_schemas"}
"""What freezes or registers."""
FILLS_ONE = {"import_state", "rebuild_from_targets"}
LOOKS_ONLY = {"preview", "doctor", "metrics", "look", "admin", "spark"}
OLDER = {"coalesce", "refuse_if_leased", "sweep_landing", "refuse_unresolved", "frozen_lookup"}
"""Names that warn, of what is no part of the coordinator any more."""
NEEDS_ONE: dict[str, Call] = {
    "run_pipeline": lambda c, _: c.run_pipeline("p", "batch_x", lambda *_: None),
    "record_run": lambda c, _: c.record_run("p", "batch_x", status="SUCCESS"),
    "inputs": lambda c, _: c.inputs("batch_x", "p"),
    "open_frozen": lambda c, _: c.open_frozen("batch_x"),
    "finalize_batch": lambda c, _: c.finalize_batch("batch_x"),
    "finalize": lambda c, _: c.finalize("batch_x"),
    "cancel": lambda c, _: c.cancel("batch_x"),
    "backfill": lambda c, _: c.backfill("lake/a", start=0, end=0, pipelines=["p"]),
    "replay": lambda c, _: c.replay("batch_x"),
    "pause": lambda c, _: c.pause("p"),
    "resume": lambda c, _: c.resume("p"),
    "unregister": lambda c, _: c.unregister("p"),
    "current_plan": lambda c, _: c.current_plan(),
    "checkpoints": lambda c, _: c.checkpoints(),
    "frozen_set": lambda c, _: c.frozen_set("batch_x"),
    "status": lambda c, _: c.status(),
    "lag": lambda c, _: c.lag(),
    "history": lambda c, _: c.history(),
    "gaps": lambda c, _: c.gaps(),
    "verify": lambda c, _: c.verify(),
    "admin.rename": lambda c, _: c.admin.rename("p", "q"),
    "admin.refresh": lambda c, _: c.admin.refresh("p"),
    "admin.rebuild_tables": lambda c, _: c.admin.rebuild_tables(),
    "admin.upkeep": lambda c, _: c.admin.upkeep(),
    "admin.reset": lambda c, _: c.admin.reset("lake/a"),
    "admin.planned_reset": lambda c, _: c.admin.planned_reset("lake/a"),
    "admin.export_state": lambda c, root: c.admin.export_state(str(root / "state")),
    "admin.metrics": lambda c, _: c.admin.metrics(),
}


def public(kind: type, prefix: str = "") -> set[str]:
    members = inspect.getmembers(kind, inspect.isfunction)
    return {f"{prefix}{name}" for name, _ in members if not name.startswith("_")}


def test_every_method_is_sorted() -> None:
    others = MAKES_ONE | LOOKS_ONLY | OLDER | {f"admin.{name}" for name in (*FILLS_ONE, "doctor")}

    own = public(fm.Coordinator)
    moved = public(Admin) | public(Look)  # older names of the same methods
    found = own | public(Admin, "admin.")

    assert found - set(NEEDS_ONE) - moved <= others
    assert set(NEEDS_ONE) <= found


@pytest.mark.parametrize("name", NEEDS_ONE)
def test_a_call_that_needs_a_store_makes_none(tmp_path: Path, name: str) -> None:
    crash.append_rows(tmp_path, "lake/a", [(1, 1)])
    coordinator = fm.Coordinator(str(tmp_path / "control"), outside=ON_ARROW)

    with pytest.raises(FloodmarkError) as caught:
        NEEDS_ONE[name](coordinator, tmp_path)

    assert caught.value.code == "FM-CONTROL-001"
    assert not (tmp_path / "control").exists()


def test_a_look_makes_no_store(tmp_path: Path) -> None:
    look = fm.Coordinator(str(tmp_path / "control"), outside=ON_ARROW).look

    for name in public(Look):
        arguments = {"batch_id": "batch_x", "pipeline": "p", "name": "lake/a", "names": ["lake/a"]}
        method = getattr(look, name)
        needed = [
            arguments[each.name]
            for each in inspect.signature(method).parameters.values()
            if each.default is each.empty and each.name in arguments
        ]
        with suppress(FloodmarkError, TypeError):
            method(*needed)
    assert not (tmp_path / "control").exists()


PROJECT = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: p
    nodes:
      - {name: n, read: {connection: lake, path: a}, write: {connection: lake, path: b, mode: append}}
"""


def lost(root: Path) -> Project:
    """A project that has run once, and lost its store."""
    crash.append_rows(root, "lake/a", [(1, 1)])
    assert open_project(root, PROJECT).run().exit_code == 0
    shutil.rmtree(root / "lake/_control")
    return open_project(root)


def test_a_store_with_nothing_but_its_id_gives_way_to_a_rebuild(tmp_path: Path) -> None:
    project = lost(tmp_path)
    with pytest.raises(FloodmarkError) as caught:
        project.coordinator.create_batch()
    assert caught.value.code == "FM-PLAN-004"
    assert [event.kind for event in project.coordinator.history()] == ["CREATE"]

    again = open_project(tmp_path)
    again.coordinator.admin.rebuild_from_targets(["lake/b"])

    crash.append_rows(tmp_path, "lake/a", [(2, 2)])
    after = open_project(tmp_path)
    assert after.run().exit_code == 0
    assert [finding.text for finding in after.verify() if not finding.ok] == []


@pytest.mark.parametrize("verb", ["cancel", "finalize", "record", "backfill", "replay"])
def test_what_is_asked_of_a_lost_store_leaves_room_for_its_rebuild(
    tmp_path: Path, verb: str
) -> None:
    coordinator = lost(tmp_path).coordinator
    calls = {**NEEDS_ONE, "record": NEEDS_ONE["record_run"]}

    with pytest.raises(FloodmarkError) as caught:
        calls[verb](coordinator, tmp_path)

    assert caught.value.code == "FM-CONTROL-001"
    coordinator.admin.rebuild_from_targets(["lake/b"])
