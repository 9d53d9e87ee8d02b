"""A stream over TLS with logins: a broker that asks for SASL_SSL, a PostgreSQL that refuses plain text."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.support.certificates import Authority

from floodmark.cli.main import main
from floodmark.engines import kafka_server, postgres_server
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, Record
from floodmark.engines.kafka_refusals import is_login_refused
from floodmark.errors import StreamError
from floodmark.postgres import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.engines.kafka_server import KafkaServer
    from floodmark.engines.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

USER, PASSWORD = "reader", 'se"cr\\et'
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_reader="se\\\\"cr\\\\\\\\et";'
)
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ONLY_TLS = b"hostssl all all 127.0.0.1/32 scram-sha-256\n"


@dataclass(frozen=True)
class Secured:
    """Both servers, what is to be trusted, and what is not."""

    kafka: KafkaServer
    postgres: PostgresServer
    folder: Path

    @property
    def client(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.kafka.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.folder / "ca.pem"),
        }

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with connector(f"{self.postgres.dsn} sslmode=require")() as connection:
            cursor = connection.cursor()
            cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, authority = tmp_path_factory.mktemp("secured"), Authority.new()
    certified = authority.for_loopback()
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "other.pem").write_bytes(Authority.new().pem)
    (folder / "server.pem").write_bytes(certified.key + certified.certificate)
    broker = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        **{f"listener.name.plaintext.scram-sha-{n}.sasl.jaas.config": _SCRAM for n in (256, 512)},
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        # It looks at itself when it starts.
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    database = {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
    files = {
        "server.crt": certified.certificate,
        "server.key": certified.key,
        "pg_hba.conf": ONLY_TLS,
    }
    with (
        kafka_server.running(broker) as kafka,
        postgres_server.running(database, files) as postgres,
    ):
        yield Secured(kafka, postgres, folder)


def project(secured: Secured, name: str, **changes: str) -> Path:
    """A project whose connections name both servers; files are beside it."""
    said = {"kafka_ca": "ca.pem", "database_ca": "ca.pem", **changes}
    (secured.folder / "schemas").mkdir(exist_ok=True)
    (secured.folder / "schemas/event.ddl").write_text("id BIGINT NOT NULL")
    (secured.folder / "floodmark.yaml").write_text(f"""\
project: secured
connections:
  events:
    type: kafka
    bootstrap_servers: ["{secured.kafka.bootstrap}"]
    security_protocol: SASL_SSL
    sasl_mechanism: PLAIN
    user: {USER}
    password: ${{env:KAFKA_PASSWORD}}
    options: {{ssl.ca.location: {said["kafka_ca"]}}}
  target:
    type: postgres
    host: 127.0.0.1
    port: {secured.postgres.port}
    database: {secured.postgres.database}
    user: {secured.postgres.user}
    password: ${{env:PG_PASSWORD}}
    sslmode: verify-full
    sslrootcert: {said["database_ca"]}
streams:
  - pipelineId: {name}
    extract:
      connection: events
      topic: {name}
      schemaName: event
      connectionParams: {{startingOffsets: earliest}}
    load: {{connection: target, table: public.{name}, createTable: true}}
    streaming: {{offsetStore: database, triggerMode: availableNow}}
    errorHandlingConfig: {{retryConfig: {{strategy: none}}}}
""")
    return secured.folder


@pytest.fixture
def logins(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("PG_PASSWORD", secured.postgres.password)


def run(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["stream", "run", name, "--project", str(folder), "--json"])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.usefixtures("logins")
def test_a_stream_goes_over_tls_with_logins(
    secured: Secured, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    KafkaAdmin(secured.client).create_topic("safe", 1)
    records = [Record("safe", json.dumps({"id": number}).encode()) for number in range(5)]
    KafkaProducer(secured.client).send(records)

    code, said = run(project(secured, "safe"), "safe", capsys)

    assert code == 0, said
    assert secured.ask("SELECT count(*), sum(id) FROM public.safe") == [(5, 10)]


class Refused(NamedTuple):
    """A file or variable that is wrong, and what is said of it."""

    changes: dict[str, str]
    variables: dict[str, str]
    code: str
    reason: str
    may_pass: bool = False


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(
            Refused({"kafka_ca": "other.pem"}, {}, "FM-STREAM-020", "certificate", may_pass=True),
            id="broker not trusted",
        ),
        pytest.param(
            Refused({}, {"KAFKA_PASSWORD": "wrong"}, "FM-STREAM-020", "Authentication"),
            id="login refused",
        ),
        pytest.param(
            Refused({"database_ca": "other.pem"}, {}, "FM-STREAM-005", "SSL", may_pass=True),
            id="database not trusted",
        ),
        pytest.param(
            Refused({}, {"PG_PASSWORD": "wrong"}, "FM-STREAM-005", "password"),
            id="password refused",
        ),
    ],
)
@pytest.mark.usefixtures("logins")
def test_who_is_not_trusted_is_named_and_nothing_is_written(
    secured: Secured,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
) -> None:
    for name, value in refused.variables.items():
        monkeypatch.setenv(name, value)
    topics = KafkaAdmin(secured.client)
    topics.create_topic("refused", 1)

    status, said = run(project(secured, "refused", **refused.changes), "refused", capsys)

    topics.delete_topic("refused")
    error = json.loads(said)["streams"][0]["error"]
    assert (status, error["code"]) == (4, refused.code), said
    assert refused.reason in error["found"]
    assert error["retryable"] is refused.may_pass
    assert PASSWORD not in said
    assert secured.postgres.password not in said
    assert secured.ask("SELECT to_regclass('public.refused')") == [(None,)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_of_kafka_is_told_from_a_broker_that_goes_away(
    secured: Secured, mechanism: str
) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    if mechanism != "PLAIN":
        kind = getattr(ScramMechanism, mechanism.replace("-", "_"))
        wish = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode()
        )
        admin = AdminClient(secured.client)
        admin.alter_user_scram_credentials([wish])[USER].result(30)
    right = {**secured.client, "sasl.mechanism": mechanism}
    wrong = {**right, "sasl.password": "wrong"}

    refused = [is_login_refused(said) for said in (right, wrong)]
    with pytest.raises(StreamError) as caught:
        KafkaAdmin(wrong).latest(["any"])
    with pytest.raises(StreamError) as unsent:
        KafkaProducer(wrong, send_seconds=20).send([Record("any", b"")])

    assert refused == [False, True]
    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-020", False)
    assert (unsent.value.code, unsent.value.retryable) == ("FM-STREAM-022", False)
    # Neither a certificate that is not trusted nor a silent broker says anything of the password.
    other = {**wrong, "ssl.ca.location": str(secured.folder / "other.pem")}
    assert not is_login_refused(other)
    assert not is_login_refused({**wrong, "bootstrap.servers": "127.0.0.1:1"})


class GoingAway(threading.Thread):
    """A broker that takes the greeting and closes the connection."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                connection.recv(1_000)
                connection.close()


def test_a_broker_that_goes_away_while_it_is_greeted_refuses_nobody() -> None:
    broker = GoingAway()
    broker.start()
    settings = {
        "bootstrap.servers": f"127.0.0.1:{broker.server.getsockname()[1]}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }

    assert not is_login_refused(settings)
    with pytest.raises(StreamError) as caught:
        KafkaAdmin(settings, answer_seconds=3).latest(["any"])

    broker.server.close()
    assert caught.value.retryable
