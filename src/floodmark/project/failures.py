"""Failures of a user's function, told with the lines of the user's own files."""

from __future__ import annotations

import traceback
from pathlib import Path

from floodmark.engines.faults import cause_of
from floodmark.errors import FloodmarkError, RunError, without_java_stack
from floodmark.next_steps import then_retry

_OWN_CODE = str(Path(__file__).parent.parent)
_MAX_FOUND = 800


def failure_of(error: Exception, pipeline: str, batch_id: str, root: Path) -> RunError:
    """FM-RUN-001 with the lines of the user's own files; FM-RUN-005 if there is none."""
    lines = own_lines(error, root)
    # Code of the user may catch what it raised; of our own only the cause is of use.
    kind, text = (type(error).__name__, str(error).strip()) if lines else cause_of(error)
    title = f"the function of pipeline {pipeline} raised {kind}"
    return RunError(
        "FM-RUN-001" if lines else "FM-RUN-005",
        title if lines else f"the run of pipeline {pipeline} failed with {kind}",
        where=lines[-1] if lines else f"pipeline {pipeline}",
        found=f"{kind}: {without_java_stack(text)}"[:_MAX_FOUND],
        state="the run is recorded as FAILED; writes that committed stand and are not repeated; "
        "the watermarks of its upstreams stay",
        next="correct the cause, " + then_retry(batch_id),
        details={"batch": batch_id, **({"called": "\n".join(lines[:-1])} if lines[1:] else {})},
    )


def with_caller(error: FloodmarkError, root: Path) -> FloodmarkError:
    """The error, with the user's line it comes from where there is one."""
    lines = own_lines(error, root)
    if lines:
        error.details.setdefault("at", lines[-1])
    return error


def own_lines(error: BaseException, root: Path, limit: int = 3) -> list[str]:
    """The last lines of the traceback that lie in the user's own files."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(f"{root}/") and not _is_foreign(f.filename)]
    return [f"{_place(root, frame)} in {frame.name}: {frame.line}" for frame in own][-limit:]


def _is_foreign(filename: str) -> bool:
    return filename.startswith(f"{_OWN_CODE}/") or "/site-packages/" in filename


def _place(root: Path, frame: traceback.FrameSummary) -> str:
    return f"{frame.filename.removeprefix(f'{root}/')}:{frame.lineno}"
