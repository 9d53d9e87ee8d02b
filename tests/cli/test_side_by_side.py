"""Pipelines side by side, their timeouts, retries and interrupts; on delta-rs, in threads."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

from floodmark.cli import work
from floodmark.cli.call import Call, Opening
from floodmark.coordinator import Outside
from floodmark.errors import ControlError, FloodmarkError
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.project import Project, RunSummary
from floodmark.run.engine import Engine
from floodmark.testing import ArrowEngine

MakeCall = Callable[..., Call]

COUNTED = """\
import threading

gate = threading.Barrier(4)
guard = threading.Lock()
active, peak = 0, 0


def process(inputs, run):
    global active, peak
    with guard:
        active += 1
        peak = max(peak, active)
    gate.wait(30)
    rows = inputs["lake/customers"]
    run.write(rows, f"lake/gold/{run.pipeline}", mode="append", changes="log")
    with guard:
        active -= 1
    if run.pipeline == "p3":
        raise ValueError("the third")
"""


def rows_of(path: Path) -> int:
    found = (
        QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT count(*) AS n FROM t")
    )
    return int(found.read_all()["n"][0].as_py())


def eight(shop: Path, scope: str | None, more: str = "") -> Project:
    named = f", scope: {scope}" if scope else ""
    lines = [
        f"  - {{pipeline: p{i}{named}, upstreams: [lake/customers], function: 'jobs:process'{more}}}"
        for i in range(1, 9)
    ]
    text = "\n".join(["project: shop", "lease_ttl: 2s", "pipelines:", *lines])
    (shop / "floodmark.yaml").write_text(text + "\n")
    return on_arrow(shop)


def on_arrow(
    shop: Path, engine: Engine | None = None, session: Callable[[], None] = lambda: None
) -> Project:
    return Project.load(shop, session=session, outside=Outside(engine=engine or ArrowEngine()))


def jobs_module() -> Any:
    return sys.modules["jobs"]


@pytest.mark.parametrize("scope", [None, "shared"])
def test_eight_pipelines_run_four_at_a_time_and_one_that_fails_stops_no_other(
    shop: Path, scope: str | None
) -> None:
    (shop / "jobs.py").write_text(COUNTED)
    project = eight(shop, scope)

    summary = project.run(jobs=4)

    names = [outcome.name for outcome in summary.outcomes]
    assert names == [f"p{i}" for i in range(1, 9)]
    failed = [outcome.name for outcome in summary.outcomes if outcome.status != "SUCCESS"]
    assert failed == ["p3"]
    assert jobs_module().peak == 4
    assert {rows_of(shop / f"lake/gold/{name}") for name in names} == {2}
    assert summary.exit_code == 1
    assert all(finding.ok for finding in project.verify())


def test_batches_are_numbered_in_the_order_of_the_file(shop: Path) -> None:
    (shop / "jobs.py").write_text("def process(inputs, run):\n    pass\n")

    summary = eight(shop, None).run(jobs=8)

    assert [outcome.batch.seq for outcome in summary.batches] == list(range(1, 9))


def test_one_job_runs_one_after_the_other_in_the_calling_thread(shop: Path) -> None:
    (shop / "jobs.py").write_text(
        "import threading\nseen = set()\n"
        "def process(inputs, run):\n    seen.add(threading.current_thread())\n"
    )

    eight(shop, "shared").run(jobs=1)

    assert jobs_module().seen == {threading.main_thread()}


def test_what_one_pipeline_writes_is_read_by_the_next_in_the_same_run(shop: Path) -> None:
    (shop / "floodmark.yaml").write_text(
        "project: shop\npipelines:\n"
        "  - {pipeline: second, upstreams: [lake/gold/first], function: 'jobs:process'}\n"
        "  - {pipeline: first, upstreams: [lake/customers], function: 'jobs:process'}\n"
    )
    (shop / "jobs.py").write_text(
        "def process(inputs, run):\n"
        "    (rows,) = inputs.values()\n"
        "    run.write(rows, f'lake/gold/{run.pipeline}', mode='append')\n"
    )

    summary = on_arrow(shop).run()

    assert summary.refused == []
    assert [(o.name, o.error) for o in summary.outcomes] == [("second", None), ("first", None)]
    assert rows_of(shop / "lake/gold/second") == 2


# Timeouts ---------------------------------------------------------------------------------------

LATE = """\
import threading

release = threading.Event()
ended = threading.Event()
errors = []


def process(inputs, run):
    release.wait(30)
    try:
        run.write(inputs["lake/customers"], "lake/gold/late", mode="append", changes="log")
    except Exception as error:
        errors.append(error)
        raise
    finally:
        ended.set()
"""


def release() -> None:
    jobs_module().release.set()


def late_solo(shop: Path, timeout: str, engine: Engine | None = None) -> Project:
    (shop / "jobs.py").write_text(LATE)
    text = (shop / "floodmark.yaml").read_text() + "lease_ttl: 1s\n"
    solo = text.replace("  - pipeline: solo\n", f"  - pipeline: solo\n    timeout: {timeout}\n")
    (shop / "floodmark.yaml").write_text(solo)
    return on_arrow(shop, engine)


def only_error(summary: RunSummary) -> FloodmarkError:
    (outcome,) = summary.outcomes
    assert outcome.error is not None
    return outcome.error


def test_a_function_that_takes_too_long_is_fenced_and_can_no_longer_write(shop: Path) -> None:
    project = late_solo(shop, "1500ms")

    summary = project.run("solo")

    error = only_error(summary)
    assert (summary.exit_code, error.code) == (1, "FM-RUN-007")
    (batch,) = project.coordinator.status()
    assert batch.runs["solo"].status == "FAILED"
    jobs_module().release.set()
    assert jobs_module().ended.wait(30)
    assert [late.code for late in jobs_module().errors] == ["FM-CONTROL-007"]
    assert not (shop / "lake/gold/late").exists()
    assert project.coordinator.status()[0].runs["solo"].status == "FAILED"


def test_after_a_timeout_the_same_command_is_the_retry(shop: Path) -> None:
    project = late_solo(shop, "200ms")
    project.run("solo")
    release()

    summary = project.run("solo", timeout="1h")

    assert [outcome.status for outcome in summary.outcomes] == ["SUCCESS"]
    assert rows_of(shop / "lake/gold/late") == 2


def test_a_timeout_of_the_call_rules_over_the_file(shop: Path) -> None:
    project = late_solo(shop, "1h")

    error = only_error(project.run("solo", timeout="200ms"))

    assert error.code == "FM-RUN-007"
    jobs_module().release.set()


def test_a_function_that_is_in_time_is_not_disturbed(shop: Path) -> None:
    project = late_solo(shop, "1h")
    threading.Timer(0.3, release).start()

    summary = project.run("solo")

    assert summary.exit_code == 0
    assert rows_of(shop / "lake/gold/late") == 2


class HangingOnce(ArrowEngine):
    """An engine whose first write hangs between the look at the receipt and the commit."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.ended = threading.Event()
        self._is_first = True

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Any:
        sink = super().sink(spec, windows, previous)
        if self._is_first:
            self._is_first = False
            sink.write = partial(self._hang, sink.write)  # type: ignore[method-assign]
        return sink

    def _hang(self, write: Callable[..., Any], *arguments: Any) -> Any:
        self.go_on.wait(30)
        try:
            return write(*arguments)
        finally:
            self.ended.set()


@pytest.mark.parametrize("is_first", [True, False], ids=["before the retry", "after the retry"])
def test_a_write_that_was_committing_at_the_timeout_is_there_exactly_once(
    is_first: bool, shop: Path
) -> None:
    engine = HangingOnce()
    project = late_solo(shop, "1500ms", engine)
    project.definitions.functions(["solo"])
    release()
    assert only_error(project.run("solo")).code == "FM-RUN-007"

    if is_first:
        engine.go_on.set()
        assert engine.ended.wait(30)
    (outcome,) = project.run("solo", timeout="1h").outcomes
    engine.go_on.set()
    assert engine.ended.wait(30)

    assert outcome.status == "SUCCESS"
    assert bool(outcome.already_applied) is is_first
    assert rows_of(shop / "lake/gold/late") == 2
    assert all(finding.ok for finding in project.verify())


# Retries ----------------------------------------------------------------------------------------

FLAKY = """\
calls = []


def process(inputs, run):
    calls.append(run.run_id)
    if len(calls) < 3:
        raise ConnectionError("flaky")
    run.write(inputs["lake/customers"], "lake/gold/flaky", mode="append", changes="log")


def wrong(inputs, run):
    calls.append(run.run_id)
    run.table("lake/nope")
"""


def flaky(shop: Path, function: str, retry: str) -> Project:
    (shop / "jobs.py").write_text(FLAKY)
    (shop / "floodmark.yaml").write_text(
        "project: shop\npipelines:\n"
        f"  - {{pipeline: a, upstreams: [lake/customers], function: 'jobs:{function}'{retry}}}\n"
    )
    return on_arrow(shop)


def test_a_retry_policy_tries_again_until_it_works(shop: Path) -> None:
    project = flaky(shop, "process", ", retry: {attempts: 3, backoff: 10ms}")

    summary = project.run()

    (outcome,) = summary.outcomes
    assert (outcome.status, outcome.attempts) == ("SUCCESS", 3)
    assert project.coordinator.status()[0].runs["a"].retries == 2
    assert rows_of(shop / "lake/gold/flaky") == 2


def test_attempts_are_bounded_and_the_last_error_is_told(shop: Path) -> None:
    project = flaky(shop, "process", ", retry: {attempts: 2, backoff: 10ms}")

    summary = project.run()

    (outcome,) = summary.outcomes
    assert (outcome.status, outcome.attempts) == ("FAILED", 2)
    assert only_error(summary).code == "FM-RUN-001"


def test_without_a_policy_nothing_is_tried_again(shop: Path) -> None:
    summary = flaky(shop, "process", "").run()

    assert len(jobs_module().calls) == 1
    assert only_error(summary).code == "FM-RUN-001"


def test_a_policy_of_the_call_is_for_every_pipeline(shop: Path) -> None:
    summary = flaky(shop, "process", "").run(retry={"attempts": 3, "backoff": "10ms"})

    assert [outcome.attempts for outcome in summary.outcomes] == [3]


def test_an_error_that_no_retry_can_mend_is_not_tried_again(shop: Path) -> None:
    project = flaky(shop, "wrong", ", retry: {attempts: 3, backoff: 10ms}")

    summary = project.run()

    assert only_error(summary).code == "FM-RUN-003"
    assert len(jobs_module().calls) == 1


def test_waits_double_from_one_attempt_to_the_next(shop: Path) -> None:
    project = flaky(shop, "process", ", retry: {attempts: 5, backoff: 30s}")

    policy = project.pipelines["a"].retry

    assert policy is not None
    assert [policy.policy.wait_seconds(n) for n in (1, 2, 3, 30)] == [30, 60, 120, 86_400]


@pytest.mark.parametrize(
    "wrong",
    [{"jobs": 0}, {"jobs": 65}, {"timeout": "soon"}, {"timeout": 0}, {"retry": {"attempts": 0}}],
)
def test_arguments_that_make_no_sense_are_refused(shop: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(FloodmarkError) as caught:
        on_arrow(shop).run(**wrong)

    assert caught.value.code == "FM-CONFIG-007"
    assert not (shop / "lake/_control").exists()


# Leases and interrupts --------------------------------------------------------------------------


def refuse_spark() -> None:
    raise AssertionError("Spark was started")


def test_a_pipeline_that_runs_elsewhere_is_refused_before_spark_is_started(
    shop: Path, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    call = arrow_call()
    (batch,) = call.project.freeze("solo")
    call.project.coordinator.record_run("solo", str(batch.batch_id), status="RUNNING")
    capsys.readouterr()

    opening = Opening(session=refuse_spark, outside=Outside(engine=ArrowEngine()))
    code = work.run(arrow_call(opening=opening), ["solo"])

    (pipeline,) = json.loads(capsys.readouterr().out)["pipelines"]
    assert code == 4
    assert (pipeline["status"], pipeline["error"]["code"]) == ("REFUSED", "FM-CONTROL-006")


def test_who_comes_second_is_told_to_wait_and_for_whom(
    shop: Path, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]
) -> None:
    call = arrow_call(as_json=False)
    (batch,) = call.project.freeze("solo")
    call.project.coordinator.record_run("solo", str(batch.batch_id), status="RUNNING")
    capsys.readouterr()

    work.run(call, ["solo"])

    out = capsys.readouterr().out
    assert "next: wait for the run that was recorded as RUNNING; to look: " in out
    assert f"floodmark status {batch.batch_id}" in out
    assert "floodmark retry" not in out


def test_a_living_runner_is_seen_before_spark_is_started(shop: Path) -> None:
    other, project = late_solo(shop, "1h"), on_arrow(shop, session=refuse_spark)
    (batch,) = other.freeze("solo")
    worker = threading.Thread(target=lambda: other.retry(str(batch.batch_id)), daemon=True)
    worker.start()
    while not other.coordinator.status()[0].runs:
        time.sleep(0.01)

    error = only_error(project.run("solo"))

    assert error.code == "FM-CONTROL-006"
    assert str(error.found).startswith(f"process {os.getpid()} on ")
    jobs_module().release.set()
    worker.join(30)
    assert other.coordinator.status()[0].runs["solo"].status == "SUCCESS"


def test_an_interrupt_gives_up_everything_that_runs(shop: Path, arrow_call: MakeCall) -> None:
    (shop / "jobs.py").write_text(
        "import threading\nforever = threading.Event()\nstarted = threading.Event()\n"
        "def process(inputs, run):\n"
        "    if run.pipeline == 'p1':\n"
        "        started.wait(30)\n"
        "        raise KeyboardInterrupt\n"
        "    started.set()\n"
        "    forever.wait(60)\n"
    )
    project = eight(shop, "shared")
    call = arrow_call()
    call.project = project

    code = call.run(lambda: work.run(call, jobs=2))

    assert code == 130
    (batch,) = project.coordinator.status()
    assert {name: run.status for name, run in batch.runs.items()} == {
        "p1": "FAILED",
        "p2": "FAILED",
    }
    assert all("interrupted" in str(run.error) for run in batch.runs.values())
    jobs_module().forever.set()


def test_a_coordinator_is_shared_by_threads(shop: Path) -> None:
    """The claim that the runs above rest on: one store, opened once, whoever comes first."""
    (shop / "jobs.py").write_text("def process(inputs, run):\n    pass\n")
    project = eight(shop, None)
    problems: list[ControlError] = []

    def freeze(name: str) -> None:
        try:
            project.freeze(name)
        except ControlError as error:
            problems.append(error)

    threads = [threading.Thread(target=freeze, args=(f"p{i}",)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert problems == []
    assert sorted(batch.seq for batch in project.coordinator.status()) == list(range(1, 9))
