"""Which tables give a query rows of their own, held against SQLite, which executes random queries."""

from __future__ import annotations

import random
import sqlite3

import pytest

from floodmark.transforms.sql import tables_adding_rows

OTHERS = ("dim", "more")
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN")
SETS = ("UNION", "UNION ALL", "EXCEPT", "INTERSECT")


def relation(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(["input", *OTHERS])
    return f"({query(rng, depth - 1)})"


def query(rng: random.Random, depth: int) -> str:
    """A query of one column `k`."""
    kind = rng.random()
    if kind < 0.25:
        first, second = relation(rng, depth), relation(rng, depth)
        return f"SELECT k FROM {first} {rng.choice(SETS)} SELECT k FROM {second}"
    if kind < 0.35:
        return f"WITH c AS (SELECT k FROM {relation(rng, depth)}) SELECT k FROM c"
    join = rng.choice(JOINS)
    on = "" if join == "CROSS JOIN" else " ON x.k = y.k"
    made = f"SELECT coalesce(x.k, y.k) AS k FROM {relation(rng, depth)} x"
    made += f" {join} {relation(rng, depth)} y{on}"
    tests = [
        f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {relation(rng, depth)} z WHERE z.k = x.k)",
        f"x.k {rng.choice(['', 'NOT '])}IN (SELECT k FROM {relation(rng, depth)})",
    ]
    chosen = rng.sample(tests, rng.choice([0, 0, 1, 2]))
    return f"{made} WHERE {rng.choice([' AND ', ' OR ']).join(chosen)}" if chosen else made


def rows_of(text: str, filled: set[str]) -> list[tuple[int]] | None:
    """What the query gives; None for a nested join whose ON the SQLite of some versions refuses."""
    with sqlite3.connect(":memory:") as database:
        for name in ("input", *OTHERS):
            database.execute(f'CREATE TABLE "{name}" (k INT)')
            if name in filled:
                database.execute(f'INSERT INTO "{name}" VALUES (1), (2), (NULL)')
        try:
            return database.execute(text).fetchall()
        except sqlite3.OperationalError as error:
            if "ON clause references tables to its right" not in str(error):
                raise
            return None


def test_without_rows_of_the_node_a_query_has_none_but_of_tables_that_add_them(
    *, full_size: bool
) -> None:
    rng = random.Random(15)
    proven = 0
    for _ in range(20_000 if full_size else 1_000):
        text = query(rng, 2)
        adding = tables_adding_rows(text, {"input"}, OTHERS)
        assert adding is not None, text
        rest = set(OTHERS) - adding
        rows = rows_of(text, rest)
        assert not rows, (text, adding)
        proven += bool(rest) and rows is not None
    assert proven > 200


@pytest.mark.parametrize(
    ("text", "adding"),
    [
        ("SELECT * FROM input LEFT JOIN dim USING (k)", set()),
        ("SELECT *, (SELECT count(*) FROM dim) FROM input", set()),
        ("SELECT * FROM input JOIN (SELECT * FROM dim UNION SELECT * FROM more)", set()),
        ("SELECT * FROM input UNION ALL SELECT * FROM more LEFT JOIN dim USING (k)", {"more"}),
        ("SELECT * FROM dim LEFT JOIN input USING (k)", {"dim"}),
        ("SELECT * FROM dim JOIN more LEFT JOIN input USING (k)", {"dim", "more"}),
        ("SELECT * FROM dim WHERE NOT EXISTS (SELECT 1 FROM input i WHERE i.k = dim.k)", {"dim"}),
        ("SELECT * FROM dim LEFT ANTI JOIN input USING (k)", {"dim"}),
        ("SELECT * FROM dim LEFT SEMI JOIN input USING (k)", set()),
        ("SELECT k FROM dim MINUS SELECT k FROM input", {"dim"}),
        ("WITH RECURSIVE t AS (SELECT k FROM input UNION ALL SELECT k FROM t) SELECT * FROM t", set()),
        ("FROM dim |> LEFT JOIN input USING (k)", {"dim"}),
        ("SELECT * FROM raw.dim LEFT JOIN input USING (k)", set()),
    ],
)  # fmt: skip
def test_what_only_adds_columns_or_chooses_rows_adds_none(text: str, adding: set[str]) -> None:
    assert tables_adding_rows(text, {"input"}, OTHERS) == frozenset(adding)


def test_a_query_that_cannot_be_read_is_not_judged() -> None:
    assert tables_adding_rows("SELECT FROM WHERE", {"input"}, OTHERS) is None
