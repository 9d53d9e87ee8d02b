"""Pipelines run after those that write what they read, and wait where one of those failed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.node_projects import open_project, table_rows

from floodmark.errors import ControlError
from floodmark.project import Project, RunSummary

PIPELINE = """\
  - pipeline: {name}
    {scope}
    nodes:
{reads}
      - name: {name}_rows
        depends_on: [{names}]
        write: {{connection: lake, path: {target}, mode: {mode}}}
"""
DIAMOND = {"bronze": ["raw"], "left": ["bronze"], "right": ["bronze"], "gold": ["left", "right"]}


def text_of(
    graph: dict[str, list[str]], order: list[str], scopes: dict[str, str] | None = None
) -> str:
    """Each pipeline appends the new rows of the first table that it reads to a table of its name."""
    made = "project: shop\nlease_ttl: 2s\njobs: 2\nconnections: {lake: {type: lake, root: lake}}\npipelines:\n"
    for name in order:
        reads = [
            f"      - {{name: {name}_{read}, read: {{connection: lake, path: {read}}}}}"
            for read in graph[name]
        ]
        made += PIPELINE.format(
            name=name,
            scope=f"scope: {scopes[name]}" if scopes else "tags: [x]",
            reads="\n".join(reads),
            names=", ".join(f"{name}_{read}" for read in graph[name]),
            target=name,
            mode="append",
        )
    return made


def add(root: Path, *ids: int, table: str = "raw") -> None:
    feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(str(root / "lake" / table), rows, mode="append", configuration=feed)


def ids(root: Path, table: str) -> list[int]:
    return [row[0] for row in table_rows(root / "lake" / table, "id")]


def version(root: Path, table: str) -> int:
    return DeltaTable(str(root / "lake" / table)).version()


def names(summary: RunSummary) -> list[str]:
    assert not summary.refused, summary.refused
    return [outcome.name for outcome in summary.outcomes if not outcome.error]


def breaks(text: str, pipeline: str) -> str:
    """A write that is refused when it runs."""
    return text.replace(
        f"path: {pipeline}, mode: append}}", f"path: {pipeline}, merge: {{keys: [nope]}}}}"
    )


@pytest.mark.parametrize("order", list(itertools.permutations(DIAMOND))[::5], ids="-".join)
def test_each_pipeline_runs_once_after_those_it_reads_from(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    add(tmp_path, 1)
    project = open_project(tmp_path, text_of(DIAMOND, list(order)))

    for batch in (1, 2):
        if batch == 2:
            add(tmp_path, 2)
        ran = names(project.run())

        assert sorted(ran) == sorted(DIAMOND)
        assert ran[0] == "bronze"
        assert ran[-1] == "gold"
        assert ids(tmp_path, "gold") == list(range(1, batch + 1))
        assert version(tmp_path, "gold") == batch - 1


def test_pipelines_of_one_scope_run_in_the_order_of_the_graph_too(tmp_path: Path) -> None:
    add(tmp_path, 1)
    graph = {"gold": ["silver"], "silver": ["bronze"], "bronze": ["raw"]}
    text = text_of(graph, list(graph), dict.fromkeys(graph, "one"))
    project = open_project(tmp_path, text)

    for batch in (1, 2):
        assert names(project.run()) == ["bronze", "silver", "gold"]
        assert ids(tmp_path, "gold") == list(range(1, batch + 1))
        add(tmp_path, batch + 1)


@pytest.mark.parametrize(
    "spelling", ["{root}/lake", "file://{root}/lake", "{root}/x/../lake", "./lake/", "lake//"]
)
def test_a_table_is_one_however_it_is_spelled(tmp_path: Path, spelling: str) -> None:
    """Absolute or relative, also before the first run, when nothing that was written tells."""
    add(tmp_path, 1)
    graph = {"gold": ["silver"], "silver": ["raw"]}
    lakes = f'lake: {{type: lake, root: lake}}, other: {{type: lake, root: "{spelling}"}}'
    made = text_of(graph, list(graph)).replace("lake: {type: lake, root: lake}", lakes)
    made = made.replace("connection: lake, path: silver}", "connection: other, path: silver}")
    project = open_project(tmp_path, made.replace("{root}", str(tmp_path)))

    Project.check(tmp_path)
    summary = project.run()

    assert names(summary) == ["silver", "gold"]
    assert version(tmp_path, "gold") == 0


def test_what_reads_a_failed_pipeline_waits_and_others_go_on(tmp_path: Path) -> None:
    graph = {**DIAMOND, "report": ["gold"], "side": ["other"]}
    text = text_of(graph, list(graph))
    add(tmp_path, 1)
    add(tmp_path, 1, table="other")
    assert len(names(open_project(tmp_path, text).run())) == len(graph)
    add(tmp_path, 2)
    add(tmp_path, 2, table="other")
    before = version(tmp_path, "gold")

    summary = open_project(tmp_path, breaks(text, "left")).run()

    assert sorted(names(summary)) == ["bronze", "right", "side"]
    assert [o.name for o in summary.outcomes if o.error] == ["left"]
    assert {w.pipeline: w.waiting_for for w in summary.waiting} == {
        "gold": ("left",),
        "report": ("gold",),
    }
    assert version(tmp_path, "gold") == before
    assert summary.exit_code != 0

    assert names(open_project(tmp_path, text).run()) == ["left", "gold", "report"]
    assert ids(tmp_path, "report") == [1, 2]


def test_what_reads_a_pipeline_that_cannot_be_planned_waits(tmp_path: Path) -> None:
    graph = {"bronze": ["raw"], "silver": ["bronze"]}
    add(tmp_path, 1)
    project = open_project(tmp_path, text_of(graph, list(graph)))
    names(project.run())
    (tmp_path / "lake/raw").rename(tmp_path / "lake/moved")
    add(tmp_path, 9, table="bronze")

    summary = project.run()

    assert [error.code for error in summary.refused] == ["FM-PLAN-001"]
    assert [w.pipeline for w in summary.waiting] == ["silver"]


def test_a_full_refresh_goes_down_the_graph_and_stops_at_a_failure(tmp_path: Path) -> None:
    graph = {"gold": ["silver"], "silver": ["bronze"], "bronze": ["raw"]}
    text = text_of(graph, list(graph))
    add(tmp_path, 1)
    names(open_project(tmp_path, text).run())
    before = version(tmp_path, "gold")

    summary = open_project(tmp_path, breaks(text, "silver")).run("silver+", full_refresh=True)

    assert [w.pipeline for w in summary.waiting] == ["gold"]
    assert version(tmp_path, "gold") == before
    # Nothing of the refresh of gold was begun: a plain run has nothing to load again.
    assert [o.name for o in open_project(tmp_path, text).run("gold").outcomes] == []

    open_project(tmp_path, text).run("silver")
    refreshed = open_project(tmp_path, text).run("silver+", full_refresh=True)
    assert names(refreshed) == ["silver", "gold"]
    assert ids(tmp_path, "gold") == [1]
    # The batch behind the seed of gold has what silver replaced: an append of that is refused.
    (left,) = [outcome for outcome in refreshed.outcomes if outcome.error]
    assert (left.name, left.error and left.error.code) == ("gold", "FM-SINK-001")
    finished = open_project(tmp_path, text).retry(left.batch_id, full_refresh=True)
    assert names(finished) == ["gold"]
    assert ids(tmp_path, "gold") == [1]
    assert open_project(tmp_path, text).run().exit_code == 0


def test_a_full_refresh_of_a_pipeline_with_an_open_batch_begins_nothing(tmp_path: Path) -> None:
    graph = {"bronze": ["raw"], "silver": ["bronze"]}
    text = text_of(graph, list(graph))
    add(tmp_path, 1)
    names(open_project(tmp_path, text).run())
    add(tmp_path, 2)
    open_project(tmp_path, breaks(text, "silver")).run()
    before = version(tmp_path, "bronze")

    with pytest.raises(ControlError) as caught:
        open_project(tmp_path, text).run("bronze+", full_refresh=True)

    assert caught.value.code == "FM-CONTROL-020"
    assert version(tmp_path, "bronze") == before


def test_what_a_function_writes_is_known_once_it_has_written(tmp_path: Path) -> None:
    graph = {"after": ["made"]}
    text = text_of(graph, ["after"])
    text += "  - {pipeline: maker, upstreams: [lake/raw], function: makers:make}\n"
    (tmp_path / "makers.py").write_text(
        "def make(inputs, run):\n"
        "    run.write(inputs['lake/raw'], 'lake/made', mode='append', changes='latest', keys=['id'])\n"
    )
    add(tmp_path, 1)
    project = open_project(tmp_path, text)
    first = project.run()  # nobody could know: the reader comes again
    assert ids(tmp_path, "after") == [1]
    assert {o.name for o in first.outcomes} == {"maker", "after"}

    add(tmp_path, 2)
    assert names(open_project(tmp_path, text).run()) == ["maker", "after"]
    assert ids(tmp_path, "after") == [1, 2]


def test_a_circle_of_pipelines_comes_to_an_end(tmp_path: Path) -> None:
    graph = {"one": ["raw", "two"], "two": ["one"]}
    add(tmp_path, 1)
    add(tmp_path, 1, table="one")
    add(tmp_path, 1, table="two")

    summary = open_project(tmp_path, text_of(graph, list(graph))).run()

    assert {o.name for o in summary.outcomes} == {"one", "two"}
    assert not summary.waiting


def test_a_plan_shows_after_whom_a_pipeline_comes(tmp_path: Path) -> None:
    add(tmp_path, 1)
    project: Project = open_project(tmp_path, text_of(DIAMOND, ["gold", "left", "right", "bronze"]))

    plans = {plan.scope: plan.batch for plan in project.plan_scopes()}

    assert {scope: batch.after for scope, batch in plans.items() if batch} == {
        "bronze": (),
        "left": ("bronze",),
        "right": ("bronze",),
        "gold": ("left", "right"),
    }
