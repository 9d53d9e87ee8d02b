"""Connections: where data comes from and goes to."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    WithJsonSchema,
)

from floodmark.config.stream.params import KafkaOptions
from floodmark.config.text.fields import (
    Name,
    Port,
    Settings,
    TablePath,
    Text,
    Texts,
    duration,
    number,
    one_of,
    refused,
)
from floodmark.config.text.places import choices
from floodmark.config.text.references import ReferenceProblem, Secret
from floodmark.config.text.safety import has_login, is_secret_key

SPELLINGS = {
    "postgresql": "postgres",
    "sql_server": "sqlserver",
    "mssql": "sqlserver",
    "azure_sql": "sqlserver",
}
DIALECTS = ("postgres", "sqlserver", "mysql", "oracle", "snowflake", "bigquery")
"""The databases whose SQL is known."""
TYPES = (*DIALECTS, "lake", "files", "http", "kafka", "plugin")


def canonical_type(word: object) -> object:
    """The type of a connection, or the dialect of a read, as it is spelled here."""
    return SPELLINGS.get(word, word) if isinstance(word, str) else word


def _options(value: object) -> object:
    """Free settings of a driver; what is secret among them is a Secret."""
    if not isinstance(value, dict):
        raise refused("not options", "a mapping of names and values")
    return {key: _option(str(key), each) for key, each in value.items()}


def _option(key: str, value: object) -> object:
    if is_secret_key(key):
        return _secret_option(key, value)
    if isinstance(value, list | dict) or value is None:
        raise refused(
            f'option "{key}" is no single value', "text, a number, true or false", at=(key,)
        )
    if isinstance(value, str) and has_login(value):
        raise _login(key)
    return value


def _secret_option(key: str, value: object) -> Secret:
    try:
        return (
            value if isinstance(value, Secret) else Secret(value if isinstance(value, str) else "")
        )
    except ReferenceProblem as problem:
        raise refused(problem.title, problem.allowed, code=problem.code, at=(key,)) from None


def _login(*at: str) -> Exception:
    return refused(
        "a password or token is written into the address",
        "the address without it; user and password have keys of their own",
        code="FM-CONFIG-011",
        at=at,
    )


def _address(value: str) -> str:
    if has_login(value):
        raise _login()
    return value


def _web_address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise refused("not a web address", "http://... or https://...")
    return _address(value)


def _plain_options(options: dict[str, Any]) -> dict[str, Any]:
    return {k: str(v.reference) if isinstance(v, Secret) else v for k, v in options.items()}


Options = Annotated[
    dict[str, Any],
    BeforeValidator(_options),
    PlainSerializer(_plain_options, when_used="json"),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    ),
]
Address = Annotated[Text, AfterValidator(_address)]
WebAddress = Annotated[Text, AfterValidator(_web_address)]


class PostgresConnection(Settings):
    """A PostgreSQL database."""

    type: Literal["postgres"] = Field(description="The kind of connection.")
    host: Address = Field(description="The server.")
    port: Port = Field(default=5432, description="Its port.")
    database: Text = Field(description="The database.")
    user: Text | None = Field(default=None, description="The user.")
    password: Secret | None = Field(default=None, description="By reference, never literally.")
    sslmode: Annotated[
        str, one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
    ] = Field(default="prefer", description="As libpq takes it.")
    sslrootcert: Text | None = Field(
        default=None, description="A file with the certificates to trust, as PEM."
    )
    options: Options = Field(default_factory=dict, description="Options of the JDBC driver.")


class JdbcConnection(Settings):
    """Another database, over JDBC through Spark."""

    type: Literal["sqlserver", "mysql", "oracle", "snowflake", "bigquery"] = Field(
        description="The kind of connection: its dialect."
    )
    url: Address | None = Field(
        default=None, description="The JDBC URL, instead of host and database."
    )
    host: Address | None = Field(default=None, description="The server.")
    port: Port | None = Field(default=None, description="Its port; else that of the dialect.")
    database: Text | None = Field(default=None, description="The database, or BigQuery's project.")
    db_schema: Text | None = Field(
        default=None, alias="schema", description="The schema or dataset."
    )
    warehouse: Text | None = Field(default=None, description="Snowflake's warehouse.")
    role: Text | None = Field(default=None, description="Snowflake's role.")
    user: Text | None = Field(default=None, description="The user.")
    password: Secret | None = Field(default=None, description="By reference, never literally.")
    credentials: Secret | None = Field(
        default=None, description="A key file's content, by reference."
    )
    driver: Text | None = Field(
        default=None, description="The class of the driver; else the dialect's."
    )
    options: Options = Field(default_factory=dict, description="Options of the JDBC driver.")


class LakeConnection(Settings):
    """A folder or bucket of Delta tables and files."""

    type: Literal["lake"] = Field(description="The kind of connection.")
    root: TablePath = Field(description="A folder of the project, or s3://, abfss://, gs://.")
    storage_options: Options = Field(default_factory=dict, description="As delta-rs takes them.")
    allow_single_writer: bool = Field(
        default=False,
        description="Spark may write to S3: nothing else writes to these tables meanwhile.",
    )


class FilesConnection(Settings):
    """A folder or bucket of files."""

    type: Literal["files"] = Field(description="The kind of connection.")
    root: TablePath = Field(description="A folder of the project, or s3://, abfss://, gs://.")
    storage_options: Options = Field(default_factory=dict, description="As delta-rs takes them.")


class HttpConnection(Settings):
    """A web API."""

    type: Literal["http"] = Field(description="The kind of connection.")
    base_url: WebAddress = Field(description="What every path is added to.")
    cache: Annotated[str, duration("0s", "3650d")] | None = Field(
        default=None, description="How long an answer is kept and not asked for again."
    )
    timeout: Annotated[str, duration("10ms", "1d")] = Field(
        default="30s", description="How long to wait for an answer."
    )
    attempts: Annotated[int, number(1, 20)] = Field(
        default=5, description="How often a request is tried that was turned away or got lost."
    )
    max_megabytes: Annotated[int, number(1, 4096)] = Field(
        default=100, description="How large an answer, all its pages together, may be."
    )
    user: Text | None = Field(default=None, description="For basic authentication.")
    password: Secret | None = Field(default=None, description="By reference, never literally.")
    token: Secret | None = Field(default=None, description="A bearer token, by reference.")
    headers: Options = Field(default_factory=dict, description="Sent with every request.")
    params: Options = Field(
        default_factory=dict, description="Parameters of every request, such as an API key."
    )


class KafkaConnection(Settings):
    """A Kafka cluster."""

    type: Literal["kafka"] = Field(description="The kind of connection.")
    bootstrap_servers: Texts = Field(description="host:port, one or more.")
    security_protocol: Annotated[str, one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")] = (
        Field(default="PLAINTEXT", description="As Kafka takes it.")
    )
    sasl_mechanism: Annotated[str | None, one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")] = (
        Field(default=None, description="As Kafka takes it.")
    )
    user: Text | None = Field(default=None, description="The user.")
    password: Secret | None = Field(default=None, description="By reference, never literally.")
    options: KafkaOptions = Field(
        default_factory=dict, description="Options of the Kafka client, as in connectionParams."
    )


class PluginConnection(Settings):
    """What a source or sink of a plug-in reads or writes."""

    type: Literal["plugin"] = Field(description="The kind of connection.")
    name: Name = Field(description="The name of the source or sink: `@fm.source`, `@fm.sink`.")
    options: Options = Field(default_factory=dict, description="Handed to the plug-in.")


def _family(value: Any) -> str | None:
    """The model of a connection, by its type."""
    word = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    kind = canonical_type(word)
    if kind in DIALECTS[1:]:
        return "jdbc"
    return str(kind) if kind in TYPES else None


def _canonical(value: object) -> object:
    if not isinstance(value, dict):
        return value
    kind = canonical_type(value.get("type"))
    if "type" not in value:
        raise refused('key "type" is missing', choices(list(TYPES)))
    if kind not in TYPES:
        title = f"unknown type of connection: {str(kind)[:60]}"
        raise refused(title, choices(list(TYPES), str(kind)), at=("type",))
    return {**value, "type": kind}


Connection = Annotated[
    Annotated[PostgresConnection, Tag("postgres")]
    | Annotated[JdbcConnection, Tag("jdbc")]
    | Annotated[LakeConnection, Tag("lake")]
    | Annotated[FilesConnection, Tag("files")]
    | Annotated[HttpConnection, Tag("http")]
    | Annotated[KafkaConnection, Tag("kafka")]
    | Annotated[PluginConnection, Tag("plugin")],
    Discriminator(_family),
    BeforeValidator(_canonical),
]
Connections = dict[Name, Connection]
ConnectionModel = (
    PostgresConnection
    | JdbcConnection
    | LakeConnection
    | FilesConnection
    | HttpConnection
    | KafkaConnection
    | PluginConnection
)

__all__ = [
    "DIALECTS",
    "TYPES",
    "Connection",
    "ConnectionModel",
    "Connections",
    "FilesConnection",
    "HttpConnection",
    "JdbcConnection",
    "KafkaConnection",
    "LakeConnection",
    "PluginConnection",
    "PostgresConnection",
    "canonical_type",
]
