"""pause, resume, remove, rename, refresh, backfill and replay, on delta-rs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from floodmark.cli import operate, work
from floodmark.cli.call import Call

Command = Callable[..., Any]
MakeCall = Callable[..., Call]

MERGING = """\
project: shop
pipelines:
  - {pipeline: orders, scope: night, upstreams: [lake/orders], function: 'jobs:merge'}
  - {pipeline: count, scope: night, upstreams: [lake/orders], function: 'jobs:count'}
"""
MERGE = """\
def merge(inputs, run):
    (rows,) = inputs.values()
    run.write(rows, "lake/gold/orders", mode="merge", keys=["id"], missing="keep")


def count(inputs, run):
    (rows,) = inputs.values()
    run.write(rows, "lake/gold/log", mode="append", changes="log", allow_full=True)
"""


@pytest.fixture
def merging(shop: Path) -> Path:
    (shop / "floodmark.yaml").write_text(MERGING)
    (shop / "jobs.py").write_text(MERGE)
    return shop


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Calls a verb; its exit code and its document."""

    def ask(call: Call, verb: Callable[..., int], *arguments: Any, **options: Any) -> Any:
        capsys.readouterr()
        code = call.run(lambda: verb(call, *arguments, **options))
        return code, json.loads(capsys.readouterr().out)

    return ask


def grow(shop: Path, *ids: int) -> None:
    rows = pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]})
    write_deltalake(str(shop / "lake/orders"), rows, mode="append")


def rows_of(path: Path) -> int:
    found = (
        QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT count(*) AS n FROM t")
    )
    return int(found.read_all()["n"][0].as_py())


def test_pause_and_resume(merging: Path, arrow_call: MakeCall, answer: Command) -> None:
    answer(arrow_call(), work.run)
    paused = answer(arrow_call(), operate.pause, "count")
    grow(merging, 50)

    _, without = answer(arrow_call(), work.run)
    resumed = answer(arrow_call(), operate.resume, "count")
    _, with_it = answer(arrow_call(), work.run)

    assert paused == (0, {"schema_version": 1, "pipeline": "count", "status": "PAUSED"})
    assert [each["name"] for each in without["pipelines"]] == ["orders"]
    assert without["held"] == []
    assert resumed[1]["status"] == "ACTIVE"
    assert [each["name"] for each in with_it["pipelines"]] == ["count"]
    assert rows_of(merging / "lake/gold/log") == rows_of(merging / "lake/gold/orders") == 5


def test_a_pipeline_alone_in_its_scope_waits_while_it_is_paused_and_goes_on(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    (merging / "floodmark.yaml").write_text("".join(MERGING.splitlines(keepends=True)[:-1]))
    answer(arrow_call(), work.run)
    answer(arrow_call(), operate.pause, "orders")
    grow(merging, 50)

    _, planned = answer(arrow_call(), work.plan, freeze=True)
    _, while_paused = answer(arrow_call(), work.run)
    answer(arrow_call(), operate.resume, "orders")
    _, after = answer(arrow_call(), work.run)

    assert (planned["status"], planned["batch_id"]) == ("NOOP", None)
    assert planned["windows"][0]["reason"] == "waits: orders paused"
    assert (while_paused["pipelines"], while_paused["held"]) == ([], [])
    assert after["advanced"] == [str(merging / "lake/orders")]
    assert rows_of(merging / "lake/gold/orders") == 5


def test_a_removed_pipeline_holds_nothing(
    merging: Path, floodmark: Command, arrow_call: MakeCall, answer: Command
) -> None:
    floodmark("plan", "--freeze")
    (merging / "floodmark.yaml").write_text("".join(MERGING.splitlines(keepends=True)[:-1]))
    _, before = answer(arrow_call(), work.run)

    removed = floodmark("remove", "count", "--json")
    _, after = answer(arrow_call(), work.run)

    assert before["held"][0]["waiting_for"] == ["count"]
    assert removed.document == {"schema_version": 1, "pipeline": "count", "status": "REMOVED"}
    assert after["advanced"] == [str(merging / "lake/orders")]


def test_a_pipeline_that_is_in_the_file_is_not_removed(shop: Path, floodmark: Command) -> None:
    floodmark("plan", "--freeze")

    answer = floodmark("remove", "solo", "--json")

    assert (answer.code, answer.document["error"]["code"]) == (2, "FM-CONFIG-007")


def test_a_newcomer_is_seeded_in_the_same_run(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    (merging / "floodmark.yaml").write_text("".join(MERGING.splitlines(keepends=True)[:-1]))
    answer(arrow_call(), work.run)
    (merging / "floodmark.yaml").write_text(MERGING)
    grow(merging, 60)

    code, document = answer(arrow_call(), work.run)

    assert code == 0
    assert document["held"] == []
    assert rows_of(merging / "lake/gold/log") == rows_of(merging / "lake/gold/orders") == 5


def test_refresh_loads_everything_again(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)

    refreshed = answer(arrow_call(), operate.refresh, "count")
    code, document = answer(arrow_call(), work.run)

    assert refreshed[1]["status"] == "REFRESH"
    assert code == 0
    assert [each["name"] for each in document["pipelines"]] == ["count"]
    assert rows_of(merging / "lake/gold/log") == 8


def test_rename_goes_on_where_it_stands(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)

    renamed = answer(arrow_call(), operate.rename, "count", "tally")
    (merging / "floodmark.yaml").write_text(MERGING.replace("pipeline: count", "pipeline: tally"))
    _, document = answer(arrow_call(), work.run)

    assert renamed[1] == {"schema_version": 1, "pipeline": "tally", "status": "RENAMED"}
    assert document["batches"] == []


def test_backfill_runs_the_range_once_more_and_marks_stay(
    merging: Path, floodmark: Command, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)
    grow(merging, 70)
    answer(arrow_call(), work.run)

    code, document = answer(
        arrow_call(), operate.backfill, "lake/orders", ["orders"], start=2, end=2
    )

    assert code == 0
    assert [(each["name"], each["status"]) for each in document["pipelines"]] == [
        ("orders", "SUCCESS")
    ]
    assert rows_of(merging / "lake/gold/orders") == 5
    assert floodmark("lag", "--json").document["upstreams"][0]["committed"] == 2


def test_a_backfill_that_would_double_rows_is_refused(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    answer(arrow_call(), work.run)

    code, document = answer(
        arrow_call(), operate.backfill, "lake/orders", ["count"], start=0, end=1
    )

    (pipeline,) = document["pipelines"]
    assert code == 4
    assert pipeline["error"]["code"].startswith("FM-SINK-")
    assert rows_of(merging / "lake/gold/log") == 4


def test_replay_runs_a_completed_batch_once_more(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    _, first = answer(arrow_call(), work.run)

    code, document = answer(arrow_call(), operate.replay, first["batch_id"], ["orders"])

    assert code == 0
    assert document["batch_id"] != first["batch_id"]
    assert [each["name"] for each in document["pipelines"]] == ["orders"]
    assert rows_of(merging / "lake/gold/orders") == 4


def test_an_upstream_that_nobody_reads_cannot_be_backfilled(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    code, document = answer(arrow_call(), operate.backfill, "lake/order", start=0, end=1)

    assert (code, document["error"]["code"]) == (2, "FM-CONFIG-007")
    assert document["error"]["allowed"].endswith("nearest: lake/orders")
    assert not (merging / "lake/_control").exists()


@pytest.mark.parametrize(
    "verb",
    [
        "pause daily",
        "resume daily",
        "refresh daily",
        "rename daily b",
        "remove x",
        "replay batch_1",
    ],
)
def test_operating_never_creates_a_store(verb: str, shop: Path, floodmark: Command) -> None:
    answer = floodmark(*verb.split(), "--json")

    assert (answer.code, answer.document["error"]["code"]) == (4, "FM-CONTROL-001")
    assert not (shop / "lake/_control").exists()


def test_a_pipeline_that_is_not_there_is_an_error(shop: Path, floodmark: Command) -> None:
    floodmark("plan", "--freeze")

    answer = floodmark("pause", "dayly", "--json")

    assert (answer.code, answer.document["error"]["code"]) == (2, "FM-CONTROL-005")


def test_a_pipeline_that_the_project_does_not_have_holds_its_batches_and_breaks_no_command(
    merging: Path, arrow_call: MakeCall, answer: Command
) -> None:
    """Its batches stay open behind those of the project, which has nothing left to run in them."""
    answer(arrow_call(), work.run)
    upstream = str(merging / "lake/orders")
    arrow_call().project.coordinator.register("stranger", [upstream], scope="night")

    for number in (7, 8):
        grow(merging, number)
        for _ in range(2):
            code, document = answer(arrow_call(), work.run)
            assert code == 0, document
            assert "stranger" in json.dumps(document)

    assert answer(arrow_call(), operate.remove, "stranger")[0] == 0
    assert answer(arrow_call(), work.run)[0] == 0
    assert rows_of(merging / "lake/gold/orders") == 6
