"""What the library tells of its work: one event for each stage, with names, counts and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.model import Batch, Finalized, RunResult, WriteResult
from floodmark.model import Run as RunRecord
from floodmark.model.durations import shown as length
from floodmark.model.shown import count, several
from floodmark.observe import Tell, stage


@dataclass(frozen=True)
class Stages:
    """The events of a coordinator; `tell` is where they go."""

    tell: Tell = stage

    def planned(self, batch: Batch) -> None:
        """A batch is there, new or found open; nothing where there was no news."""
        if batch.batch_id is None:
            return
        news = [window.upstream for window in batch.windows if window.has_news]
        verb = "is still open" if batch.reused else "planned"
        text = f"batch {batch.batch_id} {verb}: news in {several(news) or 'no upstream'}"
        self.tell(
            "planned",
            text,
            batch=batch.batch_id,
            seq=batch.seq,
            scope=batch.scope,
            kind=batch.kind,
            reused=batch.reused,
            upstreams=news,
            pipelines=list(batch.pipelines),
        )

    def started(self, run: RunRecord) -> None:
        """A run has its lease."""
        self.tell("started", f"{run.pipeline} started, batch {run.batch_id}", **_of(run))

    def wrote(self, run: RunRecord, name: str, write: WriteResult) -> None:
        """A write is committed and journaled, or was found applied."""
        rows = count(write.rows_written, "row")
        what = f"found applied in {write.target}" if write.already_applied else f"to {write.target}"
        self.tell(
            "wrote",
            f"{run.pipeline} wrote {rows} {what}",
            **_of(run),
            write=name,
            target=write.target,
            version=write.version,
            rows_written=write.rows_written,
            already_applied=write.already_applied,
        )

    def succeeded(self, run: RunRecord, result: RunResult) -> None:
        """A run is recorded as SUCCESS."""
        rows = f"{count(result.rows_read, 'row')} read, {count(result.rows_written, 'row')} written"
        self.tell(
            "succeeded",
            f"{run.pipeline} succeeded in {length(result.duration_seconds)}: {rows}",
            **_of(run),
            rows_read=result.rows_read,
            rows_written=result.rows_written,
            seconds=result.duration_seconds,
        )

    def failed(self, run: RunRecord, error: str) -> None:
        """A run is recorded as FAILED."""
        self.tell(
            "failed",
            f"{run.pipeline} failed, batch {run.batch_id}: {error.splitlines()[0]}",
            **_of(run),
            error=error,
        )

    def finalized(self, outcome: Finalized) -> None:
        """Watermarks advanced, and each upstream that is held."""
        moved = several(outcome.advanced) or "no watermark"
        self.tell(
            "finalized",
            f"batch {outcome.batch_id} finalized: {moved} advanced",
            batch=outcome.batch_id,
            advanced=list(outcome.advanced),
        )
        for held in outcome.held:
            self.tell(
                "held",
                f"{held.upstream} is held: {held.reason}",
                batch=outcome.batch_id,
                upstream=held.upstream,
                waiting_for=list(held.waiting_for),
                reason=held.reason,
            )


def _of(run: RunRecord) -> dict[str, object]:
    return {"pipeline": run.pipeline, "batch": run.batch_id, "run": run.run_id, "epoch": run.epoch}
