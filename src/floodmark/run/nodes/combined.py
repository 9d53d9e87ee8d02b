"""The rows of a node from those above it: its own, and those it joins, unions or queries.

A table that is read whole is whole wherever another node meets it, in every batch: no news of it is
not no rows of it. What is new is what follows from news; without any there is nothing to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from floodmark.config.project import NodeSettings, Step
from floodmark.model import Window
from floodmark.run.nodes.outputs import Output, no_rows_of, rows_only
from floodmark.transforms.sql import tables_adding_rows, words_of

Apply = Callable[[Any, Mapping[str, Any]], Any]
"""The steps of a node: the frame of its own rows and those of others in, the result out."""

_KEEPS_OTHER_ROWS = re.compile(
    r"\bunion\b|\b(right|full)\s+(outer\s+)?join\b|\b(except|minus)\b", re.IGNORECASE
)
_FIRST_TABLE = re.compile(r"\bfrom\s+[`\"]?(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Other:
    """The rows of another node, as the steps of a node use them."""

    output: Output
    adds_rows: bool
    """Whether its rows become rows of the result, as in a union, and not only columns."""
    keeps_changes: bool = False
    """Whether its rows keep their change columns: a union writes the deletes of all its nodes."""

    @property
    def seen(self) -> Output:
        """All rows where that can be told; of a union only those that are new, unless it is read whole."""
        output = self.output
        table = None if self.adds_rows else output.target
        return output.standing or table or output

    @property
    def first(self) -> Output:
        """The same as a first run would see it."""
        return self.output.whole or self.seen

    def windows(self, seen: Output) -> tuple[Window, ...]:
        """What the rules of a write have to know: nothing of a table that only adds columns."""
        if self.adds_rows:
            return seen.windows
        is_table = self.output.is_read_whole or self.output.target is not None
        return () if is_table else self.output.windows


@dataclass(frozen=True)
class Combination:
    """The inputs of a node, and its steps."""

    source: Output
    """The rows that the node is about."""
    others: Mapping[str, Other]
    alias: str | None
    """The name of the node that `source` comes from, where a statement says it."""
    apply: Apply

    def output(self) -> Output:
        """The rows after the steps, for this batch, for a first run, and as other nodes see them."""
        source, others = self.source, self.others
        all_others = [other.output for other in others.values()]
        has_news = source.has_news or any(other.has_news for other in all_others)
        is_whole = has_news and bool(others) and source.is_read_whole
        seen = {name: other.seen for name, other in others.items()}
        news = self._through((is_whole and source.standing) or source, seen, has_news=has_news)
        whole = standing = None
        if source.whole is not None or any(other.whole is not None for other in all_others):
            first = {name: other.first for name, other in others.items()}
            # What a first run has of a lookup is all of it, though it has no news.
            all_of_it = source.whole or source.standing or source
            whole = self._through(all_of_it, first, has_news=True)
        if source.standing is not None or any(other.standing for other in all_others):
            standing = self._through(source.standing or source, seen, has_news=True)
        return replace(news, whole=whole, standing=standing, is_read_whole=source.is_read_whole)

    def _through(self, source: Output, others: Mapping[str, Output], *, has_news: bool) -> Output:
        def make() -> Any:
            own = source.make()
            frames = {name: self._frame(name, other) for name, other in others.items()}
            if self.alias is not None:
                frames[self.alias] = rows_only(own)
            result = self.apply(own, frames)
            return result if has_news else no_rows_of(result)

        windows = list(source.windows)
        for name, other in others.items():
            windows += self.others[name].windows(other)
        above = [source, *others.values()]
        is_replayable = all(output.is_replayable for output in above)
        counts = dict.fromkeys(count for output in above for count in output.counts)
        return Output(
            make,
            tuple(dict.fromkeys(windows)),
            is_replayable,
            has_news=has_news,
            counts=tuple(counts),
        )

    def _frame(self, name: str, output: Output) -> Any:
        frame = output.make()
        return frame if self.others[name].keeps_changes else rows_only(frame)


def is_only_unioned(node: NodeSettings, other: str) -> bool:
    """Whether nothing but the step `union` sees the rows of another node."""
    using = [step for step in node.transform if step.python is not None or _names(step, other)]
    return bool(using) and all(step.name == "union" for step in using)


def _names(step: Step, other: str) -> bool:
    if step.sql is not None:
        return other.lower() in words_of(step.sql)
    return other in step.inputs


def adds_rows(node: NodeSettings, other: str) -> bool:
    """Whether rows of another node become rows of this one: a union, or a join that keeps them."""
    primary = node.read.node if node.read is not None else next(iter(node.depends_on), None)
    own = {"input", *([primary.lower()] if primary else [])}
    others = {name.lower() for name in node.depends_on} - own
    return any(_adds(step, other, own, others) for step in node.transform)


def _adds(step: Step, other: str, own: set[str], others: set[str]) -> bool:
    if step.sql is not None:
        words = words_of(step.sql)
        if other.lower() not in words:
            return False
        adding = tables_adding_rows(step.sql, own, others & words)
        if adding is not None:
            return not words & own or other.lower() in adding
        # Spark knows more SQL than sqlglot: what may keep rows of others is taken to keep them.
        first = _FIRST_TABLE.search(step.sql)
        is_own = first is not None and first[1].lower() in own
        return not is_own or bool(_KEEPS_OTHER_ROWS.search(step.sql))
    if other not in step.inputs:
        return False
    return step.name == "union" or _how(step.params) in ("right", "full")


def _how(params: Any) -> object:
    return params.get("how") if isinstance(params, Mapping) else None


def names_in_sql(node: NodeSettings, names: Iterable[str]) -> set[str]:
    """Which of these names the statements of a node say."""
    words = {word for step in node.transform if step.sql for word in words_of(step.sql)}
    return {name for name in names if name.lower() in words}
