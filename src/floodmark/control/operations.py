"""What operators do to pipelines: pause, resume, remove, rename, refresh; as events to journal."""

from __future__ import annotations

from floodmark.control.events.bodies import Body, Paused, Refreshed, Removed, Renamed, Resumed
from floodmark.control.rules.pipelines import unread_without
from floodmark.errors import ControlError, UnknownNameError
from floodmark.model import Pipeline, Run, State
from floodmark.model.names import choices
from floodmark.next_steps import command


def pausing(state: State, pipeline: str, seen_dead: str | None) -> list[Body]:
    """Nothing if it is paused already."""
    if known(state, pipeline).is_paused:
        return []
    refuse_running(state, pipeline, seen_dead)
    return [Paused(pipeline, unread_without(state, pipeline, for_good=False), seen_dead)]


def resuming(state: State, pipeline: str) -> list[Body]:
    """Nothing if it is not paused."""
    return [Resumed(pipeline)] if known(state, pipeline).is_paused else []


def removing(state: State, pipeline: str, seen_dead: str | None) -> list[Body]:
    """Nothing if there is no such pipeline."""
    if pipeline not in state.pipelines:
        return []
    refuse_running(state, pipeline, seen_dead)
    return [Removed(pipeline, unread_without(state, pipeline, for_good=True), seen_dead)]


def renaming(state: State, pipeline: str, new_name: str) -> list[Body]:
    """Raises FM-CONTROL-020 while the pipeline owes a batch, FM-CONTROL-019 if the name is taken."""
    _ = known(state, pipeline)
    if new_name in state.pipelines or new_name in state.epochs:
        raise ControlError(
            "FM-CONTROL-019",
            f"pipeline {pipeline} cannot be named {new_name}",
            found=f"there is or was a pipeline {new_name}: its receipts are in its targets",
            state="nothing was changed",
            next="choose a name that was never used in this store",
        )
    refuse_debts(state, pipeline)
    return [Renamed(pipeline, new_name)]


def refreshing(state: State, pipeline: str) -> list[Body]:
    """Raises FM-CONTROL-020 while the pipeline owes a batch."""
    _ = known(state, pipeline)
    refuse_debts(state, pipeline, loads_anew=True)
    has_processed = any(name == pipeline for name, _ in state.seeded_through)
    return [Refreshed(pipeline)] if has_processed else []


def known(state: State, pipeline: str) -> Pipeline:
    """The pipeline; raises FM-CONTROL-005."""
    if pipeline in state.pipelines:
        return state.pipelines[pipeline]
    raise UnknownNameError(
        "FM-CONTROL-005",
        f"pipeline {pipeline} is not registered",
        allowed=choices(list(state.pipelines), pipeline) or "none is registered yet",
        state="nothing was changed",
        next="name one of them; " + command("run") + " registers those of floodmark.yaml",
    )


def refuse_debts(state: State, pipeline: str, *, loads_anew: bool = False) -> None:
    """A batch that the pipeline has a part in has to be finished and finalized first."""
    owed = state.open_batches_of(pipeline)
    if owed:
        step = command("retry", owed[0].batch_id)
        if loads_anew:
            anew = command("retry", owed[0].batch_id, "--full-refresh")
            step += "; or load everything anew with it: " + anew
        raise ControlError(
            "FM-CONTROL-020",
            f"batch {owed[0].batch_id}, in which pipeline {pipeline} has a part, is open",
            allowed="a pipeline whose batches are all finished and finalized",
            state="nothing was changed",
            next=step,
        )


def refuse_running(state: State, pipeline: str, seen_dead: str | None) -> None:
    """A run that began after the look at the pipeline's runs is taken for alive."""
    for run in running(state, pipeline):
        if run.run_id != seen_dead:
            raise ControlError(
                "FM-CONTROL-006",
                f"a run of pipeline {pipeline} has just begun",
                where=f"batch {run.batch_id}, run {run.run_id}, epoch {run.epoch}",
                state="nothing was changed",
                next="wait for it, or stop that process and run the same command again",
                retryable=True,
            )


def running(state: State, pipeline: str) -> list[Run]:
    """The runs of a pipeline that stand as RUNNING."""
    found = [batch.runs.get(pipeline) for batch in state.batches_owed_by(pipeline)]
    return [run for run in found if run is not None and run.status == "RUNNING"]
