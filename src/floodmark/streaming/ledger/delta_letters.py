"""The dead letters beside a Delta target, as a table: what is in it, and what is taken out of it.

The executors write them, in a commit just before that of their batch's rows. Letters of a batch whose
rows never came, and which will be judged again, are withdrawn: so every record is there once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from floodmark import failpoints
from floodmark.deltalog import DeltaLog, Storage, is_delta_table, obstacle
from floodmark.errors import StreamError
from floodmark.model import Receipt, commit_metadata, metadata_of
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import Claim

ATTEMPTS = 1024
"""The number of a letters' receipt is that of the batch times this, and of the attempt."""
FILE_LETTERS = 1_000
"""So many letters are in a file at most: who relays them reads them file by file."""
WITHDRAWN = "withdrawn"
_SUFFIX = "/letters"
_OLDER_SUFFIX = "/dead_letters"
"""Of floodmarks whose letters do not say their incarnation."""


@dataclass(frozen=True, slots=True)
class LetterCommit:
    """The last commit of letters of one incarnation."""

    batch_id: int
    attempt: int
    judged_by: str | None
    """By which settings the records were judged; `WITHDRAWN`, or None where nothing tells."""
    topic_ids: str | None = None

    @property
    def is_withdrawn(self) -> bool:
        """Whether the letters were taken out again."""
        return self.judged_by == WITHDRAWN


@dataclass(frozen=True)
class LetterTable:
    """The dead letters of one stream at `path`, which need not be there yet."""

    path: str
    stream_id: str
    storage: Storage

    def receipt(self, of_batch: Receipt, attempt: int, **more: str) -> Receipt:
        """For the letters of a batch, by the receipt of its rows."""
        said = metadata_of(of_batch.user_metadata)
        kept = {
            name: said[name] for name in ("start_offsets", "end_offsets", "topic_ids", "claim_id")
        }
        return self._receipt(of_batch.app_id, of_batch.seq, attempt, **kept, **more)

    def _receipt(self, app_id: str, batch_id: int, attempt: int, **more: str) -> Receipt:
        if attempt >= ATTEMPTS:
            raise ValueError(f"batch {batch_id} was judged {attempt} times")
        app_id, seq = f"{app_id}{_SUFFIX}", batch_id * ATTEMPTS + attempt
        name = f"{app_id}/{seq}"
        metadata = commit_metadata("stream", name, seq, self.stream_id, {}, marks=None, **more)
        return Receipt(app_id, seq, metadata)

    def last(self, app_id: str) -> LetterCommit | None:
        """The last commit of letters of an incarnation, which has this app id in the target."""
        log = self._log()
        return None if log is None else self._last(log, app_id)

    def _last(self, log: DeltaLog, app_id: str) -> LetterCommit | None:
        transactions = log.transactions()
        for suffix, attempts in ((_SUFFIX, ATTEMPTS), (_OLDER_SUFFIX, 1)):
            number = transactions.get(app_id + suffix)
            if number is None:
                continue
            commit = log.find_transaction(app_id + suffix, number)
            said = metadata_of(commit.user_metadata) if commit is not None else {}
            judged_by, ids = said.get("judged_by"), said.get("topic_ids")
            return LetterCommit(number // attempts, number % attempts, judged_by, ids)
        return None

    def withdraw(self, app_id: str, last: LetterCommit) -> None:
        """Take the letters of a batch out that is judged anew, and say so; again it does nothing."""
        incarnation = int(app_id.rpartition("/")[2])
        of_batch = f"({self._of(incarnation)}) AND batch_id = {last.batch_id}"
        self._remove(of_batch, self._withdrawal(app_id, last))
        failpoints.reached("letters.after_withdrawal")

    def withdraw_cut_off(self, claim: Claim, app_id: str, held: Mapping[int, int]) -> None:
        """Take the letters out that incarnations before this claim's left behind for batches without
        rows, as far as the stream will read their records again.

        `app_id` is what those of the stream in the target begin with, `held` the last batch there of
        each incarnation. Letters of a topic that is another one today stay: nothing brings them back.
        """
        log = self._log()
        if log is None or claim.end_offsets is None:
            return
        today = json.dumps(dict(claim.topic_ids), sort_keys=True)
        for incarnation in sorted(self._incarnations(log, app_id)):
            last = self._last(log, f"{app_id}{incarnation}")
            there = held.get(incarnation, -1)
            if last is None or last.is_withdrawn or last.batch_id <= there:
                continue
            if incarnation >= claim.incarnation or last.topic_ids != today:
                continue
            cut_off = f"({self._of(incarnation)}) AND batch_id > {there}"
            again = _is_behind(claim.end_offsets)
            receipt = self._withdrawal(f"{app_id}{incarnation}", last)
            self._remove(f"{cut_off} AND {again}", receipt)
            failpoints.reached("letters.after_withdrawal")

    def _withdrawal(self, app_id: str, last: LetterCommit) -> Receipt:
        return self._receipt(app_id, last.batch_id, last.attempt + 1, judged_by=WITHDRAWN)

    def _incarnations(self, log: DeltaLog, app_id: str) -> set[int]:
        shown = (app.removeprefix(app_id) for app in log.transactions() if app.startswith(app_id))
        numbers = (rest.removesuffix(_OLDER_SUFFIX).removesuffix(_SUFFIX) for rest in shown)
        return {int(number) for number in numbers if number.isdecimal()}

    def _of(self, incarnation: int) -> str:
        """The letters of an incarnation; older ones do not say of which they are."""
        if "incarnation" not in self.columns():
            return "true"
        return f"incarnation = {incarnation} OR incarnation IS NULL"

    def columns(self) -> list[str]:
        """Those that the table has."""
        log = self._log()
        schema = json.loads(log.facts().schema_json) if log is not None else {"fields": []}
        return [str(each["name"]) for each in schema["fields"]]

    def remove_older(self, before: datetime, are_free: str) -> int:
        """Remove letters from before a time, in one commit; returns how many.

        `are_free` says which of them nobody needs any more. Killed anywhere it did all or nothing,
        and files that nobody needs stay until VACUUM. Receipts of batches stay in the log of the
        table. Raises FM-STREAM-053.
        """
        if self._log() is None:
            return 0
        failpoints.reached("letters.before_commit")
        older = f"dead_lettered_at < '{before.isoformat()}'"
        return self._remove(f"{older} AND ({are_free})", None)

    def _remove(self, which: str, receipt: Receipt | None) -> int:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import DeltaError

        properties = None
        if receipt is not None:
            properties = CommitProperties(
                custom_metadata={"userMetadata": receipt.user_metadata},
                app_transactions=[Transaction(receipt.app_id, receipt.seq)],
            )
        table: Any = None
        try:
            table = DeltaTable(self.path, storage_options=self.storage.options)
            of_stream = f"stream_id = {sql_text(self.stream_id)}"
            done = table.delete(f"{of_stream} AND {which}", commit_properties=properties)
        except (DeltaError, OSError) as error:
            raise self._not_removed(table, error) from error
        return int(done["num_deleted_rows"] or 0)

    def _not_removed(self, table: Any, error: Exception) -> StreamError:
        why = None if table is None else obstacle(table, self.path, error, rewrites=True)
        mend = "the same command again, when nobody else writes to that table"
        if why is not None:
            mend = why.next_step(f"move the folder {self.path} away, with the letters in it")
            mend += "; then the same command again"
        return StreamError(
            "FM-STREAM-053",
            "the dead letters of a stream were not cleaned up",
            stream=self.stream_id,
            where=self.path,
            found=str(error)[:500] if why is None else why.found,
            allowed=None if why is None else why.allowed,
            state="no dead letter was removed",
            next=mend,
            retryable=why is None,
        )

    def _log(self) -> DeltaLog | None:
        there = is_delta_table(self.path, self.storage)
        return DeltaLog(self.path, self.storage) if there else None


def sql_text(text: str) -> str:
    """A text for a condition of delta-rs."""
    return "'" + text.replace("'", "''") + "'"


def _is_behind(position: Offsets) -> str:
    """That a letter's record comes again to a stream that stands there; a new partition is read whole."""
    stands = " ".join(
        f"WHEN {sql_text(f'{topic}/{partition}')} THEN {offset}"
        for (topic, partition), offset in position.items()
    )
    if not stands:
        return "true"
    of = "topic || '/' || CAST(kafka_partition AS VARCHAR)"
    return f"kafka_offset >= CASE {of} {stands} ELSE 0 END"
