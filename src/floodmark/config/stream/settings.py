"""The settings of a stream: the JSON of a streaming pipeline, and its twin in a project's YAML.

The keys are those of the JSON, in camelCase; other spellings of a key are turned into them before
the models see them (config/stream/spellings.py).
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import Field

from floodmark.config.stream.fields import (
    DIGITS,
    TEXT_OR_NUMBER,
    CredentialId,
    Flag,
    Interval,
    Servers,
    TargetTable,
    Topic,
    Topics,
    Trigger,
    TriggerMode,
    interval_seconds,
    word,
)
from floodmark.config.stream.params import KafkaParams, SinkParams
from floodmark.config.text.fields import Columns, Name, Settings, TablePath, Text, number
from floodmark.work import RetryPolicy

DEFAULT_DRIVER_COPY_ROWS = 200_000
MAX_ROWS = 1_000_000_000
WINDOW_COLUMNS = ("window_start", "window_end")
"""Of every row that an aggregate writes: the first moment of its window, and the first one behind."""

SinkType = Annotated[str, word("postgresql", "delta", postgres="postgresql", pg="postgresql")]
WriteMode = Annotated[str, word("append", "overwrite", "upsert", merge="upsert")]
NulBytes = Annotated[str, word("reject", "strip", "replace")]
OutputMode = Annotated[str, word("append", "complete", "update")]
Strategy = Annotated[
    str,
    word(
        "drop",
        "logAndDrop",
        "sendToDLQ",
        "separateStream",
        logdrop="logAndDrop",
        dlq="sendToDLQ",
        separate="separateStream",
    ),
]
Rows = Annotated[int, number(1, MAX_ROWS), DIGITS, TEXT_OR_NUMBER]
Seconds = Annotated[int, number(0, 86_400), DIGITS, TEXT_OR_NUMBER]
Attempts = Annotated[int, number(1, 1_000), DIGITS, TEXT_OR_NUMBER]


class ExtractSettings(Settings):
    """A topic of Kafka, and the schema of its payload."""

    source_type: Annotated[str, word("kafka")] = Field(
        default="kafka", alias="sourceType", description="The kind of source."
    )
    topic: Topics = Field(description="The topic; several are separated by commas.")
    schema_name: Name = Field(
        alias="schemaName",
        description="The payload's schema: schemas/NAME.json, .avsc or .ddl.",
    )
    connection: Name | None = Field(
        default=None, description="A Kafka connection of the project, instead of its servers here."
    )
    connection_params: KafkaParams = Field(
        default_factory=dict,
        alias="connectionParams",
        description="What is said to Kafka, by Spark's names; an allow-list.",
    )
    credential_id: CredentialId | None = Field(
        default=None, alias="credentialId", description="Who we are to Kafka, by a provider."
    )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, one by one."""
        return tuple(self.topic.split(","))

    @property
    def bootstrap_servers(self) -> str | None:
        """The brokers as the file says them."""
        return self.connection_params.get("kafka.bootstrap.servers")

    @property
    def starting_offsets(self) -> str:
        """Where a new stream begins: earliest, latest, or JSON by partition."""
        return str(self.connection_params.get("startingOffsets", "latest"))

    @property
    def max_offsets(self) -> int | None:
        """The limit among the connection parameters."""
        said = self.connection_params.get("maxOffsetsPerTrigger")
        return None if said is None else int(said)


WRITE_SECONDS = 3600.0
"""How long a target may take for a batch where nobody says it."""


class LoadSettings(Settings):
    """The table that the rows go to, and how it is written."""

    sink_type: SinkType = Field(
        default="postgresql", alias="sinkType", description="The kind of target."
    )
    table: TargetTable = Field(description="The table, with its schema where it has one.")
    schema_name: Name | None = Field(
        default=None,
        alias="schemaName",
        description="The table's columns: schemas/NAME.*; else those of the payload.",
    )
    write_mode: WriteMode = Field(default="append", alias="writeMode", description="How to write.")
    keys: Columns = Field(
        default_factory=list,
        alias="upsertKeys",
        description="The key of an upsert; of an aggregate window and groups, if omitted.",
    )
    connection: Name | None = Field(
        default=None, description="A connection of the project, instead of its address here."
    )
    connection_params: SinkParams = Field(
        default_factory=dict, alias="connectionParams", description="The database and its TLS."
    )
    credential_id: CredentialId | None = Field(
        default=None, alias="credentialId", description="Who we are to the database, by a provider."
    )
    create_table: Flag = Field(
        default=False, alias="createTable", description="Create the table if it is not there."
    )
    allow_single_writer: Flag = Field(
        default=False,
        alias="allowSingleWriter",
        description="Spark may write to a Delta table on S3: nothing else writes to it meanwhile.",
    )
    evolve_table: Flag = Field(
        default=False, alias="evolveTable", description="Add columns that are missing."
    )
    tracker_schema: Name | None = Field(
        default=None,
        alias="trackerSchema",
        description="The schema of batch_tracker and its neighbours; else the table's.",
    )
    nul_bytes: NulBytes = Field(
        default="reject",
        alias="nulBytes",
        description="What becomes of texts with U+0000, which PostgreSQL does not keep: a dead"
        " letter (`reject`), the text without it (`strip`), or with U+FFFD instead (`replace`).",
    )
    driver_copy_rows: Annotated[int, number(0, MAX_ROWS), DIGITS, TEXT_OR_NUMBER] = Field(
        default=DEFAULT_DRIVER_COPY_ROWS,
        alias="driverCopyRows",
        description="Up to so many records a batch goes through the driver; larger ones by staging.",
    )
    staging_logged: Flag = Field(
        default=True,
        alias="stagingLogged",
        description="Whether PostgreSQL logs the tables that batches are staged in; unlogged ones"
        " are faster, and after a crash the server may have to be started twice.",
    )
    path: TablePath | None = Field(default=None, description="Where a Delta table is.")
    write_timeout: Interval = Field(
        default="1 hour",
        alias="writeTimeout",
        description="How long the target may take for a batch: its statements and its commit, or the"
        " jobs of Spark that write it. Then the attempt is ended, and tried again.",
    )

    @property
    def write_seconds(self) -> float:
        """How long the target may take for a batch."""
        return interval_seconds(self.write_timeout)


class WatermarkSettings(Settings):
    """How late a record may be."""

    event_time_column: Text = Field(
        alias="eventTimeColumn", description="The column with the time of the event."
    )
    delay_threshold: Interval = Field(
        alias="delayThreshold",
        description="How far behind the newest one a record is still in time.",
    )

    @property
    def delay_seconds(self) -> float:
        """The delay."""
        return interval_seconds(self.delay_threshold)


class LateDataSettings(Settings):
    """What becomes of records that are too late."""

    strategy: Strategy = Field(default="drop", description="What becomes of them.")
    dlq_topic: Topic | None = Field(
        default=None, alias="dlqTopic", description="The topic they are sent to."
    )
    table: TargetTable | None = Field(
        default=None, description="separateStream: the table they are written to."
    )


class AggregateSettings(Settings):
    """A window of event time, and what is counted in it."""

    window: Interval = Field(description="The length of a window.")
    slide: Interval | None = Field(
        default=None, description="How far one window begins after another."
    )
    group_by: Columns = Field(
        default_factory=list, alias="groupBy", description="Columns beside the window."
    )
    measures: dict[str, Text] = Field(
        min_length=1, description="Column: SQL aggregate, such as `total: sum(amount)`."
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """What makes two rows the same window of the same group."""
        return (*WINDOW_COLUMNS, *self.group_by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a result, in their order."""
        return (*self.keys, *self.measures)

    @property
    def window_seconds(self) -> float:
        """The length of a window."""
        return interval_seconds(self.window)

    @property
    def slide_seconds(self) -> float:
        """How far one window begins after another; without a slide where it ends."""
        return interval_seconds(self.slide or self.window)


class DeduplicateSettings(Settings):
    """Records that are there once within the watermark."""

    columns: Columns = Field(description="What makes two records the same.")


class StreamingSettings(Settings):
    """How the stream runs: the JSON's `streamingConfigJson`."""

    checkpoint_location: Text | None = Field(
        default=None,
        alias="checkpointLocation",
        description="Spark's folder; offsetStore database needs none.",
    )
    query_name: Text | None = Field(
        default=None, alias="queryName", description="The name of the query; else pipelineId."
    )
    offset_store: Annotated[str, word("database", "checkpoint")] | None = Field(
        default=None,
        alias="offsetStore",
        description="Where offsets are kept: the target database alone, or Spark's checkpoint too.",
    )
    output_mode: OutputMode = Field(default="append", alias="outputMode", description="As Spark's.")
    trigger_mode: TriggerMode = Field(
        default=Trigger("continuous"),
        alias="triggerMode",
        description="continuous, once, availablenow, or processingtime=<interval>.",
    )
    watermark: WatermarkSettings | None = Field(default=None, description="How late is too late.")
    late_data: LateDataSettings | None = Field(
        default=None, alias="lateDataConfig", description="What becomes of late records."
    )
    enable_idempotence: Flag = Field(
        default=True, alias="enableIdempotence", description="Exactly once; false: at least once."
    )
    max_records: Rows | None = Field(
        default=None, alias="maxRecordsPerTrigger", description="The records of a batch, at most."
    )
    max_files: Rows | None = Field(
        default=None, alias="maxFilesPerTrigger", description="For files; Kafka has none."
    )
    state_timeout: Interval | None = Field(
        default=None,
        alias="stateTimeout",
        description="How long windows and keys are kept behind the newest event, if longer than"
        " delayThreshold.",
    )
    deduplicate: DeduplicateSettings | None = Field(
        default=None, description="Records that come twice, within the watermark."
    )
    aggregate: AggregateSettings | None = Field(default=None, description="Windows of event time.")

    @property
    def is_stateful(self) -> bool:
        """Whether Spark keeps state from batch to batch."""
        return self.aggregate is not None or self.deduplicate is not None

    @property
    def state_definition(self) -> str:
        """A hash of what Spark's state is of: the same state for the same hash only."""
        windows, keys = self.aggregate, self.deduplicate
        said: dict[str, Any] = {
            "of": self.watermark.event_time_column if self.watermark else None,
            "windows": None if windows is None else [windows.window_seconds, windows.slide_seconds],
            "groupBy": None if windows is None else windows.group_by,
            "measures": None if windows is None else list(windows.measures.items()),
            "deduplicate": None if keys is None else sorted(keys.columns),
        }
        return _hashed(said)

    @property
    def state_seconds(self) -> float:
        """How far Spark's watermark stays behind the newest event, where it keeps state."""
        said = [interval_seconds(self.state_timeout)] if self.state_timeout else []
        return max([self.watermark.delay_seconds if self.watermark else 0.0, *said])

    @property
    def offsets_in(self) -> str:
        """`database` or `checkpoint`: as it is said, else by whether there is a checkpoint."""
        return self.offset_store or ("checkpoint" if self.checkpoint_location else "database")


class RetryConfig(Settings):
    """What happens after a failure that may pass."""

    strategy: Annotated[str, word("exponential", "fixed", "none")] = Field(
        default="exponential", description="How the waits grow."
    )
    max_attempts: Attempts = Field(default=5, alias="maxAttempts", description="How often in all.")
    initial_delay_seconds: Seconds = Field(
        default=1, alias="initialDelaySeconds", description="The first wait."
    )
    max_delay_seconds: Seconds = Field(
        default=60, alias="maxDelaySeconds", description="The longest wait."
    )

    @property
    def policy(self) -> RetryPolicy:
        """The same as a value; chance shortens a growing wait by up to a quarter."""
        grows = self.strategy == "exponential"
        return RetryPolicy(
            self.initial_delay_seconds,
            1 if self.strategy == "none" else self.max_attempts,
            longest_seconds=self.max_delay_seconds,
            grows=grows,
            jitter=0.25 if grows else 0.0,
        )


class CircuitBreakerConfig(Settings):
    """When to leave a target alone for a while."""

    enabled: Flag = Field(default=True, description="Whether there is one.")
    failure_threshold: Attempts = Field(
        default=5, alias="failureThreshold", description="Failures in a row that open it."
    )
    reset_timeout_seconds: Seconds = Field(
        default=60, alias="resetTimeoutSeconds", description="How long it stays open."
    )


class DlqConfig(Settings):
    """Where dead letters go beside their table."""

    dlq_type: Annotated[str, word("table", "kafka", postgresql="table", database="table")] = Field(
        default="table",
        alias="dlqType",
        description="table: floodmark_dead_letters alone; kafka: to a topic as well.",
    )
    topic: Topic | None = Field(default=None, description="The topic.")
    bootstrap_servers: Servers | None = Field(
        default=None, alias="bootstrapServers", description="Its brokers; else those of the source."
    )
    credential_id: CredentialId | None = Field(
        default=None, alias="credentialId", description="Who we are to them; else as to the source."
    )


class ErrorHandlingSettings(Settings):
    """Trying again, dead letters, and when to stop."""

    retry: RetryConfig = Field(
        default_factory=RetryConfig, alias="retryConfig", description="Trying again."
    )
    circuit_breaker: CircuitBreakerConfig = Field(
        default_factory=CircuitBreakerConfig,
        alias="circuitBreakerConfig",
        description="Leaving a target alone.",
    )
    dlq: DlqConfig = Field(
        default_factory=DlqConfig, alias="dlqConfig", description="Records that cannot be written."
    )
    fail_fast: Flag = Field(
        default=False, alias="failFast", description="Stop at the first record that is refused."
    )


class StreamPipeline(Settings):
    """A stream: Kafka to a table, exactly once."""

    pipeline_id: Name = Field(alias="pipelineId", description="Unique; the key of batch_tracker.")
    name: Text | None = Field(default=None, description="For people.")
    mode: Annotated[str, word("streaming", stream="streaming")] = Field(
        default="streaming", description="A stream; pipelines of batches are in pipelines/."
    )
    extract: ExtractSettings = Field(description="Where the records come from.")
    load: LoadSettings = Field(description="Where the rows go.")
    streaming: StreamingSettings = Field(
        default_factory=StreamingSettings,
        alias="streamingConfigJson",
        description="How the stream runs.",
    )
    errors: ErrorHandlingSettings = Field(
        default_factory=ErrorHandlingSettings,
        alias="errorHandlingConfig",
        description="What happens when something goes wrong.",
    )

    @property
    def limit(self) -> int | None:
        """The records of a batch at most: the smaller of the two limits."""
        said = [n for n in (self.extract.max_offsets, self.streaming.max_records) if n is not None]
        return min(said, default=None)

    @property
    def sends_letters(self) -> bool:
        """Whether dead letters or late records are ever sent to Kafka."""
        late = self.streaming.late_data
        return self.errors.dlq.dlq_type == "kafka" or (late is not None and bool(late.dlq_topic))

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of an upsert: as it is said, else window and groups of an aggregate."""
        aggregate = self.streaming.aggregate
        is_said = bool(self.load.keys) or aggregate is None or self.load.write_mode != "upsert"
        return tuple(self.load.keys) if is_said or aggregate is None else aggregate.keys

    def to_json(self) -> dict[str, Any]:
        """The stream as JSON says it: what was written, in the spelling of the models."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @property
    def definition(self) -> str:
        """A hash of what the stream does: the same for the same settings, however written."""
        said = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        said.pop("name", None)
        return _hashed(said)


def _hashed(said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
