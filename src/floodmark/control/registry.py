"""The registry of pipelines: who reads what, and so holds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from floodmark.control.events.bodies import Body, Registered
from floodmark.errors import ConfigError, ControlError, UnknownNameError
from floodmark.model import DEFAULT_OPTIONS, State, UpstreamOptions
from floodmark.model.names import PIPELINE_NAME, PIPELINE_NAME_RULE, choices


def registration(state: State, body: Registered) -> list[Body]:
    """What registering a pipeline has to journal: nothing if it is known as it is."""
    known = state.pipelines.get(body.pipeline)
    if known and known.scope != body.scope:
        raise ControlError(
            "FM-CONTROL-011",
            f"pipeline {body.pipeline} is registered in scope {known.scope}",
            found=f"scope {body.scope}",
            state="nothing was changed; a pipeline's receipts belong to its name",
            next=f"say scope: {known.scope} for it in floodmark.yaml, as after a rename; or use another"
            " name for the pipeline in the other scope",
        )
    is_same = known is not None and known.definition_hash == body.definition_hash
    return [] if is_same else [body]


def definition_hash(
    pipeline: str,
    scope: str,
    upstreams: Sequence[str],
    options: Mapping[str, UpstreamOptions] | None = None,
    lookups: Sequence[str] = (),
) -> str:
    parts: list[object] = [pipeline, scope, list(upstreams), *([list(lookups)] if lookups else [])]
    if options:
        # What "latest" meant is found out anew at each registration and is no part of it.
        said = {u: _said(o) for u, o in options.items()}
        parts.append(sorted(said.items()))
    text = json.dumps(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _said(options: UpstreamOptions) -> dict[str, object]:
    """What was said, with the options of later versions only where they were: the hash stays."""
    said = asdict(replace(options, latest_at=None, latest_mark=None))
    later = ("settle", "on_null_time", "format", "latest_mark")
    return {n: v for n, v in said.items() if n not in later or v != getattr(DEFAULT_OPTIONS, n)}


def with_baseline(
    state: State,
    scope: str,
    upstream: str,
    options: UpstreamOptions,
    latest: Callable[[str, UpstreamOptions], UpstreamOptions],
) -> UpstreamOptions:
    """The options with what "latest" means: the newest version, or time, when a pipeline of the
    scope first said so.
    """
    if options.baseline != "latest":
        return options
    said = [p.options_of(upstream) for p in state.pipelines_in(scope)]
    for one in said:
        is_same = one.baseline == "latest" and one.time_column == options.time_column
        if is_same and (one.latest_at is not None or one.latest_mark is not None):
            return replace(options, latest_at=one.latest_at, latest_mark=one.latest_mark)
    return latest(upstream, options)


def known_pipeline(state: State, pipeline: str, scope: str) -> tuple[str, ...]:
    """The upstreams of a registered pipeline; raises FM-CONTROL-005."""
    known = state.pipelines.get(pipeline)
    if known is None or known.scope != scope:
        names = [p.name for p in state.pipelines_in(scope)]
        raise UnknownNameError(
            "FM-CONTROL-005",
            f"pipeline {pipeline} is not registered in scope {scope}",
            allowed=choices(names, pipeline) or "none is registered there",
            state="nothing was planned",
            next=f"register {pipeline} first",
        )
    return known.upstreams


def refuse_odd_name(pipeline: str) -> None:
    """A pipeline's name is a part of its receipts' ids, between slashes."""
    if not PIPELINE_NAME.fullmatch(pipeline):
        raise ConfigError(
            "FM-CONFIG-007",
            f"a pipeline cannot be named {pipeline!r}",
            rule="name_of_pipeline",
            allowed=PIPELINE_NAME_RULE,
            state="nothing was journaled",
            next="choose another name",
        )
