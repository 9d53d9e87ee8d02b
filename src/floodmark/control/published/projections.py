"""Writes the published tables from what the journal says. Nothing decides on them.

Each table carries the number of the last event it shows as its transaction id `projection`, in the
same commit as its rows: a late or killed projector can neither move a table back nor write a row
twice, and whoever comes next goes on where it stopped.

Every commit is a compare-and-swap on the table's version, compaction too. delta-rs would rebase a
commit over a compaction, and its own compaction over another one, without looking at the files
both replace: rows were then there twice (docs/decisions/0013).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

import pyarrow as pa

from floodmark import failpoints
from floodmark.control.events.bodies import Event
from floodmark.control.owners import changed_by_others, refuse_obstacles
from floodmark.control.published import tables
from floodmark.control.published.reading import MARKER, read_published
from floodmark.control.published.tables import PublishedTable
from floodmark.deltalog import DeltaLog, Storage, create_table, is_local, write_problem
from floodmark.errors import ControlError
from floodmark.model import State
from floodmark.next_steps import command

ATTEMPTS = 20
REGISTRY_EVENTS = ("REGISTER", "PAUSE", "RESUME", "REMOVE", "RENAME", "REBUILD")
MARK_EVENTS = ("ADVANCE", "RESET", "REBUILD")
CHECKPOINTS = {"delta.checkpointInterval": "10"}
"""Whoever opens a table reads every commit since its last checkpoint, about 1 ms each."""
SMALL_FILES = 50
"""A table with more small files than this is compacted."""
SMALL_BYTES = 1024 * 1024
"""Larger files are left alone, so the cost of compaction follows what is new."""


IsArchived = Callable[[str, Mapping[str, Any]], bool]
"""Whether a row of a table is in the archive."""


@dataclass(slots=True)
class Pending:
    """What an event adds to the tables, kept until it is published."""

    seq: int
    history: dict[str, Any]
    checkpoint: dict[str, Any] | None
    batch_ids: frozenset[str]
    changes_registry: bool
    changes_marks: bool


@dataclass
class Projector:
    """Keeps the published tables of one control store up to date.

    It is the journal's observer: it collects what events mean for the tables, and `refresh`
    publishes it. A refresh that fails leaves the tables behind, never wrong; the next one mends
    them.
    """

    control: str
    storage: Storage
    _pending: list[Pending] = field(default_factory=list)
    _seen: int = 0
    _has_tables: bool = False
    _ours: dict[str, int] = field(default_factory=dict)
    """The version of each table that this projector made last."""
    _guard: threading.RLock = field(default_factory=threading.RLock)
    """Threads of one coordinator observe and refresh at the same time."""

    def observe(self, event: Event, state: State) -> None:
        """Take note of an event; see control.journal.Observer. One seen before is passed over."""
        with self._guard:
            if event.seq > self._seen:
                self._seen = event.seq
                self._take(event, state)

    def _take(self, event: Event, state: State) -> None:
        if event.kind == "SNAPSHOT":
            return  # what it stands for was published before it was folded
        self._pending.append(
            Pending(
                seq=event.seq,
                history=tables.history_row(event, state),
                checkpoint=tables.checkpoint_row(event, state),
                batch_ids=tables.touched_batches(event, state),
                changes_registry=event.kind in REGISTRY_EVENTS,
                changes_marks=event.kind in MARK_EVENTS,
            )
        )

    def refresh(self, state: State, only: Collection[str] | None = None) -> None:
        """Publish everything up to `state`; `only` names tables, by default all."""
        with self._guard:
            self._refresh(state, only)

    def _refresh(self, state: State, only: Collection[str] | None) -> None:
        failpoints.reached("project.before")
        self._ensure_tables()
        for table in tables.TABLES:
            if only is None or table.name in only:
                self._refresh_table(table, state)
                failpoints.reached("project.between_tables")
        if only is None:
            self._pending = [p for p in self._pending if p.seq > state.seq]
        failpoints.reached("project.after")

    def _ensure_tables(self) -> None:
        """All tables are there from the first refresh on, so that they can be registered.

        Only those that an event concerns are opened: looking for their log costs much less.
        """
        if not self._has_tables:
            for table in tables.TABLES:
                if not self._is_there(table):
                    self._create(table)
            self._has_tables = True

    def _is_there(self, table: PublishedTable) -> bool:
        try:
            names = self.storage.names(f"{self._path(table)}/_delta_log")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise lagging(self._path(table), error) from error
        return any(name.endswith(".json") for name in names)

    def rewrite(
        self, state: State, *, is_complete: bool, is_archived: IsArchived = lambda *_: False
    ) -> bool:
        """Write the tables anew; False, with nothing lost, if one shows more than `state`.

        With every event since the beginning at hand, all of them are written from nothing, but for
        rows that were moved to the archive. Without,
        rows that only the tables remember stay: `pipeline_checkpoints` and `history` are completed,
        and of `watermarks` only the batches of the state are replaced.
        """
        with self._guard:
            if any(self._is_ahead(table, state.seq) for table in tables.TABLES):
                return False
            rows: dict[str, list[Any]] = {
                "committed_watermarks": tables.committed_rows(state),
                "pipeline_registry": tables.registry_rows(state),
            }
            if is_complete:
                rows["watermarks"] = [r for b in state.batches for r in _rows(state, b)]
                rows["pipeline_checkpoints"] = [p.checkpoint for p in self._pending if p.checkpoint]
                rows["history"] = [p.history for p in self._pending]
            for table in tables.TABLES:
                if table.name in rows:
                    kept = [row for row in rows[table.name] if not is_archived(table.name, row)]
                    self._rewrite_table(table, kept, state.seq)
            if not is_complete:
                handle = self._open(tables.TABLES[0]) or self._create(tables.TABLES[0])
                self._replace(tables.TABLES[0], handle, state, set(state.batches))
                self.refresh(state)
            return True

    def history_is_complete(self, after: int, through: int) -> bool:
        """Whether `history` has every event between two; the marker alone is no proof."""
        span = f"seq > {int(after)} AND seq <= {int(through)}"
        query = f"SELECT count(DISTINCT seq) AS n FROM t WHERE {span}"
        found = read_published(f"{self.control}/history", self.storage, query)
        return found is not None and found.column("n")[0].as_py() == through - after

    def opened(self, table: PublishedTable) -> Any:
        """A table as it is now; None if there is none yet."""
        return self._open(table)

    def replace_span(
        self, handle: Any, table: PublishedTable, rows: pa.Table, predicate: str
    ) -> bool:
        """Put rows in the place of all that a predicate names; False, with nothing changed, if the
        table is no longer as `handle` saw it.
        """
        shown = int(handle.transaction_version(MARKER) or 0)
        self._refuse_unwritable(table)
        options = {"mode": "overwrite", "predicate": predicate}
        return self._write(partial(self._commit, handle, rows, shown, **options))

    def published_through(self, name: str) -> int:
        """The number of the last event that a table shows; 0 if there is no table yet."""
        table = next(t for t in tables.TABLES if t.name == name)
        handle = self._open(table)
        return int(handle.transaction_version(MARKER) or 0) if handle else 0

    def compact(self, *, above: int | None = None, of_archive: bool = False) -> dict[str, int]:
        """Join the small files of each table that has many of them; table -> files joined.

        `above` says how many are many. What is joined already is left alone. If another projector
        commits meanwhile, that table stays as it is until the next time. Rows of an archive are
        compared by their number, before anything is written (see `control.archive`).
        """
        many = SMALL_FILES if above is None else above
        joined = {}
        for table in tables.TABLES:
            handle = self._open(table) if table.grows_by else None
            files = _small_files(handle, table) if handle else []
            if len(files) <= many:
                continue
            if not of_archive:
                self._refuse_changed(table, handle)
            if self._write(partial(self._join, table, handle, min(files)), handle):
                joined[table.name] = len(files)
        return joined

    def _join(self, table: PublishedTable, handle: Any, first: Any) -> None:
        """Put the rows from `first` on in the place of themselves, in as few files as possible."""
        from deltalake import QueryBuilder

        predicate = f"{table.grows_by} >= '{first}'"
        query = f"SELECT * FROM t WHERE {predicate} ORDER BY {table.grows_by}"
        rows = pa.table(QueryBuilder().register("t", handle).execute(query).read_all())
        shown = int(handle.transaction_version(MARKER) or 0)
        self._commit(handle, table.aligned(rows), shown, mode="overwrite", predicate=predicate)

    def _refresh_table(self, table: PublishedTable, state: State) -> None:
        """Bring one table to `state`, going on where its marker says it stands."""
        if not any(_concerns(table, pending) for pending in self._pending):
            return
        self._refuse_unwritable(table)
        for _ in range(ATTEMPTS):
            handle = self._open(table) or self._create(table)
            shown = int(handle.transaction_version(MARKER) or 0)
            news = [p for p in self._pending if shown < p.seq <= state.seq]
            if not news:
                return
            self._refuse_changed(table, handle)
            if self._write(partial(self._publish, table, handle, news, state), handle):
                self._ours[table.name] = handle.version()
                return
        raise self._stuck(table)

    def _refuse_changed(self, table: PublishedTable, handle: Any) -> None:
        """Raise FM-CONTROL-015 if somebody else has changed rows since the last commit of ours.

        The marker stands after a RESTORE, so rows that it took away would be missing for good.
        """
        if self._ours.get(table.name) == handle.version():
            return
        path = self._path(table)
        what = changed_by_others(DeltaLog(path, self.storage), handle.version(), MARKER)
        if what is not None:
            raise changed(path, what)

    def _is_ahead(self, table: PublishedTable, seq: int) -> bool:
        try:
            return self.published_through(table.name) > seq
        except ControlError as error:
            if error.retryable:
                raise
            return False  # damaged: it shows nothing

    def _rewrite_table(self, table: PublishedTable, rows: list[Any], seq: int) -> None:
        for _ in range(ATTEMPTS):
            try:
                handle = self._open(table) or self._create(table)
            except ControlError as error:
                # Damage of a local table is mended, all its rows are at hand; an outage is not.
                if error.retryable or not is_local(self._path(table)):
                    raise
                self.storage.delete_dir(self._path(table))
                handle = self._create(table)
            write = partial(self._commit, handle, table.of(rows), seq, mode="overwrite")
            if self._write(write, handle):
                return
        raise self._stuck(table)

    def _publish(
        self, table: PublishedTable, handle: Any, news: list[Pending], state: State
    ) -> None:
        """Write the rows of `news` into one table, with the marker, as one commit."""
        news = [pending for pending in news if _concerns(table, pending)]
        if not news:
            return
        if table.name == "watermarks":
            self._replace(table, handle, state, set().union(*(p.batch_ids for p in news)))
        elif table.name == "committed_watermarks":
            rows = table.of(tables.committed_rows(state))
            self._commit(handle, rows, state.seq, mode="overwrite")
        elif table.name == "pipeline_registry":
            rows = table.of(tables.registry_rows(state))
            self._commit(handle, rows, state.seq, mode="overwrite")
        elif table.name == "pipeline_checkpoints":
            rows = table.of([p.checkpoint for p in news if p.checkpoint])
            self._commit(handle, rows, state.seq, mode="append")
        else:
            rows = table.of([p.history for p in news])
            self._commit(handle, rows, state.seq, mode="append")

    def _replace(self, table: PublishedTable, handle: Any, state: State, touched: set[str]) -> None:
        """Put the rows of some batches in the place of the rows those batches had."""
        batches = [batch_id for batch_id in state.batches if batch_id in touched]
        if not batches:
            return
        rows = [row for batch_id in batches for row in _rows(state, batch_id)]
        ids = ", ".join(f"'{batch_id}'" for batch_id in batches)
        dates = ", ".join(sorted({f"'{row['batch_date']}'" for row in rows}))
        predicate = f"batch_date IN ({dates}) AND batch_id IN ({ids})"
        self._commit(handle, table.of(rows), state.seq, mode="overwrite", predicate=predicate)

    def _commit(self, handle: Any, rows: pa.Table, seq: int, **options: Any) -> None:
        """Write rows and the marker, if the table is still as `handle` saw it."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        if not set(rows.schema.names) <= {field.name for field in handle.schema().fields}:
            options["schema_mode"] = "merge"  # an older version made the table
        marker = Transaction(MARKER, seq)
        properties = CommitProperties(app_transactions=[marker], max_commit_retries=0)
        write_deltalake(handle, rows, commit_properties=properties, **options)

    def _write(self, action: Callable[[], object], handle: Any = None) -> bool:
        """Do one commit on `handle`; False if another projector came first."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            action()
        except CommitFailedError as error:
            self._refuse_obstacles(handle, error)
            return False
        except (DeltaError, OSError) as error:
            self._refuse_obstacles(handle, error)
            raise lagging(self.control, error) from error
        return True

    def _refuse_obstacles(self, handle: Any, error: BaseException) -> None:
        if handle is not None:
            path = str(handle.table_uri).rstrip("/")
            anew = f"move {path} away; " + command("state", "rebuild")
            refuse_obstacles(handle, path, error, rewrites=True, otherwise=anew)

    def _open(self, table: PublishedTable) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self._path(table), storage_options=self.storage.options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise lagging(self._path(table), error) from error

    def _refuse_unwritable(self, table: PublishedTable) -> None:
        path = self._path(table)
        if is_local(path):
            problem = write_problem(path) or write_problem(f"{path}/_delta_log")
            if problem:
                raise lagging(path, problem)

    def _create(self, table: PublishedTable) -> Any:
        self._refuse_unwritable(table)
        self._write(
            lambda: create_table(
                self._path(table),
                table.schema,
                self.storage,
                name=f"floodmark {table.name}",
                partition_by=list(table.partition_by) or None,
                configuration=CHECKPOINTS,
            )
        )
        return self._open(table)

    def _path(self, table: PublishedTable) -> str:
        return f"{self.control}/{table.name}"

    def _stuck(self, table: PublishedTable) -> ControlError:
        return ControlError(
            "FM-CONTROL-009",
            f"other processes kept refreshing {table.name} first",
            where=self._path(table),
            state="the journal is complete; only the published table may lag behind it",
            next=command("state", "rebuild"),
            retryable=True,
        )


def lagging(path: str, error: BaseException) -> ControlError:
    """A published table could not be refreshed: the truth is in the journal, and complete."""
    return ControlError(
        "FM-CONTROL-015",
        "a published table cannot be refreshed",
        where=path,
        found=f"{type(error).__name__}: {error}",
        state="the journal is complete and right; only the table lags behind it",
        next="mend the cause (permissions, space), then: " + command("state", "rebuild"),
        retryable=isinstance(error, OSError),
    )


def changed(path: str, what: str) -> ControlError:
    """A published table that others have changed: what it shows is no longer what was journaled."""
    return ControlError(
        "FM-CONTROL-015",
        "a published table cannot be refreshed: somebody else has changed its rows",
        where=path,
        found=what,
        allowed="commits by floodmark, and those that change no row (OPTIMIZE, VACUUM, properties)",
        state="the journal is complete and right; only the table shows something else",
        next=command("state", "rebuild") + ", which writes the table from the journal",
    )


def _concerns(table: PublishedTable, pending: Pending) -> bool:
    """Whether an event changes what a table shows."""
    return {
        "watermarks": bool(pending.batch_ids),
        "committed_watermarks": pending.changes_marks,
        "pipeline_registry": pending.changes_registry,
        "pipeline_checkpoints": pending.checkpoint is not None,
        "history": True,
    }[table.name]


def _small_files(handle: Any, table: PublishedTable) -> list[Any]:
    """The lowest value of the column a table grows by, for each small file worth joining.

    Those are the newest ones, behind the last large file: joining an older one would write all
    that follows it anew. Files of different partitions cannot be joined.
    """
    is_partition = table.grows_by in table.partition_by
    lowest = f"partition.{table.grows_by}" if is_partition else f"min.{table.grows_by}"
    files = pa.table(handle.get_add_actions(flatten=True))
    if lowest not in files.column_names or files.column(lowest).null_count:
        return []  # others have the table keep no statistics of the column, or not of every file
    rows = files.select(["size_bytes", lowest]).to_pylist()
    newest_first = sorted(rows, key=lambda row: row[lowest], reverse=True)
    small = list(takewhile(lambda row: row["size_bytes"] < SMALL_BYTES, newest_first))
    values = [row[lowest] for row in small]
    counts = Counter(values)
    return [value for value in values if not is_partition or counts[value] > 1]


def _rows(state: State, batch_id: str) -> list[dict[str, Any]]:
    return tables.watermark_rows(state.batches[batch_id])
