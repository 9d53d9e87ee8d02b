"""The memory of a stream whose target is a Delta table.

Every batch is a commit of the target itself: rows, receipt and offsets together. The receipt's app id
holds the incarnation of the stream, its version is the number of the batch, and the offsets are in
the commit's userMetadata. What is no batch, a claim or a decision of a person, is a commit of a small
Delta table beside the target, made by compare-and-swap.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa

from floodmark import failpoints
from floodmark.deltalog import (
    DeltaLog,
    Obstacle,
    Storage,
    create_table,
    is_delta_table,
    obstacle,
)
from floodmark.errors import SourceError, StreamError
from floodmark.model import Receipt, TableFacts, VersionFacts, commit_metadata, metadata_of
from floodmark.model.offsets import Offsets, breaks
from floodmark.next_steps import STREAM, command
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    LoadCounts,
    StreamBatch,
    StreamRow,
    claim_of,
    claimed_by,
    is_same,
)
from floodmark.streaming.ledger.delta_letters import LetterTable
from floodmark.streaming.ledger.delta_proof import (
    Noted,
    Target,
    copied,
    noted,
    readable,
    refuse_other_table,
)
from floodmark.streaming.ledger.protocol import RECORDS, History
from floodmark.streaming.ledger.refusals import broken, disagreeing, fenced, moved
from floodmark.streaming.ledger.requests import SignOfLife

log = logging.getLogger("floodmark.streaming")

BESIDE = ".floodmark_stream"
"""What the name of the table with claims and decisions ends with."""
DEAD_LETTERS = ".floodmark_dead_letters"
OUTBOX = ".floodmark_outbox"
"""What the table ends with that says up to where dead letters are sent to Kafka."""
REQUESTS = "_requests"
"""A folder in the table beside the target: a small file for each request, answer and sign of life."""
LOOKED_AT = 1_000
"""So many commits of the target are looked at for a status."""
_ROWS = pa.schema([("stream_id", pa.string()), ("at", pa.timestamp("us", "UTC")),
                   ("what", pa.string()), ("state", pa.string())])  # fmt: skip
_PLACES = ("start_offsets", "end_offsets")


@dataclass(frozen=True, slots=True)
class _Decided:
    """The last claim or decision."""

    version: int
    """The newest version of its table, which the next one has to follow."""
    row: StreamRow
    noted: Noted
    """The target as it was then."""


class DeltaLoad(Protocol):
    """What a batch brings to a Delta table.

    An error of either method ends the batch: nothing of it is there, or all, or letters without rows,
    which the next attempt finds.
    """

    @property
    def counts(self) -> LoadCounts:
        """What becomes of the records of the batch."""

    def write_letters(self, receipt: Receipt, *, is_new: bool) -> None:
        """Write the dead letters beside the target, once; `is_new` unless the rows are there."""

    def write_rows(self, receipt: Receipt) -> None:
        """Commit the rows together with the receipt."""


@dataclass
class DeltaLedger:
    """The memory of a stream into the Delta table at `path`; see protocol.StreamLedger."""

    path: str
    stream_id: str
    storage: Storage = field(default_factory=Storage)

    @property
    def place(self) -> str:
        """Where the memory is, for messages."""
        return self.path

    @property
    def _beside(self) -> str:
        return f"{self.path}{BESIDE}"

    def another(self) -> DeltaLedger:
        """It keeps nothing between two calls, so any thread may use it."""
        return self

    def close(self) -> None:
        """Nothing is held open."""

    def ask_to_stop(self, claim_id: str, by: str) -> None:
        """See requests.Requests."""
        self._note(f"stop-{claim_id}", by)

    def is_asked_to_stop(self, claim_id: str) -> bool:
        """See requests.Requests."""
        return self._is_noted(f"stop-{claim_id}")

    def note_end(self, claim_id: str) -> None:
        """See requests.Requests."""
        self._note(f"ended-{claim_id}", "")

    def has_ended(self, claim_id: str) -> bool:
        """See requests.Requests."""
        return self._is_noted(f"ended-{claim_id}")

    def give_sign(self, claim_id: str) -> None:
        """See requests.Requests; a runner that was fenced writes a file that nobody looks at."""
        self._note(f"alive-{claim_id}", "")

    def sign_of_life(self, claim_id: str) -> SignOfLife | None:
        """See requests.Requests."""
        try:
            sign = self.storage.entry(f"{self._beside}/{REQUESTS}/alive-{claim_id}")
        except OSError as error:
            raise self._unwritable(error) from error
        if sign is None:
            return None
        seconds = datetime.now(UTC).timestamp() - sign.modified_ms / 1_000
        return SignOfLife(max(0.0, seconds), self.has_ended(claim_id))

    def _note(self, name: str, by: str) -> None:
        said = {"stream_id": self.stream_id, "at": datetime.now(UTC).isoformat(), "by": by}
        try:
            self.storage.write(f"{self._beside}/{REQUESTS}/{name}", json.dumps(said).encode())
        except OSError as error:
            raise self._unwritable(error) from error

    def _is_noted(self, name: str) -> bool:
        try:
            return self.storage.exists(f"{self._beside}/{REQUESTS}/{name}")
        except OSError as error:
            raise self._unwritable(error) from error

    def ensure(self, *, creates: bool = True) -> None:
        """See that the table beside the target is there; raises FM-STREAM-004 if it cannot be."""
        if is_delta_table(self._beside, self.storage):
            return
        from deltalake.exceptions import DeltaError

        # Its commits are what is read: none of them may be cleaned up.
        kept = {"delta.logRetentionDuration": "interval 5200 weeks"}
        try:
            if creates:
                create_table(self._beside, _ROWS, self.storage, configuration=kept)
        except (DeltaError, OSError) as error:
            raise self._unwritable(error) from error

    def stored(self) -> StreamRow | None:
        """Where the stream stands: the last batch in the target, or a decision behind it."""
        decided = self._decided()
        return None if decided is None else self._with_batches(decided)

    def trusted(self, stream: str) -> StreamRow | None:
        """As `stored`; raises what speaks against the target, see `Target.refuse`.

        FM-STREAM-034 too where the table is gone that the stream wrote to. `stream` is what commands
        call it.
        """
        decided = self._decided()
        if decided is None:
            return None
        self._refuse_doubtful(decided, stream)
        return self._with_batches(decided)

    def claim(self, facts: ClaimFacts, seen: StreamRow | None) -> Claim:
        """See protocol.StreamLedger: the next epoch, unless the stream has moved."""
        decided = self._decided()
        there = self._new() if decided is None else self._with_batches(decided)
        if not is_same(there, seen):
            raise moved(self.stream_id)
        claim = claimed_by(there, facts)
        # Before the claim: a runner that is killed right behind it is missed too.
        self.give_sign(str(claim.claim_id))
        self._append(decided, claim, f"claimed by {facts.holder}")
        self._forget_signs(there.claim_id)
        return claim

    def _forget_signs(self, claim_id: str | None) -> None:
        """Drop the files of the claim before: each start would leave some for ever."""
        try:
            for kind in () if claim_id is None else ("alive", "ended", "stop"):
                self.storage.delete(f"{self._beside}/{REQUESTS}/{kind}-{claim_id}")
        except OSError as error:  # they disturb nobody
            log.warning("stream %s: %s", self.stream_id, error)

    def move(
        self,
        claim: Claim,
        end: Offsets | None,
        note: str,
        *,
        spark_batch_id: int | None = None,
        begins_incarnation: bool = True,
    ) -> Claim:
        """See protocol.StreamLedger; the note is kept beside the target."""
        decided = self._held(claim)
        row = self._with_batches(decided)
        there = replace(
            row,
            incarnation=row.incarnation + int(begins_incarnation),
            start_offsets=row.end_offsets or Offsets(),
            end_offsets=end,
            batch_id=row.next_batch_id,
            spark_batch_id=spark_batch_id,
            event_watermark=row.event_watermark if end is not None else None,
            commit_id=f"decision {decided.version + 1}",
        )
        self._append(decided, there, note)
        return claim_of(there)

    def refuse_fenced(self, claim: Claim) -> None:
        """Raise FM-STREAM-001 unless the stream is still this claim's; changes nothing."""
        self._held(claim)

    def commit(self, claim: Claim, batch: StreamBatch, load: DeltaLoad) -> Applied | AlreadyApplied:
        """Write one batch exactly once; the order of the steps is the guarantee.

        1. Fenced (FM-STREAM-001), a gap (-002), an overlap (-003), a target that cannot be believed
           (see `trusted`): nothing is written.
        2. Every record is accounted for (-007).
        3. Dead letters beside the target, with a receipt of the batch. Also where its rows are there:
           a runner that was taken for dead may have left it without its letters.
        4. Rows, receipt and offsets in one commit of the target, unless they are there already.
        """
        # 1.
        is_new = self._admitted(claim, batch)
        # 2.
        if is_new and not load.counts.agree:
            raise disagreeing(self.stream_id, str(load.counts), batch)
        # 3.
        receipt = self.receipt(claim, batch, load.counts)
        load.write_letters(receipt, is_new=is_new)
        if not is_new:
            return AlreadyApplied(batch.batch_id)
        # 4.
        failpoints.reached("stream.before_commit")
        load.write_rows(receipt)
        failpoints.reached("stream.after_commit")
        return Applied(batch.batch_id, load.counts)

    def _admitted(self, claim: Claim, batch: StreamBatch) -> bool:
        """Whether a batch is to be written: not if it is there already.

        Raises FM-STREAM-001 if another runner has taken over, FM-STREAM-002 and -003 for a batch
        that does not begin where the stream stands, and what `trusted` does.
        """
        decided = self._held(claim)
        last = self._refuse_doubtful(decided, self.stream_id)
        row = self._with_batches(decided)
        self._refuse_of_others(claim, decided.noted, last)
        if row.holds(batch):
            return False
        found = breaks(row.end_offsets, batch.start) if row.end_offsets is not None else ()
        if found:
            raise broken(row, batch, found)
        return True

    def receipt(self, claim: Claim, batch: StreamBatch, counts: LoadCounts) -> Receipt:
        """What a commit of a batch carries."""
        app_id = self.app_id(batch.incarnation)
        said = {
            "start_offsets": batch.start.to_json(),
            "end_offsets": batch.end.to_json(),
            "spark_batch_id": _text(batch.spark_batch_id),
            "checkpoint": batch.checkpoint or "",
            "query_id": claim.query_id or "",
            "claim_id": claim.claim_id or "",
            "topic_ids": json.dumps(dict(claim.topic_ids), sort_keys=True),
            "event_watermark": _iso(batch.event_watermark) or "",
            "counts": json.dumps(asdict(counts)),
        }
        name = f"{app_id}/{batch.batch_id}"
        metadata = commit_metadata(
            "stream", name, batch.batch_id, self.stream_id, {}, marks=None, **said
        )
        return Receipt(app_id, batch.batch_id, metadata)

    def app_id(self, incarnation: int | str) -> str:
        """Under which the batches of an incarnation are committed."""
        return f"floodmark/stream/{self.stream_id}/{incarnation}"

    def commits(self) -> list[tuple[VersionFacts, Mapping[str, Any]]]:
        """The batches among the last commits of the target, each with what it says."""
        log = self._log()
        if log is None:
            return []
        facts = log.facts()
        first = max(facts.earliest_version, facts.latest_version - LOOKED_AT + 1)
        every = log.versions(first, facts.latest_version)
        told = [(commit, metadata_of(commit.user_metadata)) for commit in every]
        ours = ("stream", self.stream_id)
        return [
            (commit, said)
            for commit, said in told
            if (said.get("control_id"), said.get("pipeline")) == ours and "end_offsets" in said
        ]

    def history(self) -> History:
        """What the last commits of the target tell, by the clock of this machine."""
        commits, now = self.commits(), datetime.now(UTC)
        counts = [json.loads(said["counts"]) for _, said in commits]
        recent = [
            each["received"]
            for (commit, _), each in zip(commits, counts, strict=True)
            if now - commit.committed_at < timedelta(minutes=1)
        ]
        last = max((commit.committed_at for commit, _ in commits), default=None)
        records = {name: sum(each[name] for each in counts) for name in RECORDS}
        return History(
            batches=len(commits),
            last_processed_at=last,
            seconds_since_last_batch=None if last is None else (now - last).total_seconds(),
            records_last_minute=sum(recent),
            batches_last_minute=len(recent),
            records=records,
            dead_letters=records["dead_lettered"],
        )

    def tracked(self) -> None:
        """There is no tracker: the log of the target tells of batches."""

    def cleanup(self, retention_days: float) -> int:
        """There are no such rows: Delta cleans the log of the target by its own retention."""
        if retention_days < 0:
            raise ValueError(f"a retention of {retention_days} days")
        return 0

    @property
    def letters(self) -> LetterTable:
        """The dead letters beside the target."""
        return LetterTable(f"{self.path}{DEAD_LETTERS}", self.stream_id, self.storage)

    def cleanup_dead_letters(self, retention_days: float) -> int:
        """See protocol.StreamLedger: one commit. Older versions keep the rows until VACUUM.

        Letters stay that wait for Kafka, and those of a batch whose rows are not there yet: its next
        attempt finds their receipt, and does not write them again.
        """
        from floodmark.streaming.outbox.delta import DeltaOutbox

        if retention_days < 0:
            raise ValueError(f"a retention of {retention_days} days")
        before = datetime.now(UTC) - timedelta(days=retention_days)
        return self.letters.remove_older(before, DeltaOutbox(self).free())

    def held(self) -> dict[int, int]:
        """The last batch of each incarnation that the target shows."""
        log = self._log()
        receipts = {} if log is None else self._receipts(log)
        return {int(app.rpartition("/")[2]): batch_id for app, batch_id in receipts.items()}

    def reached(self) -> tuple[int, int]:
        """The incarnation that the stream is in, and its last batch in the target; -1 without one."""
        held, decided = self.held(), self._decided()
        newest = max(
            [*held, *([decided.row.incarnation] if decided is not None else [])], default=1
        )
        return newest, held.get(newest, -1)

    # Reading ------------------------------------------------------------------------------------

    def _log(self) -> DeltaLog | None:
        there = is_delta_table(self.path, self.storage)
        return DeltaLog(self.path, self.storage) if there else None

    def _decided(self) -> _Decided | None:
        """None for a stream that nothing is known of."""
        if is_delta_table(self._beside, self.storage):
            log = DeltaLog(self._beside, self.storage)
            facts = log.facts()
            said = self._last_said(log, facts)
            if said is not None:
                row = _row_of(said["row"])
                return _Decided(facts.latest_version, row, self._noted_in(said, row))
            return self._undecided(facts.latest_version)
        # Without the table beside it the target still tells of its batches.
        return self._undecided(0)

    def _undecided(self, version: int) -> _Decided | None:
        return _Decided(version, self._new(), Noted()) if self._incarnations() else None

    def _last_said(self, log: DeltaLog, facts: TableFacts) -> Mapping[str, Any] | None:
        """The last claim or decision, behind the commits of those who maintain the lake's tables.

        Its commit may have been cleaned up, if somebody shortened the retention of the log: the rows
        of the table say the same.
        """
        for version in range(facts.latest_version, facts.earliest_version - 1, -1):
            (commit,) = log.versions(version, version)
            said = metadata_of(commit.user_metadata)
            if "row" in said:
                return said
            if commit.version == 0 and commit.operation == "CREATE TABLE":
                return None  # as floodmark made it; of a clone only the rows tell
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import DeltaError

        query = "SELECT state FROM t ORDER BY at DESC LIMIT 1"
        try:
            table: Any = DeltaTable(self._beside, storage_options=self.storage.options)
            rows = pa.table(QueryBuilder().register("t", table).execute(query))
        except (DeltaError, OSError) as error:
            raise self._unwritable(error) from error
        return metadata_of(rows.column("state")[0].as_py()) if rows.num_rows else None

    def _noted_in(self, said: Mapping[str, Any], row: StreamRow) -> Noted:
        """What a claim or decision noted of the target; older ones name the table and a batch."""
        if "target" in said:
            return Noted(**said["target"])
        app_id, _, number = (row.commit_id or "").rpartition("/")
        is_batch = app_id.startswith(self.app_id("")) and number.isdecimal()
        return Noted(said.get("table_id"), receipts={app_id: int(number)} if is_batch else {})

    def _refuse_of_others(self, claim: Claim, noted: Noted, last: VersionFacts | None) -> None:
        """Raise FM-STREAM-046 where the batch that this runner wrote last is somebody else's."""
        if last is None:
            return
        app_id = self.app_id(claim.incarnation)
        number = last.transactions.get(app_id)
        said = metadata_of(last.user_metadata).get("claim_id", claim.claim_id)
        is_news = noted.receipts.get(app_id) != number
        if number == claim.batch_id and is_news and said != claim.claim_id:
            raise copied(self.stream_id, f"{self.path} version {last.version}", app_id, number)

    def _refuse_doubtful(self, decided: _Decided, called: str) -> VersionFacts | None:
        """Raise what speaks against the target, see `trusted`; else the commit of the last batch."""
        try:
            log, noted = self._log(), decided.noted
            table_id = log.facts().table_id if log is not None else None
            if noted.table_id is not None and table_id != noted.table_id:
                raise refuse_other_table(self.stream_id, called, self.path, is_gone=log is None)
            if log is None:
                return None
            target = Target(self.stream_id, log, log.facts(), self._receipts(log))
            row = self._with_batches(decided)
            last = log.find_transaction(*newest) if (newest := self._newest(log, row)) else None
            target.refuse(noted, last, row.end_offsets, called)
            is_news = newest is not None and noted.receipts.get(newest[0]) != newest[1]
            if newest is not None and is_news and last is not None and not _names_batch(last):
                way_out = "begin anew: " + command(
                    "stream", "reset", called, "--to", "OFFSETS", "--yes"
                )
                where = f"{self.path} version {last.version}"
                raise copied(self.stream_id, where, *newest, way_out)
        except SourceError as error:
            raise readable(error, self.stream_id, self.path, called) from error
        return last

    def _with_batches(self, decided: _Decided) -> StreamRow:
        """The row behind the batches that the target holds since the decision."""
        row, log = decided.row, self._log()
        noted, facts = decided.noted, log.facts() if log is not None else None
        if noted.table_id is not None and (facts is None or facts.table_id != noted.table_id):
            # What the stream wrote is gone with its table: the target knows nothing.
            return replace(row, start_offsets=None, end_offsets=None, spark_batch_id=None)
        if log is None or facts is None:
            return row
        is_older = Target(self.stream_id, log, facts, self._receipts(log)).is_put_back(noted)
        newest = self._newest(log, row)
        if newest is None:
            # An older copy from before the first batch: nothing tells where that one began.
            return replace(row, start_offsets=None, end_offsets=None) if is_older else row
        app_id, batch_id = newest
        incarnation = int(app_id.rpartition("/")[2])
        is_decided = (
            not is_older
            and incarnation <= row.incarnation
            and row.batch_id is not None
            and batch_id <= row.batch_id
        )
        if is_decided:
            return row
        row = replace(row, incarnation=max(incarnation, row.incarnation))
        commit = log.find_transaction(app_id, batch_id)
        if commit is None or not _names_batch(commit):
            return replace(row, start_offsets=None, end_offsets=None, batch_id=batch_id)
        return _behind(row, batch_id, app_id, metadata_of(commit.user_metadata))

    def _newest(self, log: DeltaLog, row: StreamRow) -> tuple[str, int] | None:
        """The last batch there: of the row's incarnation or a newer one, else of the one before."""
        receipts = self._receipts(log)
        by_incarnation = sorted(receipts, key=lambda app: int(app.rpartition("/")[2]))
        if not by_incarnation:
            return None
        ours = self.app_id(row.incarnation)
        newest = by_incarnation[-1]
        is_newer = int(newest.rpartition("/")[2]) > row.incarnation
        app_id = newest if is_newer or ours not in receipts else ours
        return app_id, receipts[app_id]

    def _receipts(self, log: DeltaLog) -> dict[str, int]:
        """The last batch of each incarnation that the target shows."""
        ours = self.app_id("")
        shown = log.transactions().items()
        return {app: n for app, n in shown if app.removeprefix(ours).isdecimal()}

    def _held(self, claim: Claim) -> _Decided:
        decided = self._decided()
        ours = (claim.epoch, claim.claim_id)
        if decided is None or (decided.row.epoch, decided.row.claim_id) != ours:
            raise fenced(claim, decided.row if decided is not None else None)
        return decided

    def _new(self) -> StreamRow:
        """The row of a stream that nobody has claimed, as far as it is known."""
        known: dict[str, Any] = dict.fromkeys(StreamRow.__dataclass_fields__)
        known |= {"stream_id": self.stream_id, "epoch": 0, "exactly_once": True, "topic_ids": {}}
        return StreamRow(**{**known, "incarnation": max(self._incarnations(), default=1)})

    def _incarnations(self) -> list[int]:
        """Those whose receipts the target shows."""
        log = self._log()
        return [] if log is None else [int(app.rpartition("/")[2]) for app in self._receipts(log)]

    def _shown(self, row: StreamRow) -> Noted:
        """What the target shows now, for the note of a claim or decision."""
        log = self._log()
        if log is None:
            return Noted()
        newest = self._newest(log, row)
        return noted(log, self._receipts(log), newest[0] if newest else "")

    # Writing ------------------------------------------------------------------------------------

    def _append(self, decided: _Decided | None, row: StreamRow, note: str) -> None:
        """One commit beside the target, if nobody made one since; raises FM-STREAM-011."""
        from deltalake import CommitProperties, DeltaTable, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        target = self._shown(row)
        said = {
            "row": _said(row),
            "table_id": target.table_id,
            "target": target.to_json(),
            "note": note,
        }
        metadata = json.dumps({"floodmark": said}, sort_keys=True)
        shown = {
            "stream_id": self.stream_id,
            "at": datetime.now(UTC),
            "what": note,
            "state": metadata,
        }
        properties = CommitProperties(
            custom_metadata={"userMetadata": metadata}, max_commit_retries=0
        )
        table = None
        try:
            table = DeltaTable(
                self._beside,
                version=decided.version if decided is not None else 0,
                storage_options=self.storage.options,
            )
            rows = pa.Table.from_pylist([shown], schema=_ROWS)
            write_deltalake(table, rows, mode="append", commit_properties=properties)
        except (DeltaError, OSError) as error:
            why = None if table is None else obstacle(table, self._beside, error, rewrites=False)
            if why is None and isinstance(error, CommitFailedError):
                raise moved(self.stream_id) from error
            raise self._unwritable(error, why) from error

    def _unwritable(self, error: BaseException, why: Obstacle | None = None) -> StreamError:
        mend = "mend the access to the folder"
        if why is not None:
            mend = why.next_step(
                "move the folder away (the stream goes on behind its last batch in the target; a reset"
                " or rewind since then has to be said again)"
            )
        return StreamError(
            "FM-STREAM-004",
            "the table of a stream beside its target cannot be used",
            stream=self.stream_id,
            where=self._beside,
            found=str(error)[:500] if why is None else why.found,
            allowed=None if why is None else why.allowed,
            state="nothing was written",
            next=mend + "; then: " + command("stream", "run", STREAM),
        )


def _said(row: StreamRow) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(row, name) for name in StreamRow.__dataclass_fields__ if name not in _PLACES
    }
    found["topic_ids"] = dict(row.topic_ids)
    found["event_watermark"] = _iso(row.event_watermark)
    for name in _PLACES:
        offsets = getattr(row, name)
        found[name] = None if offsets is None else offsets.to_json()
    return found


def _row_of(said: Mapping[str, Any]) -> StreamRow:
    found = dict(said)
    for name in _PLACES:
        found[name] = None if found[name] is None else Offsets.parse(found[name])
    found["event_watermark"] = _time(found["event_watermark"])
    return StreamRow(**found)


def _behind(row: StreamRow, batch_id: int, app_id: str, said: Mapping[str, Any]) -> StreamRow:
    """The row behind a batch, by what the commit of the batch says."""
    number = said.get("spark_batch_id")
    if not row.epoch:
        row = replace(
            row,
            query_id=said.get("query_id") or None,
            checkpoint=said.get("checkpoint") or None,
            topic_ids=json.loads(said.get("topic_ids") or "{}"),
        )
    return replace(
        row,
        start_offsets=Offsets.parse(said["start_offsets"]),
        end_offsets=Offsets.parse(said["end_offsets"]),
        batch_id=batch_id,
        spark_batch_id=int(number) if number else None,
        event_watermark=_time(said.get("event_watermark")),
        commit_id=f"{app_id}/{batch_id}",
    )


def _names_batch(commit: VersionFacts) -> bool:
    """Whether a commit with a receipt is the one of the batch: a clone takes over bare receipts."""
    return "end_offsets" in metadata_of(commit.user_metadata)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(said: str | None) -> datetime | None:
    return datetime.fromisoformat(said) if said else None
