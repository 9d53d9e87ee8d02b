"""The examples for schedulers: what they call is there, and the calls do what the page says.

Airflow, Dagster and Databricks are not installed here. Their files are thin: everything they do
with floodmark is in floodmark_task.py and job.py, which are run; of the files themselves it is
checked that they compile and that each call fits.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import typer.main
import yaml
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from floodmark.cli.main import build_app
from floodmark.testing import ArrowEngine

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "orchestrators"
PAGES = [*sorted((ROOT / "docs" / "operations").glob("*.md")), ROOT / "docs" / "orchestrators.md"]

SHOP = """\
project: shop
lease_ttl: 1s
pipelines:
  - pipeline: report
    scope: shop
    upstreams: [lake/orders]
    function: jobs:copy
  - pipeline: ledger
    scope: shop
    upstreams: [lake/orders]
    function: jobs:copy
"""
JOBS = """\
from pathlib import Path


def copy(inputs, run):
    if Path(__file__).with_name(f"break_{run.pipeline}").exists():
        raise ValueError("broken on purpose")
    run.write(inputs["lake/orders"], f"lake/{run.pipeline}", mode="append", changes="log")
"""
ON_DELTA_RS = """\
import sys
import floodmark.coordinator, floodmark.engines.spark
from floodmark.cli.main import main
from floodmark.testing import ArrowEngine
floodmark.coordinator.running.spark_engine = lambda *_: ArrowEngine()
floodmark.engines.spark.local_session = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tasks: Any = loaded("floodmark_task")
job: Any = loaded("job")


# The command line and the calls -------------------------------------------------------------------


def parse(line: str) -> None:
    """Read a command line as floodmark would, without doing anything; raises if it is wrong."""
    command: Any = typer.main.get_command(build_app())
    words, context = shlex.split(line)[1:], None
    while True:
        context = command.make_context(command.name or "floodmark", list(words), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        rest = words[len(words) - len(context.args) - 1 :]  # the next command, and all after it
        _, command, words = command.resolve_command(context, rest)


def commands_in(page: Path) -> Iterator[str]:
    """Every whole command of a page; words in capitals stand for something."""
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$ )?(floodmark [^#\n]+)", text, re.MULTILINE)
    lines += re.findall(r"`(floodmark [^`]+)`", text)
    for command in (part for line in lines for part in line.split("&&")):
        if "|" not in command:
            yield re.sub(r"\bN\b", "1", command).strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_commands(page: Path) -> None:
    commands = list(commands_in(page))

    assert commands
    for line in commands:
        parse(line)


@pytest.mark.parametrize("line", ["floodmark undo", "floodmark retry", "floodmark run --hard"])
def test_a_command_that_is_none_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"undo|batch|hard"):
        parse(line)


def calls_of(name: str, module: str) -> list[ast.Call]:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == module
    ]


@pytest.mark.parametrize("name", ["airflow_dag", "dagster_job"])
def test_the_calls_of_a_scheduler_fit(name: str) -> None:
    compile((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"), name, "exec")
    calls = calls_of(name, "floodmark_task")

    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        signature = inspect.signature(getattr(tasks, call.func.attr))
        signature.bind(*call.args, **{str(word.arg): word.value for word in call.keywords})
    assert {c.func.attr for c in calls if isinstance(c.func, ast.Attribute)} == {
        "plan",
        "run_pipeline",
        "finish",
    }


def test_the_tasks_of_databricks_are_calls_of_the_job() -> None:
    document = yaml.safe_load((EXAMPLES / "databricks_job.yaml").read_text(encoding="utf-8"))
    found = document["resources"]["jobs"]["floodmark_shop"]["tasks"]
    scripts = [task["spark_python_task"] for task in found]

    assert [job.arguments_of(script["parameters"]).verb for script in scripts] == ["run", "verify"]
    assert all((EXAMPLES / script["python_file"]).is_file() for script in scripts)


# The tasks, run -----------------------------------------------------------------------------------


def grow(shop: Path, *ids: int) -> None:
    feed: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    write_deltalake(str(shop / "lake/orders"), rows, mode="append", configuration=feed)


def ids(shop: Path, name: str) -> list[int]:
    table = DeltaTable(str(shop / "lake" / name))
    rows = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    return sorted(rows["id"].to_pylist())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project on which the command line, as a process, runs on delta-rs."""
    (tmp_path / "floodmark.yaml").write_text(SHOP)
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "command.py").write_text(ON_DELTA_RS)
    command = shlex.join([sys.executable, str(tmp_path / "command.py")])
    monkeypatch.setenv("FLOODMARK_COMMAND", command)
    grow(tmp_path, 1, 2)
    return tmp_path


@pytest.mark.slow
def test_plan_run_and_finish_bring_every_row_once(shop: Path) -> None:
    work = tasks.plan(str(shop))
    again = tasks.plan(str(shop))
    for each in [*work, *work]:
        tasks.run_pipeline(str(shop), **each)
    tasks.finish(str(shop))

    assert [each["pipeline"] for each in work] == ["report", "ledger"]
    assert again == work
    assert tasks.plan(str(shop)) == []
    assert ids(shop, "report") == ids(shop, "ledger") == [1, 2]


@pytest.mark.slow
def test_a_function_that_fails_is_tried_again_and_holds_until_it_works(shop: Path) -> None:
    (shop / "break_ledger").touch()
    report, ledger = tasks.plan(str(shop))
    tasks.run_pipeline(str(shop), **report)
    with pytest.raises(tasks.TryAgain, match="FM-RUN-001"):
        tasks.run_pipeline(str(shop), **ledger)
    with pytest.raises(tasks.GiveUp, match="ledger failed"):
        tasks.finish(str(shop))

    (shop / "break_ledger").unlink()
    tasks.run_pipeline(str(shop), **ledger)
    tasks.finish(str(shop))

    assert ids(shop, "ledger") == [1, 2]


def test_a_broken_project_is_given_up(shop: Path) -> None:
    (shop / "floodmark.yaml").write_text("project: shop\n")

    with pytest.raises(tasks.GiveUp, match="FM-CONFIG"):
        tasks.plan(str(shop))


@pytest.mark.parametrize(
    ("code", "retryable", "outcome"),
    [
        (1, False, "TryAgain"),
        (2, False, "GiveUp"),
        (3, False, "GiveUp"),
        (4, True, "TryAgain"),
        (4, False, "GiveUp"),
        (130, True, "TryAgain"),
        (-9, None, "TryAgain"),
    ],
)
def test_exit_codes_are_mapped_to_a_retry_policy(
    code: int, retryable: bool | None, outcome: str
) -> None:
    error = {"code": "FM-CLI-002", "title": "a test", "retryable": retryable}
    document = {} if retryable is None else {"error": error}

    with pytest.raises(getattr(tasks, outcome)):
        tasks.judge(code, document)


def test_the_job_of_a_cluster_runs_and_verifies(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("floodmark.coordinator.running.spark_engine", lambda *_: ArrowEngine())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "jobs", None)
    del sys.modules["jobs"]

    code = job.run(str(shop), [], lambda: None)

    assert code == 0
    assert ids(shop, "report") == ids(shop, "ledger") == [1, 2]
    assert job.main(["verify", str(shop)]) == 0
    assert "report" in capsys.readouterr().out


@pytest.mark.spark  # needs the jars
def test_submit_hands_the_jars_and_the_job_to_spark(tmp_path: Path) -> None:
    stand_in = tmp_path / "spark-submit"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])

    done = subprocess.run(
        ["sh", str(EXAMPLES / "submit.sh"), "/srv/shop", "report"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.splitlines()

    assert done.returncode == 0, done.stderr
    assert all(Path(jar).is_file() for jar in words[words.index("--jars") + 1].split(","))
    assert words[-4:] == [str(EXAMPLES / "job.py"), "run", "/srv/shop", "report"]


def test_the_shell_script_calls_commands_that_are_there() -> None:
    script = (EXAMPLES / "submit.sh").read_text(encoding="utf-8")
    commands = re.findall(r"floodmark --[^|\n]+", script)

    assert commands
    for line in commands:
        parse(line)


def test_documents_are_as_the_tasks_expect(shop: Path) -> None:
    code, document = tasks.call(str(shop), "plan")

    assert code == 0
    assert {"batch_id", "pipelines"} <= document.keys()
    assert json.dumps(document)
