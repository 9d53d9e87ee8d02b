"""The target of a write as its log shows it, and whether it already holds a receipt.

Shared by every sink that writes Delta tables; needs no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.errors import SinkError
from floodmark.model.delta import TableFacts, VersionFacts
from floodmark.model.receipt import Receipt, WriteResult, batch_of
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.sinks.outcome import result_of
from floodmark.sinks.rules import Target, check_identity, needs_rows, restored

NOTHING_WRITTEN = "nothing was written; the target is unchanged"


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table to write to, looked at through its log only."""

    path: str
    previous: SinkDone | None
    storage: Storage

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """See `Sink.committed`.

        A target that shows exactly this receipt holds the batch, unless it was restored since
        (FM-SINK-009). One that shows a later receipt, and no commit with ours, was written by
        somebody this store does not know of (FM-SINK-012).
        """
        log = self._log()
        if log is None:
            check_identity(self.path, None, self.previous)
            return None
        facts = log.facts()
        check_identity(self.path, facts, self.previous)
        stored = log.transaction_version(receipt.app_id)
        if stored is None or stored < receipt.seq:
            return None
        return self._earlier_result(log, facts, receipt, stored)

    def _earlier_result(
        self, log: DeltaLog, facts: TableFacts, receipt: Receipt, stored: int
    ) -> WriteResult:
        commit = log.find_transaction(receipt.app_id, receipt.seq)
        if commit is not None:
            self._refuse_other_batch(commit, receipt)
            self._refuse_restored(log, facts, commit.version)
            return result_of(self.path, facts.table_id, commit, already_applied=True)
        if stored > receipt.seq:
            raise _holds_later(self.path, receipt, stored)
        # The receipt is in the table's state, its commit file is gone: what it counted is unknown.
        version = self.previous.version if self.previous else facts.earliest_version
        self._refuse_restored(log, facts, version)
        return WriteResult(self.path, facts.table_id, version, None, already_applied=True)

    def seen(self, receipt: Receipt, windows: Sequence[Window]) -> Target:
        """What the rules need to know; raises FM-SINK-009 if the target was restored."""
        log = self._log()
        if log is None:
            return Target(exists=False)
        facts = log.facts()
        stored = log.transaction_version(receipt.app_id)
        last = self._last_write(log, receipt.app_id, stored)
        if last is not None:
            self._refuse_unknown_writes(last, receipt)
        since = last or self.previous
        if since is not None:
            self._refuse_restored(log, facts, since.version)
        return Target(
            exists=True,
            table_id=facts.table_id,
            version=facts.latest_version,
            columns=_column_names(facts.schema_json),
            has_rows=needs_rows(windows) and _has_rows(log, facts),
            holds_ours=_holds_rows_of_ours(log, receipt),
            properties=facts.properties,
            has_feed=facts.feed_enabled,
        )

    def _last_write(self, log: DeltaLog, app_id: str, stored: int | None) -> VersionFacts | None:
        """Our last commit there, while its commit file is still in the log."""
        return None if stored is None else log.find_transaction(app_id, stored)

    def read_back(self, receipt: Receipt, seen: Target, notes: Mapping[str, str]) -> WriteResult:
        """The result of a write that has just returned, proven from the log.

        `seen` is the target as it was before: a commit that it had already is somebody else's, and
        Delta skipped ours. Raises FM-SINK-008 if the receipt is not there, FM-SINK-007 if the table
        is another one.
        """
        log = DeltaLog(self.path, self.storage)
        commit = log.find_transaction(receipt.app_id, receipt.seq)
        facts = log.facts()
        if commit is None:
            raise _no_receipt(self.path, receipt, log.transaction_version(receipt.app_id))
        if seen.table_id is not None and facts.table_id != seen.table_id:
            raise _replaced_meanwhile(self.path, seen.table_id, facts.table_id)
        self._refuse_other_batch(commit, receipt)
        is_ours = commit.version > seen.version
        return result_of(
            self.path, facts.table_id, commit, already_applied=not is_ours, notes=notes
        )

    def latest_version(self) -> int:
        """The newest version; -1 where there is no table."""
        log = self._log()
        return -1 if log is None else log.facts().latest_version

    def _log(self) -> DeltaLog | None:
        if not is_delta_table(self.path, self.storage):
            return None
        return DeltaLog(self.path, self.storage)

    def _refuse_other_batch(self, commit: VersionFacts, receipt: Receipt) -> None:
        """A receipt of the right number that another batch left is no proof of ours.

        It is there if an older copy of the control store was put back: its numbers come again.
        """
        found, ours = batch_of(commit.user_metadata), batch_of(receipt.user_metadata)
        if found != ours:
            raise _holds_other(self.path, commit, f"batch {found} has number {receipt.seq} there")

    def _refuse_unknown_writes(self, last: VersionFacts, receipt: Receipt) -> None:
        """The last write there must be the last one the store knows of, or this very batch."""
        is_known = self.previous is not None and self.previous.version == last.version
        found = batch_of(last.user_metadata)
        if not is_known and found != batch_of(receipt.user_metadata):
            raise _holds_other(self.path, last, f"batch {found} is unknown to this control store")

    def _refuse_restored(self, log: DeltaLog, facts: TableFacts, since: int) -> None:
        first = max(since + 1, facts.earliest_version)
        for commit in log.versions(first, facts.latest_version):
            if commit.operation == "RESTORE":
                raise restored(self.path, commit.version, since)


def _holds_rows_of_ours(log: DeltaLog, receipt: Receipt) -> bool:
    """Whether any floodmark pipeline wrote to the table, except for this very batch.

    Also one of another control store or under another name: a store that was lost, or a pipeline
    that was renamed, starts with a snapshot of rows that are there already.
    """
    store = "/".join(receipt.app_id.split("/")[:2]) + "/"
    return any(
        app_id.startswith("floodmark/")
        and not (app_id.startswith(store) and version == receipt.seq)
        for app_id, version in log.transactions().items()
    )


def _has_rows(log: DeltaLog, facts: TableFacts) -> bool:
    """Whether the table has rows; a file that does not tell counts as one that has."""
    size = log.snapshot_size(facts.latest_version)
    return size.files > 0 and size.rows != 0


def _column_names(schema_json: str) -> tuple[str, ...]:
    return tuple(field["name"] for field in json.loads(schema_json)["fields"])


def _holds_later(path: str, receipt: Receipt, stored: int) -> SinkError:
    return SinkError(
        "FM-SINK-012",
        "the target already holds a later batch of this pipeline",
        where=path,
        found=f"receipt {stored} of {receipt.app_id}, and no commit with receipt {receipt.seq}",
        allowed=f"receipts up to {receipt.seq}, applied in order",
        state=NOTHING_WRITTEN,
        next="floodmark verify shows which store wrote it; use the control store that is current",
    )


def _holds_other(path: str, commit: VersionFacts, found: str) -> SinkError:
    return SinkError(
        "FM-SINK-015",
        "the target holds a batch that this control store did not write",
        where=f"{path} version {commit.version}",
        found=found,
        allowed="writes of this pipeline by one control store, none of them forgotten",
        state=f"{NOTHING_WRITTEN}; an older copy of the control store seems to be in use",
        next="put the newest copy of the control store back, then run the batch again",
    )


def _no_receipt(path: str, receipt: Receipt, stored: int | None) -> SinkError:
    return SinkError(
        "FM-SINK-008",
        "the target does not hold the receipt after the write",
        where=path,
        found=f"{receipt.app_id} at {'nothing' if stored is None else stored}",
        allowed=f"{receipt.app_id} at {receipt.seq}",
        state="the write returned, but its commit is not in the log: it may have been overwritten"
        " by another writer",
        next="floodmark verify, then floodmark retry of this batch",
    )


def _replaced_meanwhile(path: str, wanted: str, found: str) -> SinkError:
    return SinkError(
        "FM-SINK-007",
        "the target was replaced while it was written",
        where=path,
        found=f"table id {found}",
        allowed=f"table id {wanted}",
        state="the rows of this batch are in the new table; what the old one held is gone",
        next="floodmark verify shows what the target holds",
    )
