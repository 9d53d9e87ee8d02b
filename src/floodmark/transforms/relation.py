"""The frames a transform is built over: their columns, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from floodmark.model import ColumnRef, Lineage
from floodmark.transforms import faults, sql

INPUT = "input"
_NEVER_COLUMNS = frozenset({"user", "session_user", "localtimestamp", "current_catalog",
                            "current_database", "current_schema", "current_time", "_metadata"})  # fmt: skip
"""Words that stand for themselves in Spark although they look like columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a frame; `type` is None where it is not known before Spark has looked."""

    name: str
    type: str | None = None
    """As Spark names it: `decimal(12,2)`, `array<string>`."""
    fields: tuple[Column, ...] = ()
    """Of a struct."""
    frame: str = INPUT

    @property
    def sql(self) -> sql.Expr:
        """The column as an expression."""
        return sql.column(self.name)

    @property
    def kind(self) -> str | None:
        """The type without what is in brackets: `decimal`, `array`, `struct`."""
        return self.type.partition("(")[0].partition("<")[0] if self.type else None


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a result: how it is made, its type where known, and what it is made of."""

    name: str
    value: sql.Expr
    type: str | None = None
    fields: tuple[Column, ...] = ()
    sources: tuple[ColumnRef, ...] | None = None
    """None: the columns of the input that the value names."""


@dataclass(frozen=True)
class Relation:
    """A frame as a transform sees it: a name, columns, and the other frames it may read.

    Names are matched exactly, else by the only column that differs by case, unless the session
    is case sensitive.
    """

    columns: tuple[Column, ...]
    name: str = INPUT
    others: Mapping[str, Relation] = field(default_factory=dict)
    is_case_sensitive: bool = False

    def __post_init__(self) -> None:
        faults.require_unique([c.name for c in self.columns], self._key, self.name)

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.name for column in self.columns]

    @cached_property
    def _by_key(self) -> dict[str, Column]:
        return {self._key(column.name): column for column in self.columns}

    def _key(self, name: str) -> str:
        return name if self.is_case_sensitive else name.lower()

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return self._key(name) in self._by_key

    def column(self, name: str, *types: str) -> Column:
        """The column a name means; with `types`, only one of these kinds.

        Raises FM-TRANSFORM-003 if it is not there, 004 if its type is known and another one.
        """
        found = self._by_key.get(self._key(name))
        if found is None:
            raise faults.no_column(name, self.names, self.name)
        if types and found.kind is not None and found.kind not in types:
            raise faults.wrong_type(found.name, found.type or "", types)
        return found

    def some(self, names: Iterable[str], *types: str) -> list[Column]:
        """Several columns, each once; raises as `column` does."""
        found = {self._key(name): self.column(name, *types) for name in names}
        return list(found.values())

    def except_for(self, names: Iterable[str]) -> list[Column]:
        """The columns that are not among these."""
        gone = {self._key(name) for name in names}
        return [column for column in self.columns if self._key(column.name) not in gone]

    def fresh_name(self, wish: str) -> str:
        """A name that no column has."""
        while self.has(wish):
            wish += "_"
        return wish

    def other(self, name: str) -> Relation:
        """Another frame by its name; raises FM-TRANSFORM-007 if the step cannot read it."""
        if name not in self.others:
            raise faults.no_frame(name, list(self.others))
        return self.others[name]

    def expression(self, text: str, key: str) -> sql.Expr:
        """An expression as a user wrote it, over the columns of this frame.

        Raises FM-TRANSFORM-006 if it is not one expression, 003 if it names no known column.
        """
        return self._checked(faults.parsed(sql.expression, text, key), key)

    def call(self, text: str, key: str) -> sql.Expr:
        """The call of one function as a user wrote it; raises as `expression` does."""
        return self._checked(faults.parsed(sql.call, text, key), key)

    def _checked(self, value: sql.Expr, key: str) -> sql.Expr:
        for parts in sql.columns_in(value):
            if self._meant(parts) is None and parts[0].lower() not in _NEVER_COLUMNS:
                wanted = parts[1] if len(parts) > 1 and parts[0].lower() == self.name else parts[0]
                raise faults.no_column(wanted, self.names, self.name, key)
        return value

    def _meant(self, parts: Sequence[str]) -> Column | None:
        """A column, `input.column`, or a field of a column."""
        if len(parts) > 1 and parts[0].lower() == self.name and self.has(parts[1]):
            return self._by_key[self._key(parts[1])]
        return self._by_key.get(self._key(parts[0]))

    def sources(self, value: sql.Expr) -> tuple[ColumnRef, ...]:
        """The columns an expression is made of; all of them where it is not understood."""
        if sql.reads_every_column(value) or not sql.is_understood(value):
            return tuple(ColumnRef(self.name, name) for name in self.names)
        found = (self._meant(parts) for parts in sql.columns_in(value))
        names = dict.fromkeys(column.name for column in found if column)
        return tuple(ColumnRef(self.name, name) for name in names)

    def kept(self, columns: Iterable[Column] | None = None) -> list[Output]:
        """Columns as they are; all of them unless some are given."""
        return [kept(column) for column in (self.columns if columns is None else columns)]

    def with_outputs(self, outputs: Sequence[Output]) -> list[Output]:
        """All columns, with some replaced in their place and new ones at the end."""
        new = {self._key(output.name): output for output in outputs}
        if len(new) < len(outputs):
            faults.require_unique([output.name for output in outputs], self._key, "the step")
        same = [new.get(self._key(c.name), kept(c)) for c in self.columns]
        return [*same, *(output for key, output in new.items() if key not in self._by_key)]

    def built(
        self,
        outputs: Sequence[Output],
        query: sql.Query | None = None,
        *,
        rows: Iterable[Column | sql.Expr] = (),
        **parts: object,
    ) -> Built:
        """The result: the outputs selected from this frame, or a query that gives them.

        `rows` are the columns and conditions that decide which rows there are. Raises
        FM-TRANSFORM-005 if two outputs have one name, 002 if there are none.
        """
        faults.require_unique([output.name for output in outputs], self._key, "the step")
        faults.require_columns(outputs)
        if query is None:
            items = [(output.name, output.value) for output in outputs]
            query = sql.select(items, self.name, **parts)  # type: ignore[arg-type]
        return Built(query, tuple(map(self._resolved, outputs)), self.refs(rows), self)

    def _resolved(self, output: Output) -> Output:
        sources = self.sources(output.value) if output.sources is None else output.sources
        return replace(output, sources=sources)

    def refs(self, rows: Iterable[Column | sql.Expr]) -> tuple[ColumnRef, ...]:
        """The columns that these are or are made of, each once."""
        refs: dict[ColumnRef, None] = {}
        for part in rows:
            found = (ref(part),) if isinstance(part, Column) else self.sources(part)
            refs.update(dict.fromkeys(found))
        return tuple(refs)


@dataclass(frozen=True)
class Built:
    """What a transform gives: a query over `input`, its columns and where they come from."""

    query: sql.Query
    outputs: tuple[Output, ...]
    rows: tuple[ColumnRef, ...]
    over: Relation

    def sql(self, dialect: str = sql.DIALECT) -> str:
        """The query as text."""
        return sql.text_of(self.query, dialect)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the result."""
        return tuple(Column(o.name, o.type, o.fields) for o in self.outputs)

    @cached_property
    def lineage(self) -> Lineage:
        """Output columns with the columns they are made of."""
        columns = {output.name: output.sources or () for output in self.outputs}
        read = [self.over.name, *(r.frame for refs in columns.values() for r in refs)]
        read += [r.frame for r in self.rows]
        return Lineage("column", columns, self.rows, tuple(dict.fromkeys(read)))


def kept(column: Column, name: str | None = None) -> Output:
    """A column as it is, under its own or another name."""
    return Output(name or column.name, column.sql, column.type, column.fields, (ref(column),))


def ref(column: Column) -> ColumnRef:
    """The column as lineage names it."""
    return ColumnRef(column.frame, column.name)
