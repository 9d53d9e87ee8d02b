"""`connectionParams`: what a stream says to Kafka and to PostgreSQL, by an allow-list.

Options of the Kafka client can load classes, read files and call addresses; only those that do none
of it are taken. Values stay as they are written; what is secret is a reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from floodmark.config.stream.fields import checked_servers, folded, plain_values
from floodmark.config.text.fields import refused
from floodmark.config.text.places import choices
from floodmark.config.text.references import ReferenceProblem, Secret
from floodmark.config.text.safety import has_login, is_secret_key

REFUSED_OPTION = "FM-CONFIG-025"

Check = Callable[[str], str]
"""Looks at the text of a parameter; raises what a validator raises."""


# Kinds of values --------------------------------------------------------------------------------


def _text(value: str) -> str:
    if not value.strip() or any(ord(character) < 32 for character in value):
        raise refused("the text is empty or has control characters", "text")
    return value


def _count(value: str) -> str:
    if not (value.isascii() and value.isdigit()) or not 1 <= int(value[:20]) <= 2**63 - 1:
        raise refused("not a number", "a whole number from 1 up")
    return value


def _port(value: str) -> str:
    if not (value.isascii() and value.isdigit()) or not 1 <= int(value[:9]) <= 65_535:
        raise refused("not a port", "1 to 65535")
    return value


def _one_of(*words: str) -> Check:
    def check(value: str) -> str:
        if value not in words:
            raise refused(f"not one of the choices: {value[:60]}", choices(words, value))
        return value

    return check


def _host(value: str) -> str:
    if has_login(value) or "://" in value or any(c.isspace() or c in "@?&=" for c in value):
        raise refused("not a host", "the name or address of a server, without user and port")
    return _text(value)


def _always_true(value: str) -> str:
    if value.strip().lower() != "true":
        title = "failOnDataLoss cannot be switched off: records would be lost in silence"
        raise refused(title, "true; offsets that are gone are an error with a command of their own")
    return value


def checked_starting_offsets(value: str) -> str:
    """`earliest`, `latest` or JSON with an offset for each partition; raises like a validator."""
    rule = 'earliest, latest, or {"topic": {"0": 12, "1": -2}} (-2 earliest, -1 latest)'
    if value.strip().lower() in ("earliest", "latest"):
        return value
    try:
        said = json.loads(value)
        sound = isinstance(said, dict) and all(_are_offsets(each) for each in said.values())
    except ValueError:
        sound = False
    if not sound:
        raise refused("not starting offsets", rule)
    return value


def _are_offsets(partitions: object) -> bool:
    return isinstance(partitions, dict) and all(
        str(number).isdigit() and type(offset) is int and offset >= -2
        for number, offset in partitions.items()
    )


# What there is ----------------------------------------------------------------------------------

_PROTOCOLS = _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

KAFKA: Mapping[str, Check] = {
    "kafka.bootstrap.servers": checked_servers,
    "subscribe": _text,
    "startingOffsets": checked_starting_offsets,
    "maxOffsetsPerTrigger": _count,
    "minPartitions": _count,
    "failOnDataLoss": _always_true,
    "kafka.security.protocol": _PROTOCOLS,
    "kafka.sasl.mechanism": _MECHANISMS,
    "kafka.sasl.username": _text,
    "kafka.sasl.password": _text,
    "kafka.ssl.truststore.location": _text,
    "kafka.ssl.truststore.type": _one_of("PEM", "JKS", "PKCS12"),
    "kafka.ssl.truststore.password": _text,
    "kafka.ssl.keystore.location": _text,
    "kafka.ssl.keystore.type": _one_of("PEM", "JKS", "PKCS12"),
    "kafka.ssl.keystore.password": _text,
    "kafka.ssl.key.password": _text,
    "kafka.ssl.ca.location": _text,
    "kafka.ssl.enabled.protocols": _one_of("TLSv1.2", "TLSv1.3", "TLSv1.2,TLSv1.3"),
    "kafka.ssl.endpoint.identification.algorithm": _one_of("https"),
    "kafka.client.id": _text,
    "kafka.client.rack": _text,
    "kafka.client.dns.lookup": _one_of(
        "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"
    ),
    "kafka.isolation.level": _one_of("read_committed", "read_uncommitted"),
    "kafka.check.crcs": _one_of("true", "false"),
    **dict.fromkeys(
        (
            "kafka.request.timeout.ms",
            "kafka.default.api.timeout.ms",
            "kafka.session.timeout.ms",
            "kafka.heartbeat.interval.ms",
            "kafka.connections.max.idle.ms",
            "kafka.metadata.max.age.ms",
            "kafka.reconnect.backoff.ms",
            "kafka.reconnect.backoff.max.ms",
            "kafka.retry.backoff.ms",
            "kafka.fetch.min.bytes",
            "kafka.fetch.max.bytes",
            "kafka.fetch.max.wait.ms",
            "kafka.max.partition.fetch.bytes",
            "kafka.max.poll.records",
            "kafka.receive.buffer.bytes",
            "kafka.send.buffer.bytes",
        ),
        _count,
    ),
}
"""What may be said to Kafka, by Spark's names; everything else is refused."""

KAFKA_CLIENT: Mapping[str, Check] = {
    name: check
    for name, check in KAFKA.items()
    if name.startswith("kafka.")
    and name not in ("kafka.bootstrap.servers", "kafka.security.protocol", "kafka.sasl.mechanism")
}
"""What a connection may say to the client beside the keys of its own."""

KAFKA_NAMES = {
    "bootstrapservers": "kafka.bootstrap.servers",
    "topic": "subscribe",
    "securityprotocol": "kafka.security.protocol",
    "saslmechanism": "kafka.sasl.mechanism",
}
"""Other names of parameters, folded."""

_DANGEROUS: tuple[tuple[str, str], ...] = (
    ("sasl.jaas.config", "a login module is a class that the client loads; use credentialId"),
    ("sasl.oauthbearer", "its addresses let a file read other files and call other servers"),
    ("callback.handler", "it names a class that the client loads"),
    (".class", "it names a class that the client loads"),
    ("interceptor", "it names a class that the client loads"),
    ("metric.reporters", "it names a class that the client loads"),
    ("security.providers", "it names a class that the client loads"),
    ("ssl.provider", "it names a class that the client loads"),
    ("deserializer", "keys and values are read as bytes"),
    ("serializer", "keys and values are written as bytes"),
    ("auto.offset.reset", "startingOffsets says where a new stream begins"),
    ("enable.auto.commit", "offsets are kept with the rows, not by the broker"),
    ("group.id", "offsets are kept with the rows, not by a consumer group"),
    ("endingoffsets", "a stream has no end; triggerMode once ends a run"),
    ("subscribepattern", "topics are named one by one, so that none is missed or added unseen"),
    ("assign", "topics are named by topic, with all their partitions"),
)
_REASONS = {folded(part): reason for part, reason in _DANGEROUS}

POSTGRES: Mapping[str, Check] = {
    "host": _host,
    "port": _port,
    "database": _text,
    "user": _text,
    "password": _text,
    "schema": _text,
    "sslmode": _one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslrootcert": _text,
    "sslcert": _text,
    "sslkey": _text,
    "connectTimeout": _count,
    "batchsize": _count,
}
POSTGRES_NAMES = {
    "dbname": "database",
    "db": "database",
    "hostname": "host",
    "server": "host",
    "username": "user",
    "currentschema": "schema",
}

DELTA: Mapping[str, Check] = {"path": _text}


# Checking ---------------------------------------------------------------------------------------


def checked_params(
    value: object, known: Mapping[str, Check], names: Mapping[str, str]
) -> dict[str, Any]:
    """The parameters by their proper names; raises every error of them at once."""
    if not isinstance(value, dict):
        raise refused("not parameters", "a mapping of names and values")
    found: dict[str, Any] = {}
    wrong: list[InitErrorDetails] = []
    for said, each in value.items():
        try:
            name = param_name(str(said), known, names)
            if name in found:
                raise _said_twice(str(said), name)
            found[name] = _checked_param(str(said), name, each, known[name])
        except PydanticCustomError as error:
            wrong.append(InitErrorDetails(type=error, loc=(str(said),), input=each))
    if wrong:
        raise ValidationError.from_exception_data("connectionParams", wrong)
    return found


def _said_twice(said: str, name: str) -> PydanticCustomError:
    title = f'"{said}" says the same as another spelling of {name}'
    return refused(title, "each parameter once", code="FM-CONFIG-005")


def param_name(said: str, known: Mapping[str, Check], names: Mapping[str, str]) -> str:
    """The proper name of a parameter; raises the error of a validator where there is none."""
    spellings = {folded(name): name for name in known} | dict(names)
    spellings |= {folded(name).removeprefix("kafka"): name for name in known if "kafka." in name}
    name = spellings.get(folded(said))
    if name is not None:
        return name
    reason = next((why for part, why in _REASONS.items() if part in folded(said)), None)
    if reason is not None and known in (KAFKA, KAFKA_CLIENT):
        title = f'the option "{said[:80]}" is not allowed'
        raise refused(title, reason, code=REFUSED_OPTION)
    title = f'unknown parameter "{said[:80]}"'
    raise refused(title, choices(list(known), said), code="FM-CONFIG-003")


def _checked_param(said: str, name: str, value: object, check: Check) -> Any:
    if is_secret_key(name):
        return _secret(value)
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str | int):
        raise refused(f'"{said}" is no single value', "text or a number")
    check(str(value))
    return value


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    try:
        return Secret(value if isinstance(value, str) else "")
    except ReferenceProblem as problem:
        allowed = f"credentialId beside connectionParams; or {problem.allowed}"
        raise refused(problem.title, allowed, code=problem.code) from None


def _kafka(value: object) -> dict[str, Any]:
    return checked_params(value, KAFKA, KAFKA_NAMES)


def _kafka_client(value: object) -> dict[str, Any]:
    return checked_params(value, KAFKA_CLIENT, {})


def _of_sink(value: object) -> dict[str, Any]:
    return checked_params(value, {**POSTGRES, **DELTA}, POSTGRES_NAMES)


KafkaParams = Annotated[
    dict[str, Any],
    BeforeValidator(_kafka),
    PlainSerializer(plain_values),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {name: {"type": ["string", "number", "boolean"]} for name in KAFKA},
        }
    ),
]
KafkaOptions = Annotated[
    dict[str, Any],
    BeforeValidator(_kafka_client),
    PlainSerializer(plain_values, when_used="json"),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                name: {"type": ["string", "number", "boolean"]} for name in KAFKA_CLIENT
            },
        }
    ),
]
SinkParams = Annotated[
    dict[str, Any],
    BeforeValidator(_of_sink),
    PlainSerializer(plain_values),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {name: {"type": ["string", "number"]} for name in (*POSTGRES, *DELTA)},
        }
    ),
]
