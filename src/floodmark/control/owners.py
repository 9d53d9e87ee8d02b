"""What the owners of the lake do to tables of the control store: maintenance, and what hinders us."""

from __future__ import annotations

from typing import Any

from floodmark.deltalog import DeltaLog
from floodmark.errors import ControlError

OUR_WRITER_VERSION = 2
"""Of every table that we create; delta-rs names no feature for it."""
_OURS = frozenset(("appendOnly", "invariants"))
"""What that version means, in the words of later ones."""


def refuse_obstacles(table: Any, path: str, error: BaseException, *, rewrites: bool) -> None:
    """Raise why a commit that failed cannot succeed; return if only another writer came first.

    FM-CONTROL-029 where the table was made append-only and rows were to be replaced, FM-CONTROL-030
    where its protocol was raised to something that delta-rs does not write. `table` is a handle.
    """
    if _is_lost_race(error):
        return
    if rewrites and table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise ControlError(
            "FM-CONTROL-029",
            "a table of the control store was made append-only",
            where=path,
            found="delta.appendOnly = true",
            allowed="a table whose rows may be put together and replaced",
            state="nothing was written; the journal is complete",
            next=f"with Spark: ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.appendOnly');"
            " then run the same command again",
        ) from error
    protocol = table.protocol()
    if protocol.min_writer_version > OUR_WRITER_VERSION:
        raise raised(path, protocol, error) from error


def raised(path: str, protocol: Any, error: BaseException) -> ControlError:
    """FM-CONTROL-030, with the features that are more than ours."""
    every = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    # Others depend on domainMetadata, so it can only be dropped behind them.
    features = sorted(every - _OURS, key=lambda name: (name == "domainMetadata", name))
    drop = "; ".join(f"ALTER TABLE delta.`{path}` DROP FEATURE {name}" for name in features)
    return ControlError(
        "FM-CONTROL-030",
        "the protocol of a table of the control store was raised, and delta-rs cannot write it",
        where=path,
        found=f"writer version {protocol.min_writer_version}, {', '.join(features) or 'no features'};"
        f" {str(error)[:300]}",
        allowed=f"writer version {OUR_WRITER_VERSION}, as floodmark creates its tables",
        state="nothing was written; the journal is complete",
        next=f"with Spark, in this order: {drop or 'set the property back'}; then run the same command"
        " again",
    )


def _is_lost_race(error: BaseException) -> bool:
    from deltalake.exceptions import CommitFailedError

    # Of a commit that lost its race delta-rs says only the version; an obstacle is told in words.
    return isinstance(error, CommitFailedError) and str(error).rpartition(": ")[2].isdigit()


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
