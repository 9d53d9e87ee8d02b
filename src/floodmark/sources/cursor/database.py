"""One table or query of a database, read window by window by its cursor column."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING

from floodmark.errors import SourceError
from floodmark.model import (
    EVERY_ROW,
    CursorMark,
    CursorWindow,
    TableFacts,
    TimeFacts,
    TimeMark,
    ValueMark,
)
from floodmark.model.cursor_marks import as_type_of, highest, is_after, lowered
from floodmark.model.names import matching
from floodmark.model.sql_names import column_name
from floodmark.next_steps import command
from floodmark.postgres import Connect
from floodmark.sources.cursor.edges import Identity
from floodmark.sources.cursor.jdbc import (
    JdbcConnection,
    TypesOf,
    asked,
    probe,
    read,
    read_in_parts,
)
from floodmark.sources.cursor.sql.own_values import OwnTarget
from floodmark.sources.cursor.sql.parameters import parameters_of, unbound
from floodmark.sources.cursor.sql.parts import Parts
from floodmark.sources.cursor.sql.probes import (
    Probe,
    ask_postgres,
    oldest_in_postgres,
    probe_postgres,
    types_in_postgres,
)
from floodmark.sources.cursor.sql.queries import (
    Bounds,
    SqlRelation,
    everything_query,
    nothing_query,
    oid_query,
    range_query,
)
from floodmark.sources.cursor.sql.refusals import told_values
from floodmark.sources.source import LookSpec, facts_without_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class SqlReader:
    """What one upstream of a database is, and how its rows are found.

    Nothing of it is stored: a query, an overlap or keys may be edited between two windows.
    """

    upstream: str
    relation: SqlRelation
    jdbc: Callable[[], JdbcConnection]
    """How Spark reaches the database; asked when it is needed, so that secrets are looked up late."""
    connect: Connect | None = None
    """The driver of the database itself, where there is one: PostgreSQL is asked without Java."""
    keys: tuple[str, ...] = ()
    settle: timedelta | int | None = None
    kind: str | None = None
    """The declared type of the cursor."""
    zone: tzinfo = UTC
    """Where the clock hangs that wall times without a zone are read from."""
    own: OwnTarget | None = None
    parts: Parts | None = None
    """By which column several connections share a read."""

    @property
    def has_first_run_query(self) -> bool:
        return self.relation.first_run_query is not None

    @property
    def begins_at_own_target(self) -> bool:
        """Whether the query finds its beginning in the node's own target."""
        return self.own is not None and self.own.is_named(self.relation)

    def reads_again_by_first_query(self, *, has_start: bool) -> bool:
        """See `CursorReader`; raises FM-SOURCE-030 where only the target's newest row tells more."""
        if self.begins_at_own_target and not self.has_first_run_query:
            raise unbound(
                "a range that lies before the newest row of the target, where the query begins",
                "a first_run_query, which is read between the two values; or :window_start in the"
                " place of the sub-query",
            )
        return self.has_first_run_query and (self.begins_at_own_target or not has_start)

    @property
    def includes_nulls(self) -> bool:
        return self.relation.on_null_cursor == "include"

    def facts(self) -> TableFacts:
        """What is known without a look at rows: a database has no versions."""
        return facts_without_versions(self.upstream, self._table_id())

    def _table_id(self) -> str:
        """What the rows are known by beside their name: another one once the table is dropped and
        made again. Only PostgreSQL is asked; of others, and of queries, the name is all there is.
        """
        if self.connect is None or self.relation.query is not None:
            return self.upstream
        oid = ask_postgres(self.connect, self.relation, oid_query(self.relation))[0]
        return self.upstream if oid is None else f"{self.upstream}#{oid}"

    def fingerprint(self, *, first_run: bool) -> str:
        """Changes with what is read, not with when."""
        relation = self._chosen(first_run=first_run)
        cursor = relation.cursor or EVERY_ROW.column
        text = "\n".join(map(str, (relation.table, relation.query, cursor, self.keys)))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    # What is new ----------------------------------------------------------------------------------

    def look(
        self,
        window: CursorWindow,
        spec: LookSpec,
    ) -> TimeFacts | None:
        """See `Looker.look`; raises FM-SOURCE-030 to -034, and keeps nothing."""
        now, spark = spec.now, spec.spark
        if not self.relation.has_cursor:
            return TimeFacts("timestamp", _later(now, window.after_mark))
        is_first = window.is_first
        relation = self._bound(self._chosen(first_run=is_first), spark)
        if relation is None or (self.connect is None and spark is None):
            return None
        start = window.after_mark
        newest = self._settled_newest(relation, start, now, spark)
        if newest is None:
            return TimeFacts("string" if start is None else start.type, None)
        begin = None if start is None else self.typed(start, newest)
        if begin is not None and not is_after(newest, begin):
            return TimeFacts(newest.type, None)
        return TimeFacts(newest.type, newest, self._oldest(relation, begin, newest))

    def examine(self, spec: LookSpec) -> None:
        """Ask what a first run and the one after it would ask; raises what they would.

        A database that only Spark can ask is not asked without it.
        """
        now, spark = spec.now, spec.spark
        relation = self._bound(self._chosen(first_run=True), spark)
        if relation is None or (self.connect is None and spark is None):
            return
        if not relation.has_cursor:
            self._ask_for_columns(relation, spark)
            return
        newest = self._settled_newest(relation, None, now, spark) if self._can_begin else None
        if newest is not None and not self.begins_at_own_target:
            self._probe(self._chosen(first_run=False), newest, newest, spark)

    def _ask_for_columns(self, relation: SqlRelation, spark: SparkSession | None) -> None:
        if self.connect is not None:
            ask_postgres(self.connect, relation, nothing_query(relation, None))
        elif spark is not None:
            with asked(relation):
                _ = read(spark, self.jdbc(), nothing_query(relation, None))

    @property
    def _can_begin(self) -> bool:
        """Whether the query of a first run needs no earlier mark."""
        query = self._chosen(first_run=True).query
        used = parameters_of(self.relation.dialect, query) if query is not None else set()
        return "window_start" not in used

    def _settled_newest(
        self,
        relation: SqlRelation,
        start: CursorMark | None,
        now: datetime,
        spark: SparkSession | None,
    ) -> CursorMark | None:
        newest = self._probe(relation, start, self._assumed_ceiling(relation, start, now), spark)
        if newest is None:
            return None
        ceiling = self._ceiling(newest, now)
        if ceiling is None or not is_after(newest, ceiling):
            return newest
        return self._probe(relation, start, ceiling, spark)

    def _probe(
        self,
        relation: SqlRelation,
        start: CursorMark | None,
        ceiling: CursorMark | None,
        spark: SparkSession | None,
    ) -> CursorMark | None:
        found: Probe
        with _of_the_kind(relation):
            if self.connect is not None:
                found = probe_postgres(self.connect, relation, start, ceiling)
            else:
                assert spark is not None  # noqa: S101  (without either nobody asks)
                found = probe(spark, self.jdbc(), relation, start, ceiling)
        return found.newest

    def _oldest(
        self, relation: SqlRelation, begin: CursorMark | None, newest: CursorMark
    ) -> CursorMark | None:
        """For ages; not asked for where it takes Spark."""
        if self.connect is None or not isinstance(newest, TimeMark):
            return None
        bounds = Bounds(begin, newest, excludes_low=begin is not None)
        return oldest_in_postgres(self.connect, relation, bounds)

    def _ceiling(self, newest: CursorMark, now: datetime) -> CursorMark | None:
        """The last value that may be taken: see `highest`; None for any."""
        with _of_the_kind(self.relation):
            return highest(newest, now, self.settle, self.zone)

    def _assumed_ceiling(
        self, relation: SqlRelation, start: CursorMark | None, now: datetime
    ) -> CursorMark | None:
        """A value for `:window_end` while the end is looked for; None where the query has none."""
        query = relation.query
        if query is None or "window_end" not in parameters_of(relation.dialect, query):
            return None
        kind = start.type if start else self.kind
        if kind in ("int", "integer", "decimal"):
            return ValueMark("int", _LARGEST)
        if kind == "string":
            raise _unfit(relation, "a query over a cursor of strings cannot use :window_end")
        like = TimeMark("date", now.date()) if kind == "date" else TimeMark("timestamp", now)
        like = (
            TimeMark("timestamp_ntz", now.replace(tzinfo=None)) if kind == "timestamp_ntz" else like
        )
        return self._ceiling(like, now)

    # Rows -----------------------------------------------------------------------------------------

    def frame(
        self, spark: SparkSession, bounds: Bounds | None, *, first_run: bool = False
    ) -> DataFrame:
        """The rows between two values, or all of them; computed twice it asks the database twice."""
        relation = self._bound(self._chosen(first_run=first_run), spark)
        assert relation is not None  # noqa: S101  (Spark is there)
        query = everything_query(relation) if bounds is None else range_query(relation, bounds)
        with _of_the_kind(relation), asked(relation):
            types_of = self._types_of(relation)
            if self.parts is None:
                return read(spark, self.jdbc(), query, types_of=types_of)
            with told_values(self.upstream):  # of the column by which the read is shared
                return read_in_parts(spark, self.jdbc(), query, self.parts, types_of)

    def no_rows(
        self, spark: SparkSession, mark: CursorMark | None, *, first_run: bool = False
    ) -> DataFrame:
        """No rows, with the columns that the database gives them."""
        relation = self._bound(self._chosen(first_run=first_run), spark)
        assert relation is not None  # noqa: S101  (Spark is there)
        with asked(relation):
            query = nothing_query(relation, mark)
            return read(spark, self.jdbc(), query, types_of=self._types_of(relation)).limit(0)

    def _types_of(self, relation: SqlRelation) -> TypesOf | None:
        """What tells the types of PostgreSQL; None for other databases."""
        return None if self.connect is None else partial(types_in_postgres, self.connect, relation)

    def reach(self, mark: CursorMark) -> CursorMark:
        """Where a window that follows a mark begins to read: the overlap before it."""
        with _of_the_kind(self.relation):
            return lowered(mark, self.relation.overlap)

    def typed(self, mark: CursorMark, like: CursorMark) -> CursorMark:
        """A mark, or a baseline, as the column has it; raises FM-SOURCE-034."""
        with _of_the_kind(self.relation):
            return as_type_of(mark, like, self.zone)

    def identity(self, columns: list[str]) -> Identity:
        """What tells rows apart, by the columns as the frame spells them; raises FM-SOURCE-034."""
        dialect = self.relation.dialect
        named = [column_name(dialect, name) for name in (self.relation.cursor or "", *self.keys)]
        found = [matching(name, columns) for name in named]
        for name, column in zip(named, found, strict=True):
            if column is None:
                raise _unfit(self.relation, f"no column {name} among {', '.join(columns)}")
        cursor, *keys = [column for column in found if column is not None]
        return Identity(cursor, tuple(keys))

    def _chosen(self, *, first_run: bool) -> SqlRelation:
        """The relation by the query of the first run, or by that of all others."""
        query = self.relation.first_run_query
        plain = replace(self.relation, first_run_query=None)
        return replace(plain, query=query) if first_run and query is not None else plain

    def _bound(self, relation: SqlRelation, spark: SparkSession | None) -> SqlRelation | None:
        """The relation with the values of sub-queries over the own target; None if nobody can look."""
        if relation.query is None or self.own is None:
            return relation
        query = self.own.bind(relation.dialect, relation.query, spark)
        return None if query is None else replace(relation, query=query)


def _later(now: datetime, before: CursorMark | None) -> TimeMark:
    """The mark of a window of all rows: when it was planned, and after the one before it."""
    mark = TimeMark("timestamp", now)
    if before is None or is_after(mark, before):
        return mark
    assert isinstance(before, TimeMark)  # noqa: S101  (another way of reading was refused before)
    return TimeMark("timestamp", before.value + timedelta(microseconds=1))


@contextmanager
def _of_the_kind(relation: SqlRelation) -> Iterator[None]:
    """Tell what does not go with the type of the cursor as our own error."""
    try:
        yield
    except ValueError as error:
        raise _unfit(relation, str(error)) from error


def _unfit(relation: SqlRelation, found: str) -> SourceError:
    return SourceError(
        "FM-SOURCE-034",
        "what is said about a cursor does not go with its column",
        where=f"{relation.table or 'a query'}, cursor {relation.cursor}",
        found=found,
        allowed="an overlap and settle that are durations for times and numbers for numbers, and a"
        " baseline of the column's type; columns that the rows have",
        state="nothing was read or written; the committed watermark stays",
        next="correct incremental, then run the same command again; where the column has"
        " another type than its marks, begin anew: " + command("run", "--full-refresh"),
    )
