"""What has to go together in a stream, and what only warns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from floodmark.config.checks.findings import CONFLICT, MISSING, OF_STREAM, UNKNOWN, Finding
from floodmark.config.stream.fields import interval_seconds
from floodmark.config.stream.schemas import StreamSchema
from floodmark.config.stream.settings import (
    WINDOW_COLUMNS,
    AggregateSettings,
    ExtractSettings,
    StreamPipeline,
)
from floodmark.config.text.places import KeyPath, choices

_RUN = "streamingConfigJson"
_PARAMS = "connectionParams"


@dataclass(frozen=True)
class StreamSchemas:
    """The schemas that a stream names; None where one could not be read."""

    payload: StreamSchema | None
    table: StreamSchema | None
    """The table's own, else the payload's."""


def stream_findings(
    stream: StreamPipeline, schemas: StreamSchemas, connections: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Everything that does not go together; `connections` by type, None outside of a project."""
    yield from _connections(stream, connections)
    yield from _source(stream)
    yield from _target(stream)
    yield from _modes(stream)
    yield from _offsets(stream)
    yield from _late(stream)
    yield from _errors(stream)
    yield from _limits(stream)
    yield from _columns(stream, schemas)


def _conflict(path: KeyPath, title: str, allowed: str) -> Finding:
    return Finding(path, CONFLICT, title, "", allowed)


def _missing(path: KeyPath, title: str, allowed: str) -> Finding:
    return Finding(path, MISSING, title, "", allowed)


def _warning(path: KeyPath, title: str, found: str, allowed: str) -> Finding:
    return Finding(path, OF_STREAM, title, found, allowed)


# Addresses --------------------------------------------------------------------------------------


def _connections(stream: StreamPipeline, known: Mapping[str, str] | None) -> Iterator[Finding]:
    wanted = "postgres" if stream.load.sink_type == "postgresql" else "lake"
    parts = (
        ("extract", stream.extract.connection, "kafka"),
        ("load", stream.load.connection, wanted),
    )
    for part, name, kind in parts:
        path: KeyPath = (part, "connection")
        if name is None:
            continue
        if known is None:
            title = "a connection is known only inside a project"
            yield _conflict(path, title, f"{_PARAMS} and credentialId")
        elif name not in known:
            title = f"there is no connection {name}"
            yield Finding(path, UNKNOWN, title, "", choices(sorted(known), name) or "none is there")
        elif known[name] and known[name] != kind:
            title = f"connection {name} is of the type {known[name]}"
            yield _conflict(path, title, f"a connection of the type {kind}")


def _source(stream: StreamPipeline) -> Iterator[Finding]:
    extract, params = stream.extract, stream.extract.connection_params
    if extract.bootstrap_servers is None and extract.connection is None:
        title = "no broker is named"
        yield _missing(("extract", _PARAMS), title, "kafka.bootstrap.servers in connectionParams")
    subscribed = params.get("subscribe")
    if subscribed is not None:
        names = sorted(name.strip() for name in str(subscribed).split(","))
        if names != sorted(extract.topics):
            title = f'"subscribe" names other topics than "topic": {subscribed}'
            yield _conflict(("extract", _PARAMS, "subscribe"), title, extract.topic)
    yield from _offsets_of_others(extract)
    if len(set(extract.topics)) != len(extract.topics):
        yield Finding(
            ("extract", "topic"), "FM-CONFIG-005", "a topic is there twice", extract.topic
        )
    yield from _security(stream)


def _offsets_of_others(extract: ExtractSettings) -> Iterator[Finding]:
    said = extract.starting_offsets.strip()
    others = sorted(set(json.loads(said)) - set(extract.topics)) if said.startswith("{") else []
    if others:
        title = f"startingOffsets are of another topic: {', '.join(others)}"
        yield _conflict(("extract", _PARAMS, "startingOffsets"), title, extract.topic)


def _security(stream: StreamPipeline) -> Iterator[Finding]:
    params = stream.extract.connection_params
    protocol = params.get("kafka.security.protocol")
    path: KeyPath = ("extract", _PARAMS)
    is_sasl = protocol is None or str(protocol).startswith("SASL")
    if not is_sasl and "kafka.sasl.mechanism" in params:
        title = f"kafka.sasl.mechanism does not go with {protocol}"
        yield _conflict((*path, "kafka.sasl.mechanism"), title, "SASL_SSL or SASL_PLAINTEXT")
    if protocol == "SASL_PLAINTEXT":
        title = "the password is sent without encryption"
        yield _warning((*path, "kafka.security.protocol"), title, str(protocol), "SASL_SSL")
    if protocol is not None and is_sasl and not _has_login(stream):
        title = f"{protocol} needs a user and a password"
        yield _missing((*path, "kafka.security.protocol"), title, "credentialId")


def _has_login(stream: StreamPipeline) -> bool:
    params = stream.extract.connection_params
    return (
        stream.extract.credential_id is not None
        or stream.extract.connection is not None
        or ("kafka.sasl.username" in params and "kafka.sasl.password" in params)
    )


def _target(stream: StreamPipeline) -> Iterator[Finding]:
    load = stream.load
    if load.sink_type == "delta":
        yield from _delta(stream)
        return
    if load.path is not None or "path" in load.connection_params:
        yield _conflict(("load", "path"), "PostgreSQL has no path", "sinkType delta, or no path")
    if load.connection is not None:
        return
    for key in ("host", "database"):
        if key not in load.connection_params:
            title = f'"{key}" of the database is not said'
            yield _missing(("load", _PARAMS), title, f"{key} in connectionParams")
    yield from _tls(stream)


def _tls(stream: StreamPipeline) -> Iterator[Finding]:
    params = stream.load.connection_params
    mode = params.get("sslmode", "prefer")
    path: KeyPath = ("load", _PARAMS)
    if mode in ("verify-ca", "verify-full") and "sslrootcert" not in params:
        title = f"sslmode {mode} without sslrootcert trusts only ~/.postgresql/root.crt"
        yield _warning((*path, "sslmode"), title, str(mode), "sslrootcert: file, or system")
    if mode in ("disable", "allow") and "sslrootcert" in params:
        title = f"sslrootcert has no effect with sslmode {mode}"
        yield _conflict((*path, "sslrootcert"), title, "sslmode verify-full")
    if ("sslcert" in params) != ("sslkey" in params):
        said = "sslcert" if "sslcert" in params else "sslkey"
        yield _missing((*path, said), "a client certificate needs its key", "sslcert and sslkey")
    if "batchsize" in params:
        title = "batchsize has no effect: rows are copied, not inserted in groups"
        yield _warning((*path, "batchsize"), title, str(params["batchsize"]), "leave it out")


def _delta(stream: StreamPipeline) -> Iterator[Finding]:
    load, run = stream.load, stream.streaming
    if load.path is None and "path" not in load.connection_params and load.connection is None:
        title = "it is not said where the Delta table is"
        yield _missing(("load",), title, "path, or connection and table")
    if run.offsets_in == "database":
        title = "offsetStore database needs a database as its target"
        at: KeyPath = (_RUN, "offsetStore") if run.offset_store else (_RUN,)
        yield _conflict(at, title, "checkpoint, with checkpointLocation")
    late = run.late_data
    if late is not None and late.strategy == "separateStream":
        title = "late records of a Delta table stay beside it, as dead letters"
        allowed = "drop, logAndDrop or sendToDLQ, with dlqTopic where they go to Kafka too"
        yield _conflict((_RUN, "lateDataConfig", "strategy"), title, allowed)
    if not run.enable_idempotence:
        title = "enableIdempotence has no effect: a commit of Delta has its receipt in any case"
        yield _warning((_RUN, "enableIdempotence"), title, "false", "leave it out")


# How it runs ------------------------------------------------------------------------------------


def _modes(stream: StreamPipeline) -> Iterator[Finding]:
    load, run = stream.load, stream.streaming
    if load.write_mode == "overwrite" and run.output_mode != "complete":
        title = f"overwrite would throw away all earlier batches with output mode {run.output_mode}"
        yield _conflict(("load", "writeMode"), title, "append or upsert; or outputMode complete")
    if run.output_mode == "complete" and load.write_mode != "overwrite":
        title = f"complete output with {load.write_mode} would write every group again and again"
        yield _conflict((_RUN, "outputMode"), title, "writeMode overwrite; or outputMode append")
    if run.output_mode == "complete" and run.aggregate is None:
        title = "complete output needs an aggregate"
        yield _conflict((_RUN, "outputMode"), title, "append, or aggregate")
    if run.output_mode == "update" and run.aggregate is not None and load.write_mode == "append":
        title = "update output with append would write a group once for every change of it"
        yield _conflict(("load", "writeMode"), title, "upsert with upsertKeys")
    if load.write_mode == "upsert" and not load.keys and run.aggregate is None:
        yield _missing(("load", "writeMode"), "an upsert needs a key", "upsertKeys: [column, ...]")
    if load.keys and load.write_mode != "upsert":
        title = f"upsertKeys have no meaning with {load.write_mode}"
        yield _conflict(("load", "upsertKeys"), title, "writeMode upsert")
    yield from _state(stream)


def _state(stream: StreamPipeline) -> Iterator[Finding]:
    run = stream.streaming
    if run.aggregate is not None and run.watermark is None:
        title = "windows need a watermark: its eventTimeColumn is what they are windows of"
        yield _missing((_RUN, "aggregate"), title, "watermark")
    if run.deduplicate is not None and run.watermark is None:
        title = "deduplication without a watermark keeps every record forever"
        yield _missing((_RUN, "deduplicate"), title, "watermark")
    if run.state_timeout is None or run.watermark is None or not run.is_stateful:
        return
    if interval_seconds(run.state_timeout) < run.watermark.delay_seconds:
        title = "state would be forgotten before its records are late"
        allowed = f"at least delayThreshold, {run.watermark.delay_threshold}"
        yield _conflict((_RUN, "stateTimeout"), title, allowed)
    elif run.output_mode == "complete" and run.deduplicate is None:
        title = "stateTimeout has no effect: complete output keeps every window"
        yield _warning((_RUN, "stateTimeout"), title, run.state_timeout, "leave it out")


def _offsets(stream: StreamPipeline) -> Iterator[Finding]:
    run = stream.streaming
    if run.offsets_in == "checkpoint" and run.checkpoint_location is None:
        title = "offsetStore checkpoint needs a place for it"
        yield _missing((_RUN, "offsetStore"), title, "checkpointLocation; or offsetStore database")
    if run.offset_store == "database" and run.checkpoint_location is not None:
        title = "checkpointLocation is not used: the database is the only memory"
        yield _warning((_RUN, "checkpointLocation"), title, run.checkpoint_location, "leave it out")
    if run.offsets_in == "database" and run.is_stateful:
        part = "aggregate" if run.aggregate is not None else "deduplicate"
        title = f"{part} keeps state, which the database does not hold"
        yield _conflict((_RUN, part), title, "checkpointLocation")
    if run.state_timeout is not None and not run.is_stateful:
        title = "stateTimeout has no effect: nothing is kept from batch to batch"
        yield _warning((_RUN, "stateTimeout"), title, run.state_timeout, "leave it out")


def _late(stream: StreamPipeline) -> Iterator[Finding]:
    late, run = stream.streaming.late_data, stream.streaming
    if late is None:
        return
    path: KeyPath = (_RUN, "lateDataConfig")
    if run.watermark is None:
        yield _missing(path, "nothing is late without a watermark", "watermark")
    is_kept = late.strategy in ("sendToDLQ", "separateStream")
    if is_kept and run.is_stateful:
        title = f"{late.strategy} is not possible with windows or deduplication"
        allowed = "drop or logAndDrop: Spark itself drops late rows of such queries"
        yield _conflict((*path, "strategy"), title, allowed)
    if late.strategy == "separateStream" and late.table is None and late.dlq_topic is None:
        title = "separateStream does not say where the late records go"
        yield _missing((*path, "strategy"), title, "table or dlqTopic")
    if late.table is not None and late.strategy != "separateStream":
        yield _conflict(
            (*path, "table"), f"table has no meaning with {late.strategy}", "separateStream"
        )
    if late.table is not None and late.table == stream.load.table:
        yield _conflict((*path, "table"), "late records go to the target itself", "another table")
    if late.dlq_topic is not None and not is_kept:
        title = f"dlqTopic has no meaning with {late.strategy}"
        yield _conflict((*path, "dlqTopic"), title, "sendToDLQ or separateStream")
    if late.dlq_topic in stream.extract.topics:
        title = "late records would come back: the topic is the source itself"
        yield _conflict((*path, "dlqTopic"), title, "another topic")


def _errors(stream: StreamPipeline) -> Iterator[Finding]:
    path: KeyPath = ("errorHandlingConfig",)
    retry, dlq = stream.errors.retry, stream.errors.dlq
    if retry.initial_delay_seconds > retry.max_delay_seconds:
        title = "the first wait is longer than the longest one"
        allowed = f"at most maxDelaySeconds, {retry.max_delay_seconds}"
        yield _conflict((*path, "retryConfig", "initialDelaySeconds"), title, allowed)
    if dlq.dlq_type == "kafka" and dlq.topic is None:
        yield _missing((*path, "dlqConfig"), "dlqType kafka needs a topic", "topic")
    if dlq.dlq_type == "table":
        for key, said in (("topic", dlq.topic), ("bootstrapServers", dlq.bootstrap_servers)):
            if said is not None:
                title = f"{key} has no meaning with dlqType table"
                yield _conflict((*path, "dlqConfig", key), title, "dlqType kafka")
    if dlq.topic in stream.extract.topics:
        title = "dead letters would come back: the topic is the source itself"
        yield _conflict((*path, "dlqConfig", "topic"), title, "another topic")


def _limits(stream: StreamPipeline) -> Iterator[Finding]:
    run, offsets = stream.streaming, stream.extract.max_offsets
    if offsets is not None and run.max_records is not None and offsets != run.max_records:
        title = f"of two limits the smaller one rules: {stream.limit:,} records a batch"
        found = f"maxOffsetsPerTrigger {offsets:,}, maxRecordsPerTrigger {run.max_records:,}"
        yield _warning((_RUN, "maxRecordsPerTrigger"), title, found, "one limit")
    if run.max_files is not None:
        title = "maxFilesPerTrigger has no effect: Kafka has no files"
        found = f"{run.max_files:,}"
        yield _warning((_RUN, "maxFilesPerTrigger"), title, found, "maxRecordsPerTrigger")


# Columns ----------------------------------------------------------------------------------------


def _columns(stream: StreamPipeline, schemas: StreamSchemas) -> Iterator[Finding]:
    payload, run = schemas.payload, stream.streaming
    if payload is None:
        return
    known = list(payload.names)
    if run.watermark is not None:
        yield from _event_time(stream, payload)
    if schemas.table is not None and run.aggregate is None:
        yield from _table_columns(stream, schemas.table, known)
    if run.deduplicate is not None:
        yield from _named(run.deduplicate.columns, known, (_RUN, "deduplicate", "columns"))
    if run.aggregate is not None:
        yield from _windows(run.aggregate, known)
        yield from _window_table(stream, run.aggregate, schemas.table)


def _table_columns(
    stream: StreamPipeline, table: StreamSchema, known: list[str]
) -> Iterator[Finding]:
    for name in table.names:
        if name not in known:
            title = f"column {name} of the table is not in the payload"
            yield Finding(("load", "schemaName"), UNKNOWN, title, "", choices(known, name))
    yield from _named(stream.load.keys, list(table.names), ("load", "upsertKeys"))


def _windows(aggregate: AggregateSettings, known: list[str]) -> Iterator[Finding]:
    yield from _named(aggregate.group_by, known, (_RUN, "aggregate", "groupBy"))
    path: KeyPath = (_RUN, "aggregate")
    for key, seconds in (("window", aggregate.window_seconds), ("slide", aggregate.slide_seconds)):
        if not seconds:
            yield _conflict((*path, key), "a window of no time", "more than 0 seconds")
    if aggregate.slide_seconds > aggregate.window_seconds:
        title = "records between two windows would be in none"
        yield _conflict((*path, "slide"), title, "at most the window")
    taken = [name.lower() for name in aggregate.keys]
    for name in aggregate.measures:
        if name.lower() in taken:
            title = f"column {name} is there twice: the window and groupBy have it"
            yield _conflict((*path, "measures", name), title, "another name")
    for position, name in enumerate(aggregate.group_by):
        if name.lower() in WINDOW_COLUMNS:
            title = f"column {name} is there twice: every window has it"
            yield _conflict((*path, "groupBy", position), title, "another column")


def _window_table(
    stream: StreamPipeline, aggregate: AggregateSettings, table: StreamSchema | None
) -> Iterator[Finding]:
    """A table of windows has columns of them, and its key tells one window of a group from all."""
    columns = list(aggregate.columns)
    if stream.load.schema_name is not None and table is not None:
        others = [name for name in table.names if name not in columns]
        if others:
            title = f"columns of the table that the aggregate does not give: {', '.join(others)}"
            allowed = choices(columns, others[0])
            yield Finding(("load", "schemaName"), UNKNOWN, title, "", allowed)
    path: KeyPath = ("load", "upsertKeys")
    yield from _named(stream.load.keys, list(aggregate.keys), path)
    lacking = [name for name in aggregate.group_by if name not in stream.load.keys]
    lacking += [] if {*WINDOW_COLUMNS} & {*stream.load.keys} else [WINDOW_COLUMNS[0]]
    if stream.load.keys and lacking:
        title = f"rows of several groups would be one: {', '.join(lacking)} is not in the key"
        yield _conflict(path, title, ", ".join(aggregate.keys))


def _named(columns: list[str], known: list[str], path: KeyPath) -> Iterator[Finding]:
    for position, name in enumerate(columns):
        if name not in known:
            title = f"there is no column {name}"
            yield Finding((*path, position), UNKNOWN, title, "", choices(known, name))


def _event_time(stream: StreamPipeline, payload: StreamSchema) -> Iterator[Finding]:
    watermark = stream.streaming.watermark
    if watermark is None:
        return
    path: KeyPath = (_RUN, "watermark", "eventTimeColumn")
    name = watermark.event_time_column
    if name == "_timestamp":
        return
    field = payload.field(name)
    if field is None:
        allowed = choices([*payload.names, "_timestamp"], name)
        yield Finding(path, UNKNOWN, f"there is no column {name}", "", allowed)
    elif field.type not in ("timestamp", "timestamp_ntz"):
        title = f"column {name} is a {field.type}, not a time"
        times = [each.name for each in payload.fields if each.type.startswith("timestamp")]
        yield Finding(path, CONFLICT, title, "", ", ".join([*times, "_timestamp"]))
