"""Plans of pipelines that read what others of the same plan will write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from floodmark.config import PipelineSettings
from floodmark.project import naming
from floodmark.project.outcomes import ScopePlan

_ABSENT = ("FM-PLAN-001", "FM-PLAN-030", "FM-PLAN-032")


def with_followers(
    plans: Sequence[ScopePlan],
    scopes: Mapping[str, Sequence[PipelineSettings]],
    writers: Mapping[str, Sequence[str]],
) -> list[ScopePlan]:
    """The plans, each with the pipelines after which it is made again; `writers` are by reader.

    Their windows exist only once those have run. A table that is not there yet is no error then.
    """
    scope_of = {each.pipeline: scope for scope, chosen in scopes.items() for each in chosen}
    found = {plan.scope: plan for plan in plans}
    for _ in plans:  # a chain is as long as there are scopes, at most
        found = {
            scope: _following(plan, _working(plan, scopes[scope], writers, scope_of, found), scopes)
            for scope, plan in found.items()
        }
    return list(found.values())


def _working(
    plan: ScopePlan,
    chosen: Sequence[PipelineSettings],
    writers: Mapping[str, Sequence[str]],
    scope_of: Mapping[str, str],
    plans: Mapping[str, ScopePlan],
) -> list[str]:
    """The pipelines of other scopes that write what is read here, and have something to do."""
    names = dict.fromkeys(w for each in chosen for w in writers.get(each.pipeline, ()))
    others = [name for name in names if scope_of.get(name, plan.scope) != plan.scope]
    return [name for name in others if _has_work(plans[scope_of[name]])]


def _has_work(plan: ScopePlan) -> bool:
    return plan.batch is not None and (plan.batch.status != "NOOP" or bool(plan.batch.after))


def _following(
    plan: ScopePlan, after: Sequence[str], scopes: Mapping[str, Sequence[PipelineSettings]]
) -> ScopePlan:
    if not after:
        return plan
    if plan.error is not None:
        if plan.error.code not in _ABSENT:
            return plan
        names = tuple(each.pipeline for each in scopes[plan.scope])
        batch = replace(naming.nothing_known(plan.scope), pipelines=names, after=tuple(after))
        return replace(plan, batch=batch, error=None)
    if plan.batch is None or plan.batch.batch_id is not None:
        return plan
    pipelines = plan.batch.pipelines or tuple(each.pipeline for each in scopes[plan.scope])
    batch = replace(plan.batch, status="PENDING", pipelines=pipelines, after=tuple(after))
    return replace(plan, batch=batch)
