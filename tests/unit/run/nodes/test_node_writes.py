"""What nodes write, mode by mode: from YAML to the rows of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support import crash
from tests.support.node_projects import open_project
from tests.support.node_projects import table_rows as rows

from floodmark import failpoints
from floodmark.config import load_project
from floodmark.errors import FloodmarkError
from floodmark.project import Project
from floodmark.run.context import Run

REPLACING = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - name: large
        read: {connection: lake, path: orders, method: snapshot}
        write: {connection: lake, path: large, mode: replace_where, replace_where: amount >= 20}
      - name: copy
        depends_on: [large]
        write: {connection: lake, path: copy, merge: {keys: [id]}}
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    crash.append_rows(tmp_path, "lake/orders", [(2, 20), (3, 30)])
    return tmp_path / "lake/orders"


def error_of(project: Project) -> FloodmarkError:
    error = project.run().outcomes[-1].error
    assert error is not None
    return error


@pytest.mark.parametrize("point", [None, "sink.before_commit", "sink.after_commit:2"])
def test_rows_of_the_condition_are_replaced_and_dependents_get_the_difference(
    tmp_path: Path, orders: Path, point: str | None
) -> None:
    project = open_project(tmp_path, REPLACING)
    project.run()
    crash.append_rows(tmp_path, "lake/large", [(1, 10)])  # a row of others, beside the condition
    DeltaTable(str(orders)).delete("id = 3")
    crash.append_rows(tmp_path, "lake/orders", [(4, 40)])
    if point is not None:
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            project.run()

    summary = open_project(tmp_path).run()

    assert summary.exit_code == 0, summary.outcomes
    assert rows(tmp_path / "lake/large") == [(1, 10), (2, 20), (4, 40)]
    assert rows(tmp_path / "lake/copy") == [(2, 20), (4, 40)]
    assert all(finding.ok for finding in open_project(tmp_path).verify())


def test_rows_beside_the_condition_are_refused_and_nothing_is_written(
    tmp_path: Path, orders: Path
) -> None:
    project = open_project(tmp_path, REPLACING)
    project.run()
    before = DeltaTable(str(tmp_path / "lake/large")).version()
    DeltaTable(str(orders)).update({"amount": "1"}, predicate="id = 3")

    error = error_of(project)

    assert error.code == "FM-SINK-034"
    assert "amount >= 20" in (error.allowed or "")
    assert DeltaTable(str(tmp_path / "lake/large")).version() == before


@pytest.mark.usefixtures("orders")
def test_only_what_is_new_replaces_nothing_unless_that_is_said(tmp_path: Path) -> None:
    text = REPLACING.replace(", method: snapshot", "")
    project = open_project(tmp_path, text)
    project.run()
    crash.append_rows(tmp_path, "lake/orders", [(4, 40)])

    refused = error_of(project)
    said = text.replace("amount >= 20}", "amount >= 20, allow_partial: true}")
    summary = open_project(tmp_path, said).run()

    assert refused.code == "FM-SINK-003"
    assert summary.exit_code == 0, summary.outcomes
    assert rows(tmp_path / "lake/large") == [(4, 40)]


@pytest.mark.usefixtures("orders")
def test_a_batch_is_replayed_into_a_replacement_without_doubling(tmp_path: Path) -> None:
    alone = REPLACING[: REPLACING.index("      - name: copy")]
    project = open_project(tmp_path, alone)
    first = project.run().batches[0].batch.batch_id or ""

    summary = project.replay(first)

    assert summary.exit_code == 0, summary.outcomes
    assert rows(tmp_path / "lake/large") == [(2, 20), (3, 30)]


STRATEGIES = """\
project: shop
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: orders
    nodes:
      - name: raw
        read: {connection: lake, path: orders}
        write: {connection: lake, path: raw, merge: {keys: [id]}}
      - name: first
        depends_on: [raw]
        write: {connection: lake, path: first, merge: {keys: [id], strategy: append_only}}
      - name: soft
        depends_on: [raw]
        write: {connection: lake, path: soft, merge: {keys: [id], deletes: soft}}
      - name: kept
        depends_on: [raw]
        write: {connection: lake, path: kept, merge: {keys: [id], deletes: ignore}}
      - name: blocked
        depends_on: [raw]
        write: {connection: lake, path: blocked, merge: {keys: [id], strategy: delete_match}}
"""


def test_each_merge_strategy_does_from_yaml_what_its_name_says(
    tmp_path: Path, orders: Path
) -> None:
    crash.append_rows(tmp_path, "lake/blocked", [(3, 0), (9, 0)])
    project = open_project(tmp_path, STRATEGIES)
    project.run()
    assert rows(tmp_path / "lake/blocked", "id") == [(9,)]
    crash.append_rows(tmp_path, "lake/blocked", [(3, 0), (4, 0)])
    DeltaTable(str(orders)).update({"amount": "21"}, predicate="id = 2")
    DeltaTable(str(orders)).delete("id = 3")
    crash.append_rows(tmp_path, "lake/orders", [(4, 40)])

    summary = project.run()

    assert summary.exit_code == 0, summary.outcomes
    assert rows(tmp_path / "lake/first") == [(2, 20), (3, 30), (4, 40)]
    assert rows(tmp_path / "lake/soft", "id, amount, is_deleted") == [
        (2, 21, False),
        (3, 30, True),
        (4, 40, False),
    ]
    assert rows(tmp_path / "lake/kept") == [(2, 21), (3, 30), (4, 40)]
    assert rows(tmp_path / "lake/blocked", "id") == [(3,), (9,)]


FILES = """\
project: shop
connections: {lake: {type: lake, root: lake}, out: {type: files, root: out}}
pipelines:
  - pipeline: orders
    nodes:
      - name: export
        read: {connection: lake, path: orders}
        write: {connection: out, format: csv, path: orders, mode: append}
"""


@pytest.mark.usefixtures("orders")
def test_files_are_said_to_be_written_at_least_once(tmp_path: Path) -> None:
    (tmp_path / "floodmark.yaml").write_text(FILES)
    warnings = load_project(tmp_path / "floodmark.yaml").warnings

    assert [warning.code for warning in warnings] == ["FM-CONFIG-018"]
    assert "at least once" in warnings[0].title
    assert open_project(tmp_path).definitions.file_writers(["orders"]) == ["export"]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("mode: append", "mode: merge, merge: {keys: [id]}"), "write.mode"),
        (("mode: append", "mode: append, options: {zorder_by: [id]}"), "write.options.zorder_by"),
    ],
)
def test_what_files_cannot_do_is_refused_by_its_key(
    tmp_path: Path, change: tuple[str, str], key: str
) -> None:
    project = open_project(tmp_path, FILES.replace(*change))

    with pytest.raises(FloodmarkError) as caught:
        project.run()

    assert caught.value.code == "FM-CONFIG-016"
    assert key in (caught.value.where or "")


def test_zorder_and_partitions_by_one_column_are_refused(tmp_path: Path) -> None:
    options = "mode: append, options: {zorder_by: [id], partition_by: [id]}"
    text = FILES.replace("format: csv", "format: delta").replace("mode: append", options)

    with pytest.raises(FloodmarkError) as caught:
        open_project(tmp_path, text)

    assert caught.value.code == "FM-CONFIG-015"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"mode": "replace_where"}, "FM-SINK-005"),
        ({"mode": "append", "replace_where": "id > 1"}, "FM-SINK-005"),
        ({"mode": "replace_where", "replace_where": "id > 1", "keys": ["id"]}, "FM-SINK-005"),
        ({"mode": "replace_where", "replace_where": "id > 1"}, None),
    ],
)
@pytest.mark.usefixtures("orders")
def test_a_function_replaces_by_condition_and_only_with_one(
    tmp_path: Path, options: dict[str, Any], code: str | None
) -> None:
    story = crash.Story(tmp_path, "merge", pipelines=("copy",))
    coordinator = story.coordinator()
    story.register(coordinator)
    batch_id = coordinator.create_batch().batch_id or ""

    def replace_rows(inputs: Mapping[str, Any], run: Run) -> None:
        run.write(inputs[crash.ORDERS], "./out", **options)

    if code is not None:
        with pytest.raises(FloodmarkError) as caught:
            coordinator.run_pipeline("copy", batch_id, replace_rows)
        assert caught.value.code == code
        assert not (tmp_path / "out").exists()
    else:
        coordinator.run_pipeline("copy", batch_id, replace_rows)
        assert rows(tmp_path / "out") == [(2, 20), (3, 30)]


@pytest.mark.parametrize("is_sensitive", [False, True])
def test_values_are_examples_only_in_projects_without_sensitive_columns(
    tmp_path: Path, is_sensitive: bool
) -> None:
    columns = "\n        columns: {amount: {sensitive: true}}" if is_sensitive else ""
    text = REPLACING.replace("method: snapshot}", f"method: snapshot}}{columns}")
    pipelines = open_project(tmp_path, text).file.pipelines

    specs = [node.spec for node in pipelines[0].nodes]

    assert [spec.hides_values for spec in specs if spec] == [is_sensitive] * 2
