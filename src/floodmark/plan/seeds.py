"""Seeds: what one pipeline has to process to stand where its scope stands.

A pipeline that joins a scope, starts to read another upstream, was paused, or shall load everything
again would miss rows if it were simply listed in the next batch. It first gets a batch of its own,
from where it stands to the watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from floodmark.model import (
    NOTHING_PROCESSED,
    Mark,
    Pipeline,
    Probe,
    Seed,
    State,
    VersionWindow,
    Window,
)
from floodmark.plan import times
from floodmark.plan.faults import recreated


def pipelines_to_seed(
    state: State, scope: str, upstreams: Iterable[str], recreated: Collection[str] = ()
) -> list[Pipeline]:
    """The pipelines that read these upstreams, owe no batch, and are behind the watermark.

    Of a recreated upstream the old table is gone; all its readers begin with the new one.
    """
    wanted = set(upstreams)
    return [
        pipeline
        for pipeline in state.active_in(scope)
        if wanted & set(pipeline.upstreams)
        and not state.batches_owed_by(pipeline.name)
        and any(is_behind(state, pipeline, u) for u in pipeline.upstreams if u not in recreated)
    ]


def is_behind(state: State, pipeline: Pipeline, upstream: str) -> bool:
    committed = state.committed_version(pipeline.scope, upstream)
    return state.processed_through(pipeline.name, upstream) < committed


def draft_seed(state: State, pipeline: Pipeline, probes: Mapping[str, Probe]) -> Seed:
    """The seed of one pipeline; `probes` has its upstreams, looked at up to the watermark."""
    windows: list[Window] = []
    for upstream in pipeline.upstreams:
        mark = state.marks.get((pipeline.scope, upstream))
        after = state.processed_through(pipeline.name, upstream)
        probe = probes[upstream]
        if probe.query is None:
            windows.append(seed_window(upstream, probe, after, mark))
        elif mark is None:
            windows.append(times.standing_window(upstream, probe, None))
        else:
            begin = state.mark_of(pipeline.name, upstream, mark.mark)
            windows.append(times.between(upstream, probe, after, begin, mark))
    return Seed(pipeline.name, pipeline.scope, pipeline.upstreams, tuple(windows))


def seed_window(
    upstream: str, probe: Probe, after: int, mark: Mark | None, purpose: str = "seed"
) -> VersionWindow:
    """From where a pipeline stands to the watermark; by the feed if that covers it."""
    if mark is None:
        return standing_window(upstream, probe, after)
    if probe.facts.table_id != mark.table_id:
        raise recreated(upstream, probe.facts, mark)
    if after >= mark.version:
        return standing_window(upstream, probe, mark.version)
    if after == NOTHING_PROCESSED:
        reason = f"{purpose}: the whole table at the committed version {mark.version}"
        return _snapshot(upstream, probe, after, mark, reason)
    why_not = feed_gap(probe, after, mark)
    if why_not:
        reason = (
            f"{purpose}: the whole table at the committed version {mark.version}, because {why_not}"
        )
        return _snapshot(upstream, probe, after, mark, reason)
    return _feed(upstream, probe, after, mark, purpose)


def feed_gap(probe: Probe, after: int, mark: Mark) -> str | None:
    """Why one read of the change feed cannot give the range; None if it can."""
    if len(probe.versions) != mark.version - after:
        return f"the log no longer has every version from {after + 1}"
    if any(version.feed_enabled is False for version in probe.versions):
        return "the change feed was off in the range"
    at_the_end = probe.facts.schema_fingerprint
    if any(version.schema_fingerprint not in (None, at_the_end) for version in probe.versions):
        return "the schema changed in the range"
    return None


def standing_window(upstream: str, probe: Probe, version: int) -> VersionWindow:
    """No news: the upstream as it is at a version, which was processed before."""
    facts = probe.facts
    return VersionWindow(
        upstream=upstream,
        method="feed",
        after=version,
        through=version,
        reason="no news here",
        table_id=facts.table_id,
        feed_enabled=facts.feed_enabled,
        schema_fingerprint=facts.schema_fingerprint,
        latest_version=facts.latest_version,
        bytes=0,
        rows=0,
    )


def _snapshot(upstream: str, probe: Probe, after: int, mark: Mark, reason: str) -> VersionWindow:
    return VersionWindow(
        upstream=upstream,
        method="snapshot",
        after=after,
        through=mark.version,
        reason=reason,
        table_id=mark.table_id,
        feed_enabled=mark.feed_enabled,
        schema_fingerprint=probe.facts.schema_fingerprint,
        latest_version=probe.facts.latest_version,
        bytes=probe.size.bytes if probe.size else None,
        rows=probe.size.rows if probe.size else None,
    )


def _feed(upstream: str, probe: Probe, after: int, mark: Mark, purpose: str) -> VersionWindow:
    rows = [version.rows for version in probe.versions]
    return VersionWindow(
        upstream=upstream,
        method="feed",
        after=after,
        through=mark.version,
        reason=f"{purpose}: change feed from where the pipeline stands",
        table_id=mark.table_id,
        feed_enabled=True,
        schema_fingerprint=probe.facts.schema_fingerprint,
        latest_version=probe.facts.latest_version,
        start_at=probe.versions[0].committed_at,
        end_at=probe.versions[-1].committed_at,
        bytes=sum(version.bytes for version in probe.versions),
        rows=None if None in rows else sum(r for r in rows if r is not None),
        changes=frozenset(kind for version in probe.versions for kind in version.kinds),
    )
