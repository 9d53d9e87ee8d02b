"""Plans with a word on each table that its pipelines only join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from floodmark.config import ResolvedPipeline
from floodmark.project.outcomes import ScopePlan


def advised(
    plan: ScopePlan,
    members: Sequence[ResolvedPipeline],
    name_of: Callable[[str], str],
) -> ScopePlan:
    """The plan of a scope, whose `members` are all its pipelines, with the advice."""
    if plan.batch is None or not any(len(each.nodes) > 1 for each in members):
        return plan
    # Imported here: reading SQL takes a quarter of a second to load.
    from floodmark.run.nodes.advice import advice

    named = {name_of(name): caution for name, caution in advice(members).items()}
    windows = tuple(
        replace(window, warning=window.warning or named.get(window.upstream))
        for window in plan.batch.windows
    )
    return replace(plan, batch=replace(plan.batch, windows=windows))
