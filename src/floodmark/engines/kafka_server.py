"""A Kafka broker of our own, for tests, demonstrations and measurements: started, used, thrown away.

One process is broker and controller (KRaft) on two free loopback ports, with the jars of the group
`kafka-broker` and what pyspark holds. It ends with the process that started it, however that ends,
and can be stopped, killed and started again over the same data.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from floodmark.engines import jars, java
from floodmark.errors import SetupError
from floodmark.next_steps import command

START_SECONDS = 120
STOP_SECONDS = 60
POLL_SECONDS = 0.05
HEAP_MB = 256

SHARED = (
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "lz4-java",
    "scala-library",
    "slf4j-api",
    "snappy-java",
    "zstd-jni",
)
"""Jars of pyspark that the broker takes, by the beginning of their names."""

_STARTED = "Kafka Server started"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One node has one copy of everything.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A small machine: few threads, little memory.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "1000",
    # After a kill the controller waits this long for the broker that is gone.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_LOGGING = f"""\
status = error
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.started.name = kafka.server.KafkaRaftServer
logger.started.level = info
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
# The line that is waited for: {_STARTED}
"""

# The broker is a child of a shell that waits for it, while another one waits for a word on a pipe:
# the name of a signal, or the end of the pipe when whoever holds it is gone.
_GUARD = """\
exec 3<&0
"$@" 3<&- </dev/null &
broker=$!
( read -r signal <&3; kill -s "${signal:-KILL}" $broker ) 2>/dev/null &
listener=$!
wait $broker
code=$?
kill -s KILL $listener 2>/dev/null
exit $code
"""


class KafkaServer:
    """A broker over one folder; the same ports at each start."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, heap_mb: int = HEAP_MB
    ) -> None:
        self.folder = folder
        self.heap_mb = heap_mb
        self.port, self._controller_port = _free_ports()
        self._settings = dict(settings or {})
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients: `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Start, over the data that is there, and wait until it serves; nothing if it runs.

        Raises SetupError: FM-SETUP-009 with what the broker said, 001 no Java, 002 and 004 jars,
        003 no pyspark.
        """
        if self.is_running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        java_command = self._java()
        if not (self.folder / "data").is_dir():
            self._format(java_command)
        said_before = self._said_bytes()
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "kafka", *java_command, "kafka.Kafka", self._properties],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_started(said_before)

    def stop(self) -> None:
        """Shut down in order; killed if that takes too long. Nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, as a machine without power would (the disk keeps what was written)."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: connections stay open, nobody answers; `resume` goes on."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._signal(signal.SIGCONT)

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def _properties(self) -> str:
        return str(self.folder / "server.properties")

    def _java(self) -> list[str]:
        """The command without its class; writes the files that it reads."""
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}"
        own = {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.folder / "data"),
        }
        lines = {**_SETTINGS, **own, **self._settings}.items()
        Path(self._properties).write_text("".join(f"{key}={value}\n" for key, value in lines))
        logging = self.folder / "log4j2.properties"
        logging.write_text(_LOGGING)
        heap = [f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [
            str(java.home(java.find()) / "bin" / "java"),
            *heap,
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "-cp",
            ":".join(map(str, _classpath())),
        ]

    def _format(self, java_command: list[str]) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "-c", self._properties]
        ran = subprocess.run(
            # One word: an id may begin with a dash.
            [*java_command, *tool, f"--cluster-id={cluster}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        if ran.returncode:
            raise _failed(ran.stdout[-1500:])

    def _wait_until_started(self, said_before: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while _STARTED not in (said := self._said_since(said_before)):
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                raise _failed(said[-1500:] or "nothing was said")
            time.sleep(POLL_SECONDS)

    def _said_bytes(self) -> int:
        return self._log.stat().st_size if self._log.is_file() else 0

    def _said_since(self, place: int) -> str:
        with self._log.open("rb") as file:
            file.seek(place)
            return file.read().decode(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        self.resume()
        guard, self._guard = self._guard, None
        if guard is None:
            return
        _say(guard, how)
        try:
            guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(guard.pid, signal.SIGKILL)
            guard.wait(STOP_SECONDS)

    def _signal(self, how: signal.Signals) -> None:
        # The guard began a session of its own, so its group is the broker and nobody else.
        if self._guard is not None and self._guard.poll() is None:
            os.killpg(self._guard.pid, how)


@contextmanager
def running(
    settings: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    heap_mb: int = HEAP_MB,
) -> Iterator[KafkaServer]:
    """A broker for as long as the block runs; `settings` go into server.properties.

    Its data is in `folder`, which stays, or in one that goes with it. Raises as `start` does.
    """
    with tempfile.TemporaryDirectory(prefix="floodmark-kafka-") as own:
        server = KafkaServer(folder or Path(own), settings, heap_mb=heap_mb)
        try:
            server.start()
            yield server
        finally:
            server.kill() if folder is None else server.stop()


def _classpath() -> list[Path]:
    own = jars.paths("kafka-broker")
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise SetupError(
            "FM-SETUP-003",
            "pyspark is not installed",
            state="nothing was started",
            next="pip install 'floodmark[spark]'",
        )
    shared = [sorted(Path(places[0], "jars").glob(f"{name}-[0-9]*.jar")) for name in SHARED]
    return [*own, *(path for found in shared for path in found)]


def _say(guard: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if guard.stdin is None:
        return
    # Broken where the broker ended by itself.
    with suppress(BrokenPipeError):
        guard.stdin.write(f"{how.name.removeprefix('SIG')}\n".encode())
        guard.stdin.close()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def _failed(found: str) -> SetupError:
    return SetupError(
        "FM-SETUP-009",
        "a Kafka broker could not be started",
        found=found,
        state="nothing is left running",
        next=command("jars", "fetch", "kafka-broker"),
    )
