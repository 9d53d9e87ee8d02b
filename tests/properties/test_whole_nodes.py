"""Random graphs of nodes: what is read whole is whole in every batch, compared with plain Python.

Facts are read by changes and appended; each of them is joined with an expression over tables that
are read whole or looked up, spread over nodes with and without writes. Whatever has news in a batch, whatever
crashes in it, a fact that arrives meets every row that the expression has at that moment; a node that
is added later meets them for all facts.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support import crash
from tests.support.node_projects import open_project, table_rows

from floodmark import failpoints

pytestmark = pytest.mark.slow

FEED: dict[str, str | None] = {"delta.enableChangeDataFeed": "true"}
KEYS = 6
ADDED = 2
"""The batch from which on the project has a second node of facts."""
CRASHES = [None, None, "sink.after_commit", "run.before_done", "sink.between_sinks"]
Rows = dict[int, int]
"""Value by key."""
Op = Literal["read", "copy", "join", "semi", "anti"]


@dataclass(frozen=True)
class Part:
    """A node of a dimension: what it is made of, and whether it writes that."""

    name: str
    op: Op
    parents: tuple[Part, ...] = ()
    write: str | None = None
    lookup: bool = False
    """Whether a table is looked up; else it is read whole with its news."""

    @property
    def looks_up(self) -> bool:
        """Whether any table below is a lookup, whose news write nothing."""
        return self.lookup or any(parent.looks_up for parent in self.parents)

    @property
    def has_merge(self) -> bool:
        return "merge" in (self.write or "") or any(parent.has_merge for parent in self.parents)

    def rows(self, tables: dict[str, Rows]) -> Rows:
        """What it is, worked out over whole tables."""
        if self.op == "read":
            return dict(tables[self.name])
        first, *others = (parent.rows(tables) for parent in self.parents)
        if self.op == "copy":
            return first
        (other,) = others
        if self.op == "anti":
            return {key: value for key, value in first.items() if key not in other}
        return {key: value for key, value in first.items() if key in other}

    def nodes(self) -> dict[str, str]:
        """The node and those above it, as YAML."""
        lines = {name: text for parent in self.parents for name, text in parent.nodes().items()}
        if self.op == "read":
            way = "lookup: true" if self.lookup else "method: snapshot"
            own = f"read: {{path: ./{self.name}_table, {way}}}"
        else:
            own = f"depends_on: [{', '.join(parent.name for parent in self.parents)}]"
        steps = "{select: [id, value]}"
        if self.op not in ("read", "copy"):
            how = "inner" if self.op == "join" else self.op
            with_ = f"with: {self.parents[1].name}, on: [id], how: {how}"
            columns = ", columns: [id]" if how == "inner" else ""
            steps += f", join: {{{with_}{columns}}}".replace(", join", ", {join") + "}"
        write = f", write: {{path: ./{self.name}, {self.write}}}" if self.write else ""
        return {**lines, self.name: f"{{name: {self.name}, {own}, transform: [{steps}]{write}}}"}


WRITES = [None, None, None, "mode: overwrite", "merge: {keys: [id], missing: delete}"]


def dimension(
    rng: random.Random, tables: list[str], lookups: list[str], name: str, depth: int
) -> Part:
    if depth == 0 or rng.random() < 0.2:
        table = rng.choice(tables)
        return Part(table, "read", lookup=table in lookups)
    op: Op = rng.choice(["copy", "join", "semi", "anti"])
    count = 1 if op == "copy" else 2
    parents = tuple(dimension(rng, tables, lookups, f"{name}{n}", depth - 1) for n in range(count))
    if count == 2 and parents[0].name == parents[1].name:
        op, parents = "copy", parents[:1]
    # Below a merge the change columns would be needed, which the steps here drop.
    is_writable = not any(parent.looks_up or parent.has_merge for parent in parents)
    return Part(name, op, parents, rng.choice(WRITES) if is_writable else None)


def put(path: Path, rows: Rows, column: str, mode: Literal["append", "overwrite"]) -> None:
    data = pa.table(
        {
            "id": pa.array(list(rows), pa.int64()),
            column: pa.array(list(rows.values()), pa.int64()),
        }
    )
    write_deltalake(str(path), data, mode=mode, configuration=FEED)


def project_text(facts: dict[str, tuple[Part, str]], chain: bool, parallel: int) -> str:
    """The nodes of some facts, each by its name with its dimension, and how it is joined."""
    nodes = {name: text for part, _ in facts.values() for name, text in part.nodes().items()}
    nodes["orders"] = "{name: orders, read: {path: ./orders_table}}"
    source = "orders"
    if chain:
        nodes["raw"] = "{name: raw, depends_on: [orders], write: {path: ./raw, mode: append}}"
        source = "raw"
    for name, (part, how) in facts.items():
        join = f"{{join: {{with: {part.name}, on: {{customer: id}}, how: {how}}}}}"
        nodes[name] = (
            f"{{name: {name}, depends_on: [{source}, {part.name}], transform: [{join}],"
            f" write: {{path: ./{name}, mode: append}}}}"
        )
    lines = "".join(f"      - {node}\n" for node in nodes.values())
    return (
        f"project: shop\npipelines:\n  - pipeline: p\n    parallel: {parallel}\n    nodes:\n{lines}"
    )


def expected(orders: Rows, part_rows: Rows, how: str) -> list[tuple[int, int | None]]:
    found = [(number, part_rows.get(customer)) for number, customer in orders.items()]
    return [row for row in found if how == "left" or row[1] is not None]


def shown(row: tuple[int, int | None]) -> tuple[int, int]:
    """By what rows are put in order, NULL too."""
    return row[0], -1 if row[1] is None else row[1]


class Story:
    """A project, its tables, and what its facts have been given so far."""

    def __init__(self, root: Path, seed: int) -> None:
        root.mkdir()
        self.root, self.seed, self.rng = root, seed, random.Random(seed)
        self.tables: dict[str, Rows] = {name: {} for name in ("one", "two", "three")}
        lookups = self.rng.sample(list(self.tables), self.rng.randrange(3))
        self.facts = {
            name: (
                dimension(self.rng, list(self.tables), lookups, letter, 3),
                self.rng.choice(["left", "inner"]),
            )
            for name, letter in (("facts", "d"), ("late", "e"))
        }
        self.is_chain, self.parallel = self.rng.random() < 0.5, self.rng.choice([1, 2])
        self.given: dict[str, list[tuple[int, int | None]]] = {}
        self.every: Rows = {}

    def play(self) -> None:
        for batch in range(5):
            names = ["facts", "late"] if batch >= ADDED else ["facts"]
            chosen = {name: self.facts[name] for name in names}
            text = project_text(chosen, self.is_chain, self.parallel)
            open_project(self.root, text)
            self.change_tables(batch)
            orders = self.add_orders(batch)
            is_lost = bool(batch and orders) and self.rng.random() < 0.3
            if is_lost:
                shutil.rmtree(self.root / "facts")
            self.run()
            for name, (part, how) in chosen.items():
                if not (self.root / name).exists():
                    continue  # a batch without any news does not run
                rows = part.rows(self.tables)
                if name not in self.given or (is_lost and name == "facts"):
                    self.given[name] = expected(self.every, rows, how)
                else:
                    self.given[name] += expected(orders, rows, how)
                found = sorted(table_rows(self.root / name, "id, value"), key=shown)
                assert found == sorted(self.given[name], key=shown), (self.seed, name, batch, text)

    def change_tables(self, batch: int) -> None:
        for name, rows in self.tables.items():
            if batch == 0 or self.rng.random() < 0.4:
                rows.clear()
                keys = self.rng.sample(range(KEYS), 3)
                rows.update({key: self.rng.randrange(100) for key in keys})
                mode: Literal["append", "overwrite"] = "overwrite" if batch else "append"
                put(self.root / f"{name}_table", rows, "value", mode)

    def add_orders(self, batch: int) -> Rows:
        first = len(self.every) + 1
        count = self.rng.choice([0, 2, 4]) if batch else 3
        orders = {number: self.rng.randrange(KEYS) for number in range(first, first + count)}
        if orders:
            put(self.root / "orders_table", orders, "customer", "append")
        self.every |= orders
        return orders

    def run(self) -> None:
        """Once with a crash, perhaps, and once more."""
        crashed = contextlib.suppress(failpoints.FailpointReached)
        with crash.armed(self.rng.choice(CRASHES)), crashed:
            open_project(self.root).run(on_lost_target="rebuild")
        for outcome in open_project(self.root).run(on_lost_target="rebuild").outcomes:
            if outcome.error is not None:
                raise outcome.error


def test_every_fact_meets_all_of_its_dimension(tmp_path: Path, *, full_size: bool) -> None:
    for seed in range(200 if full_size else 8):
        Story(tmp_path / str(seed), seed).play()
