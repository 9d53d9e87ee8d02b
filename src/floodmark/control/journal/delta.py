"""The journal's event log as a Delta table, written through delta-rs with compare-and-swap.

Never written by Spark: on a local disk two Spark processes overwrite each other's acknowledged
commits, delta-rs publishes with a hard link and does not (docs/decisions/0002).
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark import failpoints
from floodmark.control import columns
from floodmark.control.events.bodies import Event, decode, encode
from floodmark.control.journal.journal import (
    FORMAT_VERSION,
    CommitConflict,
    CommitReplaced,
    CommitUnknown,
    Tail,
)
from floodmark.control.owners import refuse_obstacles
from floodmark.deltalog import (
    DeltaLog,
    Storage,
    create_table,
    file_location,
    is_local,
    make_private,
    restore_command,
    without_stack,
    write_problem,
)
from floodmark.errors import ControlError, PlanError
from floodmark.next_steps import command

if TYPE_CHECKING:
    from deltalake import CommitProperties

JOURNAL = "_journal"
FORMAT_PROPERTY = "floodmark.formatVersion"
LAST_EVENT = "floodmark-journal"
"""The transaction id under which each commit says the number of its last event: a RESTORE takes
events away, and leaves it standing."""
COMPACTION_MARK = "floodmarkCompaction"
"""In the commit info of a compaction: its rows stand for events that were there before."""

HIDDEN = "_part-"
"""What names of the journal's data files begin with: VACUUM passes over such names, so one without
retention cannot take a file away that was written and is not committed yet. Upkeep removes them."""

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("payload", pa.string()),
        ("op_id", pa.string()),
        ("actor", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


class DeltaEventLog:
    """The event log at `<control>/_journal`; the position is the Delta version."""

    def __init__(self, control: str, storage: Storage) -> None:
        self.control = control
        self.path = f"{control}/{JOURNAL}"
        self._storage = storage
        self._table: Any = None
        self._outran = False
        """Set when the table proved newer than what the commit files had shown."""
        self._last: tuple[int, frozenset[str]] | None = None
        """The newest commit that was read or made here, and the files that it adds."""
        self.file_count = 0
        """How many data files a fresh reader would have to open, as far as this one has seen."""

    def reopened(self) -> DeltaEventLog:
        """The same log with handles of its own."""
        return DeltaEventLog(self.control, self._storage)

    def exists(self) -> bool:
        """Whether there is a journal; raises FM-CONTROL-002 if that cannot be told."""
        try:
            names = self._storage.names(f"{self.path}/_delta_log")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise unreadable(self.path, error) from error
        return any(name.endswith(".json") for name in names)

    def create(self) -> None:
        """Make the empty journal; if somebody else just made it, theirs is used."""
        from deltalake.exceptions import DeltaError

        problem = write_problem(self.path) if is_local(self.path) else None
        if problem:
            raise unwritable(self.path, problem)
        try:
            if is_local(self.path):
                # Landed rows, answers and errors of everybody's data are below it.
                make_private(self.control)
            create_table(
                self.path,
                SCHEMA,
                self._storage,
                name="floodmark journal",
                configuration={
                    FORMAT_PROPERTY: str(FORMAT_VERSION),
                    # Whoever opens the journal reads every commit since, about 1 ms each.
                    "delta.checkpointInterval": "20",
                },
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            raise unreadable(self.path, error) from error

    def read(self, after: int | None) -> Tail:
        """See EventLog.read."""
        tail = None if after is None else self._read_commits(after)
        if tail is None or (self._outran and not tail.events and tail.position == after):
            return self._read_whole()
        return tail

    def append(self, events: Sequence[Event], position: int) -> None:
        """See EventLog.append."""
        table = self._table_at(position)
        self._refuse_replaced(position)
        action = self._write_data_file(events)
        failpoints.reached("journal.after_data_file")
        self._commit(table, position, action, "append", _properties(events))
        self._last = (position + 1, frozenset((action.path,)))
        self.file_count += 1
        failpoints.reached("journal.after_commit")

    def replace(self, events: Sequence[Event], position: int) -> None:
        """Put `events` in the place of all rows, as one commit if the log is at `position`."""
        table = self._table_at(position)
        self._refuse_replaced(position)
        action = self._write_data_file(events)
        failpoints.reached("compact.before_commit")
        mark = {COMPACTION_MARK: True}
        self._commit(table, position, action, "overwrite", _properties(events, mark))
        self._last = (position + 1, frozenset((action.path,)))
        self.file_count = 1
        failpoints.reached("compact.after_commit")

    def _read_commits(self, after: int) -> Tail | None:
        """What the commit files after a position hold, None if a data file of theirs is gone.

        None too where somebody else has changed rows: what is left is then read whole.
        A log whose commit files were cleaned away reads as one with no news; the first attempt to
        commit shows that it is newer, and then it is read whole.
        """
        events: list[Event] = []
        position = after
        while (commit := self._commit_file(position + 1)) is not None:
            self._refuse_replaced(position)
            added = self._added_files(commit)
            if added is None:
                return None
            self.file_count = self.file_count + len(added) if added else 1
            for path in added:
                rows = self._read_data_file(path)
                if rows is None:
                    return None
                events += rows
            position += 1
            self._last = (position, frozenset(added))
        return Tail(sorted(events, key=_seq), position, is_whole=False)

    def _refuse_replaced(self, position: int) -> None:
        """Raise CommitReplaced if the newest commit known here is not in the log as it was.

        On a local disk Spark publishes a commit by renaming a file over what is there. A clone or an
        older copy that was put in the place of the journal has fewer versions.
        """
        if self._last is None or self._last[0] != position:
            return
        commit = self._commit_file(position)
        added = None if commit is None else self._added_files(commit)
        if commit is None and self._reaches(position):
            return  # cleaned up by somebody's retention: the next commit of ours finds out
        if commit is not None and frozenset(added or ()) == self._last[1]:
            return
        self._last = self._table = None
        raise CommitReplaced(f"{self.path} version {position}")

    def _reaches(self, position: int) -> bool:
        try:
            return DeltaLog(self.path, self._storage).facts().latest_version >= position
        except PlanError:
            return False  # the folder is gone, or has no log

    def _added_files(self, commit: str) -> list[str] | None:
        try:
            return added_files(commit)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise unreadable(self.path, ValueError(f"a commit file is damaged: {error}")) from error

    def _read_whole(self) -> Tail:
        table = self._open()
        # A newest commit that a crash of the machine left empty would hide the last events: a
        # hole further back shows in their numbers, this one would not.
        newest = self._commit_file(table.version())
        self._last = None
        if newest is not None:
            self._last = (table.version(), frozenset(self._added_files(newest) or ()))
        events: list[Event] = []
        paths = _active_files(table)
        self.file_count = len(paths)
        for path in paths:
            rows = self._read_data_file(path)
            if rows is None:
                raise unreadable(self.path, FileNotFoundError(path))
            events += rows
        self._outran = False
        self._refuse_taken_back(table, max(map(_seq, events), default=0))
        return Tail(sorted(events, key=_seq), table.version(), is_whole=True)

    def _refuse_taken_back(self, table: Any, last_seq: int) -> None:
        """Raise FM-CONTROL-028 if the journal has had more events than it holds."""
        had = table.transaction_version(LAST_EVENT)
        if had is None or last_seq >= had:
            return
        whole = self._last_whole_version(table.version())
        back = None if whole is None else restore_command(self.path, self._storage, whole)
        raise ControlError(
            "FM-CONTROL-028",
            "somebody else has taken events out of the journal, by RESTORE or DELETE",
            where=self.path,
            found=f"events through {last_seq}",
            allowed=f"events through {had}, as the journal's commits say",
            state="nothing was read or written; the events are in the older versions of the table",
            next=f"with Spark: {back}" if back else "put the folder back from a backup",
        )

    def _last_whole_version(self, latest: int) -> int | None:
        """The newest version that a commit of ours made, as far as commit files are there."""
        for version in range(latest, -1, -1):
            commit = self._commit_file(version)
            if commit is None:
                return None
            if f'"{LAST_EVENT}"' in commit:
                return version
        return None

    def _commit_file(self, version: int) -> str | None:
        try:
            return self._storage.read(f"{self.path}/_delta_log/{version:020d}.json").decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _read_data_file(self, path: str) -> list[Event] | None:
        try:
            content = self._storage.read(file_location(self.path, path))
        except FileNotFoundError:
            return None
        try:
            return events_of(pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False))
        except (pa.ArrowException, ValueError) as error:
            raise unreadable(self.path, error) from error

    def _write_data_file(self, events: Sequence[Event]) -> Any:
        from deltalake.transaction import AddAction

        name = f"{HIDDEN}{uuid.uuid4()}.parquet"
        content = io.BytesIO()
        pq.write_table(table_of(events), content, compression="zstd")
        data = content.getvalue()
        try:
            self._storage.write(f"{self.path}/{name}", data)
        except OSError as error:
            raise unwritable(self.path, error) from error
        at = int(events[0].at.timestamp() * 1000)
        return AddAction(
            path=name,
            size=len(data),
            partition_values={},
            modification_time=at,
            data_change=True,
            stats=json.dumps({"numRecords": len(events)}),
        )

    def _commit(
        self, table: Any, position: int, action: Any, mode: str, properties: CommitProperties
    ) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        if table.version() != position:
            raise CommitConflict  # somebody who shares this handle moved it on
        try:
            table.create_write_transaction([action], mode, SCHEMA, commit_properties=properties)
        except CommitFailedError as error:
            self._refuse_obstacles(table, error, mode)
            raise CommitConflict from error
        except (DeltaError, OSError) as error:
            self._refuse_obstacles(table, error, mode)
            raise CommitUnknown from error

    def _refuse_obstacles(self, table: Any, error: BaseException, mode: str) -> None:
        new_store = (
            command("state", "export", "FILE")
            + f"; move {self.control} away; "
            + command("state", "import", "FILE")
        )
        rewrites = mode == "overwrite"
        refuse_obstacles(table, self.path, error, rewrites=rewrites, otherwise=new_store)

    def _table_at(self, position: int) -> Any:
        """A handle at exactly `position`: only then is the commit a compare-and-swap."""
        table = self._table or self._open()
        if table.version() < position:
            self._update(table)
        if table.version() != position:
            self._outran = True
            raise CommitConflict
        return table

    def _update(self, table: Any) -> None:
        from deltalake.exceptions import DeltaError

        try:
            table.update_incremental()
        except (DeltaError, OSError) as error:
            raise unreadable(self.path, error) from error
        refuse_newer_format(self.path, table.metadata().configuration)

    def _open(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(self.path, storage_options=self._storage.options)
        except (DeltaError, OSError) as error:
            raise unreadable(self.path, error) from error
        refuse_newer_format(self.path, table.metadata().configuration)
        self._table = table
        return table


def _properties(
    events: Sequence[Event], metadata: Mapping[str, Any] | None = None
) -> CommitProperties:
    """What a commit of ours says beside its rows: it is tried once, and names its last event."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata=dict(metadata or {}),
        max_commit_retries=0,
        app_transactions=[Transaction(LAST_EVENT, events[-1].seq)],
    )


def refuse_newer_format(path: str, configuration: Mapping[str, str]) -> None:
    """Raise FM-CONTROL-003 for a store that a newer version wrote, FM-CONTROL-002 for none."""
    found = configuration.get(FORMAT_PROPERTY, "")
    if not found.isdigit():
        raise unreadable(path, ValueError(f"the table property {FORMAT_PROPERTY} is missing"))
    if int(found) > FORMAT_VERSION:
        raise ControlError(
            "FM-CONTROL-003",
            "the control store was written by a newer floodmark",
            where=path,
            found=f"format {found}",
            allowed=f"format {FORMAT_VERSION} or lower",
            state="nothing was read or written",
            next="pip install --upgrade floodmark",
        )


def table_of(events: Iterable[Event]) -> pa.Table:
    """Events as rows of the journal."""
    rows = [
        {
            "seq": event.seq,
            "kind": event.kind,
            "key": event.body.key,
            "payload": encode(event.body),
            "op_id": event.op_id,
            "actor": event.actor,
            "at": event.at,
        }
        for event in events
    ]
    return columns.table_of(rows, SCHEMA)


def events_of(table: pa.Table) -> list[Event]:
    """Rows of the journal as events; raises ValueError for rows that no version ever wrote."""
    rows = table.select([name for name in SCHEMA.names if name != "at"]).to_pylist()
    # Spark, which may have put files together, writes times as INT96: without a zone, in nanoseconds.
    written_at = table.column("at").cast(SCHEMA.field("at").type)
    return [
        Event(
            seq=row["seq"],
            body=decode(row["kind"], row["payload"]),
            op_id=row["op_id"],
            actor=row["actor"],
            at=at,
        )
        for row, at in zip(rows, columns.instants_of(written_at), strict=True)
    ]


def added_files(commit: str) -> list[str] | None:
    """The data files with new events that a commit adds; none for a compaction, which adds no event.

    Files that somebody else has only put together (OPTIMIZE) hold nothing new. None where somebody
    else has changed rows. Raises ValueError for a commit that is empty or no JSON.
    """
    actions = [json.loads(line) for line in commit.splitlines() if line]
    if not actions:
        raise ValueError("it is empty")
    if any(COMPACTION_MARK in action.get("commitInfo", {}) for action in actions):
        return []
    if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
        return None
    adds = [action["add"] for action in actions if "add" in action]
    return [add["path"] for add in adds if add.get("dataChange", True)]


def _active_files(table: Any) -> list[str]:
    """As the log names them: in a clone they are files of another table."""
    # pa.table would import pandas, to see whether it was given one of its frames.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    paths: list[str] = actions.column("path").to_pylist()
    return paths


def _seq(event: Event) -> int:
    return event.seq


def unreadable(path: str, error: BaseException) -> ControlError:
    return ControlError(
        "FM-CONTROL-002",
        "the control store cannot be read",
        where=path,
        found=without_stack(error),
        state="nothing was changed",
        next=command("doctor"),
        retryable=isinstance(error, OSError),
    )


def unwritable(path: str, error: OSError) -> ControlError:
    return ControlError(
        "FM-CONTROL-002",
        "the control store cannot be written",
        where=path,
        found=f"{type(error).__name__}: {error}",
        state="nothing was journaled; the watermarks stay where they are",
        next="make room or mend the permissions, then run the same command again",
        retryable=True,
    )
