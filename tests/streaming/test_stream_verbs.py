"""Verbs that look at a stream or move it, on a real broker and database, without Spark."""

from __future__ import annotations

import json

import pytest
from tests.support.streams import Place, Run, event

from floodmark.cli.main import main


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*arguments: object) -> tuple[int, dict[str, object]]:
        capsys.readouterr()
        code = main(["stream", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return go


def test_a_reset_that_forgets_a_partition_or_mistakes_the_topic_changes_nothing(
    place: Place, tell: Run
) -> None:
    place.send(*map(event, range(5)), partition=0)
    place.send(*map(event, range(3)), partition=1)
    path = place.write()
    whole = {place.name: {"0": 4, "1": 3}}
    wrong = [{}, {place.name: {"0": 4}}, {f"{place.name}s": {"0": 4, "1": 3}}]
    wrong += [{place.name: {"0": 6, "1": 3}}]

    moved, _ = tell("reset", path, "--to", json.dumps(whole), "--yes")
    before = place.ask("SELECT epoch, end_offsets FROM $schema.floodmark_stream")
    answers = [tell("reset", path, "--to", json.dumps(said), "--yes") for said in wrong]

    assert moved == 0
    assert [(code, told["error"]["code"]) for code, told in answers] == [(4, "FM-STREAM-044")] * 4
    assert place.ask("SELECT epoch, end_offsets FROM $schema.floodmark_stream") == before
    assert before[0][1] == whole


def test_before_its_first_run_the_way_to_the_tables_is_told(place: Place, tell: Run) -> None:
    path = place.write()

    missing, document = tell("status", path)
    _, sql = tell("tables", path)
    for statement in sql["statements"]:
        if " ON " not in statement or "INDEX" in statement:
            place.ask(statement)
    code, after = tell("status", path)

    assert (missing, document["error"]["code"]) == (4, "FM-STREAM-004")
    assert f"floodmark stream run {path.name}" in document["error"]["next"].replace(
        str(path), path.name
    )
    assert (code, after["streams"][0]["has_begun"]) == (0, False)


def test_a_stream_whose_database_is_away_does_not_hide_the_others(place: Place, tell: Run) -> None:
    path = place.write()
    tell("reset", path, "--to", "earliest", "--yes")
    away = json.loads(path.read_text())
    away["pipelineId"] = "away"
    away["load"]["connectionParams"]["port"] = 1
    other = place.folder / "away.json"
    other.write_text(json.dumps(away))

    code, document = tell("status", other, path)
    alone, only = tell("status", other)

    assert code == alone == 4
    assert [each["stream"] for each in document["streams"]] == [place.name]
    assert document["streams"][0]["is_running"] is False
    assert document["refused"][0]["where"] == only["error"]["where"] == "stream away"


def test_a_topic_that_is_not_there_is_named_with_its_stream(place: Place, tell: Run) -> None:
    path = place.write(extract={"topic": "nowhere"})

    code, document = tell("reset", path, "--to", "earliest", "--yes")

    assert (code, document["error"]["code"]) == (4, "FM-STREAM-021")
    assert document["error"]["where"].startswith(f"stream {place.name}, topic nowhere at ")


@pytest.mark.parametrize("store", ["database", "checkpoint"])
def test_a_row_that_is_older_than_the_tracker_is_refused(
    place: Place, tell: Run, store: str
) -> None:
    place.send(event(1), event(2), partition=0)
    kept = {"offsetStore": store} | ({"checkpointLocation": "ck"} if store == "checkpoint" else {})
    path = place.write(streamingConfigJson=kept)
    tell("reset", path, "--to", json.dumps({place.name: {"0": 1, "1": 0}}), "--yes")
    place.ask("CREATE TABLE $schema.older AS TABLE $schema.floodmark_stream")
    end = json.dumps({place.name: {"0": 2, "1": 0}}, separators=(",", ":"))
    tell("reset", path, "--to", end, "--yes")

    place.ask("DELETE FROM $schema.floodmark_stream")
    gone, of_gone = tell("run", path)
    place.ask("INSERT INTO $schema.floodmark_stream TABLE $schema.older")
    older, of_older = tell("run", path)
    held = place.ask("SELECT epoch FROM $schema.floodmark_stream")
    told = [document["streams"][0]["error"] for document in (of_gone, of_older)]
    solved, _ = tell("reset", path, "--to", end, "--yes")
    _, after = tell("status", path)

    assert (gone, older) == (4, 4)
    assert [error["code"] for error in told] == ["FM-STREAM-036"] * 2
    assert all(f"--to '{end}' --yes" in error["next"] for error in told)
    assert held == place.ask("SELECT epoch FROM $schema.older")
    assert (solved, after["streams"][0]["records_behind"]) == (0, 0)
