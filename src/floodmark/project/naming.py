"""Catalog names of a project: those that Spark has to be asked for, and plans without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from floodmark.model import Batch, Upstream

Members = Mapping[str, Sequence[Upstream]]
"""The pipelines of a scope with their upstreams."""


def without(members: Members, names: Sequence[str]) -> dict[str, list[Upstream]]:
    """The pipelines with the upstreams that can be looked at; those that have none are left out."""
    kept = {p: [u for u in each if u.name not in names] for p, each in members.items()}
    return {p: each for p, each in kept.items() if any(not u.lookup for u in each)}


def readers_of(members: Members, names: Sequence[str]) -> list[str]:
    """The pipelines that read, or look up, one of these names."""
    return [p for p, each in members.items() if any(u.name in names for u in each)]


def nothing_known(scope: str) -> Batch:
    """The preview of a scope of which nothing can be looked at."""
    return Batch(None, None, scope, "PENDING", windows=(), pipelines=())


def with_unresolved(batch: Batch, names: Sequence[str], readers: Sequence[str]) -> Batch:
    """A preview that says which upstreams it could not look at: they may have news."""
    if batch.batch_id is not None:
        return replace(batch, unresolved=tuple(names))
    return replace(
        batch,
        status="PENDING",
        pipelines=tuple(dict.fromkeys((*batch.pipelines, *readers))),
        unresolved=tuple(names),
    )
