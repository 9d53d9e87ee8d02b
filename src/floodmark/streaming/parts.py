"""The parts of a running stream, put together from its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.config.connections import ConnectionModel
from floodmark.config.credentials import Credentials
from floodmark.config.stream_files import LoadedStream
from floodmark.config.streams import StreamPipeline
from floodmark.engines.postgres import quoted_table
from floodmark.errors import StreamError
from floodmark.streaming.access import Access, table_of
from floodmark.streaming.late import late_rule
from floodmark.streaming.ledger import Ledger
from floodmark.streaming.load import PostgresLoad
from floodmark.streaming.outbox import Outbox, Producer, Relay
from floodmark.streaming.query import StreamQuery
from floodmark.streaming.runner import StreamRunner
from floodmark.streaming.source import KafkaSource
from floodmark.streaming.tables import WriteMode
from floodmark.streaming.target import TargetSpec
from floodmark.streaming.watching import Nobody, StreamWatcher
from floodmark.streaming.writing import BatchWriter

if TYPE_CHECKING:
    from floodmark.streaming.late import LateRule
    from floodmark.streaming.refused import Originals
    from floodmark.streaming.staging import Staging
    from floodmark.streaming.target import TargetSpec


Position = tuple[str, int, int]
Bytes = tuple[bytes | None, bytes | None]

_MODES: dict[str, WriteMode] = {"append": "append", "upsert": "upsert", "overwrite": "overwrite"}


def access_of(
    stream: LoadedStream,
    connections: Mapping[str, ConnectionModel] | None = None,
    credentials: Credentials | None = None,
) -> Access:
    """How the stream reaches Kafka and its database."""
    return Access(stream, connections or {}, credentials or Credentials())


def ledger_of(access: Access) -> Ledger:
    """The stream's tables in its database."""
    settings = access.stream.settings
    return Ledger(access.database(), settings.pipeline_id, tracker_schema(access))


def tracker_schema(access: Access) -> str:
    """The schema of batch_tracker and its neighbours: as it is said, else the target's."""
    settings = access.stream.settings
    return settings.load.tracker_schema or table_of(settings)[0]


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


def outbox_of(access: Access) -> Outbox:
    """The messages of the stream that wait for Kafka."""
    settings = access.stream.settings
    return Outbox(access.database(), settings.pipeline_id, tracker_schema(access))


def runner_of(
    access: Access,
    session: Callable[[], Any],
    *,
    stop: threading.Event | None = None,
    watcher: StreamWatcher | None = None,
    skips_to_earliest: bool = False,
) -> StreamRunner | StreamQuery:
    """What runs the stream; raises FM-STREAM-043 for what this version does not run."""
    stream = access.stream
    settings, load = stream.settings, stream.settings.load
    _refuse_not_run(settings)
    rule = late_rule(settings)
    late = rule.table if rule is not None else None
    fail_fast, originals = settings.errors.fail_fast, _originals(access)
    spec = TargetSpec(
        quoted_table(*table_of(settings)),
        _MODES[load.write_mode],
        tuple(load.keys),
        load.create_table,
        load.evolve_table,
    )
    of_late = TargetSpec(_named(late, settings), creates_table=True) if late else None
    writer = BatchWriter(
        stream,
        ledger_of(access),
        PostgresLoad(spec, fail_fast, originals),
        PostgresLoad(of_late, fail_fast, originals) if of_late else None,
        None if late else _staging(access, spec, rule, originals),
    )
    kind = StreamQuery if settings.streaming.offsets_in == "checkpoint" else StreamRunner
    return kind(
        access,
        source_of(access),
        writer,
        session,
        stop=stop or threading.Event(),
        watcher=watcher or Nobody(),
        skips_to_earliest=skips_to_earliest,
        relay=_relay(access) if _has_topic(settings) else None,
    )


def _staging(
    access: Access, spec: TargetSpec, late: LateRule | None, originals: Originals
) -> Staging:
    """What loads batches that are too large for the driver."""
    from floodmark.streaming.staging import Staging

    settings = access.stream.settings
    return Staging(
        access.database(),
        settings.pipeline_id,
        tracker_schema(access),
        spec,
        settings.errors.fail_fast,
        originals,
        late,
    )


def _has_topic(settings: StreamPipeline) -> bool:
    """Whether anything is ever sent to Kafka."""
    late = settings.streaming.late_data
    return settings.errors.dlq.dlq_type == "kafka" or (late is not None and bool(late.dlq_topic))


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


def _refuse_not_run(settings: StreamPipeline) -> None:
    """FM-STREAM-043."""
    if settings.load.sink_type != "postgresql":
        found, allowed = f"sinkType {settings.load.sink_type}", "sinkType postgresql"
    elif settings.streaming.is_stateful:
        found, allowed = "aggregate or deduplicate", "a stream without them"
    else:
        return
    raise StreamError(
        "FM-STREAM-043",
        "this version does not run such a stream",
        where=f"stream {settings.pipeline_id}",
        found=found,
        allowed=allowed,
        state="nothing was read or written",
        next="change the key, then: floodmark stream run",
    )
