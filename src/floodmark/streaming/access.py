"""How a stream reaches Kafka and its database: settings of the clients, logins included.

Spark's client is Java's, our own is librdkafka; both are told the same. Credentials are looked up
when a client is made and stay out of everything that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.config import LoadedStream
from floodmark.config.project import (
    ConnectionModel,
    KafkaConnection,
    LakeConnection,
    PostgresConnection,
)
from floodmark.config.stream import Credential, Credentials, StreamPipeline
from floodmark.config.text import Secret, Vault
from floodmark.errors import ConfigError
from floodmark.next_steps import command
from floodmark.postgres import Connect, certificate_file, connector_by, libpq_settings

PREFIX = "kafka."
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OF_BOTH = ("security.protocol", "sasl.mechanism", "client.id", "client.rack")
_OURS = ("kafka.sasl.username", "kafka.sasl.password", "kafka.ssl.ca.location")
"""What Java's client does not know, or is told in another way."""
_READS_MUCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
"""Batches, not single records: reading takes two thirds of the time of Kafka's own defaults."""
SOMEBODY = "ROLE"
"""Where nobody says who logs in."""
_SPARK_ONLY = ("subscribe", "startingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss")


@dataclass(frozen=True)
class Brokers:
    """What the two clients of Kafka are told."""

    ours: Mapping[str, str] = field(repr=False)
    """For librdkafka."""
    spark: Mapping[str, str] = field(repr=False)
    """For Spark's source, without topics and offsets."""


@dataclass(frozen=True)
class Access:
    """Looks logins up for one stream; holds none."""

    stream: LoadedStream
    connections: Mapping[str, ConnectionModel] = field(default_factory=dict)
    credentials: Credentials = field(default_factory=Credentials)

    @property
    def _vault(self) -> Vault:
        return Vault(self.stream.root)

    def source(self) -> Brokers:
        """The brokers of the source."""
        extract = self.stream.settings.extract
        said = {key: self._shown(value) for key, value in extract.connection_params.items()}
        login = self._login(extract.credential_id)
        if extract.connection is not None:
            said, login = self._of_connection(extract.connection, said, login)
        return brokers(said, login, self.stream.settings.pipeline_id, self.stream.root)

    def dead_letters(self) -> Brokers:
        """The brokers of the dead-letter topic: those of the source unless others are said."""
        dlq = self.stream.settings.errors.dlq
        if dlq.bootstrap_servers is None and dlq.credential_id is None:
            return self.source()
        extract = self.stream.settings.extract
        params = {} if dlq.credential_id else extract.connection_params
        said = {key: self._shown(value) for key, value in params.items()}
        said["kafka.bootstrap.servers"] = dlq.bootstrap_servers or extract.bootstrap_servers or ""
        login = self._login(dlq.credential_id or extract.credential_id)
        return brokers(said, login, self.stream.settings.pipeline_id, self.stream.root)

    def database(self) -> Connect:
        """What opens connections to the target; the login is looked up each time."""
        return connector_by(self.database_settings)

    def database_settings(self) -> dict[str, Any]:
        """The target by libpq's names, password included: for the moment it is needed."""
        load = self.stream.settings.load
        if load.connection is not None:
            return self._of_database(load.connection)
        params = {key: self._shown(value) for key, value in load.connection_params.items()}
        login = self._login(load.credential_id) or Credential()
        said: dict[str, Any] = {
            "host": params.get("host"),
            "port": int(params.get("port", 5432)),
            "dbname": params.get("database"),
            "user": params.get("user") or login.user,
            "password": params.get("password") or login.password,
        }
        for key in ("sslmode", "sslrootcert", "sslcert", "sslkey"):
            found = params.get(key) or login.options.get(key)
            if found is not None:
                is_file = key != "sslmode"
                said[key] = certificate_file(found, self.stream.root) if is_file else found
        if "connectTimeout" in params:
            said["connect_timeout"] = int(params["connectTimeout"])
        return said

    def role_and_database(self) -> tuple[str, str]:
        """Who writes to which database; a password is asked for only where it comes with the user."""
        load = self.stream.settings.load
        if load.connection is not None:
            connection = self.connections.get(load.connection)
            if not isinstance(connection, PostgresConnection):
                raise _no_connection(load.connection, "postgres")
            return connection.user or SOMEBODY, connection.database
        said = load.connection_params
        user = self._shown(said["user"]) if "user" in said else self.database_settings()["user"]
        return str(user or SOMEBODY), self._shown(said["database"])

    def lake(self) -> tuple[str, dict[str, str]] | None:
        """Root and options of the project's connection to a lake; None where none is named."""
        name = self.stream.settings.load.connection
        if name is None:
            return None
        connection = self.connections.get(name)
        if not isinstance(connection, LakeConnection):
            raise _no_connection(name, "lake")
        said = connection.storage_options
        return connection.root, {key: self._shown(value) for key, value in said.items()}

    @property
    def lake_has_single_writer(self) -> bool:
        """Whether the user says of the lake that nothing else writes to its tables."""
        connection = self.connections.get(self.stream.settings.load.connection or "")
        return isinstance(connection, LakeConnection) and connection.allow_single_writer

    def _shown(self, value: Any) -> str:
        return self._vault.reveal(value) if isinstance(value, Secret) else str(value)

    def _login(self, credential_id: str | None) -> Credential | None:
        return self.credentials.find(credential_id) if credential_id else None

    def _of_connection(
        self, name: str, said: dict[str, str], login: Credential | None
    ) -> tuple[dict[str, str], Credential | None]:
        connection = self.connections.get(name)
        if not isinstance(connection, KafkaConnection):
            raise _no_connection(name, "kafka")
        found = {
            "kafka.bootstrap.servers": ",".join(connection.bootstrap_servers),
            "kafka.security.protocol": connection.security_protocol,
        }
        if connection.sasl_mechanism:
            found["kafka.sasl.mechanism"] = connection.sasl_mechanism
        if connection.password is not None and login is None:
            login = Credential(connection.user, self._vault.reveal(connection.password))
        options = {key: self._shown(value) for key, value in connection.options.items()}
        return {**found, **options, **said}, login

    def _of_database(self, name: str) -> dict[str, Any]:
        connection = self.connections.get(name)
        if not isinstance(connection, PostgresConnection):
            raise _no_connection(name, "postgres")
        return libpq_settings(connection, self._vault)


def brokers(
    said: Mapping[str, str], login: Credential | None, client: str, root: Path = Path()
) -> Brokers:
    """The settings of both clients for parameters by Spark's names and a login.

    A login with a password means SASL_SSL with PLAIN unless something else is said. Files are
    looked for below `root`.
    """
    options = {f"{PREFIX}{key}": value for key, value in (login.options if login else {}).items()}
    merged = {
        key: str(root / value) if key.endswith(".location") else value
        for key, value in {**options, **said}.items()
    }
    user = merged.pop("kafka.sasl.username", None) or (login.user if login else None)
    password = merged.pop("kafka.sasl.password", None) or (login.password if login else None)
    has_login = user is not None and password is not None
    if has_login:
        merged.setdefault("kafka.security.protocol", "SASL_SSL")
        merged.setdefault("kafka.sasl.mechanism", "PLAIN")
    merged.setdefault("kafka.client.id", f"floodmark-{client}")
    # Records of transactions that were rolled back are no records.
    merged.setdefault("kafka.isolation.level", "read_committed")
    ours, spark = _ours(merged), _spark(merged)
    if has_login and merged["kafka.security.protocol"].startswith("SASL"):
        mechanism = merged["kafka.sasl.mechanism"]
        ours |= {"sasl.username": str(user), "sasl.password": str(password)}
        spark["kafka.sasl.jaas.config"] = _jaas(mechanism, str(user), str(password))
    return Brokers(ours, spark)


def _ours(merged: Mapping[str, str]) -> dict[str, str]:
    """For librdkafka, which reads PEM files and calls them by other names."""
    plain = {key.removeprefix(PREFIX): value for key, value in merged.items()}
    found = {"bootstrap.servers": plain.get("bootstrap.servers", "")}
    found |= {key: plain[key] for key in _OF_BOTH if key in plain}
    if "ssl.ca.location" in plain:
        found["ssl.ca.location"] = plain["ssl.ca.location"]
    elif plain.get("ssl.truststore.type") == "PEM":
        found["ssl.ca.location"] = plain["ssl.truststore.location"]
    if plain.get("ssl.keystore.type") == "PEM":
        found |= dict.fromkeys(
            ("ssl.certificate.location", "ssl.key.location"), plain["ssl.keystore.location"]
        )
    if "ssl.key.password" in plain:
        found["ssl.key.password"] = plain["ssl.key.password"]
    return found


def _spark(merged: Mapping[str, str]) -> dict[str, str]:
    """For Java's client: a PEM file of certificates is a trust store."""
    said = {key: value for key, value in merged.items() if key not in (*_OURS, *_SPARK_ONLY)}
    found = {**_READS_MUCH, **said}
    if "kafka.ssl.ca.location" in merged and "kafka.ssl.truststore.location" not in merged:
        found["kafka.ssl.truststore.location"] = merged["kafka.ssl.ca.location"]
        found["kafka.ssl.truststore.type"] = "PEM"
    return found


def _jaas(mechanism: str, user: str, password: str) -> str:
    """The login of Java's client: a module of Kafka's own, never one that a file names."""
    return f'{_MODULES[mechanism]} required username="{_escaped(user)}" password="{_escaped(password)}";'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _no_connection(name: str, kind: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-013",
        f"there is no connection {name} of the type {kind}",
        state="nothing was read or written",
        next=command("validate"),
    )


def table_of(stream: StreamPipeline) -> tuple[str, str]:
    """Schema and name of the target; `public` where neither table nor parameters say another."""
    schema, dot, table = stream.load.table.rpartition(".")
    said = stream.load.connection_params.get("schema")
    return (schema if dot else str(said or "public")), table
