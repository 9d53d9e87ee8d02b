"""What the commands promise to scripts: JSON keys, exit codes, and no Spark where none is needed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.cli import work
from floodmark.cli.call import Call
from floodmark.engines import jars

Command = Callable[..., Any]
MakeCall = Callable[..., Call]

PLAN_KEYS = {"batch_id", "seq", "scope", "status", "reused", "windows", "pipelines"}
WINDOW_KEYS = {
    "upstream", "kind", "method", "start", "end", "status", "reason", "versions", "bytes", "rows"
}  # fmt: skip
RUN_KEYS = {"batch_id", "pipelines", "advanced", "held"}
PIPELINE_KEYS = {
    "name", "status", "rows_read", "rows_written", "duration_seconds", "error", "story"
}  # fmt: skip
LAG_KEYS = {
    "scope", "upstream", "latest", "committed", "versions_behind", "seconds_behind", "held_by"
}  # fmt: skip


def add_version(path: Path, *ids: int) -> None:
    write_deltalake(str(path), pa.table({"id": list(ids), "name": ["x"] * len(ids)}), mode="append")


def freeze(floodmark: Command, pipeline: str) -> str:
    return str(floodmark("plan", "--freeze", pipeline, "--json").document["batch_id"])


def test_plan_of_one_scope_has_the_keys_of_the_contract(shop: Path, floodmark: Command) -> None:
    document = floodmark("plan", "daily", "--json").document

    assert document["schema_version"] == 1
    assert set(document) >= PLAN_KEYS
    assert all(set(window) >= WINDOW_KEYS for window in document["windows"])
    assert document["batch_id"] is None
    assert document["seq"] is None
    assert document["status"] == "PENDING"
    assert document["pipelines"] == ["daily", "report"]
    assert not (shop / "lake/_control").exists()


def test_plan_of_several_scopes_lists_one_plan_each(shop: Path, floodmark: Command) -> None:
    document = floodmark("plan", "--json").document

    assert set(document) == {"schema_version", "plans", "refused"}
    assert [plan["scope"] for plan in document["plans"]] == ["nightly", "solo"]
    assert all(set(plan) >= PLAN_KEYS for plan in document["plans"])


def test_freezing_twice_gives_the_same_batch(shop: Path, floodmark: Command) -> None:
    first = floodmark("plan", "--freeze", "solo", "--json").document
    second = floodmark("plan", "--freeze", "solo", "--json").document

    assert first["batch_id"] == second["batch_id"]
    assert (first["reused"], second["reused"]) == (False, True)


def test_plan_with_detailed_exitcode_tells_work_from_none(shop: Path, floodmark: Command) -> None:
    assert floodmark("plan", "--detailed-exitcode").code == 5
    batch = freeze(floodmark, "solo")
    floodmark("record", "solo", batch, "--status", "SUCCESS")
    floodmark("finalize", batch)

    assert floodmark("plan", "solo", "--detailed-exitcode").code == 0
    assert floodmark("plan", "solo", "--json").document["status"] == "NOOP"


def test_shared_options_may_stand_before_or_after_the_verb(
    shop: Path, floodmark: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    before = floodmark("--project", str(shop), "--json", "plan", "solo")
    after = floodmark("plan", "solo", "--json", "--project", str(shop / "floodmark.yaml"))

    assert before.document == after.document


def test_the_project_is_found_from_a_folder_below_it(
    shop: Path, floodmark: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "a/b").mkdir(parents=True)
    monkeypatch.chdir(shop / "a/b")

    assert floodmark("plan", "solo").code == 0


def test_record_finalize_and_lag(shop: Path, floodmark: Command) -> None:
    batch = freeze(floodmark, "solo")
    assert floodmark("lag", "--fail-above", "0").code == 1
    recorded = floodmark(
        "record", "solo", batch, "--status", "SUCCESS", "--rows-read", "2", "--rows-written", "3",
        "--metric", "a=b", "--metric", "c=d=e", "--json",
    )  # fmt: skip

    finalized = floodmark("finalize", "--json").document

    assert recorded.document["metrics"] == {"a": "b", "c": "d=e"}
    assert recorded.document["rows_written"] == 3
    assert finalized["advanced"] == [str(shop / "lake/customers")]
    assert finalized["batch_id"] == batch
    lag = floodmark("lag", "--json", "--fail-above", "0")
    assert lag.code == 0
    assert set(lag.document["upstreams"][0]) >= LAG_KEYS
    assert lag.document["upstreams"][0]["committed"] == 1


def test_finalize_of_an_unfinished_batch_is_no_error_and_says_what_is_held(
    shop: Path, floodmark: Command
) -> None:
    batch = freeze(floodmark, "daily")
    floodmark("record", "daily", batch, "--status", "SUCCESS")

    answer = floodmark("finalize", batch, "--json")

    assert answer.code == 0
    orders = str(shop / "lake/orders")
    assert answer.document["held"] == [
        {
            "upstream": orders,
            "waiting_for": ["report"],
            "reason": "not marked as processed yet: report has not run",
        }
    ]


def test_recording_out_of_turn_is_refused(shop: Path, floodmark: Command) -> None:
    batch = freeze(floodmark, "solo")

    stranger = floodmark("record", "daily", batch, "--status", "SUCCESS", "--json")
    floodmark("record", "solo", batch, "--status", "SUCCESS")
    late = floodmark("record", "solo", batch, "--status", "FAILED", "--json")

    assert (stranger.code, stranger.document["error"]["code"]) == (2, "FM-CONTROL-005")
    assert (late.code, late.document["error"]["code"]) == (4, "FM-CONTROL-013")


def test_cancel_frees_a_batch_that_nobody_has_taken(shop: Path, floodmark: Command) -> None:
    batch = freeze(floodmark, "solo")

    assert floodmark("cancel", batch).code == 0
    assert floodmark("cancel", batch, "--json").document["status"] == "CANCELLED"
    assert floodmark("plan", "solo", "--json").document["batch_id"] is None


def test_cancel_of_a_taken_batch_is_refused(shop: Path, floodmark: Command) -> None:
    batch = freeze(floodmark, "solo")
    floodmark("record", "solo", batch, "--status", "RUNNING")

    answer = floodmark("cancel", batch, "--json")

    assert (answer.code, answer.document["error"]["code"]) == (4, "FM-CONTROL-012")


@pytest.mark.parametrize("verb", ["verify", "finalize", "state show", "status batch_1"])
def test_verbs_that_need_a_store_say_that_there_is_none(
    verb: str, shop: Path, floodmark: Command
) -> None:
    answer = floodmark(*verb.split(), "--json")

    assert (answer.code, answer.document["error"]["code"]) == (4, "FM-CONTROL-001")
    assert not (shop / "lake/_control").exists()


def test_verify_and_state_rebuild(shop: Path, floodmark: Command) -> None:
    freeze(floodmark, "solo")

    assert floodmark("state", "rebuild", "--json").document["is_complete"] is True
    verified = floodmark("verify", "--json")
    assert verified.code == 0
    assert verified.document["ok"] is True


def test_doctor_prints_the_statement_that_switches_the_feed_on(
    shop: Path, floodmark: Command
) -> None:
    answer = floodmark("doctor")

    assert answer.code == 1
    path = shop / "lake/customers"
    assert (
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        in answer.out
    )


def test_a_missing_upstream_refuses_the_plan_and_writes_nothing(
    shop: Path, floodmark: Command
) -> None:
    text = (shop / "floodmark.yaml").read_text()
    (shop / "floodmark.yaml").write_text(text.replace("lake/orders", "lake/nope"))

    answer = floodmark("plan", "--freeze", "daily", "--json")

    assert (answer.code, answer.document["error"]["code"]) == (4, "FM-PLAN-001")


def test_the_store_that_is_created_is_named_once(shop: Path, floodmark: Command) -> None:
    first, second = floodmark("plan", "--freeze"), floodmark("plan", "--freeze")

    assert str(shop / "lake/_control") in first.err
    assert second.err == ""


# Running, on delta-rs ---------------------------------------------------------------------------


def test_run_has_the_keys_of_the_contract(
    shop: Path, project: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    code = work.run(arrow_call())

    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert set(document) >= RUN_KEYS
    assert all(set(pipeline) >= PIPELINE_KEYS for pipeline in document["pipelines"])
    statuses = {pipeline["name"]: pipeline["status"] for pipeline in document["pipelines"]}
    assert statuses == {"daily": "SUCCESS", "report": "FAILED", "solo": "SUCCESS"}
    error = next(p["error"] for p in document["pipelines"] if p["name"] == "report")
    assert error["code"] == "FM-RUN-001"
    assert error["where"] == "jobs.py:12 in share: return part / whole"
    assert error["called"] == "jobs.py:8 in report: return share(1, 0)"
    assert document["held"][0]["waiting_for"] == ["report"]


def test_one_run_finishes_an_open_batch_and_then_what_is_new(
    shop: Path, floodmark: Command, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    freeze(floodmark, "solo")
    add_version(shop / "lake/customers", 7, 8)
    jobs = (shop / "jobs.py").read_text()
    (shop / "jobs.py").write_text(jobs.replace('"append"', '"append", allow_full=True'))

    code = work.run(arrow_call(), ["solo"])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [batch["reused"] for batch in document["batches"]] == [True, False]
    assert floodmark("lag", "--json", "--fail-above", "0").code == 0


def test_max_versions_catches_up_in_steps(
    shop: Path, floodmark: Command, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    text = (shop / "floodmark.yaml").read_text().replace("jobs:report", "jobs:quiet")
    (shop / "floodmark.yaml").write_text(text.replace("lake/orders, ", ""))
    (shop / "jobs.py").write_text("def quiet(inputs, run):\n    pass\n")
    work.run(arrow_call(), ["report"])
    for number in range(5):
        add_version(shop / "lake/orders", number)
    capsys.readouterr()

    code = work.run(arrow_call(), ["report"], max_versions=2)

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert len(document["batches"]) == 3
    assert floodmark("plan", "report", "--json").document["status"] == "NOOP"


def test_a_run_of_one_pipeline_of_a_scope_waits_for_the_other(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    code = work.run(arrow_call(), ["daily"])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["advanced"] == [str(shop / "lake/customers")]
    assert document["held"][0]["upstream"] == str(shop / "lake/orders")


def test_a_function_that_cannot_be_found_stops_a_run_before_anything_is_journaled(
    shop: Path, floodmark: Command
) -> None:
    (shop / "jobs.py").write_text("import nonsense_that_is_not_there\n")

    answer = floodmark("run", "--json")

    assert (answer.code, answer.document["error"]["code"]) == (2, "FM-CONFIG-006")
    assert not (shop / "lake/_control").exists()


def test_retry_runs_only_what_is_unfinished(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    work.run(arrow_call())
    batch = json.loads(capsys.readouterr().out)["batches"][0]["batch_id"]

    code = work.retry(arrow_call(), batch)

    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert [pipeline["name"] for pipeline in document["pipelines"]] == ["report"]


def test_a_cancelled_batch_is_refused_before_spark_is_started(
    shop: Path, floodmark: Command
) -> None:
    batch = freeze(floodmark, "solo")
    floodmark("cancel", batch)

    answer = floodmark("retry", batch, "--json")

    assert answer.code == 4
    assert answer.document["pipelines"][0]["status"] == "REFUSED"
    assert answer.document["pipelines"][0]["error"]["code"] == "FM-CONTROL-012"
    assert "Spark" not in answer.err


def test_retry_of_a_finished_batch_has_nothing_to_do(shop: Path, floodmark: Command) -> None:
    batch = freeze(floodmark, "solo")
    floodmark("record", "solo", batch, "--status", "SUCCESS")
    floodmark("finalize", batch)

    answer = floodmark("retry", batch)

    assert answer.code == 0
    assert "nothing was left to do" in answer.out


def test_a_broken_set_up_is_said_once_and_the_batches_stand(
    shop: Path, floodmark: Command, tmp_path: Path
) -> None:
    for jar in jars.groups()["delta"]:
        (tmp_path / jar.filename).write_text("not a jar")

    # A process of its own: in this one another test may have begun a session, which would be used.
    ran = subprocess.run(
        [sys.executable, "-m", "floodmark", "run", "--json"],
        cwd=shop,
        env={**os.environ, "FLOODMARK_JARS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert json.loads(ran.stdout)["error"]["code"] == "FM-SETUP-004", ran.stdout
    assert ran.returncode == 2
    assert floodmark("status", "--json").document["batches"][0]["status"] == "PENDING"


def test_a_scope_that_is_refused_does_not_stop_the_others(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    text = (shop / "floodmark.yaml").read_text()
    (shop / "floodmark.yaml").write_text(text.replace("lake/orders", "lake/nope"))

    code = work.run(arrow_call())

    document = json.loads(capsys.readouterr().out)
    assert code == 4
    assert [error["code"] for error in document["refused"]] == ["FM-PLAN-001"]
    assert [pipeline["name"] for pipeline in document["pipelines"]] == ["solo"]


def test_nothing_to_do_is_fine_and_starts_nothing(shop: Path, floodmark: Command) -> None:
    batch = freeze(floodmark, "solo")
    floodmark("record", "solo", batch, "--status", "SUCCESS")
    floodmark("finalize", batch)

    answer = floodmark("run", "solo")

    assert answer.code == 0
    assert answer.out == "everything is up to date: nothing to run\n"


def test_an_interrupted_run_is_recorded_and_names_the_command_that_goes_on(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    (shop / "jobs.py").write_text("def process(inputs, run):\n    raise KeyboardInterrupt\n")
    call = arrow_call()

    code = call.run(lambda: work.run(call, ["solo"]))

    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["code"]) == (130, "FM-CLI-002")
    batch = call.project.coordinator.status()[0]
    assert error["next"] == f"floodmark retry {batch.batch_id}"
    assert batch.runs["solo"].status == "FAILED"


def test_an_error_of_floodmark_inside_a_function_names_the_line_of_the_function(
    shop: Path, capsys: pytest.CaptureFixture[str], arrow_call: MakeCall
) -> None:
    (shop / "jobs.py").write_text("def process(inputs, run):\n    run.table('lake/nope')\n")

    code = work.run(arrow_call(), ["solo"])

    error = json.loads(capsys.readouterr().out)["pipelines"][0]["error"]
    assert (code, error["code"]) == (1, "FM-RUN-003")
    assert error["at"] == "jobs.py:2 in process: run.table('lake/nope')"


def test_what_nobody_foresaw_is_exit_code_3_with_a_short_text(
    shop: Path, floodmark: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise ValueError("unforeseen")

    code = Call(str(shop), as_json=False, is_verbose=False).run(fail)

    text = capsys.readouterr().err
    assert code == 3
    assert text.startswith("FM-CLI-001  floodmark itself failed")
    assert "Traceback" not in text
    assert "ValueError: unforeseen" in text


# Fresh processes --------------------------------------------------------------------------------

NO_SPARK = """
import sys
from floodmark.cli.main import main
code = main(sys.argv[1:])
heavy = {"pyspark", "py4j"} | ({"deltalake", "pyarrow", "pydantic", "yaml", "rich"} if sys.argv[1] == "--help" else set())
loaded = sorted(heavy & set(sys.modules))
sys.exit(f"loaded: {loaded}" if loaded else code)
"""


def fresh(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
    return subprocess.run(
        [sys.executable, "-c", NO_SPARK, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("verb", ["--help", "plan --help", "plan", "status", "lag", "history"])
def test_looking_loads_no_spark_and_starts_no_java(verb: str, shop: Path) -> None:
    ran = fresh(*verb.split(), cwd=shop)

    assert (ran.returncode, ran.stderr) == (0, "")


COLLECTOR = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 0))
from floodmark.cli.main import main
main()
"""


@pytest.mark.parametrize(("verb", "is_eased"), [("status", True), ("run", False)])
def test_only_commands_that_are_soon_over_collect_seldom(verb: str, is_eased: bool) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COLLECTOR, verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    collects_after, is_frozen = ran.stdout.splitlines()[-1].split()
    assert (int(collects_after) > 10_000, is_frozen == "True") == (is_eased, is_eased)


def test_python_m_floodmark_is_the_command(shop: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "floodmark", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert ran.stdout.startswith("floodmark ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_exit_code_130_and_says_what_stays(
    number: signal.Signals, shop: Path
) -> None:
    (shop / "jobs.py").write_text(
        "import pathlib, time\npathlib.Path('started').touch()\ntime.sleep(60)\n"
    )
    # A test run in the background of a shell ignores Ctrl-C, and its children would as well.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "floodmark", "validate"],
        cwd=shop,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while not (shop / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    process.send_signal(number)
    _, text = process.communicate(timeout=60)

    assert process.returncode == 130
    assert text.startswith("FM-CLI-002  interrupted")
    assert "nothing was changed" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_colour_unless_it_says_no(no_color: str, shop: Path) -> None:
    primary, secondary = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    subprocess.run(
        [sys.executable, "-m", "floodmark", "plan", "solo"],
        cwd=shop,
        env=environment,
        stdout=secondary,
        check=True,
        timeout=120,
    )
    os.close(secondary)

    text = os.read(primary, 100_000).decode()

    os.close(primary)
    assert ("\x1b[" in text) is not bool(no_color)
    assert "lake/customers" in text


def test_a_closed_pipe_ends_quietly(shop: Path) -> None:
    ran = subprocess.run(
        f"{sys.executable} -m floodmark plan --json | true",
        cwd=shop,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert "Traceback" not in ran.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_run_on_spark_from_plan_to_advanced(shop: Path) -> None:
    jobs = (shop / "jobs.py").read_text().replace("share(1, 0)", "{'share': 1}")
    (shop / "jobs.py").write_text(jobs)

    ran = subprocess.run(
        [sys.executable, "-m", "floodmark", "run", "--json"],
        cwd=shop,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )

    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert {pipeline["status"] for pipeline in document["pipelines"]} == {"SUCCESS"}
    assert document["held"] == []
    rows = {p["name"]: p["rows_written"] for p in document["pipelines"]}
    assert rows == {"daily": 2, "report": None, "solo": 2}
    assert DeltaTable(str(shop / "lake/gold/solo")).version() == 0
