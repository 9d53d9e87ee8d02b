"""The kinds of streams that are tortured: how each is set up, and what it has left."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from tests.support.stream_judge import (
    Found,
    Position,
    Row,
    Sent,
    TrackedBatch,
    problems,
    unsent_letters,
    windows_of,
    without_repeated,
)
from tests.support.stream_records import (
    LAST,
    PARTITIONS,
    REFUSED,
    SCHEMA,
    TOPIC,
    sent_as,
)

from floodmark.config import load_stream
from floodmark.config.stream.credentials import Credentials
from floodmark.deltalog import DeltaLog, is_delta_table
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, records_at
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.postgres_server import OwnServer
from floodmark.model.offsets import Offsets
from floodmark.model.receipt import metadata_of
from floodmark.postgres import connector
from floodmark.streaming.ledger.batches import LoadCounts
from floodmark.streaming.ledger.delta import DEAD_LETTERS, DeltaLedger
from floodmark.streaming.outbox.relay import Relay
from floodmark.streaming.parts import access_of, outbox_of

BATCH_RECORDS = 3_000
LARGE_BATCH_RECORDS = 10_000
"""Where a batch takes seconds whatever its size: into Delta tables, and with state."""
DRIVER_ROWS = 1_200
"""Batches go through the driver while a stream keeps up, and are staged after an outage."""
WINDOW = timedelta(seconds=20)
"""Two thousand numbers: some are closed between two kills, once the delay is over."""
DELAY = "5 minutes"
"""Of windows and deduplication, in the time of events: an outage leaves no record late."""

TABLE = f"number bigint, key bigint, at timestamptz, word text CHECK (word <> '{REFUSED}')"
WINDOW_TABLE = (
    "window_start timestamptz, window_end timestamptz, key bigint, n bigint, total bigint"
)
ROWS = "SELECT key, number FROM {}"
WINDOW_ROWS = "SELECT CAST(extract(epoch FROM window_start) AS bigint), key, n, total FROM {}"


@dataclass(frozen=True)
class Target:
    """One of the streams of a kind."""

    name: str
    table: str
    keys: tuple[str, ...] = ()
    """Of an upsert."""
    is_delta: bool = False
    run: Mapping[str, Any] = field(default_factory=dict)
    """How it runs, beside what is the same for all."""
    load: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_windows(self) -> bool:
        """Whether its rows are windows."""
        return "aggregate" in self.run

    @property
    def sees_once(self) -> bool:
        """Whether it drops what was there already."""
        return "deduplicate" in self.run

    @property
    def letter_topic(self) -> str | None:
        """Where its dead letters are sent; nowhere for streams of rows into PostgreSQL."""
        is_new = self.is_delta or self.has_windows or self.sees_once
        return f"{TOPIC}-dead-{self.name}" if is_new else None

    @property
    def closes_windows(self) -> bool:
        """Whether a window is written once it is closed, not before."""
        return self.has_windows and self.run["outputMode"] == "append"


@dataclass(frozen=True)
class Kind:
    """Streams that are tortured together."""

    name: str
    targets: tuple[Target, ...]
    kills: tuple[str, ...]

    @property
    def repeats(self) -> bool:
        """Whether records are sent more than once."""
        return any(target.sees_once for target in self.targets)


_ALWAYS = ("broker", "driver", "takeover")
_OF_DATABASE = ("connections", "database", *_ALWAYS)
_IN_CHECKPOINT = {"offsetStore": "checkpoint"}
_WINDOWS = {
    **_IN_CHECKPOINT,
    "aggregate": {
        "window": f"{WINDOW.seconds} seconds",
        "groupBy": ["key"],
        "measures": {"n": "count(*)", "total": "sum(number)"},
    },
}
_ONCE = {**_IN_CHECKPOINT, "deduplicate": {"columns": ["number"]}}


def _pair(**more: Any) -> tuple[Target, ...]:
    return (
        Target("appending", "appended", **more),
        Target("upserting", "upserted", keys=("key",), **more),
    )


KINDS = {
    kind.name: kind
    for kind in (
        Kind("database", _pair(run={"offsetStore": "database"}), _OF_DATABASE),
        Kind("checkpoint", _pair(run=_IN_CHECKPOINT), (*_OF_DATABASE, "checkpoint")),
        Kind(
            "staged",
            _pair(run={"offsetStore": "database"}, load={"driverCopyRows": 0}),
            _OF_DATABASE,
        ),
        Kind("delta", _pair(run=_IN_CHECKPOINT, is_delta=True), (*_ALWAYS, "checkpoint")),
        Kind(
            "windows",
            (
                Target(
                    "updating",
                    "updated",
                    keys=("window_start", "window_end", "key"),
                    run={**_WINDOWS, "outputMode": "update"},
                ),
                Target(
                    "closing", "closed", is_delta=True, run={**_WINDOWS, "outputMode": "append"}
                ),
            ),
            _OF_DATABASE,
        ),
        Kind(
            "deduplication",
            (
                Target("once", "once", run=_ONCE),
                Target("merged", "merged", keys=("number",), is_delta=True, run=_ONCE),
            ),
            _OF_DATABASE,
        ),
    )
}
KindName = Literal["database", "checkpoint", "staged", "delta", "windows", "deduplication"]


@dataclass
class Services:
    """A broker, a database, and a folder with the project of the streams."""

    folder: Path
    kafka: KafkaServer
    postgres: OwnServer
    kind: Kind

    def prepare(self) -> None:
        """Topic, tables, project."""
        self.admin.create_topic(TOPIC, PARTITIONS)
        for name in ("schemas", "streams"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "floodmark.yaml").write_text("project: torture\n")
        (self.folder / "schemas/number.ddl").write_text(SCHEMA)
        for target in self.kind.targets:
            if not target.is_delta:
                columns = WINDOW_TABLE if target.has_windows else TABLE
                key = f", PRIMARY KEY ({', '.join(target.keys)})" if target.keys else ""
                self.ask(f"CREATE TABLE {target.table} ({columns}{key})")
            if target.letter_topic:
                self.admin.create_topic(target.letter_topic, 1)
            self._file(target).write_text(json.dumps(self._stream(target), indent=2))

    def _file(self, target: Target) -> Path:
        return self.folder / "streams" / f"{target.name}.json"

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
        """Epoch and offsets of each stream that has some."""
        found = {}
        # Before the first start there is no table.
        if self.ask("SELECT to_regclass('floodmark_stream')::text") != [(None,)]:
            rows = self.ask("SELECT stream_id, epoch, end_offsets FROM floodmark_stream")
            found = {name: (epoch, Offsets.parse(end or {})) for name, epoch, end in rows}
        for target in self.kind.targets:
            row = self._ledger(target).stored() if target.is_delta else None
            if row is not None:
                found[target.name] = row.epoch, row.end_offsets or Offsets()
        return found

    def drop_checkpoints(self) -> None:
        """Delete what Spark remembers."""
        for target in self.kind.targets:
            shutil.rmtree(self.folder / "checkpoints" / target.name, ignore_errors=True)

    def sent(self) -> dict[Position, bytes | None]:
        """All of the topic."""
        end = self.admin.latest([TOPIC])
        positions = [(t, p, offset) for (t, p), until in end.items() for offset in range(until)]
        found = records_at({"bootstrap.servers": self.kafka.bootstrap}, positions)
        return {position: value for position, (_, value) in found.items()}

    def judged(self, target: Target, topic: Mapping[Position, bytes | None]) -> list[str]:
        """What is wrong with a stream, by all of its topic."""
        unsent = self._unsent(target) if target.letter_topic else []
        refuses = not target.is_delta and not target.has_windows
        sent = [sent_as(at, value, refuses=refuses) for at, value in topic.items()]
        found = self.found(target)
        if target.sees_once:
            sent = without_repeated(sent, found.batches)
        if not target.has_windows:
            # Numbers that are seen once are merged by number: nothing takes the place of anything.
            keeps_last = bool(target.keys) and not target.sees_once
            return [*problems(sent, found, keeps_last=keeps_last), *unsent]
        return [*problems(sent, found, wanted=self._windows(target, sent)), *unsent]

    def _unsent(self, target: Target) -> list[str]:
        """What is wrong with the messages of dead letters, once a new process has sent what waits."""
        mine = Credentials({"FLOODMARK_CREDENTIAL_TORTURE": self.postgres.password})
        access = access_of(load_stream(self._file(target)), credentials=mine)
        settings = {"bootstrap.servers": self.kafka.bootstrap}
        left = Relay(outbox_of(access), lambda: KafkaProducer(settings)).send()
        topic = str(target.letter_topic)
        end = self.admin.latest([topic]).at((topic, 0))
        messages = records_at(settings, [(topic, 0, offset) for offset in range(end)])
        told = [json.loads(value or b"") for _, value in messages.values()]
        arrived = {(each["topic"], each["partition"], each["offset"]) for each in told}
        return unsent_letters(arrived, self._letters(target), left)

    def are_windows_closed(self, target: Target, topic: Mapping[Position, bytes | None]) -> bool:
        """Whether as many windows are written as have to be."""
        wanted = self._windows(target, [sent_as(*one, refuses=False) for one in topic.items()])
        return len(self._rows(target)) >= wanted.total()

    def found(self, target: Target) -> Found:
        """What a stream has left."""
        batches = self._commits(target) if target.is_delta else self._tracked(target)
        return Found(
            rows=self._rows(target),
            letters=self._letters(target),
            batches=batches,
            end=self.stood()[target.name][1],
        )

    def _windows(self, target: Target, sent: Iterable[Sent]) -> Counter[Row]:
        """Those that have to be there; only the one that closed all others is still open."""
        wanted = windows_of(sent, WINDOW)
        opened_at = int(LAST.timestamp())
        if target.closes_windows:
            return Counter({row: n for row, n in wanted.items() if row[0] != opened_at})
        return wanted

    def _rows(self, target: Target) -> list[Row]:
        statement = WINDOW_ROWS if target.has_windows else ROWS
        if target.is_delta:
            return self._queried(self._path(target), statement)
        return self.ask(statement.format(target.table))

    def _letters(self, target: Target) -> list[Position]:
        statement = (
            "SELECT topic, kafka_partition, kafka_offset FROM {}"
            f" WHERE stream_id = '{target.name}'"
        )
        if target.is_delta:
            return self._queried(self._path(target) + DEAD_LETTERS, statement)
        return self.ask(statement.format("floodmark_dead_letters"))

    def _tracked(self, target: Target) -> list[TrackedBatch]:
        # Moves have no records: those that a person or a new checkpoint made, and the beginning.
        rows = self.ask(
            "SELECT batch_id, start_offsets, end_offsets, record_count, written, dead_lettered,"
            f" dropped FROM batch_tracker WHERE pipeline_id = '{target.name}' ORDER BY batch_id"
        )
        return [
            TrackedBatch(number, Offsets.parse(start), Offsets.parse(end), LoadCounts(*counts))
            for number, start, end, *counts in rows
        ]

    def _commits(self, target: Target) -> list[TrackedBatch]:
        """Every batch in the log of a Delta table, by its receipt."""
        log = DeltaLog(self._path(target))
        # The beginning, which moves without records, is noted beside the table.
        facts, batches = log.facts(), [TrackedBatch(0, Offsets(), Offsets(), LoadCounts(0, 0))]
        for commit in log.versions(facts.earliest_version, facts.latest_version):
            said = metadata_of(commit.user_metadata)
            for app_id, number in commit.transactions.items():
                if app_id.startswith(f"floodmark/stream/{target.name}/"):
                    start, end = (Offsets.parse(said[f"{at}_offsets"]) for at in ("start", "end"))
                    counts = LoadCounts(**json.loads(said["counts"]))
                    batches.append(TrackedBatch(number, start, end, counts))
        return batches

    def _queried(self, path: str, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a Delta table, read without Spark."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        if not is_delta_table(path):
            return []
        reader = QueryBuilder().register("t", DeltaTable(path)).execute(statement.format("t"))
        columns = [column.to_pylist() for column in pa.table(reader).columns]
        return list(zip(*columns, strict=True))

    def _ledger(self, target: Target) -> DeltaLedger:
        return DeltaLedger(self._path(target), target.name)

    def _path(self, target: Target) -> str:
        return str(self.folder / "lake" / target.table)

    def _stream(self, target: Target) -> dict[str, Any]:
        keeps_state = target.has_windows or target.sees_once
        is_slow = keeps_state or target.is_delta
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
                **(self._lake(target) if target.is_delta else self._database(target)),
                **({"writeMode": "upsert", "upsertKeys": target.keys} if target.keys else {}),
                **target.load,
            },
            "streamingConfigJson": {
                "checkpointLocation": f"checkpoints/{target.name}",
                "triggerMode": "continuous",
                "maxRecordsPerTrigger": LARGE_BATCH_RECORDS if is_slow else BATCH_RECORDS,
                "watermark": {
                    "eventTimeColumn": "at",
                    "delayThreshold": DELAY if keeps_state else "1 hour",
                },
                "lateDataConfig": {"strategy": "drop"},
                **target.run,
            },
            "errorHandlingConfig": {
                "retryConfig": {
                    "strategy": "fixed",
                    "maxAttempts": 1000,
                    "initialDelaySeconds": 1,
                },
                "circuitBreakerConfig": {"resetTimeoutSeconds": 1},
                **(
                    {"dlqConfig": {"dlqType": "kafka", "topic": target.letter_topic}}
                    if target.letter_topic
                    else {}
                ),
            },
        }

    def _lake(self, target: Target) -> dict[str, Any]:
        return {
            "sinkType": "delta",
            "table": target.table,
            "path": self._path(target),
            "createTable": True,
        }

    def _database(self, target: Target) -> dict[str, Any]:
        server = self.postgres
        return {
            "table": f"public.{target.table}",
            "connectionParams": {
                "host": server.host,
                "port": server.port,
                "database": server.database,
                "user": server.user,
            },
            "credentialId": "torture",
            "driverCopyRows": DRIVER_ROWS,
        }
