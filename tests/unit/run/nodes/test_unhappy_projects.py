"""Copies of a project, two runs at once, targets and tables that change in between: right or refused."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark.errors import FloodmarkError
from floodmark.project import Project, RunSummary

PROJECT = """\
project: shop
control: control
connections: {lake: {type: lake, root: LAKE}}
pipelines:
  - pipeline: orders
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw, mode: append}
      - name: silver
        depends_on: [raw]
        write: {connection: lake, path: silver, merge: {keys: [id]}}
"""


def put(lake: Path, *ids: int) -> None:
    crash.append_rows(lake, "orders", [(number, number) for number in ids])


def errors_of(summary: RunSummary) -> list[FloodmarkError]:
    return [*(o.error for o in summary.outcomes if o.error), *summary.refused]


def ids(lake: Path, table: str) -> list[int]:
    return [row[0] for row in rows(lake / table, "id")]


def assert_tells_the_way(errors: Sequence[FloodmarkError], code: str) -> None:
    assert [error.code for error in errors] == [code], [str(error) for error in errors]
    assert errors[0].state
    assert errors[0].next


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    put(tmp_path / "lake", 1, 2)
    return tmp_path / "lake"


@pytest.fixture
def home(tmp_path: Path, lake: Path) -> Path:
    """A project whose tables lie outside of it, as on an object store."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "floodmark.yaml").write_text(PROJECT.replace("LAKE", str(lake)))
    return home


def run(root: Path) -> list[FloodmarkError]:
    return errors_of(open_project(root).run())


def test_of_two_copies_of_a_project_over_one_lake_the_second_is_refused(
    home: Path, lake: Path, tmp_path: Path
) -> None:
    assert run(home) == []
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    put(lake, 3)
    assert run(home) == []
    put(lake, 4)

    assert_tells_the_way(run(copy), "FM-SINK-015")
    assert run(home) == []
    assert_tells_the_way(run(copy), "FM-SINK-015")

    for table in ("raw", "silver"):
        assert ids(lake, table) == [1, 2, 3, 4]


def test_a_copy_that_goes_first_leaves_the_original_refused_and_nothing_doubled(
    home: Path, lake: Path, tmp_path: Path
) -> None:
    assert run(home) == []
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    put(lake, 3)
    assert run(copy) == []

    assert_tells_the_way(run(home), "FM-SINK-015")
    assert ids(lake, "raw") == ids(lake, "silver") == [1, 2, 3]


def test_a_copy_with_tables_of_its_own_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    put(home / "lake", 1, 2)
    (home / "floodmark.yaml").write_text(PROJECT.replace("LAKE", "lake"))
    assert run(home) == []
    shutil.copytree(home, copy)
    put(copy / "lake", 3)

    with pytest.raises(FloodmarkError) as caught:
        run(copy)

    assert_tells_the_way([caught.value], "FM-CONTROL-016")
    assert ids(copy / "lake", "raw") == ids(home / "lake", "raw") == [1, 2]
    assert run(home) == []


SHARED = """\
project: shop
connections:
  shared: {type: lake, root: SHARED}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: copy
    nodes:
      - name: a
        read: {connection: shared, path: orders}
        write: {connection: lake, path: out, mode: append}
"""


def test_a_copy_that_reads_what_its_original_reads_is_refused_by_its_targets(
    tmp_path: Path,
) -> None:
    home, copy, shared = tmp_path / "home", tmp_path / "copy", tmp_path / "shared"
    home.mkdir()
    put(shared, 1)
    (home / "floodmark.yaml").write_text(SHARED.replace("SHARED", str(shared)))
    assert run(home) == []
    shutil.copytree(home, copy)
    put(shared, 2)

    with pytest.raises(FloodmarkError) as caught:
        run(copy)

    assert_tells_the_way([caught.value], "FM-CONTROL-016")
    assert run(home) == []
    assert ids(home / "lake", "out") == [1, 2]
    assert ids(copy / "lake", "out") == [1]
    shutil.rmtree(home)
    put(shared, 3)
    assert run(copy) == []  # nothing is left of the original


def test_a_lake_with_another_root_is_no_copy(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    home.mkdir()
    put(shared, 1)
    text = SHARED.replace("SHARED", str(shared))
    (home / "floodmark.yaml").write_text(text.replace("root: lake", f"root: {tmp_path}/lake"))
    assert run(home) == []
    (home / "floodmark.yaml").write_text(text)
    put(shared, 2)

    assert [error.code for error in run(home)] != ["FM-CONTROL-016"]


def test_two_runs_of_one_project_at_once_give_each_row_once(home: Path, lake: Path) -> None:
    together = threading.Barrier(3)
    found: list[FloodmarkError] = []

    def work() -> None:
        project: Project = open_project(home)
        together.wait()
        try:
            found.extend(errors_of(project.run()))
        except FloodmarkError as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    together.wait()
    for thread in threads:
        thread.join()

    assert {error.code for error in found} <= {"FM-CONTROL-006", "FM-CONTROL-007"}
    assert run(home) == []
    assert ids(lake, "raw") == ids(lake, "silver") == [1, 2]
    assert [f.text for f in open_project(home).verify() if not f.ok] == []


def test_a_target_that_was_dropped_between_runs_is_refused_and_rebuilt(
    home: Path, lake: Path
) -> None:
    assert run(home) == []
    shutil.rmtree(lake / "silver")
    put(lake, 3)

    assert_tells_the_way(run(home), "FM-SINK-007")
    (batch,) = open_project(home).coordinator.current_plan()
    retried = open_project(home).retry(str(batch.batch_id), on_lost_target="rebuild")

    assert errors_of(retried) == []
    assert ids(lake, "raw") == ids(lake, "silver") == [1, 2, 3]


def test_a_target_whose_columns_were_changed_is_refused_with_the_difference(
    home: Path, lake: Path
) -> None:
    assert run(home) == []
    DeltaTable(str(lake / "raw")).alter.add_columns([Field("shop", PrimitiveType("string"))])
    put(lake, 3)

    errors = run(home)

    assert_tells_the_way(errors, "FM-SINK-011")
    assert "shop" in str(errors[0].found)
    assert ids(lake, "raw") == [1, 2]
