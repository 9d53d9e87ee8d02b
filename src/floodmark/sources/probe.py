"""What is new in a Delta upstream, from its log alone."""

from __future__ import annotations

from dataclasses import replace

from floodmark.deltalog import DeltaLog, Storage
from floodmark.model.plan import Probe
from floodmark.model.state import Mark


def probe_delta(
    upstream: str, mark: Mark | None, max_versions: int | None, storage: Storage
) -> Probe:
    """The facts that planning needs, and no more reads than that.

    Raises PlanError FM-PLAN-001/002 if there is no such table, SourceError if its log cannot be
    read: an outage is never taken for "nothing new".
    """
    log = DeltaLog(upstream, storage)
    facts = log.facts()
    if mark is None:
        return Probe(facts, size=log.snapshot_size(facts.latest_version))
    start = mark.version + 1
    if (
        facts.table_id != mark.table_id
        or not facts.earliest_version <= start <= facts.latest_version
    ):
        return Probe(facts)
    # One version more than asked, so that the plan can say whether it was cut.
    last = facts.latest_version if max_versions is None else start + max_versions
    versions = tuple(log.versions(start, min(last, facts.latest_version)))
    feed_on = (
        versions[0].feed_enabled if versions[0].feed_enabled is not None else mark.feed_enabled
    )
    size = None if feed_on else log.snapshot_size(facts.latest_version)
    return Probe(facts, versions, size)


def probe_between(upstream: str, after: int, mark: Mark | None, storage: Storage) -> Probe:
    """What a pipeline that has processed `after` needs to reach the watermark.

    `versions` are those between the two if the log still has all of them, the first one with the
    state of the change feed said; schema and `size` are those of the table at the watermark.
    """
    log = DeltaLog(upstream, storage)
    facts = log.facts()
    if mark is None or facts.table_id != mark.table_id or after >= mark.version:
        return Probe(facts)
    size = log.snapshot_size(mark.version)
    schema_json, fingerprint = log.schema_at(mark.version)
    facts = replace(facts, schema_json=schema_json, schema_fingerprint=fingerprint)
    if after < 0 or facts.earliest_version > after + 1:
        return Probe(facts, size=size)
    first, *others = log.versions(after + 1, mark.version)
    first = replace(first, feed_enabled=log.feed_enabled_at(after + 1))
    return Probe(facts, (first, *others), size)
