"""What the owners of the lake do to tables of the control store: maintenance, and what hinders us."""

from __future__ import annotations

from typing import Any

from floodmark.deltalog import DeltaLog, Obstacle, obstacle
from floodmark.errors import ControlError
from floodmark.next_steps import Next


def refuse_obstacles(
    table: Any, path: str, error: BaseException, *, rewrites: bool, otherwise: str
) -> None:
    """Raise why a commit that failed cannot succeed; return if only another writer came first.

    FM-CONTROL-029 where the table was made append-only and rows were to be replaced, FM-CONTROL-030
    where its protocol was raised to something that delta-rs does not write. `table` is a handle, `otherwise` the way out where no
    statement of Spark helps.
    """
    found = obstacle(table, path, error, rewrites=rewrites)
    if found is None:
        return
    code, title = (
        ("FM-CONTROL-029", "a table of the control store was made append-only")
        if found.is_append_only
        else (
            "FM-CONTROL-030",
            "the protocol of a table of the control store was raised, and delta-rs cannot write it",
        )
    )
    raise ControlError(
        code,
        title,
        where=path,
        found=found.found,
        allowed=found.allowed,
        state="nothing was written; the journal is complete",
        next=_remedy(found, otherwise),
    ) from error


def _remedy(found: Obstacle, otherwise: str) -> Next:
    if not found.statements:
        return found.next_step(otherwise)
    order = ", in this order" if len(found.statements) > 1 else ""
    return f"with Spark{order}: " + found.remedy + "; then run the same command again"


def changed_by_others(log: DeltaLog, version: int, marker: str) -> str | None:
    """The newest commit that is not ours and changed rows since the last one of ours, in words.

    A commit of ours carries the transaction id `marker`. Commits whose files are gone are passed over.
    """
    earliest = log.facts().earliest_version
    for number in range(version, earliest - 1, -1):
        (commit,) = log.versions(number, number)
        if marker in commit.transactions:
            return None
        if commit.kinds:
            return f"{commit.operation or 'a commit'} at version {number}"
    return None
