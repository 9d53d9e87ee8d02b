"""Receipts: the mark that a sink commits together with the rows of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from floodmark.model.delta import VersionFacts
from floodmark.model.window import Window


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof, kept by the sink itself, that the rows of one batch are in it.

    A sink stores `app_id -> seq` in the same commit as the rows. `seq` only grows, so a sink that
    shows `seq` or more holds this batch, and a repeated write is a no-op.
    """

    app_id: str
    seq: int
    user_metadata: str
    """JSON {control_id, batch_id, seq, pipeline, windows, ...}; lost state can be rebuilt from it."""
    left_behind: frozenset[str] = frozenset()
    """Batches that a removal ended while the pipeline ran for them: a write of theirs may be there
    without a record."""


def app_prefix(control_id: str, pipeline: str) -> str:
    """What the app ids of all writes of a pipeline begin with."""
    return f"floodmark/{control_id}/{pipeline}/"


def forward_app_id(control_id: str, pipeline: str, write_name: str, generation: int = 0) -> str:
    """The app id under which forward batches of one write are applied, in order."""
    return f"{app_prefix(control_id, pipeline)}{write_name}/{generation}"


def pipeline_of(app_id: str) -> str:
    """The pipeline that writes under an app id."""
    return app_id.split("/")[2]


def app_id_root(app_id: str) -> str:
    """What all generations of a write have in common."""
    return app_id.rpartition("/")[0] + "/"


def again_app_id(control_id: str, pipeline: str, write_name: str, kind: str, batch_id: str) -> str:
    """The app id of a backfill or replay: each batch has its own, outside the forward order."""
    return f"{app_prefix(control_id, pipeline)}{write_name}/{kind}/{batch_id}"


def commit_metadata(
    control_id: str,
    batch_id: str,
    seq: int,
    pipeline: str,
    windows: Mapping[str, tuple[int, int]],
    *,
    marks: Mapping[str, Mapping[str, Any]] | None = None,
    **more: str,
) -> str:
    """The text every sink commit carries; `windows` are inclusive ranges by upstream.

    `marks` say what the ranges of upstreams without versions stand for.
    """
    content = {
        **more,
        **({"marks": marks} if marks else {}),
        "control_id": control_id,
        "batch_id": batch_id,
        "seq": seq,
        "pipeline": pipeline,
        "windows": {name: list(span) for name, span in sorted(windows.items())},
    }
    return json.dumps({"floodmark": content}, separators=(",", ":"), sort_keys=True)


def marks_of(windows: Iterable[Window]) -> dict[str, dict[str, Any]]:
    """What commits say about their windows of upstreams without versions, by upstream."""
    recorded = ((window.upstream, window.recorded()) for window in windows)
    return {upstream: marks for upstream, marks in recorded if marks is not None}


@lru_cache(maxsize=256)
def batch_of(user_metadata: str | None) -> str | None:
    """The batch that a commit says it holds; None for commits of others."""
    said = metadata_of(user_metadata)
    return str(said["batch_id"]) if "batch_id" in said else None


def metadata_of(user_metadata: str | None) -> dict[str, Any]:
    """What floodmark said in a commit; empty for commits of others."""
    try:
        said = json.loads(user_metadata or "null")
    except ValueError:
        return {}
    found = said.get("floodmark") if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}


NO_TABLE_ID = "files"
"""The table id of targets that are plain files: nothing in them tells what was written."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The writes of floodmark that a target without a log shows by its receipts."""

    table_id: str
    commits: tuple[VersionFacts, ...]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a sink did with one frame."""

    target: str
    table_id: str
    version: int
    """The version of the target whose commit holds the rows and the receipt."""
    rows_written: int | None
    """Rows inserted, updated and deleted, from the commit's own metrics; None where unknown."""
    already_applied: bool
    """True where the receipt was found and nothing was written again."""
    metrics: Mapping[str, str] = field(default_factory=dict)
