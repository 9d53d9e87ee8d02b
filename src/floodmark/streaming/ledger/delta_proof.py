"""Whether the Delta table of a stream still holds what its ledger last saw there.

A receipt is believed by the commit that carries it. What the ledger saw is noted with each claim and
decision, outside of the table; a table that shows less, or something else in the same place, was put
back, copied or restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from floodmark.deltalog import DeltaLog
from floodmark.errors import FloodmarkError, SourceError, StreamError
from floodmark.model import Receipt, SinkDone, TableFacts, VersionFacts, metadata_of
from floodmark.model.offsets import Offsets
from floodmark.next_steps import STREAM, command
from floodmark.sinks import target_loss

_STATE = "nothing was read or written; target and checkpoint are as they were"
_DAMAGED_LOG = ("FM-SOURCE-002", "FM-SOURCE-008")


@dataclass(frozen=True, slots=True)
class Noted:
    """What the target showed when the stream was last claimed or moved."""

    table_id: str | None = None
    """None where there was no table."""
    version: int = -1
    """The newest version; -1 where it is not known."""
    receipts: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each incarnation, by its app id."""
    last: Mapping[str, Any] | None = None
    """The commit of the last batch: app id, batch, version, and the claim that it names."""

    def to_json(self) -> dict[str, Any]:
        """As it is kept in the note's commit."""
        return {**asdict(self), "receipts": dict(self.receipts)}


def noted(log: DeltaLog | None, receipts: Mapping[str, int], app_id: str) -> Noted:
    """What the target shows; `receipts` are those of the stream, `app_id` that of its last batch."""
    if log is None:
        return Noted()
    facts, number = log.facts(), receipts.get(app_id)
    commit = None if number is None else log.find_transaction(app_id, number)
    last = None
    if commit is not None:
        claim_id = metadata_of(commit.user_metadata).get("claim_id")
        last = {
            "app_id": app_id,
            "batch_id": number,
            "version": commit.version,
            "claim_id": claim_id,
        }
    return Noted(facts.table_id, facts.latest_version, dict(receipts), last)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of one stream, as its log shows it at this moment."""

    stream_id: str
    log: DeltaLog
    facts: TableFacts
    receipts: Mapping[str, int]

    def is_put_back(self, noted: Noted) -> bool:
        """Whether a receipt is gone, or a version: an older copy of the table is back."""
        is_gone = any(self.receipts.get(app, -1) < n for app, n in noted.receipts.items())
        return is_gone or self.facts.latest_version < noted.version

    def refuse(
        self, noted: Noted, last: VersionFacts | None, end: Offsets | None, called: str
    ) -> None:
        """Raise why what the target shows cannot be believed.

        `last` is the commit of the last batch, if it is still there, `end` where the stream stands by
        it. FM-STREAM-045 for an older copy, -046 for a copy that went its own way, FM-SINK-009 and
        -016 for a table that was restored or emptied, FM-STREAM-047 where the log does not tell.
        """
        if self.is_put_back(noted):
            raise self._put_back(noted, end, called)
        self._refuse_copied(noted, end, called)
        known = max(noted.version, last.version if last is not None else -1)
        if known < 0 and not self.receipts:
            return  # a table that others made; the stream has not written yet
        first = max(known + 1, self.facts.earliest_version)
        others = self.log.versions(first, self.facts.latest_version)
        before = SinkDone("", "", self.facts.path, self.facts.table_id, known, None)
        problem = target_loss(before, self.facts, others, Receipt("", 0, ""))
        if problem is not None:
            problem.next = (
                "put the table back as it was; or, if it is meant as it is now: "
                + command("stream", "reset", called, "--to", "OFFSETS", "--yes")
            )
            raise problem
        if known + 1 < self.facts.earliest_version:
            raise self._untold(end, called)

    def _refuse_copied(self, noted: Noted, end: Offsets | None, called: str) -> None:
        if noted.last is None:
            return
        at, app_id = int(noted.last["version"]), str(noted.last["app_id"])
        if not self.facts.earliest_version <= at <= self.facts.latest_version:
            return
        (commit,) = self.log.versions(at, at)
        claim_id = metadata_of(commit.user_metadata).get("claim_id")
        is_ours = commit.transactions.get(app_id) == noted.last["batch_id"]
        if is_ours and claim_id == noted.last["claim_id"]:
            return
        where = f"{self.facts.path} version {at}"
        raise copied(self.stream_id, where, app_id, noted.last["batch_id"], _on_at(called, end))

    def _put_back(self, noted: Noted, end: Offsets | None, called: str) -> StreamError:
        shown = ", ".join(f"{app} at {n}" for app, n in sorted(self.receipts.items()))
        seen = ", ".join(f"{app} at {n}" for app, n in sorted(noted.receipts.items()))
        return StreamError(
            "FM-STREAM-045",
            "the target of a stream is older than the stream's own notes: a backup was put back",
            stream=self.stream_id,
            where=self.facts.path,
            found=f"{shown or 'no receipt of the stream'}; version {self.facts.latest_version}",
            allowed=f"{seen or 'no receipt of the stream'}; version {noted.version} or later",
            state=_STATE,
            next="put the newer table back; or " + _on_at(called, end),
        )

    def _untold(self, end: Offsets | None, called: str) -> StreamError:
        to = "OFFSETS" if end is None else end.to_json()
        way_out = command("stream", "reset", called, "--to", to, "--yes")
        if end is None:
            adopt = command("stream", "adopt", called)
            way_out = adopt + " (it holds all that its checkpoint committed), or " + way_out
        return StreamError(
            "FM-STREAM-047",
            "the log of the target no longer tells what happened since the stream's last batch",
            stream=self.stream_id,
            where=self.facts.path,
            found=f"commit files from version {self.facts.earliest_version} on; older ones were"
            " cleaned up",
            allowed="every commit since the stream's last batch: a RESTORE among them would have taken"
            " rows of the stream away",
            state=_STATE,
            next="if nobody restored or emptied the table: " + way_out,
        )


def _on_at(called: str, end: Offsets | None) -> str:
    """How a stream goes on at the end of the rows that are there."""
    if end is None:
        return "begin anew: " + command("stream", "reset", called, "--to", "earliest", "--yes")
    return (
        command("stream", "rewind", called)
        + f" (goes on at {end}, where the rows that are there end)"
    )


def copied(
    stream_id: str, where: str, app_id: str, batch_id: int | None, way_out: str = ""
) -> StreamError:
    """FM-STREAM-046: in the place of a batch of ours is a commit that is not."""
    way_out = way_out or "start the stream again: " + command("stream", "run", STREAM)
    return StreamError(
        "FM-STREAM-046",
        "the target of a stream is a copy that went its own way",
        stream=stream_id,
        where=where,
        found="a commit that this stream's runner did not make",
        allowed=f"batch {batch_id} of {app_id}",
        state=_STATE,
        next="put the table back that the stream wrote; or " + way_out,
    )


def refuse_other_table(stream_id: str, called: str, path: str, *, is_gone: bool) -> StreamError:
    """FM-STREAM-034: the table that the stream wrote to is not there any more."""
    return StreamError(
        "FM-STREAM-034",
        "the target of a stream is not the table that the stream wrote to",
        stream=stream_id,
        where=path,
        found="no Delta table" if is_gone else "another table, which was made anew",
        state=_STATE,
        next="put the table back; or, if its rows are elsewhere: "
        + command("stream", "adopt", called)
        + "; or begin anew: "
        + command("stream", "reset", called, "--to", "earliest", "--yes"),
    )


def readable(error: SourceError, stream_id: str, path: str, called: str) -> FloodmarkError:
    """The error for a log that has lost files; any other as it is."""
    if error.code not in _DAMAGED_LOG:
        return error
    return StreamError(
        "FM-STREAM-047",
        "files are missing from the log of the target: nobody can read the table",
        stream=stream_id,
        where=f"{path}/_delta_log",
        found=error.title,
        state=_STATE,
        next="put the files back from a backup; or move the folder away and begin anew: "
        + command("stream", "reset", called, "--to", "earliest", "--yes"),
    )
