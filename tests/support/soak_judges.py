"""What must hold of the diaries of a soak, and of its journal and sinks: each judge names what does not.

Each of them is shown to find what it looks for (tests/crash/test_judges.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.crash import WRITES

from floodmark.control.events.bodies import Advanced, Event, Planned, Succeeded
from floodmark.control.published.reading import read_published
from floodmark.deltalog import Storage

Facts = dict[str, Any]
"""A line of a diary."""
STARVED_SECONDS = 30.0
EXPECTED = frozenset(
    {
        "FM-CONTROL-005",
        "FM-CONTROL-006",
        "FM-CONTROL-007",
        "FM-CONTROL-008",
        "FM-CONTROL-009",
        "FM-CONTROL-012",
        "FM-CONTROL-018",
    }
)
"""What a command may meet among others: a pipeline that was just taken out, a held lease, a fence,
an earlier batch, a busy journal, a batch that was given up, a paused pipeline."""


def unexpected(lines: list[Facts]) -> Iterator[str]:
    """Commands ended as they may among others, or not at all."""
    for line in lines:
        if line["kind"] == "fail" and line["code"] not in EXPECTED:
            yield f"{line['client']}: {line['command']} failed: {line['text']}"


def unacknowledged(done: list[Facts], events: list[Event]) -> Iterator[str]:
    """What was acknowledged is in the journal (the set of Jepsen)."""
    facts = set(_facts(events))
    for line in done:
        for fact in _acknowledged(line):
            if fact not in facts:
                yield f"{line['client']} was told {fact}, the journal does not know it"


def _acknowledged(line: Facts) -> Iterator[tuple[str, ...]]:
    if line["command"] == "plan" and line["batch_id"] is not None:
        yield "plan", line["batch_id"]
    if line["command"] == "run":
        yield "success", line["batch_id"], line["pipeline"]
    if line["command"] == "finalize":
        for upstream in line["advanced"]:
            yield "advance", line["batch_id"], upstream


def _facts(events: list[Event]) -> Iterator[tuple[str, ...]]:
    for event in events:
        body = event.body
        if isinstance(body, Planned):
            yield "plan", body.batch_id
        if isinstance(body, Succeeded):
            yield "success", body.batch_id, body.pipeline
        if isinstance(body, Advanced):
            yield from (("advance", body.batch_id, upstream) for upstream in body.upstreams)


def repeated(events: list[Event]) -> Iterator[str]:
    """Nothing happened twice (the queue of Jepsen)."""
    for fact, count in Counter(_facts(events)).items():
        if count > 1:
            yield f"{fact} happened {count} times"


def moved_back(done: list[Facts]) -> Iterator[str]:
    """No client saw a watermark go back."""
    seen: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    for line in sorted(done, key=lambda line: line["at"]):
        for upstream, version in line.get("marks", {}).items():
            if version < seen[line["client"], upstream]:
                yield f"{line['client']} saw {upstream} move back to {version}"
            seen[line["client"], upstream] = version


def starved(
    done: list[Facts],
    planners: Iterable[str],
    absences: list[tuple[str, float, float]],
    span: tuple[float, float],
) -> Iterator[str]:
    """Every planner planned or reused a batch every so often, the time it was away not counted."""
    for client in planners:
        times = [
            line["at"] for line in done if (line["client"], line["command"]) == (client, "plan")
        ]
        for since, until in pairwise([span[0], *sorted(times), span[1]]):
            away = sum(
                max(0.0, min(end, until) - max(begin, since))
                for name, begin, end in absences
                if name == client
            )
            if until - since - away > STARVED_SECONDS:
                yield f"{client} got nothing done for {until - since - away:.0f} s"


def lost_amounts(root: Path) -> Iterator[str]:
    """The amounts of source and sink are the same (the bank of Jepsen); recovery left no news."""
    for writes in WRITES.values():
        for upstream, target in writes:
            source, sink = _amounts(root / upstream), _amounts(root / target)
            if source != sink:
                yield f"{target} holds {sink} of {upstream}, which holds {source} (rows, amount)"


def _amounts(path: Path) -> list[Any]:
    table = read_published(str(path), Storage(), "SELECT count(*), sum(amount) FROM t")
    return [] if table is None else list(table.to_pylist()[0].values())
