"""The target of a write as its log shows it, and whether it already holds a receipt.

Shared by every sink that writes Delta tables; needs no engine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.errors import SinkError, SourceError
from floodmark.model import (
    OnLostTarget,
    Receipt,
    SinkDone,
    TableFacts,
    VersionFacts,
    Window,
    WriteResult,
    app_id_root,
    batch_of,
)
from floodmark.next_steps import command, then_retry
from floodmark.sinks import loss
from floodmark.sinks.delta.outcome import result_of
from floodmark.sinks.faults import batch_named, holds_later, holds_other
from floodmark.sinks.rules import Target, holds_rows_of_ours, needs_rows

_DAMAGED_LOG = ("FM-SOURCE-002", "FM-SOURCE-008")


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table to write to, looked at through its log only."""

    path: str
    previous: SinkDone | None
    storage: Storage
    sharers: Sequence[tuple[str, str]] = ()
    """See `WriteSpec.sharers`."""

    @property
    def is_rebuilt(self) -> bool:
        """Whether the next write brings everything: the target's loss was settled so."""
        return self.previous is not None and self.previous.settled == "rebuild"

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """See `Sink.committed`.

        A target that shows exactly this receipt, in a commit that names the batch, holds it, unless
        its rows are lost (see `loss`). One that shows a later receipt, and no commit with ours,
        was written by somebody this store does not know of (FM-SINK-012).
        """
        self._refuse_lost(receipt)
        log = self._log()
        if log is None:
            return None
        stored = log.transaction_version(receipt.app_id)
        if stored is None or stored < receipt.seq:
            return None
        return self._earlier_result(log, log.facts(), receipt, stored)

    def _earlier_result(
        self, log: DeltaLog, facts: TableFacts, receipt: Receipt, stored: int
    ) -> WriteResult:
        commit = log.find_transaction(receipt.app_id, receipt.seq)
        if commit is not None:
            self._refuse_other_batch(commit, receipt)
            return result_of(self.path, facts.table_id, commit, already_applied=True)
        if stored > receipt.seq:
            raise holds_later(self.path, receipt, stored)
        # Its commit file is gone, and `loss` has found that the store recorded this very write.
        version = self.previous.version if self.previous else facts.latest_version
        return WriteResult(self.path, facts.table_id, version, None, already_applied=True)

    def seen(self, receipt: Receipt, windows: Sequence[Window]) -> Target:
        """What the rules need to know; raises what `loss` gives."""
        self._refuse_lost(receipt)
        log = self._log()
        if log is None:
            return Target(exists=False)
        facts = log.facts()
        stored = log.transaction_version(receipt.app_id)
        last = self._last_write(log, receipt.app_id, stored)
        if last is None:
            self._refuse_unknown_receipt(stored)
        elif batch_of(last.user_metadata) not in receipt.left_behind:
            self._refuse_unknown_receipt(stored)
            self._refuse_unknown_writes(last, receipt)
        counts_rows = not self.is_rebuilt
        is_shared = bool(self._sharers(log, receipt.app_id))
        return Target(
            exists=True,
            table_id=facts.table_id,
            version=facts.latest_version,
            columns=_column_names(facts.schema_json),
            schema=facts.schema_json,
            partition_by=facts.partition_columns,
            has_rows=counts_rows and needs_rows(windows) and _has_rows(log, facts),
            holds_ours=counts_rows
            and holds_rows_of_ours(log.transactions(), receipt, self.sharers),
            properties=facts.properties,
            has_feed=facts.feed_enabled,
            is_shared=is_shared,
            is_replaced=self.is_rebuilt and not is_shared,
        )

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `Sink.loss`; None too where no earlier write is known.

        A receipt is believed by the commit that carries it, never by its number alone. So FM-SINK-042
        where the log no longer tells what others did since our last write, -043 for a receipt of this
        number whose commit is gone, -044 where our last version is somebody else's commit. Raises
        FM-SINK-045 if files of the log are missing.
        """
        try:
            return self._loss(receipt)
        except SourceError as error:
            if error.code not in _DAMAGED_LOG:
                raise
            raise loss.unreadable(self.path, error.title, receipt) from error

    def _loss(self, receipt: Receipt) -> SinkError | None:
        log = self._log()
        known = self._last_known(log, receipt)
        retargeted = self._retargeted(log, known, receipt)
        if retargeted is not None:
            return retargeted
        if log is None:
            return None if known is None else loss.target_loss(known, None, (), receipt)
        if known is None:
            return self._anonymous(log, receipt)
        facts = log.facts()
        others = self._commits_since(log, facts, known.checked_version)
        return (
            loss.target_loss(known, facts, (), receipt)
            or self._forgotten(log, facts, receipt)
            or self._copied(log, facts, receipt)
            or loss.target_loss(known, facts, others, receipt)
            or self._anonymous(log, receipt)
            or self._untold(log, facts, known, receipt)
            or self._mixed_meanwhile(log, receipt)
        )

    def _retargeted(
        self, log: DeltaLog | None, known: SinkDone | None, receipt: Receipt
    ) -> SinkError | None:
        """The write was given another target: its rows are in the old one, wherever that is."""
        if known is None or not known.table_id or known.target == self.path:
            return None
        table_id = None if log is None else log.facts().table_id
        if table_id == known.table_id:
            return None  # the same table in another place
        found = "" if table_id is None else f"table id {table_id}"
        return loss.retargeted(known, self.path, found, receipt)

    def _copied(self, log: DeltaLog, facts: TableFacts, receipt: Receipt) -> SinkError | None:
        """A copy of the target that went its own way: our last version is another commit there."""
        known = self.previous
        if known is None or known.settled or known.seq is None:
            return None
        if facts.table_id != known.table_id:
            return None
        if not facts.earliest_version <= known.version <= facts.latest_version:
            return None
        (commit,) = log.versions(known.version, known.version)
        names_ours = known.batch_id in (None, batch_of(commit.user_metadata))
        if commit.transactions.get(known.app_id) == known.seq and names_ours:
            return None
        return loss.copied(known, commit, receipt)

    def _untold(
        self, log: DeltaLog, facts: TableFacts, known: SinkDone, receipt: Receipt
    ) -> SinkError | None:
        """Commits since our last write are gone from the log: one of them may have been a RESTORE."""
        first = known.checked_version + 1
        if self.is_rebuilt or not known.table_id or first >= facts.earliest_version:
            return None
        stored = log.transaction_version(known.app_id)
        if stored is not None and known.seq is not None and stored > known.seq:
            return None  # another copy of the store was here: FM-SINK-015, whatever the log tells
        return loss.untold(known, facts.earliest_version, receipt)

    def _anonymous(self, log: DeltaLog, receipt: Receipt) -> SinkError | None:
        """The number of `receipt` without the commit that would tell whose it is."""
        if log.transaction_version(receipt.app_id) != receipt.seq:
            return None
        if log.find_transaction(receipt.app_id, receipt.seq) is not None:
            return None
        known, ours = self.previous, str(batch_of(receipt.user_metadata))
        if receipt.app_id.endswith(f"/{ours}") or ours == f"{receipt.app_id}/{receipt.seq}":
            return None  # of a backfill and of a stream the app id says whose number it is
        is_recorded = known is not None and (known.app_id, known.seq) == (
            receipt.app_id,
            receipt.seq,
        )
        if is_recorded and known is not None and known.batch_id in (None, ours):
            return None
        return loss.anonymous(self.path, receipt)

    def _last_known(self, log: DeltaLog | None, receipt: Receipt) -> SinkDone | None:
        """Our last write there: as it was recorded, else as the commit with the receipt tells."""
        if log is None or (self.previous is not None and self.previous.table_id):
            return self.previous
        stored = log.transaction_version(receipt.app_id)
        if stored is None or stored < receipt.seq:
            return self.previous
        commit = log.find_transaction(receipt.app_id, receipt.seq)
        facts = log.facts()
        # Without the commit nothing tells when it was; `_anonymous` finds that.
        version = facts.latest_version if commit is None else commit.version
        if commit is None and self.previous is not None:
            return self.previous
        return SinkDone("", receipt.app_id, self.path, facts.table_id, version, None)

    def _refuse_lost(self, receipt: Receipt) -> None:
        problem = self.loss(receipt)
        if problem is not None:
            raise problem

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """The lost target as it is found, for the journal; from here on it counts as ours.

        The writes that follow go under `next_app_id`. One exception: where `accept` finds that the
        batch of `receipt` is still there, its receipt stands. Raises FM-SINK-018 where the choice
        would double rows or remove those of others.
        """
        log = self._log()
        known = self._last_known(log, receipt)
        if known is None:
            raise self._gone_meanwhile(receipt)
        if log is None:
            return SinkDone(
                known.write_name,
                next_app_id,
                self.path,
                table_id="",
                version=-1,
                rows_written=None,
                settled=choice,
                table=known.table,
            )
        facts = log.facts()
        if choice == "rebuild":
            self._refuse_mixed(log, next_app_id, is_same=facts.table_id == known.table_id)
        elif self.is_rebuilt:
            self._refuse_doubled(log, facts, receipt)
        holds_batch = choice == "accept" and self._still_holds(log, facts, receipt)
        return replace(
            known,
            app_id=receipt.app_id if holds_batch else next_app_id,
            target=self.path,
            table_id=facts.table_id,
            version=facts.latest_version,
            accepted_version=facts.latest_version,
            rows_written=None,
            seq=receipt.seq if holds_batch else None,
            batch_id=batch_of(receipt.user_metadata) if holds_batch else None,
            settled=choice,
        )

    def _gone_meanwhile(self, receipt: Receipt) -> SinkError:
        """A write that nothing recorded was lost, and then its table too: nothing tells of it now."""
        return loss.unsettled(
            self.path,
            "the target changed while it was looked at",
            "no table, and no record of a write there",
            "look again: " + command("retry", batch_named(receipt)),
        )

    def _refuse_doubled(self, log: DeltaLog, facts: TableFacts, receipt: Receipt) -> None:
        """A rebuild that was settled and not made would have replaced this batch: it may be there."""
        ours = app_id_root(receipt.app_id)
        earlier = [replace(receipt, app_id=a) for a in log.transactions() if a.startswith(ours)]
        if any(self._still_holds(log, facts, each) for each in earlier):
            raise loss.unsettled(
                self.path,
                "the target holds this batch from before a rebuild that was settled and not made",
                f"receipt {receipt.seq} of {ours}",
                "drop the table, then: "
                + command("retry", batch_named(receipt), "--on-lost-target", "rebuild"),
            )

    def _still_holds(self, log: DeltaLog, facts: TableFacts, receipt: Receipt) -> bool:
        stored = log.transaction_version(receipt.app_id)
        if stored is None or stored < receipt.seq:
            return False
        commit = log.find_transaction(receipt.app_id, receipt.seq)
        is_there = None
        if commit is not None:
            self._refuse_other_batch(commit, receipt)
            commits = self._commits_since(log, facts, commit.version)
            is_there = loss.survives(commit.version, commits)
        if is_there is None:
            raise loss.unsettled(
                self.path,
                "the log does not tell whether the lost target still holds this batch",
                f"receipt {receipt.seq}, whose commit or the version restored to is not in the log",
                command("retry", batch_named(receipt), "--on-lost-target", "rebuild"),
            )
        return is_there

    def _mixed_meanwhile(self, log: DeltaLog, receipt: Receipt) -> SinkError | None:
        """Others came between the settlement of a loss and the rebuild: it has to be settled anew."""
        return self._mixed(log, receipt.app_id, is_same=False) if self.is_rebuilt else None

    def _refuse_mixed(self, log: DeltaLog, app_id: str, *, is_same: bool) -> None:
        problem = self._mixed(log, app_id, is_same=is_same)
        if problem is not None:
            raise problem

    def _mixed(self, log: DeltaLog, app_id: str, *, is_same: bool) -> SinkError | None:
        """A rebuild of a target with rows of this write and of others could only remove both.

        In another table than the one that was lost (`is_same`), say one that another write has made
        anew, no receipt of ours means that no row of ours is there: the rebuild adds them.
        """
        others = self._sharers(log, app_id)
        has_ours = is_same or len(others) < sum(map(_is_receipt, log.transactions()))
        if not others or not has_ours:
            return None
        return loss.unsettled(
            self.path,
            "a rebuild would remove the rows of another write from the target",
            f"receipts of {', '.join(others[:3])}",
            "drop the table and rebuild each of its pipelines; or --on-lost-target accept",
        )

    def _sharers(self, log: DeltaLog, app_id: str) -> list[str]:
        """The receipts there of other writes."""
        ours = app_id_root(app_id)
        return sorted(a for a in log.transactions() if _is_receipt(a) and not a.startswith(ours))

    def _forgotten(self, log: DeltaLog, facts: TableFacts, receipt: Receipt) -> SinkError | None:
        """A receipt that has gone from the table's state, or a version: an older copy is back."""
        known = self.previous
        if known is None or not known.table_id:
            return None
        stored = log.transaction_version(known.app_id)
        is_shown = known.seq is None or (stored is not None and stored >= known.seq)
        if is_shown and facts.latest_version >= known.checked_version:
            return None
        return loss.forgotten(known, stored, facts.latest_version, receipt)

    def _commits_since(
        self, log: DeltaLog, facts: TableFacts, version: int
    ) -> Sequence[VersionFacts]:
        first = max(version + 1, facts.earliest_version)
        return log.versions(first, facts.latest_version)

    def _last_write(self, log: DeltaLog, app_id: str, stored: int | None) -> VersionFacts | None:
        """Our last commit there, while its commit file is still in the log."""
        return None if stored is None else log.find_transaction(app_id, stored)

    def read_back(self, receipt: Receipt, seen: Target, notes: Mapping[str, str]) -> WriteResult:
        """The result of a write that has just returned, proven from the log.

        `seen` is the target as it was before: a commit that it had already is somebody else's, and
        Delta skipped ours. Raises FM-SINK-008 if the receipt is not there, FM-SINK-007 if the table
        is another one.
        """
        log = self._log()
        commit = log.find_transaction(receipt.app_id, receipt.seq) if log else None
        if log is None or commit is None:
            stored = log.transaction_version(receipt.app_id) if log else None
            raise _no_receipt(self.path, receipt, stored)
        facts = log.facts()
        if seen.table_id is not None and facts.table_id != seen.table_id:
            raise _replaced_meanwhile(self.path, seen.table_id, facts.table_id)
        self._refuse_other_batch(commit, receipt)
        is_ours = commit.version > seen.version
        return result_of(
            self.path, facts.table_id, commit, already_applied=not is_ours, notes=notes
        )

    def commits_since(self, operation: str) -> float:
        """How many commits there were since the last one of that kind; endless if there was none."""
        log = self._log()
        if log is None:
            return 0
        facts = log.facts()
        commits = log.versions(facts.earliest_version, facts.latest_version)
        last = [commit.version for commit in commits if commit.operation == operation]
        return facts.latest_version - last[-1] if last else math.inf

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
            raise holds_other(
                _at(self.path, commit), f"batch {found} has number {receipt.seq} there"
            )

    def _refuse_unknown_writes(self, last: VersionFacts, receipt: Receipt) -> None:
        """The last write there must be the last one the store knows of, or this very batch."""
        known, found = self.previous, batch_of(last.user_metadata)
        is_known = (
            known is not None and known.version == last.version and known.batch_id in (None, found)
        )
        if not is_known and found != batch_of(receipt.user_metadata):
            raise holds_other(
                _at(self.path, last), f"batch {found} is unknown to this control store"
            )

    def _refuse_unknown_receipt(self, stored: int | None) -> None:
        """The same by number alone, for a log that no longer has the commit."""
        known = self.previous.seq if self.previous else None
        if stored is None or known is None or stored == known:
            return
        raise holds_other(self.path, f"receipt {stored}; this control store left {known}")


def _at(path: str, commit: VersionFacts) -> str:
    return f"{path} version {commit.version}"


def _is_receipt(app_id: str) -> bool:
    return app_id.startswith("floodmark/")


def _has_rows(log: DeltaLog, facts: TableFacts) -> bool:
    """Whether the table has rows; a file that does not tell counts as one that has."""
    size = log.snapshot_size(facts.latest_version)
    return size.files > 0 and size.rows != 0


def _column_names(schema_json: str) -> tuple[str, ...]:
    return tuple(field["name"] for field in json.loads(schema_json)["fields"])


def not_written(path: str, receipt: Receipt, found: str) -> SinkError:
    """The error for a store that did not take the rows; a repeated write is safe."""
    return SinkError(
        "FM-SINK-019",
        "the target could not be written",
        where=path,
        found=found,
        state="rows and receipt go in one commit: they are both there or neither, and the retry"
        " finds out; data files that were left behind belong to no version (VACUUM removes them)",
        next="make room or mend what is said above, " + then_retry(batch_named(receipt)),
        retryable=True,
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
        next=command("verify") + ", " + then_retry(batch_named(receipt)),
    )


def _replaced_meanwhile(path: str, wanted: str, found: str) -> SinkError:
    return SinkError(
        "FM-SINK-007",
        "the target was replaced while it was written",
        where=path,
        found=f"table id {found}",
        allowed=f"table id {wanted}",
        state="the rows of this batch are in the new table; what the old one held is gone",
        next=command("verify") + " shows what the target holds",
    )
