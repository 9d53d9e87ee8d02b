"""The parts of a running stream, put together from its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.config import LoadedStream
from floodmark.config.project import ConnectionModel
from floodmark.config.stream import Credentials, StreamPipeline
from floodmark.deltalog import Storage, absolute
from floodmark.errors import ConfigError
from floodmark.model import WriteMode as DeltaMode
from floodmark.model import WriteSpec
from floodmark.next_steps import command
from floodmark.postgres import quoted_table
from floodmark.streaming.access import Access, table_of
from floodmark.streaming.ledger.delta import DeltaLedger
from floodmark.streaming.ledger.postgres import PostgresLedger
from floodmark.streaming.ledger.protocol import StreamLedger
from floodmark.streaming.ledger.tables import TABLES, WriteMode, grants, written_query
from floodmark.streaming.load.postgres import PostgresWriter
from floodmark.streaming.load.rows import PostgresLoad
from floodmark.streaming.load.staging import Staging
from floodmark.streaming.load.target import TargetSpec
from floodmark.streaming.outbox.delta import DeltaOutbox
from floodmark.streaming.outbox.relay import AnyOutbox, Outbox, Producer, Relay
from floodmark.streaming.position.source import KafkaSource
from floodmark.streaming.query import StreamQuery
from floodmark.streaming.records.late import late_rule
from floodmark.streaming.runner import Runner
from floodmark.streaming.running.notes import RunnerNotes
from floodmark.streaming.running.watching import Nobody, StreamWatcher
from floodmark.streaming.story import StreamRunner

if TYPE_CHECKING:
    from floodmark.streaming.load.delta import DeltaWriter
    from floodmark.streaming.load.refused import Originals

Position = tuple[str, int, int]
Bytes = tuple[bytes | None, bytes | None]

_DELTA_MODES: dict[str, DeltaMode] = {
    "append": "append",
    "upsert": "merge",
    "overwrite": "overwrite",
}
_MODES: dict[str, WriteMode] = {"append": "append", "upsert": "upsert", "overwrite": "overwrite"}


def access_of(
    stream: LoadedStream,
    connections: Mapping[str, ConnectionModel] | None = None,
    credentials: Credentials | None = None,
) -> Access:
    """How the stream reaches Kafka and its database."""
    return Access(stream, connections or {}, credentials or Credentials())


def ledger_of(access: Access) -> StreamLedger[Any]:
    """The memory of a stream: tables in its database, or the log of its Delta table."""
    return _delta_ledger(access) if _is_delta(access) else _postgres_ledger(access)


def _is_delta(access: Access) -> bool:
    return access.stream.settings.load.sink_type == "delta"


def _delta_ledger(access: Access) -> DeltaLedger:
    path, options = delta_path(access)
    return DeltaLedger(path, access.stream.settings.pipeline_id, Storage(options))


def _postgres_ledger(access: Access) -> PostgresLedger:
    settings, schema = access.stream.settings, tracker_schema(access)
    seconds = settings.load.write_seconds
    return PostgresLedger(access.database(), settings.pipeline_id, schema, seconds)


def delta_path(access: Access) -> tuple[str, Mapping[str, str]]:
    """Where the Delta table of a stream is, and how its store is reached."""
    load, root = access.stream.settings.load, access.stream.root
    said = load.path or load.connection_params.get("path")
    lake = access.lake()
    if lake is None:
        return absolute(str(said), root), {}
    base, options = lake
    return absolute(str(said or load.table.replace(".", "/")), absolute(base, root)), options


def tracker_schema(access: Access) -> str:
    """The schema of batch_tracker and its neighbours: as it is said, else the target's."""
    settings = access.stream.settings
    return settings.load.tracker_schema or table_of(settings)[0]


def statements_of(access: Access) -> list[str]:
    """What somebody else has to run where the role of a stream may create no tables.

    Raises ConfigError FM-CONFIG-007 for a Delta table, which needs none.
    """
    settings = access.stream.settings
    if _is_delta(access):
        raise ConfigError(
            "FM-CONFIG-007",
            "a stream into a Delta table keeps nothing in a database",
            rule="delta_stream_has_no_tables",
            stream=access.stream.called,
            allowed="a stream into PostgreSQL",
            state="nothing was read or written",
            next=command("stream", "run", access.stream.called),
        )
    schema, (role, database) = tracker_schema(access), access.role_and_database()
    made = [statement for table in TABLES for statement in table.created(schema)]
    mode = _MODES[settings.load.write_mode]
    return [*made, *grants(role, database, schema, table_of(settings), mode)]


def source_of(access: Access) -> KafkaSource:
    """The stream's topics; raises SetupError FM-SETUP-010 without Kafka's client."""
    from floodmark.engines.kafka import KafkaAdmin

    settings, brokers = access.stream.settings, access.source()
    level = brokers.spark.get("kafka.isolation.level")
    return KafkaSource(
        access.stream.called,
        settings.extract.topics,
        KafkaAdmin(brokers.ours),
        reads_committed=level == "read_committed",
    )


def outbox_of(access: Access) -> AnyOutbox:
    """The messages of the stream that wait for Kafka."""
    if _is_delta(access):
        return DeltaOutbox(_delta_ledger(access))
    stream_id = access.stream.settings.pipeline_id
    return Outbox(access.database(), stream_id, tracker_schema(access))


def notes_of(access: Access) -> RunnerNotes:
    """What its runner notes on its machine."""
    return RunnerNotes(access.stream.settings.pipeline_id, tracker_schema(access))


def runner_of(
    access: Access,
    session: Callable[[], Any],
    *,
    stop: threading.Event | None = None,
    watcher: StreamWatcher | None = None,
    skips_to_earliest: bool = False,
    accepts_state_loss: bool = False,
) -> Runner:
    """What runs the stream."""
    settings = access.stream.settings
    writer = _delta_writer(access) if _is_delta(access) else _postgres_writer(access)
    parts = (access, source_of(access), writer, session)
    more: dict[str, Any] = {
        "stop": stop or threading.Event(),
        "watcher": watcher or Nobody(),
        "skips_to_earliest": skips_to_earliest,
        "relay": _relay(access) if settings.sends_letters else None,
    }
    if settings.streaming.offsets_in == "checkpoint":
        return StreamQuery(*parts, **more, accepts_state_loss=accepts_state_loss)
    return StreamRunner(*parts, **more)


def _postgres_writer(access: Access) -> PostgresWriter:
    """Late records with a table of their own are not staged: their batches go through the driver."""
    stream = access.stream
    settings, load = stream.settings, stream.settings.load
    rule, fail_fast = late_rule(settings), settings.errors.fail_fast
    # A window has no record whose bytes could be fetched, and none of its rows is left out.
    has_windows = settings.streaming.aggregate is not None
    originals = None if has_windows else _originals(access)
    fail_fast = fail_fast and not has_windows
    columns = stream.columns
    spec = TargetSpec(
        quoted_table(*table_of(settings)),
        _MODES[load.write_mode],
        settings.keys,
        load.create_table,
        load.evolve_table,
        # What overwrites has all it ever wrote in the next batch.
        (written_query(tracker_schema(access)), settings.pipeline_id)
        if load.write_mode != "overwrite"
        else None,
        columns,
    )
    schema = tracker_schema(access)
    writer = PostgresWriter(
        stream, _postgres_ledger(access), PostgresLoad(spec, fail_fast, originals)
    )
    if rule is not None and rule.table is not None:
        of_late = TargetSpec(_named(rule.table, settings), creates_table=True, columns=columns)
        return replace(writer, load_late=PostgresLoad(of_late, fail_fast, originals))
    staging = Staging(
        access.database(),
        settings.pipeline_id,
        schema,
        spec,
        fail_fast,
        originals,
        rule,
        load.write_seconds,
        is_logged=load.staging_logged,
    )
    return replace(writer, staging=staging)


def _delta_writer(access: Access) -> DeltaWriter:
    from floodmark.streaming.load.delta import DeltaWriter

    stream, (path, _) = access.stream, delta_path(access)
    load, name = stream.settings.load, stream.settings.pipeline_id
    spec = WriteSpec(
        path,
        _DELTA_MODES[load.write_mode],
        name,
        keys=stream.settings.keys,
        adds_columns=load.evolve_table,
        allow_single_writer=load.allow_single_writer or access.lake_has_single_writer,
    )
    return DeltaWriter(stream, _delta_ledger(access), spec)


def _relay(access: Access) -> Relay:
    def producer() -> Producer:
        from floodmark.engines.kafka import KafkaProducer

        return KafkaProducer(access.dead_letters().ours)

    return Relay(outbox_of(access), producer)


def _originals(access: Access) -> Originals:
    """Key and value of records that the database refused: only those are read once more."""

    def fetched(positions: Sequence[Position]) -> Mapping[Position, Bytes]:
        from floodmark.engines.kafka import records_at

        return records_at(access.source().ours, positions)

    return fetched


def _named(table: str, settings: StreamPipeline) -> str:
    schema, dot, name = table.rpartition(".")
    return quoted_table(schema if dot else table_of(settings)[0], name)
