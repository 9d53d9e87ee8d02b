"""What errors of delta-rs mean where it has no class for them: only its text tells."""

from __future__ import annotations

import re

_FRAME = re.compile(r"\s*\d+: ")


def is_lost_race(error: BaseException) -> bool:
    """Whether another writer committed first: its text ends with a version, others do in words."""
    from deltalake.exceptions import CommitFailedError

    return isinstance(error, CommitFailedError) and str(error).rpartition(": ")[2].isdigit()


def breaks_predicate(error: BaseException) -> bool:
    """Whether rows do not match the condition of the part that they should replace."""
    return "failed validation" in str(error)


def without_stack(error: BaseException) -> str:
    """The text of an error; delta-rs may append its own stack to it."""
    lines = [line for line in str(error).splitlines() if not _FRAME.match(line)]
    return "\n".join([f"{type(error).__name__}: {lines[0] if lines else ''}", *lines[1:]])
