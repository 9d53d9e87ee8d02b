"""Old rows of the published tables, moved to Delta tables of the same names under `archive`.

A row is old if it is older than the policy and its batch is finished and not touched since. The
archive belongs to the store: `verify`, `gaps`, `state rebuild` and `state export` read every event,
wherever it is.

There is no commit across two tables, so a row is copied first and removed then. A row that was
copied already, by its key, is not copied again; both commits count only if the table is still at
the version that was read (docs/decisions/0049). Killed in between, a row is in both, and readers
take it once.

Each commit to the archive carries the number of rows that it holds then as a transaction id, which
a RESTORE leaves standing: an archive never loses a row, so one that holds fewer was changed by others.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from floodmark import failpoints
from floodmark.control import columns
from floodmark.control.journal.delta import unreadable
from floodmark.control.owners import refuse_obstacles
from floodmark.control.published.projections import CHECKPOINTS, IsArchived, Projector
from floodmark.control.published.reading import MARKER, read_published
from floodmark.control.published.tables import TABLES, PublishedTable
from floodmark.deltalog import DeltaLog, Storage, create_table, restore_command
from floodmark.errors import ControlError
from floodmark.model import State, epoch_micros

FOLDER = "archive"
ATTEMPTS = 20
BEGINNINGS = ("CREATE", "REBUILD")
"""The event with which a store begins stays in `history`: it says which store it is."""


@dataclass(frozen=True, slots=True)
class Aging:
    """What tells the rows of a table apart, and how old they are."""

    key: tuple[str, ...]
    age: str


AGING: Mapping[str, Aging] = {
    "watermarks": Aging(("batch_id", "table_name"), "update_ts"),
    "pipeline_checkpoints": Aging(("pipeline_name", "batch_id", "processed_ts"), "processed_ts"),
    # A store that was restored counts its events anew: the number alone is no identity.
    "history": Aging(("seq", "op_id"), "at"),
}
"""The tables that grow; the other two show what is, not what was."""


_NEWEST_RUNS = """
SELECT batch_id
FROM (
  SELECT batch_id,
         row_number() OVER (PARTITION BY pipeline_name, status ORDER BY processed_ts DESC) AS n
  FROM t
) AS numbered
WHERE n = 1
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which rows stay: those that are younger, and all rows of some batches."""

    before: datetime
    batches: frozenset[str]
    through: int
    """Events after this one are still in the journal."""


def folder_of(control: str) -> str:
    return f"{control}/{FOLDER}"


def read_archived(control: str, storage: Storage, name: str, query: str) -> pa.Table | None:
    """The answer of a query on an archived table, named `t` in it; None if there is none."""
    return read_published(f"{folder_of(control)}/{name}", storage, query)


def batches_inside(control: str, storage: Storage, state: State, before: datetime) -> set[str]:
    """The batches that are open or were touched since, the newest one of each scope, and those of
    the newest runs of each pipeline: monitoring tells from them when it last succeeded.
    """
    newest = {batch.scope: batch.batch_id for batch in state.batches.values()}
    inside = {*newest.values(), *state.open_ids}
    query = (
        "SELECT batch_id, kind, payload FROM t "
        f"WHERE at >= '{before}' AND (batch_id IS NOT NULL OR kind IN ('PAUSE', 'REMOVE'))"
    )
    runs = read_published(f"{control}/pipeline_checkpoints", storage, _NEWEST_RUNS)
    inside.update(runs.column("batch_id").to_pylist() if runs is not None else ())
    rows = read_published(f"{control}/history", storage, query)
    for row in rows.to_pylist() if rows is not None else ():
        if row["batch_id"] is not None:
            inside.add(row["batch_id"])
        else:
            inside.update(json.loads(row["payload"]).get("released", ()))
    return inside


def archive_rows(projector: Projector, control_id: str, policy: Policy) -> dict[str, int]:
    """Move what the policy does not keep; table -> rows moved.

    Killed anywhere or called by two at once, every row is in the archive once, or in its table, or
    in both until the next call. Raises FM-CONTROL-032 if the archive cannot be written, and what
    `refuse_unfit` says against it.
    """
    refuse_unfit(projector.control, projector.storage, control_id)
    moved = {}
    for table in TABLES:
        count = _move(projector, table, control_id, policy) if table.name in AGING else 0
        if count:
            moved[table.name] = count
    Projector(folder_of(projector.control), projector.storage).compact(of_archive=True)
    return moved


def refuse_unfit(control: str, storage: Storage, control_id: str) -> None:
    """Raise FM-CONTROL-031 for the archive of another store, FM-CONTROL-033 if rows are gone from it."""
    refuse_foreign(control, storage, control_id)
    for name in AGING:
        path = f"{folder_of(control)}/{name}"
        handle = _open(path, storage)
        if handle is not None:
            _rows_held(handle, path, storage)


def refuse_foreign(control: str, storage: Storage, control_id: str) -> None:
    """Raise FM-CONTROL-031 if the archive in this place is that of another store."""
    for name in AGING:
        path = f"{folder_of(control)}/{name}"
        handle = _open(path, storage)
        owner = handle.metadata().name if handle is not None else None
        if owner is not None and owner != _name(control_id):
            raise ControlError(
                "FM-CONTROL-031",
                "the archive in this place belongs to another control store",
                where=path,
                found=owner,
                allowed=_name(control_id),
                state="nothing was changed",
                next=f"move the folder {folder_of(control)} away, then run the same command again",
            )


def has_archive(control: str, storage: Storage) -> bool:
    """Whether there is an archive in the place of a store."""
    return any(_open(f"{folder_of(control)}/{name}", storage) is not None for name in AGING)


def archived_rows(control: str, storage: Storage) -> IsArchived:
    """Tells which rows are in the archive as it is now."""
    keys: dict[str, set[tuple[Any, ...]]] = {}
    for table in TABLES:
        if table.name in AGING:
            names = AGING[table.name].key
            rows = read_archived(control, storage, table.name, f"SELECT {', '.join(names)} FROM t")
            keys[table.name] = set() if rows is None else set(_keys(rows, names, table))

    def is_archived(name: str, row: Mapping[str, Any]) -> bool:
        if not keys.get(name):
            return False
        parts = (row[column] for column in AGING[name].key)
        key = tuple(epoch_micros(p) if isinstance(p, datetime) else p for p in parts)
        return key in keys[name]

    return is_archived


# Moving -------------------------------------------------------------------------------------------


def _move(projector: Projector, table: PublishedTable, control_id: str, policy: Policy) -> int:
    path = f"{folder_of(projector.control)}/{table.name}"
    for _ in range(ATTEMPTS):
        handle = projector.opened(table)
        if handle is None:
            return 0
        span = _span(table, policy.before)
        rows = table.aligned(_select(handle, f"SELECT * FROM t WHERE {span}"))
        is_kept = _mask(table, rows, policy)
        old = rows.filter(_inverted(is_kept))
        if not old.num_rows:
            return 0
        failpoints.reached("archive.before_copy")
        _copy(path, projector.storage, table, old, control_id)
        failpoints.reached("archive.after_copy")
        if projector.replace_span(handle, table, rows.filter(is_kept), span):
            failpoints.reached("archive.after_move")
            return int(old.num_rows)
    raise _not_moved(path, "other processes kept refreshing the table first")


def _span(table: PublishedTable, before: datetime) -> str:
    """The part of a table that holds its old rows, as a predicate that prunes files."""
    if table.name == "watermarks":
        return f"batch_date <= '{before.date()}'"
    return f"{AGING[table.name].age} < '{before}'"


def _mask(table: PublishedTable, rows: pa.Table, policy: Policy) -> pa.Array:
    """Which rows stay in their table."""
    import pyarrow.compute as pc

    age = rows.column(AGING[table.name].age)
    batches = columns.column_of(sorted(policy.batches), pa.string())
    is_kept = pc.or_(
        pc.greater_equal(age, pa.scalar(policy.before, age.type)),
        pc.is_in(rows.column("batch_id"), value_set=batches),
    )
    if table.name == "history":
        beginnings = columns.column_of(BEGINNINGS, pa.string())
        is_kept = pc.or_(is_kept, pc.is_in(rows.column("kind"), value_set=beginnings))
        is_kept = pc.or_(is_kept, pc.greater(rows.column("seq"), policy.through))
    return is_kept


def _inverted(mask: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.invert(mask)


def _copy(
    path: str, storage: Storage, table: PublishedTable, rows: pa.Table, control_id: str
) -> None:
    """Add the rows that the archive does not have yet, as one commit."""
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    aging, handle = AGING[table.name], None
    for _ in range(ATTEMPTS):
        try:
            handle = _open(path, storage) or _create(path, storage, table, control_id)
            held = _rows_held(handle, path, storage)
            ages = rows.column(aging.age)
            first, last = min(columns.instants_of(ages)), max(columns.instants_of(ages))
            span = f"{aging.age} >= '{first}' AND {aging.age} <= '{last}'"
            there = _select(handle, f"SELECT {', '.join(aging.key)} FROM t WHERE {span}")
            archived = set(_keys(there, aging.key, table))
            news = [key not in archived for key in _keys(rows, aging.key, table)]
            if any(news):
                holds = Transaction(MARKER, held + sum(news))
                known = {field.name for field in handle.schema().fields}
                write_deltalake(
                    handle,
                    rows.filter(columns.column_of(news, pa.bool_())),
                    mode="append",
                    # An older version made the table; asked for in vain, mapped columns refuse it.
                    schema_mode=None if set(rows.schema.names) <= known else "merge",
                    commit_properties=CommitProperties(
                        app_transactions=[holds], max_commit_retries=0
                    ),
                )
        except CommitFailedError as error:
            _refuse_obstacles(handle, path, error)
            continue  # another upkeep came first: what it copied is looked at again
        except (DeltaError, OSError) as error:
            if handle is not None:
                _refuse_obstacles(handle, path, error)
            raise _not_moved(path, f"{type(error).__name__}: {error}") from error
        return
    raise _not_moved(path, "other processes kept writing to the archive first")


def _rows_held(handle: Any, path: str, storage: Storage) -> int:
    """How many rows an archived table has; raises FM-CONTROL-033 if it had more before.

    An archive of an older version does not say how many it had.
    """
    rows = int(_select(handle, "SELECT count(*) AS n FROM t").column("n")[0].as_py())
    said = int(handle.transaction_version(MARKER) or 0)
    if rows >= said:
        return rows
    commit = DeltaLog(path, storage).find_transaction(MARKER, said)
    back = restore_command(path, storage, commit.version) if commit else ""
    raise ControlError(
        "FM-CONTROL-033",
        "rows are gone from the archive of the control store",
        where=path,
        found=f"{rows:,} rows; the last commit of floodmark left {said:,}",
        allowed="every row that was moved there: OPTIMIZE, VACUUM and properties take none away",
        state="nothing was moved or removed; the journal and the published tables are complete",
        next=(f"with Spark: {back}; " if back else "put the table back from a backup; ")
        + f"or go on without those rows: move the folder {path} away; then run the same command again",
    )


def _refuse_obstacles(handle: Any, path: str, error: BaseException) -> None:
    anew = f"move the folder {path} away, then run the same command again"
    refuse_obstacles(handle, path, error, rewrites=False, otherwise=anew)


def _keys(rows: pa.Table, names: Collection[str], table: PublishedTable) -> list[tuple[Any, ...]]:
    """The keys of rows; an instant as a number, which needs no pandas."""
    parts = []
    for name in names:
        kind = table.schema.field(name).type
        column = rows.column(name).cast(kind)
        parts.append(column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column)
    return list(zip(*(part.to_pylist() for part in parts), strict=True))


def _select(handle: Any, query: str) -> pa.Table:
    from deltalake import QueryBuilder

    return pa.table(QueryBuilder().register("t", handle).execute(query).read_all())


def _open(path: str, storage: Storage) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path, storage_options=storage.options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise unreadable(path, error) from error


def _create(path: str, storage: Storage, table: PublishedTable, control_id: str) -> Any:
    create_table(
        path,
        table.schema,
        storage,
        name=_name(control_id),
        partition_by=list(table.partition_by) or None,
        configuration=CHECKPOINTS,
    )
    return _open(path, storage)


def _name(control_id: str) -> str:
    return f"archive of control store {control_id}"


def _not_moved(path: str, found: str) -> ControlError:
    return ControlError(
        "FM-CONTROL-032",
        "old rows could not be moved to the archive",
        where=path,
        found=found,
        state="no row is lost: each is in its table, in the archive, or in both",
        next="correct the cause (permissions, space), then run the same command again",
        retryable=True,
    )
