"""Random graphs of nodes: what is read whole is whole in every batch, compared with plain Python.

Facts are read by changes and appended; each of them is joined with an expression over tables that
are read whole or looked up, spread over nodes with and without writes. Whatever has news in a batch, whatever
crashes in it, a fact that arrives meets every row that the expression has at that moment.
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


def project_text(part: Part, how: str, chain: bool, parallel: int) -> str:
    nodes = part.nodes()
    source = "read: {path: ./orders_table}"
    if chain:
        nodes["raw"] = f"{{name: raw, {source}, write: {{path: ./raw, mode: append}}}}"
        source = "depends_on: [raw]"
    join = f"{{join: {{with: {part.name}, on: {{customer: id}}, how: {how}}}}}"
    nodes["facts"] = (
        f"{{name: facts, {source}, transform: [{join}], write: {{path: ./facts, mode: append}}}}"
    )
    lines = "".join(f"      - {node}\n" for node in nodes.values())
    return (
        f"project: shop\npipelines:\n  - pipeline: p\n    parallel: {parallel}\n    nodes:\n{lines}"
    )


def expected(orders: Rows, part_rows: Rows, how: str) -> list[tuple[int, int | None]]:
    found = [(number, part_rows.get(customer)) for number, customer in orders.items()]
    return [row for row in found if how == "left" or row[1] is not None]


def story(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    root.mkdir()
    tables: dict[str, Rows] = {name: {} for name in ("one", "two", "three")}
    lookups = rng.sample(list(tables), rng.randrange(3))
    part = dimension(rng, list(tables), lookups, "d", 3)
    how = rng.choice(["left", "inner"])
    text = project_text(part, how, rng.random() < 0.5, rng.choice([1, 2]))
    open_project(root, text)
    given: list[tuple[int, int | None]] = []
    every: Rows = {}
    number = 0
    for batch in range(4):
        for name, rows in tables.items():
            if batch == 0 or rng.random() < 0.4:
                rows.clear()
                rows.update({key: rng.randrange(100) for key in rng.sample(range(KEYS), 3)})
                put(root / f"{name}_table", rows, "value", "overwrite" if batch else "append")
        orders = {}
        for _ in range(rng.choice([0, 2, 4]) if batch else 3):
            number += 1
            orders[number] = rng.randrange(KEYS)
        if orders:
            put(root / "orders_table", orders, "customer", "append")
        every |= orders
        is_lost = bool(batch and orders) and rng.random() < 0.3
        if is_lost:
            shutil.rmtree(root / "facts")
        crashed = contextlib.suppress(failpoints.FailpointReached)
        with crash.armed(rng.choice(CRASHES)), crashed:
            open_project(root).run(on_lost_target="rebuild")
        for outcome in open_project(root).run(on_lost_target="rebuild").outcomes:
            if outcome.error is not None:
                raise outcome.error
        # A rebuilt target holds every fact, with the dimension of today.
        given = [] if is_lost else given
        given += expected(every if is_lost else orders, part.rows(tables), how)
        assert table_rows(root / "facts", "id, value") == sorted(given), (seed, batch, text)


def test_every_fact_meets_all_of_its_dimension(tmp_path: Path, *, full_size: bool) -> None:
    for seed in range(200 if full_size else 8):
        story(tmp_path / str(seed), seed)
