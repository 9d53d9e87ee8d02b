"""What upstreams are called: paths, names of a catalog, and tables that have moved.

The stored name of an upstream is the path it was first known by; it keys watermarks, windows and
the registry and never changes. Where a table is may change: the journal records that as MOVE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from floodmark.control.events import Body, Moved, Named
from floodmark.control.journal import Journal
from floodmark.deltalog import absolute
from floodmark.model import State, TableName
from floodmark.model.names import is_catalog_name, is_of_project
from floodmark.sources.delta import being_read, other_table, place_taken, resolve, unresolved

Ids = dict[str, set[str]]
"""The table ids that each upstream is known by."""


class Tables(Protocol):
    """Looks whether a table is where it is thought to be; see `Prober`."""

    def has_table(self, path: str) -> bool: ...
    def table_id(self, path: str) -> str: ...


@dataclass
class Names:
    """The names that one coordinator knows; what it learns is journaled, or assumed for a preview."""

    base: str | None
    tables: Callable[[], Tables]
    spark: Callable[[], Any]
    reader: Callable[[], Journal]
    """The store for looking, an empty one where there is none."""
    writer: Callable[[], Journal]
    _resolved: dict[str, TableName] = field(default_factory=dict)
    _assumed: dict[str, str] = field(default_factory=dict)
    """Moves that a preview has found: stored name -> place."""
    _newest: tuple[State, Ids] | None = None

    def stored(self, name: str) -> str:
        """The name under which an upstream is stored; asks no catalog."""
        table = self.table(name) if is_catalog_name(name) else None
        if table:
            return table.path
        path = absolute(name, self.base)
        return next((old for old, new in self._places().items() if new == path), path)

    def place(self, upstream: str) -> str:
        """Where the table of a stored name is."""
        return self._places().get(upstream, upstream)

    def table(self, name: str) -> TableName | None:
        """What a catalog name was resolved to; not asked of the catalog, nor of the newest state:
        it may be wanted in the middle of a commit.
        """
        if name not in self._resolved:
            self._resolved |= self.reader().known_state().names
        return self._resolved.get(name)

    def refuse_unresolved(self, name: str) -> None:
        """Raise FM-PLAN-030 for a catalog name that nobody has resolved yet; asks no catalog."""
        if not self.is_resolved(name):
            raise unresolved(
                name, "it was not resolved yet, and nothing is asked of a catalog here"
            )

    def is_resolved(self, name: str) -> bool:
        """Whether it is known where a name stands: a path tells itself, one of a catalog does not."""
        return not is_catalog_name(name) or self.table(name) is not None

    def to_ask(self, names: Iterable[str]) -> list[str]:
        """The catalog names among these that a session has to be asked for: new ones, those whose
        table has gone from its place, and without a session those that only their catalog knows.
        """
        named = [name for name in names if is_catalog_name(name)]
        return [name for name in named if not self._is_in_place(name) or self._is_hidden(name)]

    def learn(self, names: Iterable[str], *, journals: bool) -> None:
        """Resolve the catalog names among these that have to be, and find the tables that moved.

        Raises FM-PLAN-030 where a new name cannot be asked for, FM-PLAN-031 where a name stands
        for another table than before, or a table that is being read has moved.
        """
        asked = [name for name in names if not is_of_project(name)]
        known = self._ids(self.reader().known_state())
        if not all(self._is_known(name, known) for name in asked):
            known = self._ids(self.reader().state())
        for name in asked:
            if not is_catalog_name(name):
                self._learn_path(absolute(name, self.base), known, journals=journals)
            elif self.table(name) is None:
                self._learn_name(name, known, journals=journals)
            elif self.spark() is not None and not self._is_in_place(name):
                self._find_again(name, known, journals=journals)

    def _ids(self, state: State) -> Ids:
        """The table ids of a state; the one asked for last is remembered: it seldom is another."""
        if self._newest is None or self._newest[0] is not state:
            self._newest = state, _ids(state)
        return self._newest[1]

    def _is_known(self, name: str, known: Ids) -> bool:
        """Whether nothing about a name can be learned from newer events."""
        return not is_catalog_name(name) and self.stored(name) in known

    def _is_in_place(self, name: str) -> bool:
        table = self.table(name)
        if table is None or table.is_managed:
            return table is not None
        return self.tables().has_table(self.place(table.path))

    def _is_hidden(self, name: str) -> bool:
        table = self.table(name)
        return table is not None and table.is_managed and self.spark() is None

    def _learn_name(self, name: str, known: Ids, *, journals: bool) -> None:
        found = resolve(self.spark(), name)
        if found.is_managed:
            self._assumed[found.path] = name
        else:
            self._learn_path(found.path, known, journals=journals)
        table = replace(found, path=self.stored(found.path))

        def decide(state: State) -> list[Body]:
            return [] if table.name in state.names else [Named(table)]

        names = self.writer().commit(decide).names if journals else {}
        self._resolved[name] = names.get(name, table)

    def _find_again(self, name: str, known: Ids, *, journals: bool) -> None:
        """A remembered name whose table is gone: it has moved, or is another one now."""
        table = self._resolved[name]
        found = resolve(self.spark(), name)
        if found.table_id not in known.get(table.path, {table.table_id}):
            raise other_table(table, found)
        self._move(Moved(table.path, found.path, found.table_id), journals=journals)

    def _learn_path(self, path: str, known: Ids, *, journals: bool) -> None:
        """A path where no upstream is may be the new place of one, or its old place again."""
        if journals:  # what a preview has only assumed is found again, and journaled
            self._assumed = {old: new for old, new in self._assumed.items() if new != path}
        place = self.place(path)
        is_known = place == path and (path in known or path in self._places().values())
        if not known or is_known or not self.tables().has_table(path):
            return
        table_id = self.tables().table_id(path)
        for upstream, ids in known.items():
            if table_id in ids and not self.tables().has_table(self.place(upstream)):
                self._move(Moved(upstream, path, table_id), journals=journals)
                return
        if place != path:
            raise place_taken(path, place)

    def _move(self, move: Moved, *, journals: bool) -> None:
        def decide(state: State) -> list[Body]:
            if state.place_of(move.upstream) == move.path:
                return []
            run = state.running_on(move.upstream)
            if run is not None:
                raise being_read(move.upstream, move.path, run.run_id, run.batch_id)
            return [move]

        if journals:
            self.writer().commit(decide)
            self._assumed.pop(move.upstream, None)
        else:
            decide(self.reader().state())
            self._assumed[move.upstream] = move.path

    def _places(self) -> Mapping[str, str]:
        return {**self.reader().known_state().places, **self._assumed}


def _ids(state: State) -> Ids:
    """By its watermarks, else its open windows, else the name it was resolved from."""
    found: Ids = {}
    for mark in state.marks.values():
        found.setdefault(mark.upstream, set()).add(mark.table_id)
    windows = [w for batch in state.open_batches() for w in batch.windows.values()]
    later = [(w.upstream, w.table_id) for w in windows]
    later += [(table.path, table.table_id) for table in state.names.values()]
    for upstream, table_id in later:
        if upstream not in found:
            found[upstream] = {table_id}
    return found
