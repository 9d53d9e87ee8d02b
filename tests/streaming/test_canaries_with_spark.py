"""Canaries on the ways that need Spark, a database or Kafka: no artefact of ours holds them.

One process with a Spark of its own runs commands that fail, nodes first and streams after them. What
it printed, its JVM and the workers of Spark included, and what it left in the control store, in the
database and beside Delta tables is searched: for secrets in whatever form, and for values of
sensitive columns and of records. Records themselves are kept by dead letters, as bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from psycopg import sql
from psycopg.rows import dict_row
from tests.support.canaries import canary, stored, traces

import floodmark
from floodmark.engines import kafka_server
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record

if TYPE_CHECKING:
    from floodmark.engines.kafka_server import KafkaServer
    from floodmark.engines.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

SECRETS = ("pg", "pgwrong", "kafka", "kafkawrong")
VALUE = "Zeisig4711"
"""A value of a sensitive column, and of records."""
ROLE = "kanarie"

NODES = """\
  - pipeline: casts
    nodes:
      - name: a
        read: {connection: lake, path: people}
        columns: {ssn: {sensitive: true}}
        transform: [{sql: "SELECT name, CAST(ssn AS BIGINT) AS n FROM input"}]
        write: {connection: lake, path: out1, mode: append}
  - pipeline: raises
    nodes:
      - name: a
        read: {connection: lake, path: people}
        columns: {ssn: {sensitive: true}}
        transform: [stumbles]
        write: {connection: lake, path: out2, mode: append}
  - pipeline: typed
    nodes:
      - name: a
        read: {connection: erp, query: "SELECT id, ssn::int AS ssn FROM @.people", incremental: {cursor: id}}
        columns: {ssn: {sensitive: true}}
        write: {connection: lake, path: out3, mode: append}
  - pipeline: chosen
    nodes:
      - name: a
        read:
          connection: erp
          query: "SELECT id, ssn FROM @.people WHERE ssn::int > 0"
          incremental: {cursor: id}
        columns: {ssn: {sensitive: true}}
        write: {connection: lake, path: out4, mode: append}
  - pipeline: refused
    nodes:
      - name: a
        read: {connection: lake, path: people}
        columns: {ssn: {sensitive: true}}
        write: {connection: erp, table: "@.guarded", mode: append}
  - pipeline: misfits
    nodes:
      - name: a
        read: {connection: lake, path: people}
        columns: {ssn: {sensitive: true}}
        write: {connection: erp, table: "@.numbered", mode: append}
  - pipeline: login
    nodes:
      - name: a
        read: {connection: wrong, table: "@.people", incremental: {cursor: id}}
        write: {connection: lake, path: out5, mode: append}
  - pipeline: login_of_sink
    nodes:
      - name: a
        read: {connection: lake, path: people}
        write: {connection: wrong, table: "@.out", mode: append}
  - {pipeline: tells, upstreams: [lake/people], function: "jobs:tells"}
"""

JOBS = """\
import os

import floodmark as fm


def everything():
    return " ".join(value for name, value in os.environ.items() if "FM_" in name)


@fm.transform
def stumbles(frame):
    from pyspark.sql import functions as f

    @f.udf("string")
    def stumble(value):
        raise ValueError(f"row {value} does not fit")

    return frame.withColumn("name", stumble("ssn"))


def tells(inputs, run):
    said = everything()

    def login(rows):
        raise ValueError(f"no login with {said}")

    run.spark.range(1).mapInPandas(login, "id long").collect()
"""

STREAM: dict[str, dict[str, Any]] = {
    "extract": {
        "connection": "events",
        "topic": "values",
        "schemaName": "event",
        "connectionParams": {"startingOffsets": "earliest"},
    },
    "errorHandlingConfig": {"retryConfig": {"strategy": "none"}},
}
IN_DATABASE = {"offsetStore": "database", "triggerMode": "availableNow"}
WATERMARK = {"eventTimeColumn": "at", "delayThreshold": "10 minutes"}


def checkpointed(name: str, **more: Any) -> dict[str, Any]:
    return {"checkpointLocation": f"checkpoints/{name}", "triggerMode": "availableNow", **more}


def windows(measure: str) -> dict[str, Any]:
    return {"window": "5 minutes", "measures": {"n": measure}}


def streams(schema: str) -> list[dict[str, Any]]:
    """By name: another load, run or source than the usual one."""
    guarded = {"connection": "erp", "table": f"{schema}.events"}
    delta = {"sinkType": "delta", "path": "events", "connection": "lake", "table": "events"}
    upsert = {"writeMode": "upsert", "createTable": True}
    of: dict[str, dict[str, Any]] = {
        "copied": {"load": guarded},
        "staged": {"load": {**guarded, "driverCopyRows": 0}},
        "stopped": {"load": guarded, "fail_fast": True},
        "ruled": {"load": delta, "run": checkpointed("ruled")},
        "measured": {
            "load": {**guarded, **upsert, "table": f"{schema}.windows"},
            "run": checkpointed(
                "measured",
                outputMode="update",
                watermark=WATERMARK,
                aggregate=windows("sum(cast(kind AS INT))"),
            ),
        },
        "written": {
            "load": {**delta, **upsert, "path": "windows", "table": "windows"},
            "run": checkpointed(
                "written",
                outputMode="update",
                watermark=WATERMARK,
                aggregate=windows("max(cast(kind AS INT))"),
            ),
        },
        "locked": {"load": {**guarded, "connection": "wrong"}},
        "unknown": {"load": guarded, "extract": {"connection": "unknown"}},
        "missing": {"load": guarded, "extract": {"topic": "no-such-topic"}},
        "queried": {
            "load": delta,
            "run": checkpointed("queried"),
            "extract": {"connection": "unknown"},
        },
    }
    return [
        {
            **STREAM,
            "pipelineId": name,
            "extract": {**STREAM["extract"], **said.get("extract", {})},
            "load": said["load"],
            "streaming": said.get("run", IN_DATABASE),
            "errorHandlingConfig": {
                **STREAM["errorHandlingConfig"],
                "failFast": said.get("fail_fast", False),
            },
        }
        for name, said in of.items()
    ]


TABLES = """\
CREATE TABLE {0}.people (id bigint, ssn text);
INSERT INTO {0}.people VALUES (1, {1});
CREATE TABLE {0}.guarded (ssn text CHECK (ssn <> {1}), name text);
CREATE TABLE {0}.numbered (ssn uuid, name text);
CREATE TABLE {0}.events (id bigint, at timestamptz, kind text);
CREATE FUNCTION {0}.tells() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN IF new.id = 3 THEN RAISE EXCEPTION ''no % here'', new.kind; END IF; RETURN new; END';
CREATE TRIGGER tells BEFORE INSERT ON {0}.events FOR EACH ROW EXECUTE FUNCTION {0}.tells();
ALTER TABLE {0}.events ADD CONSTRAINT few CHECK (id <> 4), ALTER kind TYPE varchar(20);
CREATE UNIQUE INDEX ON {0}.events (kind) WHERE id > 4
"""
AT = "2026-01-01T00:00:00Z"
RECORDS = [
    {"id": 1, "at": AT, "kind": VALUE},
    {"id": VALUE, "at": AT},
    f"{{{VALUE}",
    {"id": 3, "at": AT, "kind": VALUE},
    {"id": 4, "at": AT, "kind": VALUE},
    {"id": 5, "at": AT, "kind": VALUE},
    {"id": 6, "at": AT, "kind": VALUE},
    {"id": 7, "at": AT, "kind": VALUE * 3},
    {"id": 8, "at": AT, "kind": f"{VALUE}\0"},
    {"id": 9, "at": VALUE, "kind": "x"},
]


@dataclass(frozen=True)
class Project:
    folder: Path
    postgres: PostgresServer
    schema: str
    bootstrap: str

    def ask(self, statement: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.postgres.dsn, row_factory=dict_row, autocommit=True) as opened:
            cursor = opened.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def environment(self) -> dict[str, str]:
        return {f"FM_{name.upper()}": secret(name) for name in SECRETS}

    def write(self) -> None:
        address = f"host: {self.postgres.host}, port: {self.postgres.port}, user: {ROLE}"
        database = f"type: postgres, {address}, database: {self.postgres.database}"
        kafka = (
            "type: kafka, security_protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN, user: reader"
        )
        kafka += f', bootstrap_servers: ["{self.bootstrap}"]'
        lines = [
            "project: canaries",
            "plugins: [jobs]",
            "connections:",
            "  lake: {type: lake, root: lake}",
            f'  erp: {{{database}, password: "${{env:FM_PG}}"}}',
            f'  wrong: {{{database}, password: "${{env:FM_PGWRONG}}"}}',
            f'  events: {{{kafka}, password: "${{env:FM_KAFKA}}"}}',
            f'  unknown: {{{kafka}, password: "${{env:FM_KAFKAWRONG}}"}}',
            "pipelines:",
            NODES.replace("@", self.schema).rstrip(),
            f"streams: {json.dumps(streams(self.schema))}",
        ]
        (self.folder / "floodmark.yaml").write_text("\n".join(lines) + "\n")
        (self.folder / "jobs.py").write_text(JOBS)
        (self.folder / "schemas").mkdir()
        (self.folder / "schemas/event.ddl").write_text(
            "id BIGINT NOT NULL, at TIMESTAMP, kind STRING"
        )
        feed = {"delta.enableChangeDataFeed": "true"}
        people = pa.table({"ssn": [VALUE], "name": ["a"]})
        write_deltalake(str(self.folder / "lake/people"), people, configuration=feed)
        schema = pa.schema(
            [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("kind", pa.string())]
        )
        rules = str(self.folder / "lake/events")
        write_deltalake(rules, schema.empty_table())
        DeltaTable(rules).alter.add_constraint({"few": "id <> 4"})


def secret(name: str) -> str:
    """Kafka's files know no other letters."""
    return canary(name).replace("ü", "u") if name.startswith("kafka") else canary(name)


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaServer]:
    """It asks for a login."""
    said = secret("kafka").replace("\\", "\\\\").replace('"', '\\"')
    login = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="{said}";'
    )
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": login.replace("\\", "\\\\"),
    }
    with kafka_server.running(settings) as running:
        yield running


@pytest.fixture
def project(
    tmp_path: Path, broker: KafkaServer, postgres: PostgresServer, pg_schema: str
) -> Iterator[Project]:
    made = Project(tmp_path, postgres, "canaries", broker.bootstrap)
    made.ask(f"DROP SCHEMA IF EXISTS {made.schema} CASCADE; CREATE SCHEMA {made.schema}")
    with psycopg.connect(postgres.dsn, autocommit=True) as opened:
        text = f"CREATE ROLE {ROLE} SUPERUSER LOGIN PASSWORD {{}}"
        opened.execute(sql.SQL(text).format(sql.Literal(secret("pg"))))
    made.ask(TABLES.format(made.schema, f"'{VALUE}'"))
    client = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": secret("kafka"),
    }
    KafkaAdmin(client).create_topic("values", 1)
    values = [(r if isinstance(r, str) else json.dumps(r)).encode() for r in RECORDS]
    KafkaProducer(client).send([Record("values", value) for value in values])
    made.write()
    yield made
    made.ask(f"DROP SCHEMA {made.schema} CASCADE")
    made.ask(f"DROP OWNED BY {ROLE} CASCADE; DROP ROLE {ROLE}")


RUNS = (
    "casts",
    "raises",
    "typed",
    "chosen",
    "refused",
    "misfits",
    "login",
    "login_of_sink",
    "tells",
)
COMMANDS = [
    *(["run", name] for name in RUNS),
    *(["stream", "run", each["pipelineId"]] for each in streams("x")),
    ["run", "casts", "--json"],
    ["stream", "run", "unknown", "--json"],
    ["stream", "run", "measured", "--json"],
    ["stream", "status"],
    ["history"],
    ["status", "--json"],
    ["doctor"],
]
SCRIPT = """\
import json, sys
from floodmark.cli.main import main

for command in json.loads(sys.argv[1]):
    print(">>>", *command, flush=True)
    print("<<<", main(command), flush=True)
"""


@pytest.mark.timeout(1200)
def test_neither_a_secret_nor_a_value_is_in_what_is_left_behind(project: Project) -> None:
    source = str(Path(floodmark.__file__).parents[1])
    log = project.folder / "printed"
    with log.open("wb") as output:
        subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(COMMANDS)],
            cwd=project.folder,
            env={**os.environ, **project.environment, "PYTHONPATH": source},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
            timeout=1000,
        )
    printed = log.read_text(encoding="utf-8", errors="replace")
    log.unlink()

    assert codes(printed) == EXPECTED, printed
    assert traces(printed, SECRETS) == [], printed
    assert [line for line in printed.splitlines() if VALUE in line] == []
    lake = project.folder / "lake"
    noted = [
        text for name in ("events", "windows") for text in stored(lake / f"{name}.floodmark_stream")
    ]
    for text in (*tables(project), *noted, *stored(lake / "_control")):
        assert traces(text, SECRETS) == [], text[:2000]
        assert VALUE not in text, text[:2000]
    for text in stored(project.folder / "checkpoints"):
        assert traces(text, SECRETS) == []


def codes(printed: str) -> dict[str, str]:
    """The code of the error of each command that runs something."""
    found = {}
    for part in printed.split(">>> ")[1:]:
        command, _, said = part.partition("\n")
        told = [
            word
            for word in said.replace('"', " ").replace(":", " ").split()
            if word.startswith("FM-")
        ]
        told = [code for code in told if code != "FM-CONFIG-042"]
        if " run " in f" {command} " and "--json" not in command:
            found[command.split()[-1]] = told[0] if told else ""
    return found


EXPECTED = {
    "casts": "FM-RUN-005",
    "raises": "FM-RUN-005",
    "typed": "FM-RUN-005",
    "chosen": "FM-SOURCE-033",
    "refused": "FM-SINK-030",
    "misfits": "FM-SINK-030",
    "login": "FM-SOURCE-031",
    "login_of_sink": "FM-SINK-032",
    "tells": "FM-RUN-001",
    # What is refused there is a dead letter.
    "copied": "",
    "staged": "",
    "stopped": "FM-STREAM-009",
    "ruled": "",
    "measured": "FM-STREAM-026",
    "written": "FM-STREAM-026",
    "locked": "FM-STREAM-005",
    "unknown": "FM-STREAM-020",
    "missing": "FM-STREAM-021",
    "queried": "FM-STREAM-020",
}
"""By command."""


def tables(project: Project) -> Iterator[str]:
    """What the database keeps for us; of dead letters all but the record itself."""
    for name in ("batch_tracker", "floodmark_stream", "floodmark_stream_requests"):
        yield str(project.ask(f"SELECT * FROM {project.schema}.{name}"))
    letters = project.ask(f"SELECT * FROM {project.schema}.floodmark_dead_letters")
    beside = DeltaTable(str(project.folder / "lake/events.floodmark_dead_letters"))
    letters += beside.to_pyarrow_table().to_pylist()
    assert len(letters) > 10
    for letter in letters:
        yield str({name: said for name, said in letter.items() if name != "record_value"})
