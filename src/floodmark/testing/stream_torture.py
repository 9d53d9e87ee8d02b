"""Streams that are tortured: driver, connections, database and broker are killed while they run.

`floodmark stream run` is a process of its own, with an appending and an upserting stream of one
topic, into which numbered records flow all the while. What is killed when is drawn from a seed.
Afterwards everything runs on in peace until the topic is read, and the judge looks at what is left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

import floodmark
from floodmark.engines import kafka_server, postgres_server
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record, records_at
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.postgres import connector
from floodmark.engines.postgres_server import OwnServer
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.batches import LoadCounts
from floodmark.testing.stream_judge import Fate, Found, Position, Sent, TrackedBatch, problems

TOPIC = "numbers"
PARTITIONS = 3
KEYS = 300
POISON_EVERY = 1_000
FIRST_NUMBERS = 5_000
"""Sent before the streams begin: the first batch, which knows no late records, has only these."""
SENT_AT_ONCE = 50
FLOW_PER_SECOND = 400
BATCH_RECORDS = 3_000
DRIVER_ROWS = 1_200
"""Batches go through the driver while a stream keeps up, and are staged after an outage."""
PROGRESS_SECONDS = 180
END_SECONDS = 120
FENCED = 4

SCHEMA = "number BIGINT NOT NULL, key BIGINT NOT NULL, at TIMESTAMP, word STRING"
TABLE = "number bigint, key bigint{}, at timestamptz, word text CHECK (word <> 'refused')"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LATE = datetime(2020, 1, 1, tzinfo=UTC)

Store = Literal["database", "checkpoint"]


# What flows ---------------------------------------------------------------------------------------


def record(number: int) -> Record:
    """The record of a number: one of a thousand is poison, one of a thousand is late.

    Poison has a key of its own: an upsert never tries a row that a later one of its key replaces in
    the same batch, so it would depend on the batches whether the database refuses it.
    """
    kind = number % POISON_EVERY
    key = number * 7919 % KEYS if kind else -number
    value = {
        "number": number,
        "key": key,
        "at": (EPOCH + timedelta(milliseconds=number)).isoformat(),
        "word": f"word {number}",
    }
    if kind == 0:
        return Record(TOPIC, _poison(number // POISON_EVERY, value), b"%d" % key, key % PARTITIONS)
    if kind == POISON_EVERY // 2 and number > FIRST_NUMBERS:
        value["at"] = LATE.isoformat()
    return Record(TOPIC, json.dumps(value).encode(), b"%d" % key, key % PARTITIONS)


def _poison(number: int, value: dict[str, Any]) -> bytes:
    """What no stream can write: no JSON, a column without a value, a row the database refuses."""
    kinds = (
        b"poison %d" % number,
        json.dumps({**value, "number": None}).encode(),
        json.dumps({**value, "word": "refused"}).encode(),
    )
    return kinds[number % len(kinds)]


def sent_as(position: Position, value: bytes | None) -> Sent:
    """What has to become of a record, by its bytes."""
    try:
        said = json.loads(value or b"")
    except ValueError:
        return Sent(position, "poison")
    if said["number"] is None or said["word"] == "refused":
        return Sent(position, "poison")
    is_late = datetime.fromisoformat(said["at"]) == LATE
    fate: Fate = "late" if is_late else "row"
    return Sent(position, fate, said["number"], said["key"])


class Flow:
    """Sends numbered records from a thread of its own, for as long as the block runs."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer({"bootstrap.servers": bootstrap})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)
        self.numbers = 0
        self.error: BaseException | None = None

    def send(self, count: int) -> None:
        """The next numbers."""
        self._producer.send(record(n) for n in range(self.numbers, self.numbers + count))
        self.numbers += count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(SENT_AT_ONCE / FLOW_PER_SECOND):
                self.send(SENT_AT_ONCE)
        # The boundary of a thread: whoever judges tells it.
        except StreamError as error:
            self.error = error


# What is tortured ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """One of the streams."""

    name: str
    table: str
    is_upsert: bool = False


TARGETS = (Target("appending", "appended"), Target("upserting", "upserted", is_upsert=True))


@dataclass
class Services:
    """A broker, a database, and a folder with the project of the streams."""

    folder: Path
    kafka: KafkaServer
    postgres: OwnServer
    store: Store

    def prepare(self) -> None:
        """Topic, tables, project."""
        self.admin.create_topic(TOPIC, PARTITIONS)
        for target in TARGETS:
            key = " PRIMARY KEY" if target.is_upsert else ""
            self.ask(f"CREATE TABLE {target.table} ({TABLE.format(key)})")
        for name in ("schemas", "streams"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "floodmark.yaml").write_text("project: torture\n")
        (self.folder / "schemas/number.ddl").write_text(SCHEMA)
        for target in TARGETS:
            path = self.folder / "streams" / f"{target.name}.json"
            path.write_text(json.dumps(self._stream(target), indent=2))

    @property
    def admin(self) -> KafkaAdmin:
        """Of the broker."""
        return KafkaAdmin({"bootstrap.servers": self.kafka.bootstrap})

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with connector(self.postgres.dsn)() as connection:
            cursor = connection.cursor()
            cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def stood(self) -> dict[str, tuple[int, Offsets]]:
        """Epoch and offsets of each stream."""
        rows = self.ask("SELECT stream_id, epoch, end_offsets FROM floodmark_stream")
        return {name: (epoch, Offsets.parse(end or {})) for name, epoch, end in rows}

    def drop_checkpoints(self) -> None:
        """Delete what Spark remembers."""
        for target in TARGETS:
            shutil.rmtree(self.folder / "checkpoints" / target.name, ignore_errors=True)

    def sent(self) -> list[Sent]:
        """All of the topic."""
        end = self.admin.latest([TOPIC])
        positions = [(t, p, offset) for (t, p), until in end.items() for offset in range(until)]
        found = records_at({"bootstrap.servers": self.kafka.bootstrap}, positions)
        return [sent_as(position, value) for position, (_, value) in found.items()]

    def found(self, target: Target) -> Found:
        """What a stream has left."""
        letters = self.ask(
            "SELECT topic, kafka_partition, kafka_offset FROM floodmark_dead_letters"
            f" WHERE stream_id = '{target.name}'"
        )
        # Moves have no records: those that a person or a new checkpoint made, and the beginning.
        batches = self.ask(
            "SELECT batch_id, start_offsets, end_offsets, record_count, written, dead_lettered,"
            f" dropped FROM batch_tracker WHERE pipeline_id = '{target.name}' ORDER BY batch_id"
        )
        return Found(
            rows=[(key, n) for key, n in self.ask(f"SELECT key, number FROM {target.table}")],
            letters=[(topic, partition, offset) for topic, partition, offset in letters],
            batches=[
                TrackedBatch(number, Offsets.parse(start), Offsets.parse(end), LoadCounts(*counts))
                for number, start, end, *counts in batches
            ],
            end=self.stood()[target.name][1],
        )

    def _stream(self, target: Target) -> dict[str, Any]:
        keys = {"writeMode": "upsert", "upsertKeys": ["key"]} if target.is_upsert else {}
        server = self.postgres
        return {
            "pipelineId": target.name,
            "extract": {
                "topic": TOPIC,
                "schemaName": "number",
                "connectionParams": {
                    "kafka.bootstrap.servers": self.kafka.bootstrap,
                    "startingOffsets": "earliest",
                },
            },
            "load": {
                "table": f"public.{target.table}",
                "connectionParams": {
                    "host": server.host,
                    "port": server.port,
                    "database": server.database,
                    "user": server.user,
                },
                "credentialId": "torture",
                "driverCopyRows": DRIVER_ROWS,
                **keys,
            },
            "streamingConfigJson": {
                "offsetStore": self.store,
                "checkpointLocation": f"checkpoints/{target.name}",
                "triggerMode": "continuous",
                "maxRecordsPerTrigger": BATCH_RECORDS,
                "watermark": {"eventTimeColumn": "at", "delayThreshold": "1 hour"},
                "lateDataConfig": {"strategy": "drop"},
            },
            "errorHandlingConfig": {
                "retryConfig": {
                    "strategy": "fixed",
                    "maxAttempts": 1000,
                    "initialDelaySeconds": 1,
                },
                "circuitBreakerConfig": {"resetTimeoutSeconds": 1},
            },
        }


class Driver:
    """`floodmark stream run` of all the streams, as a process; what it says goes to a file."""

    def __init__(self, services: Services, number: int) -> None:
        self._said = services.folder / f"driver-{number}.log"
        source = Path(floodmark.__file__).parents[1]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "floodmark", "stream", "run"],
                cwd=services.folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(source),
                    "FLOODMARK_CREDENTIAL_TORTURE": services.postgres.password,
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                # Its group is the driver and its JVM, and nobody else.
                start_new_session=True,
            )

    def kill(self, *, with_jvm: bool = False) -> None:
        """End it at once; the JVM finds out by itself, or is ended with it."""
        if with_jvm:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def ended(self, seconds: float = END_SECONDS) -> int | None:
        """Its exit code; None if it does not end."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self, lines: int = 25) -> str:
        """The end of what it said."""
        return "\n".join(self._said.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Outcome:
    """What a torture did and found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    recovered_seconds: dict[str, float] = field(default_factory=dict)
    """By kind, the longest time from a kill to a batch of every stream."""
    sent: int = 0
    batches: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(
            f"{name} {n} ({self.recovered_seconds[name]:.0f} s)"
            for name, n in sorted(self.kills.items())
        )
        return (
            f"seed {self.seed}: {self.sent} records, {self.batches} batches, kills and the longest"
            f" time to recover: {kills}; {len(self.problems)} problems"
        )


class StreamTorture:
    """Kills for `seconds`, every kind at least once, then judges."""

    def __init__(
        self, folder: Path, seconds: float, seed: int, store: Store, kinds: tuple[str, ...] = ()
    ) -> None:
        self._folder, self._seconds, self._store = folder, seconds, store
        self._random = random.Random(seed)  # noqa: S311  (what is killed when, not a secret)
        self._outcome = Outcome(seed)
        self._drivers = 0
        self._kills: dict[str, Callable[[], None]] = {
            "connections": self._cut_connections,
            "database": self._kill_database,
            "broker": self._kill_broker,
            "driver": self._kill_driver,
            "takeover": self._take_over,
            "checkpoint": self._lose_checkpoint,
        }
        self._kinds = kinds or tuple(k for k in self._kills if k != "checkpoint" or self._keeps)

    @property
    def _keeps(self) -> bool:
        return self._store == "checkpoint"

    def run(self) -> Outcome:
        """The whole of it; what went wrong is in the outcome."""
        with self._started() as self._services:
            flow = Flow(self._services.kafka.bootstrap)
            flow.send(FIRST_NUMBERS)
            self._driver = self._new_driver()
            try:
                with flow:
                    self._torture()
                if not self._outcome.problems:
                    self._finish(flow)
            finally:
                self._driver.kill(with_jvm=True)
        return self._outcome

    @contextmanager
    def _started(self) -> Iterator[Services]:
        with ExitStack() as stack:
            kafka = stack.enter_context(kafka_server.running())
            postgres = stack.enter_context(postgres_server.running())
            services = Services(self._folder, kafka, postgres, self._store)
            services.prepare()
            yield services

    def _torture(self) -> None:
        deadline = time.monotonic() + self._seconds
        self._await_progress("the start")
        waiting: list[str] = []
        while not self._outcome.problems:
            if not waiting:
                if self._outcome.kills and time.monotonic() > deadline:
                    return
                waiting = self._random.sample(self._kinds, len(self._kinds))
            kind = waiting.pop()
            # So that it hits a batch somewhere in its middle.
            time.sleep(self._random.uniform(0, 1.5))
            self._kill(kind)

    def _kill(self, kind: str) -> None:
        outcome, began = self._outcome, time.monotonic()
        outcome.kills[kind] += 1
        self._kills[kind]()
        self._await_progress(f"{kind}, kill {outcome.kills.total()}")
        seconds = time.monotonic() - began
        outcome.recovered_seconds[kind] = max(seconds, outcome.recovered_seconds.get(kind, 0))

    def _finish(self, flow: Flow) -> None:
        """Wait until everything is read, end the driver as a user would, and judge."""
        outcome, services = self._outcome, self._services
        end = services.admin.latest([TOPIC])
        self._await("the end", lambda: all(at == end for _, at in services.stood().values()))
        self._driver.process.terminate()
        code = self._driver.ended()
        if code != 0:
            self._problem(f"the driver ended with {code} when it was told to stop")
        if flow.error is not None:
            self._problem(f"records could not be sent: {flow.error}")
        sent = services.sent()
        outcome.sent = len(sent)
        for target in TARGETS:
            found = services.found(target)
            outcome.batches += len(found.batches)
            wrong = problems(sent, found, keeps_last=target.is_upsert)
            outcome.problems += [f"{target.name}: {problem}" for problem in wrong]

    # Kills --------------------------------------------------------------------------------------

    def _cut_connections(self) -> None:
        self._services.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'floodmark%' AND pid <> pg_backend_pid()"
        )

    def _kill_database(self) -> None:
        self._services.postgres.kill()
        time.sleep(self._random.uniform(0, 2))
        self._services.postgres.start()

    def _kill_broker(self) -> None:
        self._services.kafka.kill()
        time.sleep(self._random.uniform(0, 2))
        self._services.kafka.start()

    def _kill_driver(self) -> None:
        self._driver.kill(with_jvm=self._random.random() < 0.5)
        self._driver = self._new_driver()

    def _lose_checkpoint(self) -> None:
        """With the JVM: one that is dying would write into the folder while it is deleted."""
        self._driver.kill(with_jvm=True)
        self._services.drop_checkpoints()
        self._driver = self._new_driver()

    def _take_over(self) -> None:
        """Pause the driver, let another one go on, and wake the first one: it has to be fenced."""
        paused, self._driver = self._driver, self._stopped_and_replaced()
        self._await_progress("a takeover", epoch_is_new=True)
        paused.process.send_signal(signal.SIGCONT)
        code = paused.ended()
        if code != FENCED:
            self._problem(
                f"a runner that was fenced ended with {code}, not {FENCED}:\n{paused.last_words()}"
            )
        paused.kill(with_jvm=True)

    def _stopped_and_replaced(self) -> Driver:
        self._driver.process.send_signal(signal.SIGSTOP)
        return self._new_driver()

    # Watching -----------------------------------------------------------------------------------

    def _new_driver(self) -> Driver:
        self._drivers += 1
        return Driver(self._services, self._drivers)

    def _await_progress(self, after: str, *, epoch_is_new: bool = False) -> None:
        """Until every stream has committed something since."""
        before = self._stood()

        def has_moved() -> bool:
            now = self._stood()
            return len(now) == len(TARGETS) and all(
                now[name][1] != before.get(name, (0, Offsets()))[1]
                and (not epoch_is_new or now[name][0] > before[name][0])
                for name in now
            )

        self._await(after, has_moved)

    def _stood(self) -> dict[str, tuple[int, Offsets]]:
        """Nothing before the first start, when there is no table."""
        found = self._services.ask("SELECT to_regclass('floodmark_stream')::text")
        return self._services.stood() if found != [(None,)] else {}

    def _await(self, after: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PROGRESS_SECONDS
        while not is_so():
            has_ended = self._driver.process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                what = "the driver ended by itself" if has_ended else "nothing more was committed"
                self._problem(f"after {after} {what}; it said:\n{self._driver.last_words()}")
                return
            time.sleep(0.2)

    def _problem(self, text: str) -> None:
        self._outcome.problems.append(text)
