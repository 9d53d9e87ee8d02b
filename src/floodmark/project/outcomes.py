"""What planning and running a project gives, and who may watch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from floodmark.errors import FloodmarkError
from floodmark.model import (
    ALREADY_APPLIED,
    LEFT_OUT,
    NULL_COLUMNS,
    TIE_EXAMPLE,
    TIES,
    Batch,
    Caution,
    Held,
    RunResult,
)

OutcomeStatus = Literal["SUCCESS", "FAILED", "REFUSED"]


@dataclass(frozen=True, slots=True)
class ScopePlan:
    """What would be done, or was frozen, in one scope; or why that cannot be told."""

    scope: str
    batch: Batch | None = None
    error: FloodmarkError | None = None
    strays: tuple[str, ...] = ()
    """Pipelines that hold the scope although floodmark.yaml does not have them."""


@dataclass(frozen=True, slots=True)
class PipelineOutcome:
    """What became of one pipeline of one batch; REFUSED means that it was not started."""

    name: str
    batch_id: str
    status: OutcomeStatus
    rows_read: int | None = None
    rows_written: int | None = None
    duration_seconds: float | None = None
    error: FloodmarkError | None = None
    story: str | None = None
    already_applied: str | None = None
    """Writes that an earlier attempt had committed and that were not repeated."""
    attempts: int = 1
    """How often it was tried in this run."""
    ties: Mapping[str, int] = field(default_factory=dict)
    """By write: keys that had several rows with an equal claim to be the newest."""
    tie_examples: Mapping[str, str] = field(default_factory=dict)
    """By write: one of those keys, unless a column of the project is sensitive."""
    null_columns: Mapping[str, str] = field(default_factory=dict)
    """By write: columns of the target that the rows did not have."""
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    """By write: rows that the target did not take, as a trigger of PostgreSQL leaves some out."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of one batch in this run."""

    batch: Batch
    pipelines: tuple[PipelineOutcome, ...]
    advanced: tuple[str, ...]
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pipeline that was not planned: a pipeline whose tables it reads failed, or waits itself."""

    pipeline: str
    scope: str
    waiting_for: tuple[str, ...]


@dataclass
class RunSummary:
    """What a whole run did, in the order in which the pipelines run."""

    batches: list[BatchOutcome] = field(default_factory=list)
    refused: list[FloodmarkError] = field(default_factory=list)
    """Scopes that could not be planned; the others were run all the same."""
    has_selection: bool = True
    """False where the selectors matched no pipeline."""
    cautions: dict[str, Caution] = field(default_factory=dict)
    """What was seen while planning and stopped nothing, by upstream."""
    waiting: list[Waiting] = field(default_factory=list)

    @property
    def outcomes(self) -> list[PipelineOutcome]:
        return [outcome for batch in self.batches for outcome in batch.pipelines]

    @property
    def held(self) -> list[Held]:
        """What is held at the end: a later batch of an upstream speaks for the earlier ones."""
        last: dict[tuple[str, str], Held | None] = {}
        for outcome in self.batches:
            scope = outcome.batch.scope
            last |= {(scope, window.upstream): None for window in outcome.batch.windows}
            last |= {(scope, held.upstream): held for held in outcome.held}
        return [held for held in last.values() if held is not None]

    @property
    def exit_code(self) -> int:
        """1 if a function failed, else that of the first refusal, else 0."""
        errors = [o.error for o in self.outcomes if o.error] + self.refused
        codes = [error.exit_code for error in errors]
        return 1 if 1 in codes else next(iter(codes), 0)


class Watcher(Protocol):
    """Sees a run while it happens, from several threads."""

    def planned(self, batch: Batch) -> None: ...
    def starting_session(self) -> None: ...
    def started(self, pipeline: str, batch_id: str) -> None: ...
    def waiting(self, outcome: PipelineOutcome, delay_seconds: float) -> None: ...
    def finished(self, outcome: PipelineOutcome) -> None: ...


class NullWatcher:
    """A watcher that looks away."""

    def planned(self, batch: Batch) -> None: ...
    def starting_session(self) -> None: ...
    def started(self, pipeline: str, batch_id: str) -> None: ...
    def waiting(self, outcome: PipelineOutcome, delay_seconds: float) -> None: ...
    def finished(self, outcome: PipelineOutcome) -> None: ...


def outcome_of(result: RunResult, attempts: int) -> PipelineOutcome:
    """A finished run as a part of a summary."""
    return PipelineOutcome(
        name=result.pipeline,
        batch_id=result.batch_id,
        status="SUCCESS",
        rows_read=result.rows_read,
        rows_written=result.rows_written,
        duration_seconds=result.duration_seconds,
        story=result.story,
        already_applied=result.metrics.get(ALREADY_APPLIED),
        attempts=attempts,
        ties={name: int(count) for name, count in _by_write(result, TIES).items()},
        tie_examples=_by_write(result, TIE_EXAMPLE),
        null_columns=_by_write(result, NULL_COLUMNS),
        rows_left_out={name: int(n) for name, n in _by_write(result, LEFT_OUT).items()},
    )


def _by_write(result: RunResult, prefix: str) -> dict[str, str]:
    metrics = result.metrics.items()
    return {key.removeprefix(prefix): value for key, value in metrics if key.startswith(prefix)}
