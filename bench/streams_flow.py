"""Records from Kafka through Spark into PostgreSQL, end to end, and what it costs in memory.

One broker, one server with fsync on, one session; every way reads the same topic from its start to
its end in batches of the same size. The ways are warmed, then they take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Figure, median, spread, step
from bench.streams_load import SERVER, append_by_jdbc, append_by_seed
from floodmark.config import load_stream
from floodmark.engines.kafka import KafkaAdmin
from floodmark.engines.kafka_server import KafkaServer
from floodmark.engines.kafka_server import running as broker_running
from floodmark.engines.postgres_server import PostgresServer
from floodmark.engines.postgres_server import running as server_running
from floodmark.model.offsets import Offsets
from floodmark.postgres import connector
from floodmark.streaming.parts import access_of, runner_of
from floodmark.streaming.records.read import Records, Wanted
from floodmark.streaming.records.reading import RecordReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = int(os.environ.get("FLOODMARK_BENCH_RECORDS", "1_000_000"))
SEED_RECORDS = RECORDS // 10
BATCH = RECORDS // 4
ROUNDS = 3
RECORD = {
    "user_id": ("bigint", "id"),
    "event": ("string", "concat('click', id % 7)"),
    "amount": ("double", "rand(1)"),
    "note": ("string", "md5(cast(id AS string))"),
    "event_time": ("timestamp", "timestamp_micros(1700000000000000 + id * 1000)"),
}
"""Type and value of each field; about 130 bytes as JSON."""
PAYLOAD = ", ".join(f"{name} {kind}" for name, (kind, _) in RECORD.items())
COLUMNS = "user_id bigint, event text, amount double precision, note text, event_time timestamptz"
OURS = ("offsets in the database", "with a checkpoint", "staged")
MEGABYTE = 1024**2


def measure(spark: SparkSession, folder: Path) -> list[Figure]:
    """End to end against three other ways; then the memory of batches of two sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    with broker_running() as broker, server_running(SERVER) as server:
        flow = Flow(spark, folder, broker, server)
        with step(f"sending {RECORDS:,} records"):
            flow.fill()
        with step(f"streaming {RECORDS:,} records"):
            figures = _compared(flow)
        with step("memory of small and of large batches"):
            figures.append(_memory(flow))
    return figures


@dataclass
class Flow:
    """The topic, the table, and every way from one to the other."""

    spark: SparkSession
    folder: Path
    broker: KafkaServer
    server: PostgresServer
    topics: Mapping[int, str] = field(
        default_factory=lambda: {RECORDS: "records", SEED_RECORDS: "some_records"}
    )

    def fill(self) -> None:
        admin = KafkaAdmin({"bootstrap.servers": self.broker.bootstrap})
        for count, topic in self.topics.items():
            admin.create_topic(topic, 2)
            fields = ", ".join(f"'{name}', {value}" for name, (_, value) in RECORD.items())
            self.spark.range(0, count, 1, 2).selectExpr(
                f"to_json(named_struct({fields})) AS value", "cast(id % 2 AS int) AS partition"
            ).write.format("kafka").options(**self._brokers(), topic=topic).save()

    def empty(self) -> None:
        self._run("DROP TABLE IF EXISTS target", f"CREATE TABLE target ({COLUMNS})", "CHECKPOINT")

    def count(self) -> int:
        with connector(self.server.dsn)() as connection:
            row = connection.execute(b"SELECT count(*) FROM target").fetchone()
        return int(row[0]) if row else -1

    def ours(self, *, checkpoint: bool, staged: bool = False) -> None:
        """As `floodmark stream run` does it, in the session that is there."""
        path = self.settings(checkpoint=checkpoint, batch=BATCH, by_driver=0 if staged else BATCH)
        runner_of(access_of(load_stream(path)), lambda: self.spark).run()

    def settings(self, *, checkpoint: bool, batch: int, by_driver: int) -> Path:
        """The file of a new stream."""
        name = f"s{uuid.uuid4().hex[:8]}"
        os.environ["FLOODMARK_CREDENTIAL_BENCH"] = self.server.password
        streaming: dict[str, Any] = {"triggerMode": "availableNow", "maxRecordsPerTrigger": batch}
        if checkpoint:
            streaming["checkpointLocation"] = str(self.folder / "checkpoints" / name)
        else:
            streaming["offsetStore"] = "database"
        said = {
            "pipelineId": name,
            "extract": {
                "topic": self.topics[RECORDS],
                "schemaName": "record",
                "connectionParams": {**self._brokers(), "startingOffsets": "earliest"},
            },
            "load": {
                "table": "public.target",
                "driverCopyRows": by_driver,
                "connectionParams": {
                    "host": self.server.host,
                    "port": self.server.port,
                    "database": self.server.database,
                    "user": self.server.user,
                },
                "credentialId": "bench",
            },
            "streamingConfigJson": streaming,
        }
        (self.folder / "schemas").mkdir(exist_ok=True)
        (self.folder / "schemas/record.ddl").write_text(PAYLOAD)
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(said))
        return path

    def plain(
        self,
        write: Callable[[DataFrame], None],
        records: int = RECORDS,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Structured Streaming as people write it: parsed, then `write` in foreachBatch."""

        def parsed(frame: DataFrame) -> DataFrame:
            text = f"from_json(cast(value AS string), '{PAYLOAD}') AS said"
            return frame.selectExpr(text).select("said.*")

        self._query(lambda frame: write(parsed(frame)), records, options)

    def by_jdbc(self) -> None:
        self.plain(lambda frame: append_by_jdbc(frame, self.server, "target"))

    def by_seed(self) -> None:
        self.plain(lambda frame: append_by_seed(frame, self.server), SEED_RECORDS)

    def without_a_sink(self) -> None:
        """The records read, parsed and judged by Spark; then nothing."""
        self._judged(lambda found: found.judged().write.format("noop").mode("append").save())

    def read_only(self) -> None:
        """The records read and judged as ours are, by Arrow on the driver; then nothing."""
        self._judged(RecordReading("bench", lambda act: act()).table)

    def _judged(self, act: Callable[[Records], object]) -> None:
        stream = load_stream(self.settings(checkpoint=False, batch=BATCH, by_driver=BATCH))
        wanted = Wanted(Offsets.of({}), Offsets.of({}), stream.payload, stream.table.names)
        self._query(
            lambda frame: act(Records(frame, wanted)), options=access_of(stream).source().spark
        )

    def by_jdbc_reading_as_we_do(self) -> None:
        """With the options of Kafka's client that we set, which Spark does not."""
        stream = load_stream(self.settings(checkpoint=False, batch=BATCH, by_driver=BATCH))
        self.plain(
            lambda frame: append_by_jdbc(frame, self.server, "target"),
            options=access_of(stream).source().spark,
        )

    def _query(
        self,
        write: Callable[[DataFrame], object],
        records: int = RECORDS,
        options: Mapping[str, str] | None = None,
    ) -> None:
        options = {**self._brokers(), **(options or {})}

        def write_batch(frame: DataFrame, _: int) -> None:
            write(frame)

        query = (
            self.spark.readStream.format("kafka")
            .options(**options, subscribe=self.topics[records], startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(BATCH))
            .load()
            .writeStream.foreachBatch(write_batch)
            .option("checkpointLocation", str(self.folder / "plain" / uuid.uuid4().hex))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _brokers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap}

    def _run(self, *statements: str) -> None:
        with connector(self.server.dsn)() as connection:
            connection.autocommit = True
            for statement in statements:
                connection.execute(statement.encode())


def _compared(flow: Flow) -> list[Figure]:
    ways: dict[str, tuple[Callable[[], None], int]] = {
        "no sink": (flow.without_a_sink, 0),
        "read only": (flow.read_only, 0),
        "jdbc": (flow.by_jdbc, RECORDS),
        "jdbc, read as we do": (flow.by_jdbc_reading_as_we_do, RECORDS),
        OURS[0]: (lambda: flow.ours(checkpoint=False), RECORDS),
        OURS[1]: (lambda: flow.ours(checkpoint=True), RECORDS),
        OURS[2]: (lambda: flow.ours(checkpoint=False, staged=True), RECORDS),
        "seed": (flow.by_seed, SEED_RECORDS),
    }
    times = _turns(flow, ways)
    others: dict[str, tuple[str, float | None]] = {
        "jdbc": ("tuned JDBC in foreachBatch", 1.3),
        "jdbc, read as we do": ("the same with our options of Kafka's client", None),
        "seed": ("the seed's method", 4.0),
        "no sink": ("the same query of Spark without a sink", 0.75),
        "read only": ("our own reading without a sink", 0.75),
    }
    figures = [
        _ratio(times, (ours, other), label, target)
        for ours in OURS[:2]
        for other, (label, target) in others.items()
    ]
    return [*figures, _ratio(times, (OURS[2], "jdbc"), others["jdbc"][0], 1.0)]


def _turns(
    flow: Flow, ways: Mapping[str, tuple[Callable[[], None], int]]
) -> dict[str, list[float]]:
    """Seconds of each way; the first turn warms up. Emptying and counting is not timed."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, (stream, rows) in ways.items():
            flow.empty()
            started = time.perf_counter()
            stream()
            if turn:
                times[name].append(time.perf_counter() - started)
            if (found := flow.count()) != rows:
                raise AssertionError(f"{name}: {found} rows, not {rows}")
    return times


def _ratio(
    times: Mapping[str, list[float]], pair: tuple[str, str], label: str, target: float | None
) -> Figure:
    rates = [(SEED_RECORDS if way == "seed" else RECORDS) / median(times[way]) for way in pair]
    said = [
        f"{rate:,.0f} records/s ({spread(times[way])} s)"
        for rate, way in zip(rates, pair, strict=True)
    ]
    name = f"Kafka to PostgreSQL, {pair[0]} / {label}"
    return Figure(name, rates[0] / rates[1], "times", target, "higher", " against ".join(said))


def _memory(flow: Flow) -> Figure:
    """The same records in batches that go through the driver, and in one ten times as large."""
    small, large = RECORDS // 10, RECORDS
    peaks = {}
    for batch in (small, large):
        taken = [_peak(flow, batch, small) for _ in range(ROUNDS)]
        peaks[batch] = median(taken)
    note = f"{peaks[small]:,.0f} MB in batches of {small:,}, {peaks[large]:,.0f} MB of {large:,}"
    ratio = peaks[large] / peaks[small]
    return Figure(
        "memory of driver and JVM, batches ten times as large", ratio, "times", 1.2, note=note
    )


def _peak(flow: Flow, batch: int, by_driver: int) -> float:
    """The most that Python and the JVM of one `stream run` held together, in MB."""
    flow.empty()
    path = flow.settings(checkpoint=False, batch=batch, by_driver=by_driver)
    command = [sys.executable, "-m", "floodmark", "stream", "run", str(path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak, done = [0.0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, done))
    watcher.start()
    status = process.wait()
    done.set()
    watcher.join()
    if status or flow.count() != RECORDS:
        raise AssertionError(f"stream run ended with {status}, {flow.count()} rows")
    return peak[0] / MEGABYTE


def _watch(pid: int, peak: list[float], done: threading.Event) -> None:
    import psutil

    driver = psutil.Process(pid)
    while not done.wait(0.1):
        try:
            jvms = [child for child in driver.children() if child.name() == "java"]
            held = sum(each.memory_info().rss for each in (driver, *jvms))
        except psutil.Error:
            continue
        peak[0] = max(peak[0], held)
