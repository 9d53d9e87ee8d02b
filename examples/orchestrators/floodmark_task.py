"""floodmark as the tasks of an orchestrator: freeze a plan, run its pipelines, finalize.

Needs nothing but the command line. Every function may be called again at any time: that is the
retry. TryAgain means that the same call may succeed later, GiveUp that somebody has to look.
"""  # noqa: INP001 a file to copy

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

FAILED, REFUSED, INTERRUPTED = 1, 4, 130

Work = dict[str, str]
"""One task: the `batch` and the `pipeline` to run for it."""


class TryAgain(Exception):
    """A function failed, another runner is at work, or the process was killed."""


class GiveUp(Exception):
    """Configuration, set-up, or a refusal that only a decision can mend."""


def plan(project: str) -> list[Work]:
    """Freeze what is new; one task for each pipeline of each batch, none if nothing is new.

    Called again while the batches are open it gives the same ones. A scope that cannot be planned
    does not stop the others; `finish` tells of it.
    """
    code, document = call(project, "plan", "--freeze")
    plans = document.get("plans", [document] if "batch_id" in document else [])
    if not plans:
        judge(code, document)
    return [
        {"batch": each["batch_id"], "pipeline": pipeline}
        for each in plans
        if each["batch_id"]
        for pipeline in each["pipelines"]
    ]


def run_pipeline(project: str, batch: str, pipeline: str) -> None:
    """Run one pipeline of a batch, and what it owes from before; then finalize what is ready.

    A pipeline that has succeeded is not run again.
    """
    judge(*call(project, "retry", batch, pipeline))


def finish(project: str) -> None:
    """Finalize everything that is ready; raises if something is held or cannot be planned."""
    code, document = call(project, "finalize")
    judge(code, document)
    if document.get("held"):
        held = [f"{each['upstream']}: {each['reason']}" for each in document["held"]]
        raise GiveUp(f"held: {'; '.join(held)}")
    judge(*call(project, "plan"))


def call(project: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON document of a command; its progress goes to the task's log."""
    program = shlex.split(os.environ.get("FLOODMARK_COMMAND", "floodmark"))
    command = [*program, "--project", project, "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}")


def judge(code: int, document: dict[str, Any]) -> None:
    """The retry policy: what each exit code means for the task."""
    if code == 0:
        return
    errors = list(errors_of(document))
    text = "; ".join(f"{error['code']} {error['title']}" for error in errors)
    text = text or f"floodmark ended with {code}"
    may_pass = bool(errors) and all(error["retryable"] for error in errors)
    was_killed = code < 0 or code == INTERRUPTED
    if was_killed or code == FAILED or (code == REFUSED and may_pass):
        raise TryAgain(text)
    raise GiveUp(text)


def errors_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The errors of a command, of its pipelines and of the scopes it could not plan."""
    if "error" in document:
        yield document["error"]
    yield from (each["error"] for each in document.get("pipelines", ()) if has_error(each))
    yield from document.get("refused", ())


def has_error(pipeline: object) -> bool:
    return isinstance(pipeline, dict) and bool(pipeline.get("error"))
