"""Targets that lost rows of ours behind our back: what their log shows, and whether a batch is left.

Decided on the commits since our last one, and on the names of targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from floodmark.deltalog import is_local
from floodmark.errors import SinkError
from floodmark.model import (
    NO_TABLE_ID,
    OnLostTarget,
    Receipt,
    SinkDone,
    TableFacts,
    VersionFacts,
    WriteSpec,
    app_id_root,
    batch_of,
    metadata_of,
)
from floodmark.model.names import connection_of
from floodmark.next_steps import Blank, Next, command, then_retry
from floodmark.sinks.faults import batch_named

RESTORE = "RESTORE"
_REPLACING = frozenset(
    (
        "TRUNCATE",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
    )
)
_NO_PREDICATE = frozenset(("", "[]", "true", '["true"]', '["(true)"]'))
_STATE = "nothing was written; the target and the watermark are unchanged"


def way_out(
    receipt: Receipt,
    *,
    back: str = "put the table back as it was",
    rebuilt: str = "recreates the table from its inputs as they were for this batch",
    accepted: str = "what is missing there stays missing",
) -> Next:
    """What an operator can type after a loss, for the batch that found it.

    `back` takes the loss back; `rebuilt` and `accepted` say what the two choices do.
    """
    batch = batch_named(receipt)
    said = metadata_of(receipt.user_metadata)
    accept = command("retry", batch, "--on-lost-target", "accept")
    if said.get("kind") in ("backfill", "replay"):
        pipeline = str(said.get("pipeline"))
        return (
            f"{back}, "
            + then_retry(batch)
            + "; or go on with what is there: "
            + accept
            + "; then, to load everything anew: "
            + command("refresh", pipeline)
            + ", and "
            + command("run", pipeline, "--on-lost-target", "rebuild")
        )
    return f"{back}, or: " + _rebuild(batch) + f" ({rebuilt}), or: " + accept + f" ({accepted})"


def _rebuild(batch: str | Blank) -> Next:
    return command("retry", batch, "--on-lost-target", "rebuild")


def target_loss(
    previous: SinkDone,
    facts: TableFacts | None,
    commits: Sequence[VersionFacts],
    receipt: Receipt,
) -> SinkError | None:
    """Why the target cannot be the one that `previous` left behind; None if it can.

    `commits` are those since then, `receipt` is of the write that wants to know. A DELETE with a
    condition, an UPDATE or rows that somebody else adds are the owner's business: rows of ours
    were changed by name, not lost. A RESTORE that was taken back by another one lost nothing.
    """
    if previous.settled and not previous.table_id:
        return None  # there was no table, and that was accepted
    if facts is None or facts.table_id != previous.table_id:
        return _not_the_table(previous, facts, receipt)
    if _all_survive(previous, commits):
        return None
    for commit in commits:
        if commit.operation == RESTORE:
            return _restored(previous, commit, receipt)
        if removes_all_rows(commit):
            return _emptied(previous, commit, receipt)
    return None


def _all_survive(previous: SinkDone, commits: Sequence[VersionFacts]) -> bool:
    """Whether our last write is still there, and each one since that nothing has recorded."""
    ours = app_id_root(previous.app_id)
    unrecorded = [
        commit.version
        for commit in commits
        if any(app_id.startswith(ours) for app_id in commit.transactions)
    ]
    return all(
        survives(version, [commit for commit in commits if commit.version > version])
        for version in (previous.checked_version, *unrecorded)
    )


def removes_all_rows(commit: VersionFacts) -> bool:
    """Whether somebody else's commit takes every row that was there before away."""
    if metadata_of(commit.user_metadata):
        return False  # a write of ours says what it replaces
    predicate = commit.parameters.get("predicate", "")
    if commit.operation == "DELETE":
        return predicate in _NO_PREDICATE
    if commit.operation == "WRITE":
        is_dynamic = commit.parameters.get("isDynamicPartitionOverwrite", "").lower() == "true"
        is_whole = predicate in _NO_PREDICATE and not is_dynamic
        return commit.parameters.get("mode") == "Overwrite" and is_whole
    return commit.operation in _REPLACING


def survives(version: int, commits: Sequence[VersionFacts]) -> bool | None:
    """Whether the table still holds what `version` committed; None if the log does not tell.

    `commits` are all those after `version`, oldest first.
    """
    by_version = {commit.version: commit for commit in commits}
    at = commits[-1].version if commits else version
    while at > version:
        commit = by_version.get(at)
        if commit is None:
            return None
        if removes_all_rows(commit):
            return False
        if commit.operation == RESTORE:
            back_to = commit.parameters.get("version", "")
            if not back_to.isdigit():
                return None
            at = int(back_to)
        else:
            at -= 1
    return at == version


def _not_the_table(previous: SinkDone, found: TableFacts | None, receipt: Receipt) -> SinkError:
    return _lost(
        "FM-SINK-007",
        "the target is not the table that was written before",
        (previous, receipt),
        found="no Delta table" if found is None else f"table id {found.table_id}",
        allowed=f"table id {previous.table_id}, last written at version {previous.version}",
    )


def retargeted(previous: SinkDone, target: str, found: str, receipt: Receipt) -> SinkError:
    """The error for a write whose target has another name than the table that it has filled.

    `found` is what the target of the new name is; empty if there is nothing.
    """
    fills = "replaces what the new target holds by" if found else "fills the new target with"
    begins = "goes on in the new target from" if found else "the new target begins with"
    return SinkError(
        "FM-SINK-007",
        f"the write {previous.write_name} has another target than before",
        where=target,
        found=found or "nothing there",
        allowed=f"{previous.target}, which holds what was written so far",
        state="nothing was written; both targets and the watermark are unchanged",
        next=way_out(
            receipt,
            back="name the target as before",
            rebuilt=f"{fills} all rows, from its inputs as they were for this batch; the old one"
            " stays as it is",
            accepted=f"{begins} this batch",
        ),
    )


def moved_on(previous: SinkDone | None, spec: WriteSpec, receipt: Receipt) -> SinkError | None:
    """The same for a target that cannot tell which one it is: by its name alone.

    A local folder that is gone was moved with its files; an overwrite brings all rows anyway.
    """
    if previous is None or previous.target == spec.target or spec.mode == "overwrite":
        return None
    is_path = connection_of(previous.target) is None
    if is_path and is_local(previous.target) and not Path(previous.target).exists():
        return None
    return retargeted(previous, spec.target, "files, or none" if is_path else "another", receipt)


def moved_on_by(
    previous: SinkDone | None, spec: WriteSpec, choice: OnLostTarget, next_app_id: str
) -> SinkDone:
    """What a run remembers once that is settled: no write of ours in the new target."""
    name = spec.name if previous is None else previous.write_name
    return SinkDone(name, next_app_id, spec.target, NO_TABLE_ID, -1, None, settled=choice)


def _restored(previous: SinkDone, commit: VersionFacts, receipt: Receipt) -> SinkError:
    return _lost(
        "FM-SINK-009",
        "the target was restored: its receipts stand although rows may be gone",
        (previous, receipt),
        found=f"RESTORE at version {commit.version}, after our commit at {previous.version}",
        allowed="a target whose history since our last commit has no RESTORE",
    )


def forgotten(
    previous: SinkDone, stored: int | None, latest_version: int | None, receipt: Receipt
) -> SinkError:
    """The error for a target that no longer shows our last write; a backup was put back, say."""
    shown = "" if latest_version is None else f"; the newest version is {latest_version}"
    at = "" if latest_version is None else f", written at version {previous.checked_version}"
    return _lost(
        "FM-SINK-017",
        "the target no longer shows the receipt of our last write",
        (previous, receipt),
        found=f"{previous.app_id} at {'nothing' if stored is None else stored}{shown}",
        allowed=f"{previous.app_id} at {previous.seq}{at}",
    )


def copied(previous: SinkDone, commit: VersionFacts, receipt: Receipt) -> SinkError:
    """The error for a target in which another commit has the version of our last one."""
    by = batch_of(commit.user_metadata)
    found = f"batch {by}" if by else f"{commit.operation or 'a commit'} of somebody else"
    return _lost(
        "FM-SINK-044",
        "the target is a copy that went its own way: our last commit is not in it",
        (previous, receipt),
        found=f"version {commit.version} is {found}",
        allowed=f"version {previous.version} is batch {previous.batch_id or previous.seq}",
    )


def untold(previous: SinkDone, earliest: int, receipt: Receipt) -> SinkError:
    """The error for a target whose log no longer has every commit since our last write."""
    error = _lost(
        "FM-SINK-042",
        "the target's log no longer tells what others did since our last write",
        (previous, receipt),
        found=f"commit files from version {earliest} on; older ones were cleaned up",
        allowed=f"every commit after version {previous.checked_version}: a RESTORE among them would"
        " have taken rows of ours away",
    )
    batch = batch_named(receipt)
    error.next = (
        "if nobody restored or emptied the table: "
        + command("retry", batch, "--on-lost-target", "accept")
        + " (nothing is written anew); else: "
        + _rebuild(batch)
    )
    return error


def anonymous(path: str, receipt: Receipt) -> SinkError:
    """The error for a receipt of the right number that no commit explains any more."""
    return SinkError(
        "FM-SINK-043",
        "the target shows a receipt of this number, and not which batch left it",
        where=path,
        found=f"receipt {receipt.seq} of {receipt.app_id}; its commit file was cleaned up",
        allowed=f"a commit that names batch {batch_of(receipt.user_metadata)}, or a record of it in"
        " the control store",
        state=_STATE,
        next="if an older copy of the control store was put back: put the newest one back;"
        " else: "
        + _rebuild(batch_named(receipt))
        + " (recreates the table from its inputs as they were for this batch)",
    )


def unreadable(path: str, found: str, receipt: Receipt) -> SinkError:
    """The error for a target whose log has lost files: nobody can read the table."""
    return SinkError(
        "FM-SINK-045",
        "files are missing from the target's log: nobody can read the table",
        where=f"{path}/_delta_log",
        found=found,
        allowed="every commit file, or a checkpoint and every commit file after it",
        state=_STATE,
        next="put the files back from a backup; or move the folder away, then: "
        + _rebuild(batch_named(receipt)),
    )


def _emptied(previous: SinkDone, commit: VersionFacts, receipt: Receipt) -> SinkError:
    return _lost(
        "FM-SINK-016",
        "somebody else emptied or replaced the target: its receipts stand, our rows are gone",
        (previous, receipt),
        found=f"{commit.operation} of all rows at version {commit.version}",
        allowed="conditional deletes and updates by others; removing every row has to be settled",
    )


def _lost(
    code: str, title: str, writes: tuple[SinkDone, Receipt], *, found: str, allowed: str
) -> SinkError:
    """The error of a loss; `writes` are our last one and the one that found it."""
    previous, receipt = writes
    return SinkError(
        code,
        title,
        where=previous.target,
        found=found,
        allowed=allowed,
        state=_STATE,
        next=way_out(receipt),
    )


def unsettled(path: str, title: str, found: str, next_step: str) -> SinkError:
    """The error for a lost target that cannot be settled in the way asked for."""
    return SinkError(
        "FM-SINK-018",
        title,
        where=path,
        found=found,
        state=_STATE,
        next=next_step,
    )
