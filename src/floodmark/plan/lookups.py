"""Tables that batches freeze to be looked up: whole, at one version, without a watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from floodmark.errors import PlanError
from floodmark.model import (
    EVERY_ROW,
    FILE_LIST,
    WHOLE_ANSWER,
    Caution,
    CursorWindow,
    PlannedBatch,
    Probe,
    Query,
    QueryWindow,
    SnapshotSize,
    TableFacts,
    TimeFacts,
    Window,
)
from floodmark.model.copying import replace
from floodmark.model.names import DATABASE, FILES
from floodmark.plan import times
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


def _query_of(name: str) -> Query:
    """How the rows of what has no versions are found, by the name of the upstream."""
    if name.startswith(DATABASE):
        return EVERY_ROW
    return FILE_LIST if name.startswith(FILES) else WHOLE_ANSWER


def frozen_rows(
    name: str, facts: TableFacts, look: Callable[[QueryWindow], TimeFacts | None]
) -> Window:
    """What has no versions: files by the list, a web API by the answer that `look` finds; with a
    warning if there is none. The rows of a database are put aside when a batch needs them.
    """
    standing = times.standing_window(name, Probe(facts, query=_query_of(name)), None)
    if isinstance(standing, CursorWindow):
        return replace(standing, reason="looked up: put aside once, before its first read")
    seen = look(standing)
    mark = seen.newest if seen is not None else None
    if mark is None:
        empty = Caution(
            "is looked up and has nothing in it: a left join gives NULL, an inner join no rows",
            "if it should have rows, put them there before the next run",
        )
        return replace(standing, warning=empty)
    step = standing.after + 1
    return replace(
        standing,
        after=step,
        through=step,
        after_mark=mark,
        through_mark=mark,
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
        if window is not None and not isinstance(window, CursorWindow):
            frozen[name] = window
    return frozen
