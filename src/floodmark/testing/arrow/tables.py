"""A source and a sink over Arrow tables and delta-rs: the doors without Spark.

They pass the same contract suites as the ones on Spark and take milliseconds, which makes them
fit for crash matrices. Meant for tests: everything is held in memory, and rows are reduced in
plain Python, written independently of the Spark expressions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as made_by
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark import failpoints
from floodmark.deltalog import DeltaLog, Storage, breaks_predicate
from floodmark.errors import SinkError
from floodmark.model import (
    CHANGE_COLUMNS,
    NOTHING_PROCESSED,
    SOFT_DELETE_COLUMNS,
    OnLostTarget,
    Receipt,
    Settlement,
    SinkDone,
    TableFacts,
    VersionWindow,
    Window,
    WriteResult,
    WriteSpec,
    retyped_columns,
)
from floodmark.model.names import matching
from floodmark.sinks import Origin, Target, origins_of, rules
from floodmark.sinks.delta import DeltaTarget, not_written
from floodmark.sources import rows_in
from floodmark.sources.delta import (
    CHANGE_FIELDS,
    prove_readable,
    read_changes,
    resolved_count,
    resolved_loss,
    schema_text,
    streamed_version,
)

ATTEMPTS = 50
"""How often a commit that lost a race is decided anew."""

_TYPE, _VERSION, _TIMESTAMP = CHANGE_COLUMNS
_RANKS = {"update_preimage": 0, "delete": 1, "insert": 2, "update_postimage": 2}
_DELETED, _DELETED_AT = "__floodmark_deleted", "__floodmark_deleted_at"

Row = dict[str, Any]


class ArrowSource:
    """Reads frozen windows of Delta tables as Arrow tables."""

    def __init__(self, storage_options: Mapping[str, str] | None = None) -> None:
        self._options = dict(storage_options or {})
        self._storage = Storage(storage_options)

    def check(self, window: VersionWindow) -> TableFacts:
        """See `KindSource.check`."""
        return prove_readable(self._log(window), window)

    def read(self, window: VersionWindow) -> pa.Table:
        """See `KindSource.read`; raises FM-SOURCE-006 if data files are gone."""
        self.check(window)
        at, first = window.snapshot_version, window.feed_start
        parts = []
        if window.has_news and at is not None:
            committed_at = self._log(window).versions(at, at)[0].committed_at
            parts.append(_with_changes(self._as_of(window, at), at, committed_at))
        if window.has_news and first is not None:
            parts.append(self._feed(window))
        return pa.concat_tables(parts) if parts else _with_changes(self._empty(window), -1, None)

    def resolved(self, window: VersionWindow, choice: Settlement) -> VersionWindow | None:
        """See `Resolver.resolved`."""
        log = self._log(window)
        amended = resolved_loss(log, window, choice)
        by_count = resolved_count(
            log, amended or window, choice, lambda given: rows_in(self.read(given))
        )
        return by_count or amended

    def table(self, window: VersionWindow, at_version: int) -> pa.Table:
        """See `KindSource.table`."""
        self.check(window)
        if at_version == NOTHING_PROCESSED:
            return self._empty(window)
        return self._as_of(window, at_version)

    def _feed(self, window: VersionWindow) -> pa.Table:
        return read_changes(window, self._storage)

    def _as_of(self, window: VersionWindow, version: int) -> pa.Table:
        return pa.concat_tables(streamed_version(window, version, self._storage))

    def _empty(self, window: VersionWindow) -> pa.Table:
        from deltalake import Schema

        text = schema_text(self._log(window), window, window.end)
        return pa.schema(Schema.from_json(text).to_arrow()).empty_table()

    def _at(self, window: VersionWindow, version: int) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(window.place, version=version, storage_options=self._options)

    def _log(self, window: VersionWindow) -> DeltaLog:
        return DeltaLog(window.place, self._storage)


class ArrowSink:
    """Writes Arrow tables to one Delta table by delta-rs, each with its receipt, exactly once."""

    def __init__(
        self,
        spec: WriteSpec,
        windows: tuple[Window, ...],
        previous: SinkDone | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._spec = spec
        self._windows = windows
        self._options = dict(storage_options or {})
        self._storage = Storage(storage_options)
        self._target = DeltaTarget(spec.target, previous, self._storage, spec.sharers)

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """See `Sink.committed`."""
        return self._target.committed(receipt)

    def check(self, frame: pa.Table, receipt: Receipt) -> None:
        """See `Sink.check`."""
        if self.committed(receipt) is None:
            seen = self._target.seen(receipt, self._windows)
            rules.check_write(self._spec, self._windows, frame.column_names, seen)

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `RecoverableSink.loss`."""
        return self._target.loss(receipt)

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """See `RecoverableSink.resolved`."""
        return self._target.resolved(choice, receipt, next_app_id)

    def write(self, frame: pa.Table, receipt: Receipt) -> WriteResult:
        """See `Sink.write`; a commit that lost a race is decided anew, by compare-and-swap."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        for attempt in range(ATTEMPTS):
            earlier = self.committed(receipt)
            if earlier is not None:
                return earlier
            seen = self._target.seen(receipt, self._windows)
            rules.check_write(self._spec, self._windows, frame.column_names, seen)
            absent = rules.absent_columns(self._spec, frame.column_names, seen.columns)
            whole = self._completed(frame, absent)
            reduced = self._reduced(whole) if self._spec.mode == "merge" else None
            if self._adds_columns(frame, seen):
                continue
            try:
                notes = self._commit(whole, reduced, receipt, seen)
                notes |= rules.absence_notes(self._spec, absent)
            except CommitFailedError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            # delta-rs raises a bare Exception where a merge cannot cast a value.
            except Exception as error:
                retyped = rules.retyped(self._spec, _delta_schema(whole), seen)
                if retyped is not None:
                    raise retyped from error
                if not isinstance(error, DeltaError | OSError):
                    raise
                if self._spec.mode == "replace_where" and breaks_predicate(error):
                    raise rules.outside(self._spec) from error
                found = f"{type(error).__name__}: {error}"
                raise not_written(self._spec.target, receipt, found) from error
            failpoints.reached("sink.after_commit")
            return self._target.read_back(receipt, seen, notes)
        raise AssertionError("unreachable")

    def _adds_columns(self, frame: pa.Table, seen: Target) -> bool:
        from deltalake import DeltaTable, write_deltalake

        added = rules.new_columns(self._spec, frame.column_names, seen)
        if added:
            # With the columns that are there: delta-rs wants those of its partitions in every write.
            there = _arrow_schema(DeltaTable(self._spec.target, storage_options=self._options))
            fields = [*there, *(frame.schema.field(name) for name in added)]
            empty = pa.schema(fields).empty_table()
            options = self._options
            place = self._spec.target
            write_deltalake(
                place, empty, mode="append", schema_mode="merge", storage_options=options
            )
        return bool(added)

    def _completed(self, frame: pa.Table, absent: Sequence[str]) -> pa.Table:
        """The frame with NULL in the columns that only the target has."""
        from deltalake import DeltaTable

        if not absent:
            return frame
        table = DeltaTable(self._spec.target, storage_options=self._options)
        for field in _arrow_schema(table):
            if field.name in absent:
                frame = frame.append_column(field, pa.nulls(frame.num_rows, field.type))
        return frame

    def _commit(
        self,
        frame: pa.Table,
        reduced: tuple[pa.Table, dict[str, str]] | None,
        receipt: Receipt,
        seen: Target,
    ) -> dict[str, str]:
        if reduced is None:
            self._save(self._rows_to_write(frame), receipt, seen)
            return {}
        winners, notes = reduced
        if seen.exists and not (seen.is_replaced or self._spec.replaces_all):
            self._merge(winners, receipt, seen)
        else:
            self._save(self._first_rows(winners), receipt, seen)
        return notes

    def _rows_to_write(self, frame: pa.Table) -> pa.Table:
        data = rules.data_columns(frame.column_names)
        if self._spec.changes == "latest":
            winners, _ = self._reduced(frame)
            return winners.filter(pc.invert(winners[_DELETED])).select(data)
        if self._spec.changes == "log":
            logged = frame.select([*data, *CHANGE_COLUMNS])
            return logged.rename_columns([*data, *rules.LOG_COLUMNS])
        return frame.select(data)

    def _reduced(self, frame: pa.Table) -> tuple[pa.Table, dict[str, str]]:
        """One row per key with what became of it, and the note of ties."""
        spec = self._spec
        columns = frame.column_names
        keys = [_must_match(key, columns) for key in spec.keys]
        sequence = _must_match(spec.sequence_by, columns) if spec.sequence_by else None
        rows = frame.to_pylist()
        if rules.only_upserts(spec):
            rows = [r for r in rows if r.get(_TYPE, "insert") in ("insert", "update_postimage")]
        owners = origins_of(self._windows, self._storage) if spec.mode == "merge" else ()
        if _VERSION not in columns:
            owners = ()
        owner = _owner(owners, has_time=_TIMESTAMP in columns)
        last = last_changes(rows, keys, sequence, keeps_first=rules.keeps_first(spec), owner=owner)
        data = rules.data_columns(columns)
        fields = [frame.schema.field(name) for name in data]
        fields += [
            pa.field(_DELETED, pa.bool_()),
            pa.field(_DELETED_AT, CHANGE_FIELDS[2].type),
        ]
        chosen = [_with_fate(row, data) for row in last.winners]
        loses_order = rules.loses_order(spec, self._windows, columns)
        tied = _keys_of_different_rows(rows, keys) if loses_order else last.ties
        ties = sorted(json.dumps(key, default=str) for key in tied)
        mixed = sorted((json.dumps(key, default=str), names) for key, names in last.mixed)
        example = ties[0] if ties else None
        key, upstreams = mixed[0] if mixed else (None, None)
        notes = rules.tie_notes(spec, len(ties), example, key, upstreams, loses_order=loses_order)
        return pa.Table.from_pylist(chosen, schema=pa.schema(fields)), notes

    def _first_rows(self, winners: pa.Table) -> pa.Table:
        if self._spec.deletes == "soft":
            renamed = [*winners.column_names[:-2], *SOFT_DELETE_COLUMNS]
            return winners.rename_columns(renamed)
        kept = winners.filter(pc.invert(winners[_DELETED]))
        return kept.select(winners.column_names[:-2])

    def refuse_moved(self, table: Any, receipt: Receipt) -> None:
        """The handle that commits must not know the receipt yet: delta-rs itself never skips."""
        from deltalake.exceptions import CommitFailedError

        stored = table.transaction_version(receipt.app_id)
        if stored is not None and stored >= receipt.seq:
            raise CommitFailedError("the receipt arrived meanwhile")

    def _save(self, rows: pa.Table, receipt: Receipt, seen: Target) -> None:
        from deltalake import DeltaTable, write_deltalake

        replaces = rules.replaces(self._spec, seen)
        mode: Any = "overwrite" if replaces else "append"
        place: Any = self._spec.target
        creation: dict[str, Any] = {"storage_options": self._options}
        if seen.exists:
            place = DeltaTable(place, storage_options=self._options)
            self.refuse_moved(place, receipt)
            rows = _like(rows, seen.columns)
        else:
            feed = {"delta.enableChangeDataFeed": "true"}
            creation["configuration"] = {**feed, **dict(self._spec.properties)}
            creation["partition_by"] = list(self._spec.partition_by) or None
        failpoints.reached("sink.before_commit")
        if not seen.exists:
            self._create(rows, receipt, creation)
            return
        replaced: dict[str, Any] = (
            {"predicate": self._spec.replace_where} if self._spec.replace_where else {}
        )
        is_anew = seen.is_replaced or self._spec.replaces_all
        if is_anew and retyped_columns(seen.schema, _delta_schema(rows)):
            replaced = {"schema_mode": "overwrite"}
        write_deltalake(place, rows, mode=mode, commit_properties=_properties(receipt), **replaced)

    def _create(self, rows: pa.Table, receipt: Receipt, creation: Mapping[str, Any]) -> None:
        """Write the first commit; one that finds a table there has lost the race for it."""
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        place, properties = self._spec.target, _properties(receipt)
        if self._spec.replace_where:
            self._create_empty(rows, creation)
            table = DeltaTable(place, storage_options=self._options)
            condition = self._spec.replace_where
            write_deltalake(
                table, rows, mode="overwrite", predicate=condition, commit_properties=properties
            )
            return
        try:
            write_deltalake(place, rows, mode="error", commit_properties=properties, **creation)
        except DeltaError as error:
            if self._target.latest_version() < 0:
                raise
            raise CommitFailedError("the table arrived meanwhile") from error

    def _create_empty(self, rows: pa.Table, creation: Mapping[str, Any]) -> None:
        """A replacement needs a table: made without rows, and without a receipt."""
        from deltalake import write_deltalake

        write_deltalake(self._spec.target, rows.slice(0, 0), mode="error", **creation)

    def _merge(self, winners: pa.Table, receipt: Receipt, seen: Target) -> None:
        from deltalake import DeltaTable, write_deltalake

        table = DeltaTable(self._spec.target, storage_options=self._options)
        self.refuse_moved(table, receipt)
        names = {c: _must_match(c, seen.columns) for c in winners.column_names[:-2]}
        keys = [_must_match(key, list(names)) for key in self._spec.keys]
        on = " AND ".join(
            f"(t.{_quoted(names[k])} IS NOT DISTINCT FROM s.{_quoted(k)})" for k in keys
        )
        merger = table.merge(
            winners, on, source_alias="s", target_alias="t", commit_properties=_properties(receipt)
        )
        failpoints.reached("sink.before_commit")
        self._clauses(merger, names).execute()
        if table.transaction_version(receipt.app_id) != receipt.seq:
            # delta-rs commits nothing for a merge that changes nothing; the receipt must be there.
            empty = _arrow_schema(table).empty_table()
            write_deltalake(table, empty, mode="append", commit_properties=_properties(receipt))

    def _clauses(self, merger: Any, names: Mapping[str, str]) -> Any:
        values = {_quoted(name): f"s.{_quoted(column)}" for column, name in names.items()}
        gone, newer = f"s.{_quoted(_DELETED)}", self._newer(names)
        missing = rules.deletes_missing(self._spec, self._windows)
        if self._spec.strategy == "append_only":
            return merger.when_not_matched_insert(values, predicate=f"NOT {gone}")
        if self._spec.strategy == "delete_match":
            return merger.when_matched_delete(predicate=f"NOT {gone} AND {newer}")
        if self._spec.deletes == "soft":
            return self._soft_clauses(merger, values, gone, newer, missing=missing)
        merger = merger.when_matched_delete(predicate=f"{gone} AND {newer}")
        merger = merger.when_matched_update(values, predicate=f"NOT {gone} AND {newer}")
        merger = merger.when_not_matched_insert(values, predicate=f"NOT {gone}")
        return merger.when_not_matched_by_source_delete() if missing else merger

    def _soft_clauses(
        self, merger: Any, values: Mapping[str, str], gone: str, newer: str, *, missing: bool
    ) -> Any:
        is_deleted, deleted_at = map(_quoted, SOFT_DELETE_COLUMNS)
        flags = {is_deleted: gone, deleted_at: f"s.{_quoted(_DELETED_AT)}"}
        both = {**values, **flags}
        merger = merger.when_matched_update(both, predicate=newer)
        merger = merger.when_not_matched_insert(both)
        if missing:
            ends = [w.end_at for w in self._windows if w.has_news and w.end_at]
            at = f"to_timestamp_micros({_micros(max(ends))})" if ends else "now()"
            merger = merger.when_not_matched_by_source_update(
                {is_deleted: "true", deleted_at: at},
                predicate=f"NOT coalesce(t.{is_deleted}, false)",
            )
        return merger

    def _newer(self, names: Mapping[str, str]) -> str:
        if self._spec.sequence_by is None:
            return "true"
        column = _must_match(self._spec.sequence_by, list(names))
        new, old = f"s.{_quoted(column)}", f"t.{_quoted(names[column])}"
        return f"({new} >= {old} OR {old} IS NULL)"


@dataclass
class LastChanges:
    """The last change of each key."""

    winners: list[Row] = made_by(default_factory=list)
    ties: list[Row] = made_by(default_factory=list)
    """Keys of which two rows had the same claim to be it."""
    mixed: list[tuple[Row, list[str]]] = made_by(default_factory=list)
    """Keys of two upstreams between whose rows nothing decides."""


Owner = Callable[[Row], str | None]
"""The upstream of a row, where that is known."""


def last_changes(
    rows: Iterable[Row],
    keys: Sequence[str],
    sequence_by: str | None = None,
    *,
    keeps_first: bool = False,
    owner: Owner = lambda _: None,
) -> LastChanges:
    """What is left of each key if the versions are applied one by one."""
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[key] for key in keys), []).append(row)
    last = LastChanges()
    for values, changes in by_key.items():
        key = dict(zip(keys, values, strict=True))
        commits: dict[tuple[Any, ...], list[Row]] = {}
        for row in changes:
            commits.setdefault((owner(row), row.get(_VERSION, 0)), []).append(row)
        best = [
            _best(commit, lambda row: _in_commit(row, sequence_by)) for commit in commits.values()
        ]
        order = [commit[0] for commit in best]
        if keeps_first:
            winner = min(order, key=lambda row: row.get(_VERSION, 0))
        else:
            winner = _best(order, lambda row: _among_commits(row, sequence_by))[0]
        last.winners.append(winner)
        equal = [
            row for row in order if _sequence(row, sequence_by) == _sequence(winner, sequence_by)
        ]
        owners = sorted({name for row in equal if (name := owner(row)) is not None})
        if len(owners) > 1:
            last.mixed.append((key, [owners[0], owners[-1]]))
        if any(len(c) > 1 and c[0] is winner for c in best) or (len(owners) > 1 and sequence_by):
            last.ties.append(key)
    return last


def _keys_of_different_rows(rows: Iterable[Row], keys: Sequence[str]) -> list[Row]:
    """The keys of which two rows differ in anything."""
    first: dict[str, Row] = {}
    different: dict[str, Row] = {}
    for row in rows:
        key = {name: row[name] for name in keys}
        if first.setdefault(repr(key), row) != row:
            different[repr(key)] = key
    return list(different.values())


def _best(rows: Sequence[Row], claim: Callable[[Row], Any]) -> list[Row]:
    """The rows with the highest claim, those of a tie in an order that their values decide."""
    highest = max(map(claim, rows))
    return sorted((row for row in rows if claim(row) == highest), key=repr, reverse=True)


def _in_commit(row: Row, sequence_by: str | None) -> tuple[Any, ...]:
    return _RANKS[row[_TYPE]] if _TYPE in row else 0, _sequence(row, sequence_by)


def _among_commits(row: Row, sequence_by: str | None) -> tuple[Any, ...]:
    return _sequence(row, sequence_by), row.get(_VERSION, 0)


def _sequence(row: Row, sequence_by: str | None) -> tuple[Any, ...]:
    """NULLs are last; equal to one another, and never compared with values."""
    value = row[sequence_by] if sequence_by else None
    return (False,) if value is None else (True, value)


def _owner(owners: Sequence[Origin], *, has_time: bool) -> Owner:
    by_version: dict[int, list[Origin]] = {}
    for origin in owners:
        if has_time or not origin.needs_time:
            by_version.setdefault(origin.version, []).append(origin)

    def owner(row: Row) -> str | None:
        at = _micros(row[_TIMESTAMP]) if row.get(_TIMESTAMP) else 0
        of_version = by_version.get(row.get(_VERSION, 0), ())
        return next((o.upstream for o in of_version if o.low <= at < o.high), None)

    return owner


def _with_fate(row: Row, data: Sequence[str]) -> Row:
    is_gone = row.get(_TYPE, "insert") not in ("insert", "update_postimage")
    chosen = {name: row[name] for name in data}
    return {**chosen, _DELETED: is_gone, _DELETED_AT: row.get(_TIMESTAMP) if is_gone else None}


def _with_changes(table: pa.Table, version: int, at: datetime | None) -> pa.Table:
    for field, value in zip(CHANGE_FIELDS, ("insert", version, at), strict=True):
        table = table.append_column(field, pa.array([value] * table.num_rows, field.type))
    return table


def _arrow_schema(table: Any) -> pa.Schema:
    """The columns of a table; a pyarrow dataset of it may abort the interpreter at exit."""
    return pa.schema(table.schema().to_arrow())


def _delta_schema(rows: pa.Table) -> str:
    """The columns of rows as a table of delta-rs would have them."""
    from deltalake import Schema

    return str(Schema.from_arrow(rows.schema).to_json())


def _like(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows with the target's names and order of columns."""
    found = [_must_match(name, rows.column_names) for name in columns]
    return rows.select(found).rename_columns(list(columns))


def _properties(receipt: Receipt) -> Any:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"userMetadata": receipt.user_metadata},
        app_transactions=[Transaction(receipt.app_id, receipt.seq)],
        max_commit_retries=0,
    )


def _must_match(name: str, columns: Sequence[str]) -> str:
    found = matching(name, columns)
    if found is None:
        raise KeyError(name)  # the rules have refused such a write already
    return found


def _micros(at: datetime) -> int:
    return int(pa.scalar(at, pa.timestamp("us", "UTC")).value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
