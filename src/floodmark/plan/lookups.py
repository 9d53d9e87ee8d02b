"""Tables that batches freeze to be looked up: whole, at one version, without a watermark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from floodmark.errors import PlanError
from floodmark.model.delta import SnapshotSize, TableFacts
from floodmark.model.file_marks import FILES as LISTED
from floodmark.model.names import DATABASE, FILES
from floodmark.model.plan import Probe, TimeFacts
from floodmark.model.state import PlannedBatch
from floodmark.model.window import ANSWER, EVERY_ROW, Caution, Query, Window
from floodmark.plan.faults import refuse_unreadable
from floodmark.plan.seeds import standing_window

ABSENT = ("FM-PLAN-001", "FM-PLAN-030")
"""Errors of a table that is not there."""
LOOKUP_ABSENT = "FM-PLAN-032"


def frozen(name: str, facts: TableFacts, size: SnapshotSize) -> Window:
    """A table at its newest version, as a window without news; warns of one without rows."""
    refuse_unreadable(name, facts)
    window = standing_window(name, Probe(facts), facts.latest_version)
    window = replace(window, reason=f"looked up at version {facts.latest_version}")
    if size.rows != 0 and size.files:
        return window
    empty = Caution(
        f"is looked up and has no rows at version {facts.latest_version}: a left join gives NULL, an"
        " inner join no rows",
        "if it should have rows, fill it before the next run; rows that are written now are not"
        " written again when it has some",
    )
    return replace(window, warning=empty)


def query_of(name: str) -> Query:
    """How the rows of what has no versions are found, by the name of the upstream."""
    if name.startswith(DATABASE):
        return Query(EVERY_ROW, "sql")
    return Query(LISTED if name.startswith(FILES) else ANSWER, "files")


def listed(standing: Window, seen: TimeFacts | None) -> Window:
    """The list, or the answer, that was found; with a warning if there is none."""
    mark = seen.newest if seen is not None else None
    if mark is None:
        empty = Caution(
            "is looked up and has nothing in it: a left join gives NULL, an inner join no rows",
            "if it should have rows, put them there before the next run",
        )
        return replace(standing, warning=empty)
    text = mark.encoded()
    step = standing.after_version + 1
    return replace(
        standing,
        after_version=step,
        through_version=step,
        start_mark=text,
        end_mark=text,
        reason=f"looked up: {mark.text}",
    )


def absent(name: str, error: PlanError) -> PlanError:
    """The error for a table that is looked up and does not exist yet."""
    return PlanError(
        LOOKUP_ABSENT,
        f"the table {name} is looked up, and there is none",
        where=error.where,
        found=f"{error.code} {error.title}",
        allowed="a Delta table, which may be empty",
        state="nothing was planned: an inner join with a table that is missing would lose rows",
        next="create the table or run what writes it, then the same command again; or take the lookup"
        " out of the pipeline",
    )


def as_frozen_by(
    batch: PlannedBatch, pipelines: Iterable[str], names: Iterable[str]
) -> dict[str, Window]:
    """Which of these tables a batch has frozen, and how its pipelines looked them up."""
    chosen = list(pipelines)
    frozen = {}
    for name in names:
        amended = (batch.amended.get(pipeline, {}).get(name) for pipeline in chosen)
        window = next((each for each in amended if each), None) or batch.lookups.get(name)
        # What was put aside of a database went with its batch.
        if window is not None and window.kind != "cursor":
            frozen[name] = window
    return frozen
