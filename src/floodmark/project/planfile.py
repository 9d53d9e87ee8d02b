"""Plan files: a frozen plan that somebody looks at before it is run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.errors import ConfigError, PlanError
from floodmark.model import PlannedBatch
from floodmark.next_steps import command
from floodmark.storage import write_whole

KIND = "floodmark plan"
MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class PlanFile:
    """What a run needs of a plan file: the store and the batches; all else is for people."""

    path: str
    control_id: str
    batch_ids: tuple[str, ...]


def write_plan_file(path: Path, document: Mapping[str, Any]) -> None:
    """Write a plan as JSON, whole or not at all; raises FM-CONFIG-009."""
    text = json.dumps({"kind": KIND, **document}, indent=2)
    try:
        write_whole(path, f"{text}\n")
    except OSError as error:
        raise _unusable(path, "written", error.strerror or type(error).__name__) from error


def check_place(path: Path) -> None:
    """Raise FM-CONFIG-009 if no file could be written there: told before a plan is frozen."""
    if path.is_dir():
        raise _unusable(path, "written", "it is a folder")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise _unusable(path, "written", "its folder is not there or cannot be written")


def read_plan_file(path: Path) -> PlanFile:
    """The plan of a file; raises FM-CONFIG-009 if it is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _unusable(path, "read", f"more than {MAX_BYTES:,} bytes")
        document = json.loads(path.read_bytes())
        if document["kind"] != KIND:
            raise _unusable(path, "read", f'its kind is not "{KIND}"')
        ids = tuple(str(plan["batch_id"]) for plan in document["plans"] if plan["batch_id"])
        return PlanFile(str(path), str(document["control_id"]), ids)
    except OSError as error:
        raise _unusable(path, "read", error.strerror or type(error).__name__) from error
    except (ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"[:300]
        raise _unusable(path, "read", f"not a plan file: {found}") from error


def refuse_other_store(plan: PlanFile, control_id: str, control: str) -> None:
    """Raise FM-PLAN-012 if the plan was frozen in another store."""
    if plan.control_id != control_id:
        found = f"the plan is of store {plan.control_id}, the project's is {control_id or 'empty'}"
        raise _refused(plan, "is of another control store", f"{found} ({control})")


def gone(plan: PlanFile, batch_id: str) -> PlanError:
    return _refused(plan, "names a batch that is gone", f"batch {batch_id} is unknown")


def refuse_finished(plan: PlanFile, batch: PlannedBatch) -> None:
    """Raise FM-PLAN-012 for a batch that has nothing left to run."""
    if not batch.is_open:
        found = f"batch {batch.batch_id} is {batch.status}"
        raise _refused(plan, "names a batch that is finished", found)


def _refused(plan: PlanFile, what: str, found: str) -> PlanError:
    return PlanError(
        "FM-PLAN-012",
        f"the plan file {what}",
        where=plan.path,
        found=found,
        state="nothing was read or written",
        next=command("plan", "--out", plan.path),
    )


def _unusable(path: Path, done: str, found: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-009",
        f"the plan file cannot be {done}",
        where=str(path),
        found=found,
        allowed="a file of floodmark plan --out",
        state="nothing was run or frozen",
        next=command("plan", "--out", "FILE"),
    )
