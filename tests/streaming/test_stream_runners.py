"""Drivers of streams that are killed, paused, fenced and stopped, as processes of their own."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.streams import Place, Run, event, until

from floodmark import failpoints
from floodmark.config import load_stream
from floodmark.engines.kafka import records_at
from floodmark.engines.spark import local_session
from floodmark.errors import StreamError
from floodmark.streaming.parts import access_of, runner_of
from floodmark.streaming.story import StreamRunner

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"


@pytest.mark.slow
@pytest.mark.parametrize("point", failpoints.STREAM_POINTS if FULL else ["stream.before_commit"])
def test_a_killed_driver_loses_and_doubles_nothing(place: Place, run: Run, point: str) -> None:
    place.send(*(event(i) if i % 10 else b"poison" for i in range(100)))
    path = place.write(streamingConfigJson={"maxRecordsPerTrigger": 30})

    killed = place.started(path, FLOODMARK_FAILPOINT=f"{point}:2")
    killed.communicate(timeout=300)
    before = place.ask("SELECT count(*) FROM $schema.events")[0][0]
    seen = run("status", path)[1]["streams"][0]
    code, _ = run("run", path)

    assert (seen["is_running"], seen["has_ended"]) == (False, False)
    assert killed.returncode == -signal.SIGKILL
    assert 0 < before < 90
    assert code == 0
    ids = place.ask("SELECT array_agg(id ORDER BY id) FROM $schema.events")[0][0]
    assert ids == [i for i in range(100) if i % 10]
    assert place.ask("SELECT count(*) FROM $schema.floodmark_dead_letters") == [(10,)]
    assert place.ask(
        "SELECT sum(record_count), sum(written + dead_lettered + dropped)"
        " FROM $schema.batch_tracker"
    ) == [(100, 100)]


@pytest.mark.slow
def test_a_driver_that_is_killed_behind_its_staging_leaves_nothing_for_long(
    place: Place, run: Run
) -> None:
    place.send(*map(event, range(50)))
    path = place.write(load={"driverCopyRows": 10}, streamingConfigJson={"triggerMode": "once",
                       "maxRecordsPerTrigger": 100})  # fmt: skip

    killed = place.started(path, FLOODMARK_FAILPOINT="stream.after_stage:1")
    killed.communicate(timeout=300)
    left = place.staged_tables()
    code, after = run("run", path)

    assert (killed.returncode, left > 0) == (-signal.SIGKILL, True)
    assert (code, after["streams"][0]["written"]) == (0, 50)
    assert place.ask("SELECT count(*), count(DISTINCT id) FROM $schema.events") == [(50, 50)]
    assert place.staged_tables() == 0


@pytest.mark.slow
@pytest.mark.parametrize("point", failpoints.RELAY_POINTS if FULL else ["dlq.after_send"])
def test_a_driver_that_is_killed_at_its_relay_drops_no_dead_letter(
    place: Place, run: Run, point: str
) -> None:
    letters = f"{place.name}-letters"
    place.admin.create_topic(letters, 1)
    dlq = {"dlqType": "kafka", "topic": letters}
    path = place.write(errorHandlingConfig={"dlqConfig": dlq})
    place.send(event(1), b"poison", b"more poison", partition=0)

    killed = place.started(path, FLOODMARK_FAILPOINT=point)
    killed.communicate(timeout=300)
    code, _ = run("run", path)

    assert (killed.returncode, code) == (-signal.SIGKILL, 0)
    assert place.ask("SELECT count(*) FROM $schema.floodmark_outbox") == [(0,)]
    assert place.ask("SELECT count(*) FROM $schema.floodmark_dead_letters") == [(2,)]
    end = place.admin.latest([letters]).at((letters, 0))
    sent = records_at(
        {"bootstrap.servers": place.kafka.bootstrap}, [(letters, 0, n) for n in range(end)]
    )
    told = {json.loads(value or b"")["offset"] for _, value in sent.values()}
    assert (told, len(sent)) == ({1, 2}, 2 if point == "dlq.before_relay" else 4)
    place.admin.delete_topic(letters)


def test_dead_letters_reach_their_topic_although_the_relay_is_cut_off(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = f"{place.name}-letters"
    place.admin.create_topic(letters, 1)
    dlq = {"dlqType": "kafka", "topic": letters}
    path = place.write(errorHandlingConfig={"dlqConfig": dlq})
    place.send(event(1), b"poison", partition=0)
    monkeypatch.setenv("FLOODMARK_FAILPOINT", "dlq.after_send")
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    failpoints.rearm()
    with pytest.raises(failpoints.FailpointReached):
        run_directly(path)
    monkeypatch.delenv("FLOODMARK_FAILPOINT")
    waiting = place.ask("SELECT count(*) FROM $schema.floodmark_outbox")

    code, _ = run("run", path)

    assert (waiting, code) == ([(1,)], 0)
    assert place.ask("SELECT count(*) FROM $schema.floodmark_outbox") == [(0,)]
    sent = records_at(
        {"bootstrap.servers": place.kafka.bootstrap}, [(letters, 0, 0), (letters, 0, 1)]
    )
    told = [json.loads(value or b"") for _, value in sent.values()]
    assert [(each["partition"], each["offset"]) for each in told] == [(0, 1), (0, 1)]
    assert {each["value_base64"] for each in told} == {base64.b64encode(b"poison").decode()}
    place.admin.delete_topic(letters)


def run_directly(path: Path) -> None:
    """Without threads: what a failpoint raises comes out."""
    access = access_of(load_stream(path))
    runner_of(access, local_session).run()


def test_a_second_runner_takes_over_and_the_first_one_is_fenced(place: Place, run: Run) -> None:
    place.send(event(1))
    path = place.write()
    first = runner_of(access_of(load_stream(path)), local_session)
    assert isinstance(first, StreamRunner)
    first.ledger.ensure()
    claim = first.claimed()
    run("run", path)

    with pytest.raises(StreamError) as caught:
        list(first.batches(claim))

    assert caught.value.code == "FM-STREAM-001"
    assert caught.value.exit_code == 4
    assert place.ask("SELECT count(*) FROM $schema.events") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("store", ["database", "checkpoint"] if FULL else ["database"])
def test_a_runner_that_was_paused_in_a_batch_is_fenced_and_ends_with_4(
    place: Place, run: Run, store: str
) -> None:
    place.send(*map(event, range(20)))
    path = place.checkpointed(offsetStore=store)
    paused = place.started(
        path, FLOODMARK_FAILPOINT="stream.before_commit", FLOODMARK_FAILPOINT_ACTION="stop"
    )
    until(lambda: state_of(paused) == "T")

    code, taken_over = run("run", path)
    paused.send_signal(signal.SIGCONT)
    out, _ = paused.communicate(timeout=300)

    (first,) = json.loads(out)["streams"]
    assert (code, taken_over["streams"][0]["written"]) == (0, 20)
    assert (paused.returncode, first["status"], first["written"]) == (4, "FENCED", 0)
    assert first["error"]["code"] == "FM-STREAM-001"
    assert place.ask("SELECT count(*), count(DISTINCT id) FROM $schema.events") == [(20, 20)]


def state_of(process: subprocess.Popen[str]) -> str:
    """As the system names it: T for one that is stopped."""
    said = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process.pid)], capture_output=True, text=True, check=False
    )
    return said.stdout[:1]


@pytest.mark.slow
def test_stop_ends_a_continuous_stream_after_its_batch(place: Place, run: Run) -> None:
    place.send(*map(event, range(5)))
    path = place.write(streamingConfigJson={"triggerMode": "continuous"})
    running = place.started(path)
    until(lambda: place.ask("SELECT to_regclass('$schema.events')::text") != [(None,)])

    _, told = run("status", path)
    asked, stopped = run("stop", path)
    out, _ = running.communicate(timeout=300)
    _, nobody = run("stop", path)
    _, told_later = run("status", path)

    assert running.returncode == 0
    assert (asked, stopped["was_running"], stopped["has_ended"]) == (0, True, True)
    assert nobody["was_running"] is False
    breakers = [each["streams"][0]["breaker"] for each in (told, told_later)]
    assert breakers == ["closed", None]
    assert json.loads(out)["streams"][0]["written"] == 5


@pytest.mark.slow
def test_stop_reaches_a_runner_of_another_machine_and_no_later_one(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.send(*map(event, range(5)))
    path = place.checkpointed(triggerMode="continuous")
    running = place.started(path)
    until(lambda: place.ask("SELECT to_regclass('$schema.events')::text") != [(None,)])
    until(lambda: place.ask("SELECT count(*) FROM $schema.events") == [(5,)])

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "another-machine")
        seen = run("status", path)[1]["streams"][0]
        late = run("stop", path, "--wait", "0s")
        code, stopped = run("stop", path)
        again, nobody = run("stop", path)
    out, _ = running.communicate(timeout=300)
    following, _ = run("run", place.write())
    done = run("status", path)[1]["streams"][0]

    assert (seen["is_running"], seen["has_ended"]) == (True, False)
    assert (done["is_running"], done["has_ended"]) == (False, True)
    assert late[0] in {0, 1}  # it may have answered at once
    assert (code, again, running.returncode, following) == (0, 0, 0, 0)
    assert stopped["has_ended"]
    assert not nobody["was_running"]
    assert json.loads(out)["streams"][0]["written"] == 5


@pytest.mark.slow
def test_a_signal_that_ends_spark_too_is_a_stop(place: Place) -> None:
    """As systemd sends it; a process of its own, since it ends the JVM."""
    place.send(*map(event, range(5)))
    path = place.checkpointed(triggerMode="continuous")
    running = place.started(path, own_group=True)
    until(lambda: place.ask("SELECT to_regclass('$schema.events')::text") != [(None,)])

    os.killpg(running.pid, signal.SIGTERM)
    out, err = running.communicate(timeout=300)

    (stream,) = json.loads(out)["streams"]
    assert (running.returncode, stream["status"], stream["error"]) == (0, "DONE", None), err
    assert not {"Traceback", "MicroBatchExecution"} & set(err.replace(":", " ").split()), err
