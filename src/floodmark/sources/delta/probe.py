"""What is new in a Delta upstream, from its log alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model import (
    DEFAULT_OPTIONS,
    Before,
    Mark,
    Probe,
    SnapshotSize,
    TableFacts,
    UpstreamOptions,
    VersionFacts,
)
from floodmark.sources.delta.log import TableLog, log_of


def probe_delta(
    upstream: str,
    mark: Mark | None,
    max_versions: int | None,
    storage: Storage,
    options: UpstreamOptions = DEFAULT_OPTIONS,
    *,
    spark: Any = None,
) -> Probe:
    """The facts that planning needs, and no more reads than that.

    `upstream` is where the table is; `spark` is asked where its catalog manages it. Raises
    PlanError FM-PLAN-001/002 if there is no such table, SourceError if its log cannot be
    read: an outage is never taken for "nothing new".
    """
    log = log_of(upstream, storage, spark)
    facts = log.facts()
    after = options.first_after if mark is None else mark.version
    is_whole = mark is None and after < 0 and options.method != "feed"
    if is_whole or _is_reload(facts, mark, options):
        return Probe(facts, size=log.snapshot_size(facts.latest_version))
    if mark is not None and facts.table_id != mark.table_id:
        return Probe(facts)
    if after >= facts.latest_version:
        return Probe(facts)
    if facts.earliest_version > after + 1:
        return _probe_after_loss(log, facts, max_versions, options)
    return _probe_following(log, facts, mark, max_versions, options)


def _probe_following(
    log: TableLog,
    facts: TableFacts,
    mark: Mark | None,
    max_versions: int | None,
    options: UpstreamOptions,
) -> Probe:
    after = options.first_after if mark is None else mark.version
    # One version more than asked, so that the plan can say whether it was cut.
    wants_all = max_versions is None or options.method == "feed"
    last = facts.latest_version if wants_all else after + 1 + (max_versions or 0)
    versions = tuple(log.versions(after + 1, min(last, facts.latest_version)))
    before = _before(log, facts, mark, after, versions)
    feed_on = mark.feed_enabled if mark else before is not None and before.feed_enabled
    if versions[0].feed_enabled is not None:
        feed_on = versions[0].feed_enabled
    needs_size = not feed_on or before is not None or options.method == "snapshot"
    size = log.snapshot_size(facts.latest_version) if needs_size else None
    return Probe(
        facts, versions, size, before, _enabled_size(log, versions, options, feed_on=feed_on)
    )


def _before(
    log: TableLog,
    facts: TableFacts,
    mark: Mark | None,
    after: int,
    versions: Sequence[VersionFacts],
) -> Before | None:
    """The table at the version processed last, where that matters: the schema has changed since."""
    if after < 0:
        return None
    written = {v.schema_fingerprint for v in versions if v.schema_fingerprint is not None}
    written.add(facts.schema_fingerprint)
    if mark is not None and written == {mark.schema_fingerprint}:
        return None
    try:
        schema_json, fingerprint = log.schema_at(after)
        return Before(log.feed_enabled_at(after), fingerprint, schema_json)
    except SourceError as error:
        # The commits up to the watermark may be cleaned: then the watermark itself has to do.
        if error.code != "FM-SOURCE-002" or mark is None:
            raise
        return None


def _probe_after_loss(
    log: TableLog, facts: TableFacts, max_versions: int | None, options: UpstreamOptions
) -> Probe:
    """What is left where the log begins later than it should."""
    if options.on_lost_range == "fail":
        return Probe(facts)
    if options.on_lost_range == "snapshot":
        return Probe(facts, size=log.snapshot_size(facts.latest_version))
    first = facts.earliest_version
    last = facts.latest_version if max_versions is None else first + max_versions
    versions = tuple(log.versions(first, min(last, facts.latest_version)))
    try:
        schema_json, fingerprint = log.schema_at(first)
        before = Before(log.feed_enabled_at(first), fingerprint, schema_json)
    except SourceError as error:
        if error.code != "FM-SOURCE-002":
            raise
        # No checkpoint reaches so far back: only versions that say it themselves can be read.
        before = Before(
            feed_enabled=False,
            schema_fingerprint=facts.schema_fingerprint,
            schema_json=facts.schema_json,
        )
    return Probe(facts, versions, before=before)


def _enabled_size(
    log: TableLog, versions: Sequence[VersionFacts], options: UpstreamOptions, *, feed_on: bool
) -> SnapshotSize | None:
    if feed_on or options.method != "feed":
        return None
    enabling = next((v.version for v in versions if v.feed_enabled), None)
    return None if enabling is None else log.snapshot_size(enabling)


def _is_reload(facts: TableFacts, mark: Mark | None, options: UpstreamOptions) -> bool:
    is_other = mark is not None and facts.table_id != mark.table_id
    return is_other and options.on_recreated == "reload"


def probe_between(
    upstream: str, after: int, mark: Mark | None, storage: Storage, spark: Any = None
) -> Probe:
    """What a pipeline that has processed `after` needs to reach the watermark.

    `versions` are those between the two if the log still has all of them, the first one with its
    schema and the state of the change feed said; schema and `size` are those of the table at the watermark.
    """
    log = log_of(upstream, storage, spark)
    facts = log.facts()
    if mark is None or facts.table_id != mark.table_id or after >= mark.version:
        return Probe(facts)
    size = log.snapshot_size(mark.version)
    schema_json, fingerprint = log.schema_at(mark.version)
    facts = replace(facts, schema_json=schema_json, schema_fingerprint=fingerprint)
    if after < 0 or facts.earliest_version > after + 1:
        return Probe(facts, size=size)
    first, *others = log.versions(after + 1, mark.version)
    first = replace(
        first,
        feed_enabled=log.feed_enabled_at(after + 1),
        schema_fingerprint=log.schema_at(after + 1)[1],
    )
    return Probe(facts, (first, *others), size)
