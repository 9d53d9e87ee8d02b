"""Tables that are looked up: proven readable before anything is read, frozen again if they are lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from floodmark.control.events import Amended
from floodmark.errors import RunError, SourceError
from floodmark.model import Settlement, Window
from floodmark.next_steps import THEN_RETRY, command
from floodmark.run.context import Pass
from floodmark.run.engine import Engine
from floodmark.run.leases import Lease
from floodmark.run.reads import Reads
from floodmark.sources import Source
from floodmark.sources.delta import LOST_CODES

_LISTS_LOST = ("FM-SOURCE-040", "FM-SOURCE-041", "FM-SOURCE-053")
"""Lists, files and answers that are no longer what was planned."""

log = logging.getLogger("floodmark")

FreezeLookup = Callable[[str], Window]
"""A table as it is now, as a window without news; raises FM-PLAN-032 if there is none."""


def prove_lookups(reads: Reads, source: Source) -> None:
    """Raise FM-SOURCE-054 for a table that can no longer be read at its frozen version."""
    for window in reads.lookups.values():
        error = _loss(window, source)
        if error is not None:
            raise _gone(reads.pipeline, reads.batch.batch_id, window, error) from error


def settle_lost_lookups(
    lease: Lease, engine: Engine, choice: Settlement, freeze: FreezeLookup | None
) -> None:
    """Freeze lost tables again as they are now, and those that the batch has not frozen at all.

    Each is one journaled amendment, which names the targets that this run has already written with
    the old version. Raises FM-SOURCE-055 for "accept": without its rows a join would lose others.
    """
    state, pipeline = lease.ensure_held(), lease.run.pipeline
    batch, known = state.batches[lease.run.batch_id], state.pipelines.get(pipeline)
    frozen, source = batch.lookups_of(pipeline), engine.source()
    if known is None or freeze is None:
        return
    for name in known.lookups:
        window = frozen.get(name)
        error = None if window is None else _loss(window, source)
        if window is not None and error is None:
            continue
        if error is not None and window is not None and choice == "accept":
            raise _no_loss(pipeline, batch.batch_id, window) from error
        run = batch.runs.get(pipeline)
        written = [sink.write_name for sink in run.sinks.values()] if run is not None else []
        amended = _frozen_again(freeze(name), window, written)
        log.warning("%s: %s", name, amended.reason)
        _record(lease, amended)


def _record(lease: Lease, amended: Window) -> None:
    run = lease.run
    lease.record(lambda _: Amended(run.batch_id, run.pipeline, run.epoch, amended))


def _frozen_again(newest: Window, before: Window | None, written: list[str]) -> Window:
    if before is None:
        reason = f"frozen: {newest.shown_end}; the plan had not frozen it"
    else:
        old = before.shown_end
        reason = f"frozen again: {newest.shown_end}; {old}, which was planned, is gone"
        if written:
            reason += f"; already written with {old}: {', '.join(sorted(written))}"
    return replace(newest, reason=reason)


def _loss(window: Window, source: Source) -> SourceError | None:
    """Why the frozen version can no longer be read; None if it can."""
    whole = window.whole()
    try:
        facts = source.check(whole)
        if window.is_older_than(facts.latest_version):
            # Later versions may have replaced files that VACUUM then removed: each is asked for.
            source.resolved(whole, "snapshot")
    except SourceError as error:
        if error.code not in (*LOST_CODES, *_LISTS_LOST, "FM-SOURCE-010"):
            raise
        return error
    return None


def not_frozen(run: Pass, name: str) -> RunError:
    """The error for a lookup that came into the project after the batch was planned."""
    batch = run.batch.batch_id
    return RunError(
        "FM-RUN-010",
        "the batch has not frozen a table that a node looks up",
        where=f"pipeline {run.pipeline}, batch {batch}, {name}",
        found="the batch was planned before the node looked it up",
        allowed=", ".join(run.reads.lookups) or "no lookup",
        state="nothing was written by this node; earlier writes of this run stand",
        next="freeze it as it is now: " + command("retry", batch, "--on-lost-range", "snapshot"),
    )


def _gone(pipeline: str, batch_id: str, window: Window, error: SourceError) -> SourceError:
    return SourceError(
        "FM-SOURCE-054",
        "a table that is looked up can no longer be read as it was frozen",
        where=f"pipeline {pipeline}, batch {batch_id}, {window.upstream}",
        found=f"{window.shown_end}: {error.code} {error.title}; {error.found}",
        allowed=f"what the plan has frozen: {window.reason}",
        state="nothing was read; writes of earlier attempts stand and are not repeated",
        next="put the table back, "
        + THEN_RETRY
        + "; or look it up as it is now: "
        + command("retry", batch_id, "--on-lost-range", "snapshot"),
    )


def _no_loss(pipeline: str, batch_id: str, window: Window) -> SourceError:
    return SourceError(
        "FM-SOURCE-055",
        "the loss of a table that is looked up cannot be accepted",
        where=f"pipeline {pipeline}, batch {batch_id}, {window.upstream}",
        found="--on-lost-range accept",
        allowed="snapshot: the table as it is now; without its rows a join would lose others",
        state="nothing was read or written; the committed watermark stays",
        next=command("retry", batch_id, "--on-lost-range", "snapshot"),
    )
