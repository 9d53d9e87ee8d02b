"""The keys of every JSON document that a command prints, against those that were recorded.

FLOODMARK_UPDATE_FROZEN=1 adds new keys to documents.json; none is ever taken out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.frozen import surface

from floodmark.cli import operate, work
from floodmark.cli.call import Call

from .conftest import JOBS, Answer, add_version

RECORDED = Path(surface.__file__).parent / "documents.json"
BATCH = re.compile(r"batch_\d{8}T\d{12}Z_[0-9a-f]{8}")

MakeCall = Callable[..., Call]
Command = Callable[..., Answer]


def keys(document: Any, path: str = "") -> Iterator[str]:
    """The path of every key, lists as `[]`; ids that a run makes up are one key."""
    if isinstance(document, dict):
        for key, value in document.items():
            inside = f"{path}.{BATCH.sub('<batch>', key)}".lstrip(".")
            yield inside
            yield from keys(value, inside)
    elif isinstance(document, list):
        for each in document:
            yield from keys(each, f"{path}[]")


@pytest.fixture
def ask(shop: Path, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The document of a verb that needs an engine."""

    def document(verb: Callable[..., int], *arguments: Any, **options: Any) -> Any:
        capsys.readouterr()
        call = arrow_call(folder=shop)
        call.run(lambda: verb(call, *arguments, **options))
        return Answer(0, capsys.readouterr().out, "").document

    return document


def documents(shop: Path, floodmark: Command, ask: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """A story in which every verb with a document has something to say."""

    def looks(*verbs: str) -> Iterator[tuple[str, Any]]:
        yield from ((verb, floodmark(*verb.split(), "--json").document) for verb in verbs)

    yield from looks("validate", "config", "graph", "plan", "plan daily")
    yield "run", ask(work.run, ["daily", "report", "solo"])
    (shop / "jobs.py").write_text(JOBS.replace("share(1, 0)", "None"))
    sys.modules.pop("jobs", None)
    yield "run again", ask(work.run)
    add_version(shop / "lake/orders", 20)
    frozen = floodmark("plan", "--freeze", "daily", "--out", "plan.json", "--json").document
    yield "plan --freeze", frozen
    batch = str(frozen["batch_id"])
    yield from looks("status", f"status {batch}", "lag", "metrics")
    yield "retry", ask(work.retry, batch)
    yield "finalize", floodmark("finalize", batch, "--json").document
    yield (
        "backfill",
        ask(operate.backfill, "lake/orders", ["daily"], start=0, end=1, allow_duplicates=True),
    )
    yield "replay", ask(operate.replay, batch, ["daily"], allow_duplicates=True)
    add_version(shop / "lake/customers", 30, feed=False)
    cancelled = floodmark("plan", "--freeze", "solo", "--json").document["batch_id"]
    yield "cancel", floodmark("cancel", cancelled, "--json").document
    recorded = floodmark("plan", "--freeze", "solo", "--json").document["batch_id"]
    yield "record", floodmark("record", "solo", recorded, "--status", "SUCCESS", "--json").document
    ask(work.run)
    yield from looks(
        "pause solo", "resume solo", "refresh solo", "rename solo other", "remove other"
    )
    yield from looks("history", "gaps", "verify", "doctor", "upkeep")
    yield from looks("state show", "state export store.json", "state rebuild")
    yield "error", floodmark("retry", "batch_nope", "--json").document
    yield "errors", floodmark("plan", "nope", "--json").document


def test_no_document_has_lost_a_key(
    shop: Path, floodmark: Command, ask: Callable[..., Any]
) -> None:
    current = {verb: sorted({*keys(made)}) for verb, made in documents(shop, floodmark, ask)}
    current = {BATCH.sub("BATCH", verb): paths for verb, paths in current.items()}

    if os.environ.get("FLOODMARK_UPDATE_FROZEN"):
        surface.record(current, RECORDED)

    assert list(surface.lost(surface.recorded(RECORDED), current)) == []
    assert list(surface.lost(current, surface.recorded(RECORDED))) == [], (
        "FLOODMARK_UPDATE_FROZEN=1"
    )
