"""A micro-batch into PostgreSQL, exactly once, against the ways people write it by hand.

One session, one server with fsync on; every path is warmed, then they take turns. What a path
needs to start from the same state (an empty target, a checkpoint of the server) is not timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Figure, median, spread, step
from floodmark.engines.arrow_frames import arrow_schema
from floodmark.engines.postgres_server import PostgresServer, running
from floodmark.model.offsets import Offsets
from floodmark.postgres import connector, cursor_of
from floodmark.postgres.rows import copy_rows
from floodmark.streaming.ledger.postgres import ClaimFacts, Load, PostgresLedger, StreamBatch
from floodmark.streaming.load.rows import PostgresLoad
from floodmark.streaming.load.staging import Staging
from floodmark.streaming.load.target import TargetSpec, prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = int(os.environ.get("FLOODMARK_BENCH_ROWS", "2_000_000"))
SEED_ROWS = ROWS // 10
"""The seed's loader collects rows as objects: all of them would not fit."""
ROUNDS = 5
COLUMNS = (
    "id bigint, grp int, amount double precision, price numeric(12,2), name text, active boolean,"
    " created_at timestamptz, day date"
)
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
SERVER = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}

Actions = Mapping[str, Callable[[], object]]


def measure(spark: SparkSession, folder: Path) -> list[Figure]:
    """Append, what the guarantee costs, and upsert."""
    frame = _source(spark, folder)
    with running(SERVER) as server, _database(server, frame) as database:
        with step(f"appending {ROWS:,} rows"):
            figures = _append(database)
        with step(f"upserting {ROWS:,} rows, half of them there"):
            figures += _upsert(database)
    return figures


def _source(spark: SparkSession, folder: Path) -> DataFrame:
    """About 100 bytes a row, in a file: making them is not timed."""
    path = str(folder / "source")
    rows_of(spark, ROWS).write.parquet(path)
    return spark.read.parquet(path)


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """8 mixed columns, one partition per core."""
    return spark.range(0, count, 1, 2).selectExpr(
        "id",
        "cast(id % 1000 AS int) AS grp",
        "rand(1) * 1000 AS amount",
        "cast(rand(2) * 1000 AS decimal(12,2)) AS price",
        "concat('customer name, number ', id, ' ', md5(cast(id AS string))) AS name",
        "id % 3 = 0 AS active",
        "timestamp_micros(1700000000000000 + id * 1000001) AS created_at",
        "date_add(date'2024-01-01', cast(id % 365 AS int)) AS day",
    )


@dataclass
class Database:
    """The target and every way to fill it."""

    server: PostgresServer
    frame: DataFrame
    ledger: PostgresLedger
    batch: int = 0
    keys: tuple[str, ...] = ()

    def run(self, *statements: str) -> None:
        connection = connector(self.server.dsn)()
        connection.autocommit = True
        for statement in statements:
            connection.execute(statement.encode())
        connection.close()

    def count(self) -> int:
        connection = connector(self.server.dsn)()
        row = connection.execute(b"SELECT count(*) FROM target").fetchone()
        connection.close()
        return int(row[0]) if row else -1

    @property
    def spec(self) -> TargetSpec:
        return TargetSpec("public.target", "upsert" if self.keys else "append", self.keys)

    def exactly_once(self, load: Load) -> None:
        """One batch of a stream; claiming it is part of the start, not of the batch."""
        claim = self.ledger.claim(ClaimFacts("bench"), self.ledger.stored())
        start, end = (Offsets.of({("t", 0): n}) for n in (self.batch, self.batch + 1))
        self.batch += 1
        batch = StreamBatch(claim.next_batch_id, claim.incarnation, start, end)
        self.ledger.commit(claim, batch, load)

    def by_driver(self) -> None:
        load = PostgresLoad(self.spec)
        self.exactly_once(lambda cursor: load.apply(cursor, self.frame.toArrow()))

    def by_executors(self) -> None:
        connect = connector(self.server.dsn)
        staging = Staging(connect, "bench", "public", self.spec)
        staged = staging.stage(self.frame)
        self.exactly_once(lambda cursor: staging.apply(cursor, staged))

    def plain_copy(self) -> None:
        """The same COPY, and nothing that remembers it."""
        connection = connector(self.server.dsn)()
        cursor = cursor_of(connection)
        table = self.frame.toArrow()
        target = prepared(cursor, self.spec, arrow_schema(self.frame))
        columns, batches = target.columns, table.to_batches(max_chunksize=65_536)
        copy_rows(cursor, target.quoted, columns, target.sources, batches)
        connection.commit()
        connection.close()

    def by_jdbc(self, table: str = "target") -> None:
        append_by_jdbc(self.frame, self.server, table)

    def jdbc_upsert(self) -> None:
        """By hand: a staging table by the tuned writer, then one statement."""
        self.by_jdbc("staged")
        rest = ", ".join(f"{name} = excluded.{name}" for name in NAMES[1:])
        names = ", ".join(NAMES)
        self.run(
            "SET work_mem = '256MB'",
            f"INSERT INTO target ({names}) SELECT {names} FROM staged"
            f" ON CONFLICT (id) DO UPDATE SET {rest}",
        )

    def by_seed(self) -> None:
        append_by_seed(self.frame.limit(SEED_ROWS), self.server)


def append_by_jdbc(frame: DataFrame, server: PostgresServer, table: str) -> None:
    """Spark's own writer, tuned; at least once."""
    address = f"jdbc:postgresql://{server.host}:{server.port}/{server.database}"
    frame.write.format("jdbc").options(
        url=f"{address}?reWriteBatchedInserts=true",
        dbtable=table,
        user=server.user,
        password=server.password,
        driver="org.postgresql.Driver",
        batchsize="10000",
        numPartitions="2",
    ).mode("append").save()


def append_by_seed(frame: DataFrame, server: PostgresServer) -> None:
    """Seed 004: count, collect, insert in batches of 1,000, the tracker's row, count."""
    frame.count()
    connection = connector(server.dsn)()
    rows = frame.collect()
    values = ", ".join(f"${number}" for number in range(1, len(frame.columns) + 1))
    cursor = cursor_of(connection)
    for first in range(0, len(rows), 1_000):
        insert = f"INSERT INTO target VALUES ({values})".encode()
        cursor.executemany(insert, [tuple(row) for row in rows[first : first + 1_000]])
    frame.count()
    connection.commit()
    connection.close()


@contextmanager
def _database(server: PostgresServer, frame: DataFrame) -> Iterator[Database]:
    ledger = PostgresLedger(connector(server.dsn), "bench")
    ledger.ensure()
    yield Database(server, frame, ledger)
    ledger.close()


def _turns(
    rounds: int, actions: Actions, reset: Callable[[], None], check: Callable[[str], None]
) -> dict[str, list[float]]:
    """Seconds of each action; the first turn warms up. Setting up and checking is not timed.

    Each turn begins with another one: what an action leaves to the next one (garbage of the JVM,
    pages to be written) is left to all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds + 1):
        first = turn % len(actions)
        for name, action in [*actions.items()][first:] + [*actions.items()][:first]:
            reset()
            started = time.perf_counter()
            action()
            if turn:
                times[name].append(time.perf_counter() - started)
            check(name)
    return times


def _checked(database: Database, expected: int) -> Callable[[str], None]:
    def check(name: str) -> None:
        found = database.count()
        if found != (SEED_ROWS if name == "seed" else expected):
            raise AssertionError(f"{name}: {found} rows")

    return check


def _append(database: Database) -> list[Figure]:
    def reset() -> None:
        database.run(
            "DROP TABLE IF EXISTS target", f"CREATE TABLE target ({COLUMNS})", "CHECKPOINT"
        )

    actions: dict[str, Callable[[], object]] = {
        "jdbc": database.by_jdbc,
        "driver": database.by_driver,
        "executors": database.by_executors,
        "plain": database.plain_copy,
    }
    times = _turns(ROUNDS, actions, reset, _checked(database, ROWS))
    seed = _turns(1, {"seed": database.by_seed}, reset, _checked(database, ROWS))["seed"]
    taken = {name: median(values) for name, values in times.items()}
    rate = {name: ROWS / value for name, value in taken.items()}
    seed_rate = SEED_ROWS / median(seed)
    note = f"{rate['jdbc']:,.0f} rows/s by JDBC; {spread(times['jdbc'])} s"
    return [
        _ratio(
            "append by the driver / tuned JDBC",
            taken["jdbc"] / taken["driver"],
            2.0,
            times["driver"],
            note,
        ),
        _ratio(
            "append by executors / tuned JDBC",
            taken["jdbc"] / taken["executors"],
            1.3,
            times["executors"],
            note,
        ),
        _ratio(
            "append by the driver / the seed's loader",
            rate["driver"] / seed_rate,
            8.0,
            times["driver"],
            f"{seed_rate:,.0f} rows/s by the seed's, of {SEED_ROWS:,} rows",
        ),
        Figure(
            "append by the driver / the same COPY that remembers nothing, time",
            taken["driver"] / taken["plain"],
            "times",
            1.1,
            note=f"{taken['driver']:.2f} s against {taken['plain']:.2f} s",
        ),
    ]


def _upsert(database: Database) -> list[Figure]:
    database.keys = ("id",)
    old = "id, grp, 0, 0, 'old', active, created_at, day"
    database.run(
        "CREATE UNLOGGED TABLE half AS SELECT * FROM target WHERE false",
        "DROP TABLE IF EXISTS target",
        f"CREATE TABLE target ({COLUMNS})",
    )
    database.by_jdbc()
    database.run(f"INSERT INTO half SELECT {old} FROM target WHERE id % 2 = 0")

    def reset() -> None:
        database.run(
            "DROP TABLE IF EXISTS target, staged",
            f"CREATE TABLE target ({COLUMNS}, PRIMARY KEY (id))",
            "INSERT INTO target SELECT * FROM half",
            f"CREATE UNLOGGED TABLE staged ({COLUMNS})",
            "VACUUM ANALYZE target",
            "CHECKPOINT",
        )

    actions: dict[str, Callable[[], object]] = {
        "jdbc": database.jdbc_upsert,
        "driver": database.by_driver,
        "executors": database.by_executors,
    }
    times = _turns(ROUNDS, actions, reset, _checked(database, ROWS))
    taken = {name: median(values) for name, values in times.items()}
    note = f"{ROWS / taken['jdbc']:,.0f} rows/s by hand; {spread(times['jdbc'])} s"
    return [
        _ratio(
            "upsert by the driver / JDBC and ON CONFLICT",
            taken["jdbc"] / taken["driver"],
            1.2,
            times["driver"],
            note,
        ),
        _ratio(
            "upsert by executors / JDBC and ON CONFLICT",
            taken["jdbc"] / taken["executors"],
            None,
            times["executors"],
            note,
        ),
    ]


def _ratio(name: str, value: float, target: float | None, times: list[float], note: str) -> Figure:
    ours = f"{ROWS / median(times):,.0f} rows/s ({spread(times)} s)"
    return Figure(name, value, "times", target, "higher", f"{ours}; {note}")
