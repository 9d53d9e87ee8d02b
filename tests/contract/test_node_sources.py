"""The contract of the sources of nodes, on every source there is."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.contract.node_source_contract import Door, NodeSourceContract, Row, Story
from tests.support.node_projects import open_project
from tests.support.outsides import ALONE

from floodmark.engines.postgres_server import PostgresServer
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_CURSOR = "rows are told by their commit or file, not by a value of theirs"


class DeltaByFeed(Door):
    """A Delta table by its versions."""

    kinds: ClassVar[tuple[str, ...]] = ("version",)
    lacks: ClassVar = {"nulls_skip": NO_CURSOR}

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, table: str, kind: str) -> None:
        """The first rows create it."""

    def add(self, table: str, kind: str, *rows: Row, more: str | None = None) -> None:
        columns = {
            "id": pa.array([i for i, _ in rows], pa.int64()),
            "at": self.values(kind, [number for _, number in rows]),
        }
        if more is not None:
            columns["more"] = pa.array([more] * len(rows))
        write_deltalake(
            self.root / "lake/in" / table,
            pa.table(columns),
            mode="append",
            schema_mode="merge",
            configuration=self.configuration,
        )

    configuration: ClassVar[dict[str, str | None]] = {"delta.enableChangeDataFeed": "true"}

    def values(self, kind: str, numbers: list[int | None]) -> pa.Array:
        del kind
        return pa.array(numbers, pa.int64())

    def read(self, table: str, kind: str, scenario: str) -> str:
        del kind, scenario
        return f"connection: lake, path: in/{table}"


class DeltaByTime(DeltaByFeed):
    """A Delta table by a time column."""

    kinds = ("instant", "day")
    lacks: ClassVar = {
        "late": "a window of time has no overlap: versions of a Delta table miss nothing",
        "late ties": "what comes later with a time that is processed is not seen; settle waits",
        "nulls_include": "a row without a time is in no window of time",
    }
    refusal = "FM-PLAN-024"
    configuration: ClassVar[dict[str, str | None]] = {}

    def values(self, kind: str, numbers: list[int | None]) -> pa.Array:
        type_ = pa.timestamp("us", "UTC") if kind == "instant" else pa.date32()
        return pa.array([None if n is None else self.value(kind, n) for n in numbers], type_)

    def value(self, kind: str, number: int) -> datetime | date:
        if kind == "day":
            return date(2026, 1, 1) + timedelta(days=number)
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)

    def read(self, table: str, kind: str, scenario: str) -> str:
        nulls = ", on_null_cursor: skip" if scenario == "nulls_skip" else ""
        return f"connection: lake, path: in/{table}, incremental: {{cursor: at{nulls}}}"

    def mark(self, kind: str, number: int) -> str:
        value = self.value(kind, number)
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if kind == "instant" else str(value)


class Files(Door):
    """Files of a folder by their list."""

    kinds = ("list",)
    lacks: ClassVar = {"nulls_skip": NO_CURSOR}
    connections = "  inbox: {type: files, root: in}\n"

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, table: str, kind: str) -> None:
        del kind
        (self.root / "in" / table).mkdir(parents=True)

    def add(self, table: str, kind: str, *rows: Row, more: str | None = None) -> None:
        del kind
        extra = {} if more is None else {"more": more}
        lines = [json.dumps({"id": i, "at": number, **extra}) for i, number in rows]
        # Names that do not grow: the newest file may be the first of the folder.
        name = f"{uuid.uuid4().hex}.json"
        (self.root / "in" / table / name).write_text("\n".join(lines))

    def read(self, table: str, kind: str, scenario: str) -> str:
        del kind, scenario
        return f"connection: inbox, format: json, path: {table}/*.json"


class Postgres(Door):
    """A table of PostgreSQL by its cursor."""

    kinds = ("whole", "exact", "day", "instant", "wall", "word")
    forgets_late_rows = True
    points: ClassVar = {
        "died_reading": "landing.after_write",
        "died_writing": "sink.after_commit:3",  # after those of the landing and of the edge
    }
    refusal = "FM-SOURCE-032"
    columns: ClassVar = {
        "whole": "bigint",
        "exact": "numeric(20,6)",
        "day": "date",
        "instant": "timestamptz",
        "wall": "timestamp",
        "word": "text",
    }
    values: ClassVar = {
        "whole": "{0}9007199254740993",
        "exact": "{0}.000001",
        "day": "'2026-01-{0:02}'",
        "instant": "'2026-01-01 01:00:00.{0:06}+01'",
        "wall": "'2026-03-29 02:30:00.{0:06}'",
        "word": "'{0:04}'",
    }
    marks: ClassVar = {
        "whole": '"{0}9007199254740993"',
        "exact": '"{0}.000001"',
        "day": '"2026-01-{0:02}"',
        "instant": '"2026-01-01T00:00:00.{0:06}Z"',
        "wall": '"2026-03-29T02:30:00.{0:06}"',
        "word": '"{0:04}"',
    }
    said: ClassVar = {
        "late": ", overlap: 5, keys: [id]",
        "nulls_skip": ", on_null_cursor: skip",
        "nulls_include": ", on_null_cursor: include, keys: [id]",
    }

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self._server = server
        self._schema = '"' + schema.replace('"', '""') + '"'
        self.connections = (
            f"  erp: {{type: postgres, host: {server.host}, port: {server.port},"
            f" database: {server.database}, user: {server.user},"
            ' password: "${env:ERP_PASSWORD}"}\n'
        )

    def create(self, table: str, kind: str) -> None:
        self._execute(f"CREATE TABLE {self._schema}.{table} (id int, at {self.columns[kind]})")

    def add(self, table: str, kind: str, *rows: Row, more: str | None = None) -> None:
        extra = "" if more is None else f", '{more}'"
        value = self.values[kind]
        values = [f"({i}, {'NULL' if n is None else value.format(n)}{extra})" for i, n in rows]
        self._execute(f"INSERT INTO {self._schema}.{table} VALUES {', '.join(values)}")

    def change(self, table: str) -> None:
        self._execute(f"ALTER TABLE {self._schema}.{table} ADD COLUMN more text")

    def read(self, table: str, kind: str, scenario: str) -> str:
        said = self.said.get(scenario, "") + (
            ", type: string, order: binary" if kind == "word" else ""
        )
        quoted = self._schema.replace("'", "''")
        return f"connection: erp, table: '{quoted}.{table}', incremental: {{cursor: at{said}}}"

    def mark(self, kind: str, number: int) -> str:
        return str(self.marks[kind].format(number))

    def _execute(self, text: str) -> None:
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            connection.execute(text.encode())


def told(door: Door, root: Path, spark: SparkSession | None) -> Story:
    """The story of a source, on Spark or on the double of an engine."""

    def opened(folder: Path) -> Project:
        if spark is None:
            return open_project(folder)
        return Project.load(folder, session=lambda: spark, outside=ALONE)

    story = Story(door, root, opened)
    story.tell()
    return story


@pytest.fixture(scope="class")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract")


class TestArrowByFeed(NodeSourceContract):
    @pytest.fixture(scope="class")
    @classmethod
    def story(cls, folder: Path) -> Story:
        return told(DeltaByFeed(folder), folder, None)


class TestArrowByTime(NodeSourceContract):
    @pytest.fixture(scope="class")
    @classmethod
    def story(cls, folder: Path) -> Story:
        return told(DeltaByTime(folder), folder, None)


if os.environ.get("FLOODMARK_TEST_SIZE") == "full":
    # The double is held to the sources of Spark by test_sources.py and test_time_sources.py.

    @pytest.mark.spark
    class TestDeltaByFeed(NodeSourceContract):
        @pytest.fixture(scope="class")
        @classmethod
        def story(cls, folder: Path, spark: SparkSession) -> Story:
            return told(DeltaByFeed(folder), folder, spark)

    @pytest.mark.spark
    class TestDeltaByTime(NodeSourceContract):
        @pytest.fixture(scope="class")
        @classmethod
        def story(cls, folder: Path, spark: SparkSession) -> Story:
            return told(DeltaByTime(folder), folder, spark)


@pytest.mark.spark
class TestFiles(NodeSourceContract):
    @pytest.fixture(scope="class")
    @classmethod
    def story(cls, folder: Path, spark: SparkSession) -> Story:
        return told(Files(folder), folder, spark)


@pytest.mark.spark
@pytest.mark.postgres
class TestPostgres(NodeSourceContract):
    @pytest.fixture(scope="class")
    @classmethod
    def story(cls, folder: Path, postgres: PostgresServer, spark: SparkSession) -> Iterator[Story]:
        schema = f'Contract "{uuid.uuid4().hex[:8]}"'
        identifier = psycopg.sql.Identifier(schema)
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(identifier))
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("ERP_PASSWORD", postgres.password)
                yield told(Postgres(postgres, schema), folder, spark)
            connection.execute(psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(identifier))

    def test_only_the_edges_that_a_next_window_needs_are_kept(self, story: Story) -> None:
        (upstream,) = (story.root / "lake/_control/edges/ties").iterdir()
        assert sorted(each.name for each in upstream.iterdir()) == ["1", "2"]
