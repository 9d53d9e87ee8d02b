"""Errors that several kinds of sources raise."""

from __future__ import annotations

from floodmark.errors import SourceError
from floodmark.model import Window
from floodmark.next_steps import BATCH, THEN_RETRY, command

NOTHING_READ = "nothing was read or written; the committed watermark stays"
LOST_STEP = (
    "put the table back, "
    + THEN_RETRY
    + "; or go on without what is lost: "
    + command("retry", BATCH, "--on-lost-range", "snapshot")
    + " (the whole table at the planned end) or accept (the loss is declared)"
)


def of_window(
    code: str, title: str, window: Window, *, found: str, allowed: str, next: str
) -> SourceError:
    """An error with the range that was to be read."""
    span = f"versions {window.start} to {window.end} by {window.method}"
    return SourceError(
        code,
        title,
        where=window.upstream,
        found=found,
        allowed=allowed,
        state=NOTHING_READ,
        next=next,
        details={"window": span if window.has_news else f"no news at version {window.end}"},
    )


def schema_moved(window: Window, found: str, next_step: str = LOST_STEP) -> SourceError:
    """The error for a window whose rows no longer have the planned schema."""
    return of_window(
        "FM-SOURCE-007",
        "the schema is no longer the one that was planned",
        window,
        found=found,
        allowed=f"schema {window.schema_fingerprint}",
        next=next_step,
    )


def hides_files(window: Window, setting: str) -> SourceError:
    """The error for a session that would read past missing or corrupt files."""
    return of_window(
        "FM-SOURCE-005",
        "the session hides missing or corrupt files",
        window,
        found=f"{setting} = true",
        allowed=f"{setting} = false",
        next=f'spark.conf.set("{setting}", "false"), ' + THEN_RETRY,
    )


def not_frozen(window: Window) -> SourceError:
    """The error for whoever would read a window before its end is fixed."""
    return SourceError(
        "FM-SOURCE-011",
        "the end of a window is not frozen yet",
        where=window.upstream,
        found=window.reason,
        allowed="a window whose end the first run of its batch has frozen",
        state="nothing was read",
        next=command("run")
        + "; for a pipeline that runs elsewhere record RUNNING first, then ask for its"
        " inputs",
    )


def out_of_reach(path: str, error: BaseException) -> SourceError:
    """The error for an upstream that could not be looked at: never taken for an empty one."""
    return SourceError(
        "FM-SOURCE-009",
        "an upstream could not be looked at",
        where=path,
        found=f"{type(error).__name__}: {error}"[:500],
        state=NOTHING_READ,
        next="mend the cause, then run the same command again",
        retryable=True,
    )
