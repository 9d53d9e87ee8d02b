"""The events of the journal: what can happen to a control store, one frozen value each.

A row of the journal is (seq, kind, key, payload, op_id, actor, at); `payload` is the JSON of one of
the bodies below. All rows of one commit carry the same `op_id`, so that a writer whose answer was
lost can look whether its commit landed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, cast

from floodmark.errors import ControlError
from floodmark.model import (
    AnyMark,
    BatchKind,
    Fallback,
    Holder,
    Mark,
    Pipeline,
    PlannedBatch,
    Query,
    SinkDone,
    TableName,
    UpstreamOptions,
    Window,
)


@dataclass(frozen=True, slots=True)
class OfBatch:
    """What happens to a batch."""

    batch_id: str

    @property
    def key(self) -> str:
        return self.batch_id


@dataclass(frozen=True, slots=True)
class OfPipeline:
    """What happens to a pipeline as such."""

    pipeline: str

    @property
    def key(self) -> str:
        return self.pipeline


@dataclass(frozen=True, slots=True)
class Created:
    """The store begins."""

    kind: ClassVar[str] = "CREATE"
    control_id: str

    @property
    def key(self) -> str:
        return self.control_id


@dataclass(frozen=True, slots=True)
class Registered(OfPipeline):
    """A pipeline says which upstreams it reads; replaces its earlier registration."""

    kind: ClassVar[str] = "REGISTER"
    scope: str
    upstreams: tuple[str, ...]
    definition_hash: str
    options: Mapping[str, UpstreamOptions] = field(default_factory=dict)
    lookups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A name of a catalog was resolved; from then on no catalog has to be asked."""

    kind: ClassVar[str] = "NAME"
    table: TableName

    @property
    def key(self) -> str:
        return self.table.name


@dataclass(frozen=True, slots=True)
class Moved:
    """The table of an upstream is in another place now; its stored name stays."""

    kind: ClassVar[str] = "MOVE"
    upstream: str
    path: str
    table_id: str

    @property
    def key(self) -> str:
        return self.upstream


@dataclass(frozen=True, slots=True)
class Planned(OfBatch):
    """A batch: its windows, and the registry as it is at this moment."""

    kind: ClassVar[str] = "PLAN"
    batch_seq: int
    scope: str
    windows: tuple[Window, ...]
    required: Mapping[str, tuple[str, ...]]
    batch_kind: BatchKind = "forward"
    allows: tuple[str, ...] = ()
    fallback: Fallback | None = None
    lookups: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Leased(OfBatch):
    """A runner takes a pipeline of a batch; `replaces` is the run it saw dead."""

    kind: ClassVar[str] = "LEASE"
    pipeline: str
    epoch: int
    run_id: str
    holder: Holder
    ttl_seconds: float
    replaces: str | None = None
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class Frozen(OfBatch):
    """The first run of a batch fixes the end that its plan had deferred, before it reads."""

    kind: ClassVar[str] = "FREEZE"
    pipeline: str
    epoch: int
    window: Window


@dataclass(frozen=True, slots=True)
class Amended(OfBatch):
    """A run reads a planned range in another way, because it is lost as it was planned (G2)."""

    kind: ClassVar[str] = "AMEND"
    pipeline: str
    epoch: int
    window: Window


@dataclass(frozen=True, slots=True)
class SinkWritten(OfBatch):
    """A write of the run is in its target, with its receipt."""

    kind: ClassVar[str] = "SINK_DONE"
    pipeline: str
    epoch: int
    sink: SinkDone


@dataclass(frozen=True, slots=True)
class TargetSettled(OfBatch):
    """What the operator decided about a target that lost rows; `sink` is the target as found."""

    kind: ClassVar[str] = "TARGET"
    pipeline: str
    epoch: int
    sink: SinkDone
    loss: str


@dataclass(frozen=True, slots=True)
class Succeeded(OfBatch):
    """Every write of the run is in its target. Final."""

    kind: ClassVar[str] = "SUCCESS"
    pipeline: str
    epoch: int
    rows_read: int | None = None
    rows_written: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed(OfBatch):
    """The run gave up; the next one takes the same windows."""

    kind: ClassVar[str] = "FAILED"
    pipeline: str
    epoch: int
    error: str


@dataclass(frozen=True, slots=True)
class Advanced(OfBatch):
    """Watermarks move, all ready upstreams of a batch at once: upstream -> version."""

    kind: ClassVar[str] = "ADVANCE"
    upstreams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cancelled(OfBatch):
    """A batch that nobody has leased is given up; its ranges are free again."""

    kind: ClassVar[str] = "CANCEL"


@dataclass(frozen=True, slots=True)
class Paused(OfPipeline):
    """A pipeline is taken out of the open batches until it is resumed.

    `released` names the windows, by batch, that nobody reads any more: their ranges are free
    again. `seen_dead` is a run of the pipeline that stands as RUNNING and was seen dead.
    """

    kind: ClassVar[str] = "PAUSE"
    released: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seen_dead: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed(OfPipeline):
    """A paused pipeline takes part again; what it missed is planned as a seed batch."""

    kind: ClassVar[str] = "RESUME"


@dataclass(frozen=True, slots=True)
class Removed(OfPipeline):
    """A pipeline leaves for good; one of that name that comes later starts from the beginning."""

    kind: ClassVar[str] = "REMOVE"
    released: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seen_dead: str | None = None


@dataclass(frozen=True, slots=True)
class Renamed(OfPipeline):
    """A pipeline that owes nothing gets another name, and goes on where it stands."""

    kind: ClassVar[str] = "RENAME"
    new_name: str


@dataclass(frozen=True, slots=True)
class Refreshed(OfPipeline):
    """A pipeline shall load everything again: it counts as having processed nothing."""

    kind: ClassVar[str] = "REFRESH"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one position; stands for every event before it."""

    kind: ClassVar[str] = "SNAPSHOT"
    control_id: str
    batch_seq: int
    pipelines: tuple[Pipeline, ...]
    marks: tuple[Mark, ...]
    batches: tuple[PlannedBatch, ...]
    epochs: Mapping[str, int]
    seeded_through: tuple[tuple[str, str, int], ...]
    sinks: Mapping[str, SinkDone]
    names: tuple[TableName, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    seeded_marks: tuple[tuple[str, str, AnyMark], ...] = ()

    @property
    def key(self) -> str:
        return self.control_id


@dataclass(frozen=True, slots=True)
class Reset:
    """An operator puts a watermark elsewhere; rows and receipts in targets stay as they are.

    `version` is -1 where nothing counts as processed any more; the rest describes the table at
    that version.
    """

    kind: ClassVar[str] = "RESET"
    scope: str
    upstream: str
    version: int
    table_id: str = ""
    feed_enabled: bool = False
    schema_fingerprint: str = ""
    query: Query | None = None
    """Set where the upstream has no versions; `version` is then one step further than before."""
    mark: AnyMark | None = None
    """Where it stands then."""

    @property
    def shown_mark(self) -> str | None:
        """The mark as it is published: typed JSON."""
        return None if self.mark is None else self.mark.encoded()

    @property
    def key(self) -> str:
        return self.upstream


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A lost store begins again, with what the commits of its targets tell."""

    kind: ClassVar[str] = "REBUILD"
    state: Snapshot
    targets: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.state.control_id


Body = (
    Created
    | Registered
    | Named
    | Moved
    | Planned
    | Leased
    | Frozen
    | Amended
    | SinkWritten
    | TargetSettled
    | Succeeded
    | Failed
    | Advanced
    | Cancelled
    | Paused
    | Resumed
    | Removed
    | Renamed
    | Refreshed
    | Snapshot
    | Reset
    | Rebuilt
)

BODIES: dict[str, type[Any]] = {
    body.kind: body
    for body in (
        Created,
        Registered,
        Named,
        Moved,
        Planned,
        Leased,
        Frozen,
        Amended,
        SinkWritten,
        TargetSettled,
        Succeeded,
        Failed,
        Advanced,
        Cancelled,
        Paused,
        Resumed,
        Removed,
        Renamed,
        Refreshed,
        Snapshot,
        Reset,
        Rebuilt,
    )
}


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the journal."""

    seq: int
    body: Body
    op_id: str
    actor: str
    at: datetime

    @property
    def kind(self) -> str:
        return self.body.kind

    @property
    def batch_id(self) -> str | None:
        """The batch the event is about, if it is about one."""
        return getattr(self.body, "batch_id", None)

    @property
    def pipeline(self) -> str | None:
        """The pipeline the event is about, if it is about one."""
        return getattr(self.body, "pipeline", None)


def encode(body: Body) -> str:
    """The JSON payload of a body; raises FM-CONTROL-034 for one that `decode` would not take.

    Once in the journal it would stop every command that reads the store.
    """
    try:
        made = _adapter(body.kind).dump_json(body, exclude_defaults=True, warnings="error")
        payload = cast("bytes", made).decode()
        if _DIGITS.search(payload):
            json.loads(payload, parse_int=_stored_int)
    except ValueError as error:
        raise ControlError(
            "FM-CONTROL-034",
            "a value cannot be stored in the journal",
            where=f"{body.kind} {body.key!a}",
            found=ascii(str(error))[:_MAX_FOUND],
            allowed="text without halves of characters, integers of 64 bits, the types of the call",
            state="nothing was recorded",
            next="correct the value, then run the same command again",
        ) from error
    return payload


_MAX_FOUND = 500
_DIGITS = re.compile("[0-9]{19}")


def _stored_int(text: str) -> int:
    """An integer that a column of the published tables can hold."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text} is no integer of 64 bits")
    return number


def decode(kind: str, payload: str) -> Body:
    """The body of a payload; raises ValueError if it is not one that this version knows."""
    if kind not in BODIES:
        raise ValueError(f"unknown event kind {kind}")
    return cast("Body", _adapter(kind).validate_json(payload))


@cache
def _adapter(kind: str) -> Any:
    # pydantic is imported on first use: `--help` and an idle import stay quick.
    from pydantic import TypeAdapter

    return TypeAdapter(BODIES[kind])
