"""What a pipeline's function gets: exact inputs, and writes that happen exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from floodmark.model import (
    Changes,
    Deletes,
    Missing,
    PlannedBatch,
    Window,
    WriteMode,
    WriteResult,
    WriteSpec,
)
from floodmark.model.arguments import checks_call
from floodmark.run.landings import Landings
from floodmark.run.reads import Reads
from floodmark.run.writes import Writes

if TYPE_CHECKING:
    DataFrame = Any  # of whichever engine

_EARLIER_STAND = "this call did nothing; earlier writes of this run stand and are not repeated"


@dataclass(frozen=True)
class Pass:
    """One call of a pipeline's function, from inside: what nodes work with.

    A function of a user gets a `Run`, which shows less of it.
    """

    run_id: str
    reads: Reads
    writes: Writes
    landings: Landings

    @property
    def batch(self) -> PlannedBatch:
        return self.reads.batch

    @property
    def pipeline(self) -> str:
        return self.reads.pipeline

    @property
    def spark(self) -> Any:
        return self.reads.spark


@runtime_checkable
class NodePipeline(Protocol):
    """A pipeline that works with the pass itself: one of nodes."""

    def run_nodes(self, inputs: Mapping[str, Any], run: Pass) -> Mapping[str, object]:
        """Run every node; its metrics come back."""


class Run:
    """One run of a pipeline, as its function sees it."""

    def __init__(self, inside: Pass) -> None:
        self._reads = inside.reads
        self._writes = inside.writes
        self.batch = inside.batch
        self.pipeline = inside.pipeline
        self.run_id = inside.run_id
        self.spark = inside.spark
        self.windows: tuple[Window, ...] = inside.reads.windows

    @checks_call("run", _EARLIER_STAND)
    @checks_call("run", _EARLIER_STAND)
    def write(
        self,
        frame: DataFrame,
        target: str,
        *,
        mode: WriteMode,
        keys: Iterable[str] = (),
        name: str | None = None,
        changes: Changes | None = None,
        missing: Missing | None = None,
        deletes: Deletes = "apply",
        sequence_by: str | None = None,
        allow_full: bool = False,
        allow_partial: bool = False,
        partition_by: Iterable[str] = (),
        replace_where: str | None = None,
        upstreams: str | Iterable[str] | None = None,
        allow_single_writer: bool = False,
    ) -> WriteResult:
        """Write a frame to a Delta table, or one of PostgreSQL, exactly once for this batch.

        A target with a slash is a path or URI, `<connection>:<table>` a table of a database of the
        project, another one a name of the session's catalog; the first write creates the table.
        The rows and their receipt are one commit. If an earlier attempt of this run already wrote
        it, nothing is written and the earlier result comes back. Two writes of one run need two
        names; the default is the target as it is written. `upstreams` are those that the rows come from, where they are not all that the
        pipeline reads: the rules for snapshots and changes then look at these alone.
        `allow_single_writer` says that nothing else writes to a target on S3 meanwhile. See
        docs/guides/coordinator.md for the options.
        """
        spec = WriteSpec(
            target=target,
            mode=mode,
            name=name or "",
            keys=(keys,) if isinstance(keys, str) else tuple(keys),
            changes=changes,
            missing=missing,
            deletes=deletes,
            sequence_by=sequence_by,
            allow_full=allow_full,
            allow_partial=allow_partial,
            partition_by=tuple(partition_by),
            replace_where=replace_where,
            allow_single_writer=allow_single_writer,
        )
        if upstreams is None:
            return self._writes.write(spec, lambda: frame)
        named = [upstreams] if isinstance(upstreams, str) else upstreams
        return self._writes.write(spec, lambda: frame, [self.window(name) for name in named])

    @checks_call("run", _EARLIER_STAND)
    @checks_call("run", _EARLIER_STAND)
    def table(self, name: str, at: Literal["end", "before"] = "end") -> Any:
        """The whole upstream, without change columns, at the batch's frozen version.

        `at="before"` gives it as it was just before the window: a join of changes needs one side
        of each. Raises FM-RUN-003 for an upstream that the pipeline is not registered for.
        """
        return self._reads.table(name, at)

    @checks_call("run", _EARLIER_STAND)
    @checks_call("run", _EARLIER_STAND)
    def window(self, name: str) -> Window:
        """The window of an upstream or lookup, by the name as registered or as stored."""
        return self._reads.window(name)
