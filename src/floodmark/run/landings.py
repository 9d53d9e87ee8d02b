"""Rows that one pass puts aside, so that every node and every attempt reads the same ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from floodmark import failpoints
from floodmark.model import Receipt, Window, WriteMode, WriteResult, WriteSpec, metadata_of
from floodmark.run.claims import Claims
from floodmark.run.edges import Edges
from floodmark.run.engine import Engine
from floodmark.run.landed import ROWS_CHANGED, Landed, landed_before, rows_gone, whole_window
from floodmark.run.landing import Attempt, LandingFolder, attempt_in_force
from floodmark.run.leases import Lease
from floodmark.run.reads import Reads
from floodmark.run.writes import Notes, Writes
from floodmark.sinks import Sink


class Landings:
    """Lands rows in the control store, each kind once for all attempts of a batch."""

    def __init__(
        self, reads: Reads, writes: Writes, engine: Engine, lease: Lease, folder: LandingFolder
    ) -> None:
        self._reads = reads
        self._writes = writes
        self._engine = engine
        self._lease = lease
        self._landing = folder
        self._edges = Edges(folder.control, folder.storage)
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def land(
        self,
        name: str,
        make: Callable[[], Any],
        windows: Sequence[Window],
        readers: Sequence[WriteSpec],
    ) -> WriteResult:
        """Put rows aside, once for all attempts of this batch; the table is removed with the batch.

        It binds later attempts as soon as one of the writes that read it is committed; until then
        every attempt makes it anew, so that what was corrected takes effect.
        """
        self._writes.see(self._lease.ensure_held())
        write_name = f"{name}.{'rebuild' if self._reads.rebuilds else 'landing'}"
        folder = self._landing.folder(self._reads.batch.batch_id, self._reads.pipeline, write_name)
        earlier = self._landing.numbers(folder)
        is_binding = bool(earlier) and any(self._writes.is_committed(spec) for spec in readers)
        receipt = self._landed(write_name)
        for number in reversed(earlier) if is_binding else ():
            sink = self._landing_sink(folder, number, windows)
            found = landed_before(f"{folder}/{number}", partial(sink.committed, receipt))
            if found is not None and self._serves(found):
                return found.result
            if found is not None:
                break  # the rows of an earlier attempt are not those that were taken
        sink = self._landing_sink(folder, max(earlier, default=0) + 1, windows)
        landed = sink.write(make(), receipt)
        failpoints.reached("landing.after_write")
        return landed

    def land_once(
        self,
        name: str,
        way: str,
        version: str,
        make: Callable[[], Any],
        *,
        readers: Sequence[WriteSpec],
        bounds: Callable[[], str] = str,
    ) -> WriteResult:
        """Put rows aside that cannot be read again, once for all attempts of this batch.

        `way` and `version` tell what is read: see `landing.attempt_in_force`. `bounds` are decided
        by the attempt that reads, and kept in the commit of its rows: see `bounds_of`.
        """
        self._writes.see(self._lease.ensure_held())

        def is_taken() -> bool:
            return any(self._writes.is_committed(spec) for spec in readers)

        # Nodes that read one upstream side by side get the rows of one attempt.
        with self._turn(name):
            found = dict(self._complete_attempts(name))
            chosen = attempt_in_force(list(found), way, version, is_taken)
            if chosen is not None and self._serves(found[chosen], is_taken):
                return found[chosen].result
            last = max((attempt.number for attempt in self._attempts(name)), default=0)
            once = self._attempted(name, Attempt(last + 1, way, version), {"bounds": bounds()})
            landed = once.write(make)
        failpoints.reached("landing.after_write")
        return landed

    def land_together(
        self,
        name: str,
        way: str,
        version: str,
        make: Callable[[], Any],
        *,
        readers: Sequence[WriteSpec],
    ) -> WriteResult:
        """As `land_once`, and all pipelines of the batch read the same rows: those of the first.

        Each lands by itself, under its own lease; then the first one claims.
        """
        claims = Claims(self._landing, self._reads.batch.batch_id, name)

        def may_be_taken() -> bool:
            runs = self._lease.ensure_held().batches[self._reads.batch.batch_id].runs
            others = [run for name, run in runs.items() if name != self._reads.pipeline]
            return any(run.sinks or run.status == "RUNNING" for run in others) or any(
                self._writes.is_committed(spec) for spec in readers
            )

        with self._turn(f"{name} together"):
            claimed = {attempt: claims.claimed(attempt) for attempt in claims.attempts()}
            chosen = attempt_in_force(list(claimed), way, version, may_be_taken)
            if chosen is not None:
                rows = claimed[chosen]
                if self._serves(Landed(rows.target, rows), may_be_taken):
                    return rows
            last = max((attempt.number for attempt in claimed), default=0)
            landed = self.land_once(name, way, version, make, readers=readers)
            return claims.claim(Attempt(last + 1, way, version), landed)

    def landed_version(self, landed: WriteResult) -> int:
        """The version at which landed rows are read: others may have put them together since."""
        found = Landed(landed.target, landed)
        version = found.readable_version(self._reads.log_of(landed.target))
        if version is None:
            raise rows_gone(
                self._reads.pipeline, self._reads.batch.batch_id, found.path, ROWS_CHANGED
            )
        return version

    def bounds_of(self, landed: WriteResult) -> str | None:
        """The bounds that were kept with landed rows; None of rows that an older version landed."""
        (commit,) = self._reads.log_of(landed.target).versions(landed.version, landed.version)
        return metadata_of(commit.user_metadata).get("bounds") or None

    def has_landed(self, name: str, way: str, version: str) -> bool:
        """Whether an attempt of this batch has begun to put these rows aside."""
        return any(attempt.reads(way, version) for attempt in self._attempts(name))

    def keep_edge(self, upstream: str, step: int, name: str, make: Callable[[], Any]) -> None:
        """Keep what the window after a step of an upstream has to know; see `run.edges`.

        One that others have changed since is written anew: nobody has read it yet.
        """
        path = self._edges.path(self._reads.pipeline, upstream, step)
        once = self._once(path, name, "overwrite")
        found = landed_before(path, once.committed)
        if found is not None and not found.loss(self._reads.log_of(path), proves_files=True):
            return
        if found is not None:
            self._edges.storage.delete_dir(path)
        once.write(make)

    def edge(self, upstream: str, step: int) -> Any:
        """The rows of the edge of a step as it was left; None if there is none."""
        version = self._edges.version(self._reads.pipeline, upstream, step)
        path = self._edges.path(self._reads.pipeline, upstream, step)
        return None if version is None else self._kept_rows(path, version)

    def landed_rows(self, landed: WriteResult) -> Any:
        """Rows that were put aside, at whatever age."""
        return self._kept_rows(landed.target, self.landed_version(landed))

    def _kept_rows(self, path: str, version: int) -> Any:
        window = whole_window(path, self._reads.log_of(path), version, "kept by floodmark")
        return self._engine.source().table(window, version)

    def _attempts(self, name: str) -> list[Attempt]:
        """All attempts of this batch to put rows aside under a name, complete or not."""
        folder = self._landing.folder(self._reads.batch.batch_id, self._reads.pipeline, name)
        return [Attempt.of(each) for each in self._landing.names(folder)]

    def _complete_attempts(self, name: str) -> Iterator[tuple[Attempt, Landed]]:
        for attempt in self._attempts(name):
            once = self._attempted(name, attempt)
            found = landed_before(self._attempt_path(name, attempt), once.committed)
            if found is not None:
                yield attempt, found

    def _attempted(self, name: str, attempt: Attempt, notes: Notes | None = None) -> _Once:
        write_name = f"{name}.{attempt.folder}"
        return self._once(self._attempt_path(name, attempt), write_name, notes=notes)

    def _attempt_path(self, name: str, attempt: Attempt) -> str:
        folder = self._landing.folder(self._reads.batch.batch_id, self._reads.pipeline, name)
        return f"{folder}/{attempt.folder}"

    def _serves(self, found: Landed, is_taken: Callable[[], bool] = lambda: True) -> bool:
        """Whether landed rows can be read; those that are gone are landed anew.

        Raises FM-RUN-012 if a write has taken them, and the operator has not accepted their loss.
        """
        proves = self._reads.accepts_lost_rows
        why = found.loss(self._reads.log_of(found.path), proves_files=proves)
        if why and is_taken() and not proves:
            raise rows_gone(self._reads.pipeline, self._reads.batch.batch_id, found.path, why)
        return not why

    def _turn(self, name: str) -> threading.Lock:
        with self._guard:
            return self._turns.setdefault(name, threading.Lock())

    def _once(
        self, path: str, name: str, mode: WriteMode = "append", notes: Notes | None = None
    ) -> _Once:
        spec = WriteSpec(
            path,
            mode,
            name,
            changes="handled",
            allow_partial=mode == "overwrite",
            allow_single_writer=True,  # a table of this run's own, under its lease
        )
        receipt = self._writes.receipt(WriteSpec("", mode, name), notes)
        return _Once(self._engine.sink(spec, (), None), receipt)

    def _landing_sink(self, folder: str, number: int, windows: Sequence[Window]) -> Sink:
        spec = WriteSpec(
            f"{folder}/{number}",
            "append",
            "landing",
            changes="handled",
            allow_single_writer=True,  # a table of this attempt's own, under its lease
        )
        return self._engine.sink(spec, tuple(windows), None)

    def _landed(self, write_name: str) -> Receipt:
        return self._writes.receipt(WriteSpec("", "append", write_name))


@dataclass(frozen=True, slots=True)
class _Once:
    """A write of floodmark's own, into its control store."""

    sink: Sink
    receipt: Receipt

    def committed(self) -> WriteResult | None:
        return self.sink.committed(self.receipt)

    def write(self, make: Callable[[], Any]) -> WriteResult:
        return self.committed() or self.sink.write(make(), self.receipt)
