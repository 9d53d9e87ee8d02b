"""Upstreams that cannot be planned as they are: the errors, each with its way forward."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.errors import PlanError
from floodmark.model import (
    HIDDEN_COMMITS,
    READABLE_FEATURES,
    Mark,
    TableFacts,
    has_columns,
    unreadable_features,
)
from floodmark.next_steps import command


def refuse_unreadable(upstream: str, facts: TableFacts) -> None:
    """Raise FM-PLAN-009 for a table that needs what floodmark or Delta cannot read."""
    if not has_columns(facts.schema_json):
        raise _without_columns(upstream, facts)
    features = set(facts.reader_features)
    if features & HIDDEN_COMMITS:
        raise _needs(
            upstream,
            f"{upstream} keeps its newest commits outside its log folder",
            features & HIDDEN_COMMITS,
            "give the upstream by its catalog name",
        )
    unknown = unreadable_features(facts)
    if unknown:
        raise _needs(
            upstream,
            f"{upstream} needs a feature that floodmark cannot read",
            unknown,
            "drop the feature (ALTER TABLE ... DROP FEATURE), or register a copy of the table",
        )


def _without_columns(upstream: str, facts: TableFacts) -> PlanError:
    return PlanError(
        "FM-PLAN-009",
        f"{upstream} has no columns",
        where=upstream,
        found=f"a table without a schema at version {facts.latest_version}",
        allowed="a table with at least one column",
        state="nothing was planned",
        next="let the writer of the table finish its first write, then plan again",
    )


def _needs(upstream: str, title: str, features: Iterable[str], next: str) -> PlanError:
    return PlanError(
        "FM-PLAN-009",
        title,
        where=upstream,
        found=f"reader feature {', '.join(sorted(features))}",
        allowed=", ".join(sorted(READABLE_FEATURES)),
        state="nothing was planned",
        next=next,
    )


def recreated(upstream: str, facts: TableFacts, mark: Mark) -> PlanError:
    return PlanError(
        "FM-PLAN-005",
        f"{upstream} was recreated: it is not the table that was processed before",
        found=f"table id {facts.table_id}, version {facts.latest_version}",
        allowed=f"table id {mark.table_id}",
        state=_stays(mark.version),
        next="restore the old table; or load the new one from its beginning, once: "
        + command("state", "reset", "--scope", mark.scope, "--upstream", upstream, "--yes")
        + "; or always: on_recreated: reload",
    )


def older_than_processed(upstream: str, facts: TableFacts, mark: Mark) -> PlanError:
    return PlanError(
        "FM-PLAN-010",
        f"{upstream} is older than what was processed of it",
        found=f"newest version {facts.latest_version}",
        allowed=f"version {mark.version} or newer",
        state=_stays(mark.version),
        next="bring the table's log back to where it was, then: "
        + command("run")
        + "; or load it from its beginning: "
        + command("state", "reset", "--scope", mark.scope, "--upstream", upstream, "--yes"),
    )


def baseline_beyond(upstream: str, facts: TableFacts, version: int) -> PlanError:
    return PlanError(
        "FM-PLAN-021",
        f"the baseline of {upstream} is beyond the table",
        found=f"baseline {version}, newest version {facts.latest_version}",
        allowed=f"a version from 0 through {facts.latest_version}, or latest",
        state="nothing was planned",
        next="correct the baseline",
    )


def baseline_without_feed(upstream: str, version: int, gap: str) -> PlanError:
    return PlanError(
        "FM-PLAN-021",
        f"what follows the baseline of {upstream} cannot be read by feed",
        found=f"baseline {version}; {gap}",
        allowed="a baseline from whose next version on the change feed is on",
        state="nothing was planned; a snapshot would also read what lies before the baseline",
        next="choose a later baseline, or none for the whole table",
    )


def history_gone(upstream: str, facts: TableFacts, after: int) -> PlanError:
    return PlanError(
        "FM-PLAN-006",
        f"the log of {upstream} no longer holds every version that was not processed yet",
        found=f"oldest commit {facts.earliest_version}",
        allowed=f"every commit from {after + 1}",
        state=_stays(after),
        next=command("run", "--on-lost-range", "snapshot")
        + " reads the whole table as it is now; --on-lost-range accept declares the"
        " missing versions lost and reads the rest",
    )


def feed_gap(upstream: str, after: int, gap: str) -> PlanError:
    return PlanError(
        "FM-PLAN-020",
        f"the change feed of {upstream} does not cover what comes next",
        found=gap,
        allowed="the feed on from the next version on (on_feed_gap: fail)",
        state=_stays(after),
        next="say on_feed_gap: snapshot for the upstream (the whole table is read once,"
        " then the feed), then: " + command("run"),
    )


def schema_changes(upstream: str, after: int, version: int | None) -> PlanError:
    found = "a later version" if version is None else f"version {version}"
    return PlanError(
        "FM-PLAN-007",
        f"the schema of {upstream} changes",
        found=f"{found} has another schema than version {after}",
        allowed="the schema as it was (on_schema_change: fail)",
        state=_stays(after),
        next="adapt the pipelines, then say on_schema_change: evolve (go on with the new"
        " columns) or reload (read the whole table once) for the upstream, then: " + command("run"),
    )


def _stays(version: int) -> str:
    return f"nothing was planned; the committed watermark stays at {version}"
