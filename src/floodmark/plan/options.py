"""What the pipelines of a scope say about an upstream."""

from __future__ import annotations

from dataclasses import fields, replace

from floodmark.errors import PlanError
from floodmark.model import DEFAULT_OPTIONS, Pipeline, PlanRequest, State, UpstreamOptions


def options_for(state: State, request: PlanRequest, upstream: str) -> UpstreamOptions:
    """The options by which an upstream is planned; raises FM-PLAN-022 if its readers disagree.

    They share its windows, so they have to say the same; saying nothing means the defaults.
    """
    readers = [p for p in state.pipelines_in(request.scope) if upstream in p.upstreams]
    for reader in readers[1:]:
        if reader.options_of(upstream) != readers[0].options_of(upstream):
            raise _disagree(upstream, readers[0], reader)
    options = readers[0].options_of(upstream) if readers else DEFAULT_OPTIONS
    if request.on_lost_range is None:
        return options
    return replace(options, on_lost_range=request.on_lost_range)


def _disagree(upstream: str, one: Pipeline, other: Pipeline) -> PlanError:
    return PlanError(
        "FM-PLAN-022",
        f"{one.name} and {other.name} say different things about {upstream}",
        where=f"scope {one.scope}",
        found=f"{one.name}: {_shown(one.options_of(upstream))}; {other.name}:"
        f" {_shown(other.options_of(upstream))}",
        allowed="the same options in every pipeline of the scope: they share its windows",
        state="nothing was planned",
        next=f"register both with the same options, or {other.name} in a scope of its own",
    )


def _shown(options: UpstreamOptions) -> str:
    named = [f for f in fields(options) if f.compare]
    said = {f.name: getattr(options, f.name) for f in named}
    default = {f.name: getattr(DEFAULT_OPTIONS, f.name) for f in named}
    parts = [f"{name}={value}" for name, value in said.items() if value != default[name]]
    return ", ".join(parts) or "the defaults"
