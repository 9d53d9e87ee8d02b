"""Runs that happen elsewhere (dbt, a notebook): what a report of them means for the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from floodmark.control.events import Body, Failed, Leased, Succeeded
from floodmark.errors import MAX_TEXT, ControlError
from floodmark.model import Holder, Metrics, Run, State
from floodmark.next_steps import command
from floodmark.run.leases import batch_for_run
from floodmark.run.runner import stored_metrics, text_of

ELSEWHERE = Holder("external", "", 0, "")


@dataclass(frozen=True, slots=True)
class ExternalReport:
    """What somebody says about a run of theirs."""

    pipeline: str
    batch_id: str
    status: Literal["RUNNING", "SUCCESS", "FAILED"]
    run_id: str
    """The id of the run, if this report begins one."""
    ttl_seconds: float
    said: Metrics = field(default_factory=Metrics)
    error: str | None = None

    def events(self, state: State) -> list[Body]:
        """What to journal: a lease if there is none, and the outcome if there is one."""
        run = batch_for_run(state, self.batch_id, self.pipeline).runs.get(self.pipeline)
        if run and run.status == "SUCCESS":
            return self._after_success()
        epoch = state.epochs.get(self.pipeline, 0)
        if self._is_running(run):
            return self._outcome(epoch)
        return [self._lease(epoch + 1), *self._outcome(epoch + 1)]

    def _after_success(self) -> list[Body]:
        if self.status == "SUCCESS":
            return []
        raise ControlError(
            "FM-CONTROL-013",
            f"pipeline {self.pipeline} has succeeded for batch {self.batch_id}; that is final",
            found=f"status {self.status}",
            state="nothing was recorded",
            next=command("status"),
        )

    def _is_running(self, run: Run | None) -> bool:
        if run is None or run.status != "RUNNING":
            return False
        if run.is_external:
            return True
        raise ControlError(
            "FM-CONTROL-006",
            f"pipeline {self.pipeline} is being run by floodmark itself",
            where=f"batch {self.batch_id}, run {run.run_id}",
            state="nothing was recorded",
            next=command("status"),
        )

    def _lease(self, epoch: int) -> Leased:
        return Leased(
            batch_id=self.batch_id,
            pipeline=self.pipeline,
            epoch=epoch,
            run_id=self.run_id,
            holder=ELSEWHERE,
            ttl_seconds=self.ttl_seconds,
            is_external=True,
        )

    def _outcome(self, epoch: int) -> list[Body]:
        if self.status == "SUCCESS":
            texts = stored_metrics(self.said.metrics)
            rows = (self.said.rows_read, self.said.rows_written)
            return [Succeeded(self.batch_id, self.pipeline, epoch, *rows, texts)]
        if self.status == "FAILED":
            text = text_of(self.error or "failed elsewhere")[:MAX_TEXT]
            return [Failed(self.batch_id, self.pipeline, epoch, text)]
        return []
