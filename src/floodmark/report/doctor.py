"""Warnings before it hurts: what a store and its upstreams look like."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.control import ControlReader
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import FloodmarkError
from floodmark.model.delta import TableFacts, enable_feed_command
from floodmark.model.results import Finding, bad, good
from floodmark.model.state import Mark


def examine_store(reader: ControlReader, control: str) -> list[Finding]:
    """Whether the store can be read, and which batches wait."""
    try:
        state = reader.state()
    except FloodmarkError as error:
        return [bad("control store", error.title, error.next)]
    if not state.control_id:
        return [good("control store", f"none yet at {control}; the first run creates it")]
    findings = [good("control store", f"{control}, {state.seq} events")]
    for batch in state.open_batches():
        waiting = ", ".join(batch.unfinished_pipelines()) or "finalize"
        text = f"{batch.batch_id} is {batch.status}, waiting for {waiting}"
        findings.append(
            Finding(
                "open batch", batch.status != "FAILED", text, f"floodmark retry {batch.batch_id}"
            )
        )
    return findings


def examine_upstream(upstream: str, marks: Sequence[Mark], storage: Storage) -> list[Finding]:
    """Whether an upstream can be planned, and how it will be read."""
    try:
        facts = DeltaLog(upstream, storage).facts()
    except FloodmarkError as error:
        return [bad(upstream, error.title, error.next)]
    findings = [_feed(upstream, facts)]
    for mark in marks:
        if mark.table_id != facts.table_id:
            text = f"recreated: table id {facts.table_id} is not {mark.table_id} (FM-PLAN-005)"
            findings.append(bad(upstream, text))
        elif facts.earliest_version > mark.version + 1:
            text = f"versions {mark.version + 1}-{facts.earliest_version - 1} are gone from its log"
            findings.append(bad(upstream, text))
    return findings


def _feed(upstream: str, facts: TableFacts) -> Finding:
    if facts.feed_enabled:
        return good(upstream, f"version {facts.latest_version}, change feed on")
    text = f"version {facts.latest_version}, change feed off: each batch reads the whole table"
    return bad(upstream, text, enable_feed_command(facts.path))
