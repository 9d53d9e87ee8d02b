"""Steps without Spark: how they are read, what is refused, and what they say of their columns."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.errors import TransformError
from floodmark.model.lineage import ColumnRef
from floodmark.transforms import Column, Table, Traced, parse_steps, problems, standard, trace

ROOM = Path(__file__).resolve().parents[3] / "src" / "floodmark" / "transforms"

ORDERS = (
    Column("id", "int"),
    Column("amount", "decimal(12,2)"),
    Column("day", "date"),
    Column("tags", "array<string>"),
    Column("address", "struct<city:string>", (Column("city", "string"),)),
    Column("Customer Name", "string"),
)
CUSTOMERS = (Column("id", "int"), Column("name", "string"), Column("amount", "int"))


def traced(*steps: Any) -> Traced:
    text_ids = (Column("id", "string"), *ORDERS[1:])
    others = {"customers": CUSTOMERS, "other_orders": text_ids}
    return trace(parse_steps(steps), ORDERS, others)


def refused(*steps: Any) -> TransformError:
    with pytest.raises(TransformError) as caught:
        traced(*steps)
    return caught.value


def names(found: Traced) -> list[str]:
    assert found.columns is not None
    return [column.name for column in found.columns]


def columns_of(table: Table) -> list[Column]:
    fields = (Column("city", "string"), Column("zip", "int"))
    return [Column(n, k, fields if "struct" in k else ()) for n, k in table.columns.items()]


@pytest.mark.parametrize("name", standard())
def test_the_columns_of_every_example_are_known_without_spark(name: str) -> None:
    example = standard()[name].example
    assert example
    others = {other: columns_of(table) for other, table in example.others.items()}

    found = trace(parse_steps([{name: example.params}]), columns_of(example.given), others)

    assert found.columns is not None
    assert [c.name for c in found.columns] == list(example.gives.columns)
    kinds = zip(found.columns, example.gives.columns.values(), strict=True)
    assert all(column.type in (None, kind) for column, kind in kinds)
    assert found.lineage[0].level == "column"
    assert list(found.lineage[0].columns) == list(example.gives.columns)


@pytest.mark.parametrize("name", standard())
def test_every_transform_can_be_shown_in_another_dialect(name: str) -> None:
    from floodmark.transforms import Built, Relation

    example = standard()[name].example
    assert example
    others = {n: Relation(tuple(columns_of(t)), n) for n, t in example.others.items()}
    relation = Relation(tuple(columns_of(example.given)), others=others)
    built = standard()[name].build(relation, standard()[name].parse(example.params))

    assert isinstance(built, Built)
    assert built.sql("duckdb").startswith(("SELECT", "WITH"))
    assert not any(f"`{column}`" in built.sql("duckdb") for column in example.given.columns)


@pytest.mark.parametrize(
    ("step", "code", "told"),
    [
        ({"filter_row": "a"}, "FM-TRANSFORM-001", "nearest: filter_rows"),
        ({"select": {"colums": ["id"]}}, "FM-TRANSFORM-002", 'unknown key "colums"; nearest: columns'),
        ({"select": []}, "FM-TRANSFORM-002", "columns: value should have at least 1 item"),
        ({"rename": {}}, "FM-TRANSFORM-002", "columns is missing"),
        ({"limit": "3"}, "FM-TRANSFORM-002", "rows: input should be a valid integer"),
        ({"limit": -1}, "FM-TRANSFORM-002", "rows: input should be greater than or equal to 0"),
        ({"cast_columns": {"columns": {"id": "nummer"}}}, "FM-TRANSFORM-002", "no type is called nummer"),
        ({"sample": {"fraction": 2.0}}, "FM-TRANSFORM-002", "less than or equal to 1"),
        ({"split_part": {"column": "id", "delimiter": ",", "part": 0, "into": "x"}}, "FM-TRANSFORM-002", "part counts from 1"),
        ({"convert_timezone": {"column": "day", "to": "Europe/Berln"}}, "FM-TRANSFORM-002", "nearest: Europe/Berlin"),
        ({"pivot": {"by": "id", "column": "day", "values": [1]}}, "FM-TRANSFORM-002", "sum of which column"),
        ({"window_calculation": {"columns": {"n": "sum(id)"}, "rows": [1, 0]}}, "FM-TRANSFORM-002", "rows needs order_by"),
        ({"fill_nulls": {"columns": {"id": [1]}}}, "FM-TRANSFORM-002", "allowed are texts"),
        ({"sort": [{"column": "id", "order": "up"}]}, "FM-TRANSFORM-002", "by[0].order"),
        ({"dict_based_mapping": {"column": "id", "mapping": {1: 2}, "default": 1, "keep_unmapped": True}}, "FM-TRANSFORM-002", "exclude"),
        ({"a": 1, "b": 2}, "FM-TRANSFORM-002", "one step"),
        (7, "FM-TRANSFORM-002", "one step"),
        ({"sql": ["SELECT 1"]}, "FM-TRANSFORM-002", "a query over input"),
        ({"python": "no_colon"}, "FM-TRANSFORM-002", "module.path:name"),
        ({"python": {"function": "a:b", "args": {}}}, "FM-TRANSFORM-002", "module.path:name"),
        ({"sql": "SELECT 1; SELECT 2"}, "FM-TRANSFORM-006", "there is a ;"),
        ({"sql": "SELECT 'open"}, "FM-TRANSFORM-006", "a quote or comment is not closed"),
        ({"sql": "SELECT 1) UNION (SELECT 2"}, "FM-TRANSFORM-006", "closes nothing"),
        ({"sql": " -- nothing"}, "FM-TRANSFORM-006", "it is empty"),
    ],
)  # fmt: skip
def test_what_is_wrong_whatever_the_columns_are(step: Any, code: str, told: str) -> None:
    (error,) = problems([{"limit": 1}, step])

    assert (error.code, error.step) == (code, 2)
    assert error.where is not None
    assert error.where.startswith("step 2")
    assert told in str(error)


@pytest.mark.parametrize(
    ("step", "code", "column", "nearest"),
    [
        ({"select": ["id", "amont"]}, "FM-TRANSFORM-003", "amont", "amount"),
        ({"filter_rows": "amuont > 0"}, "FM-TRANSFORM-003", "amuont", "amount"),
        ({"filter_rows": "input.amuont > 0"}, "FM-TRANSFORM-003", "amuont", "amount"),
        ({"derive_columns": {"columns": {"a": "id", "b": "adress.city"}}}, "FM-TRANSFORM-003", "adress", "address"),
        ({"aggregate": {"by": "ID", "columns": {"n": "sum(dya)"}}}, "FM-TRANSFORM-003", "dya", "day"),
        ({"sort": "customer nam desc"}, "FM-TRANSFORM-003", "customer nam", "Customer Name"),
        ({"unpack_struct": {"column": "address", "fields": ["citi"]}}, "FM-TRANSFORM-003", "citi", "city"),
        ({"join": {"with": "customers", "on": {"id": "ident"}}}, "FM-TRANSFORM-003", "ident", None),
        ({"union": {"with": "customers"}}, "FM-TRANSFORM-003", "day", None),
        ({"clean_text": {"columns": "id"}}, "FM-TRANSFORM-004", "id", None),
        ({"explode_list_column": {"column": "id"}}, "FM-TRANSFORM-004", "id", None),
        ({"date_add": {"column": "day", "amount": 1, "unit": "hour", "into": "x"}}, "FM-TRANSFORM-004", "day", None),
        ({"fill_nulls": {"columns": {"id": "x"}}}, "FM-TRANSFORM-004", "id", None),
        ({"fill_nulls": {"columns": {"day": "2026-02-30"}}}, "FM-TRANSFORM-004", "day", None),
        ({"join": {"with": "customers", "on": {"day": "id"}}}, "FM-TRANSFORM-004", "day", None),
        ({"union": {"with": "other_orders"}}, "FM-TRANSFORM-004", "id", None),
        ({"rename": {"columns": {"id": "Amount"}}}, "FM-TRANSFORM-005", "amount", None),
        ({"select": ["id", "ID"]}, "FM-TRANSFORM-005", "id", None),
        ({"join": {"with": "customers", "on": "id"}}, "FM-TRANSFORM-005", "amount", None),
        ({"validate_and_flag": {"rules": {"r": "id > 0"}, "into": "x", "failed_into": "X"}}, "FM-TRANSFORM-005", "X", None),
        ({"drop": ["id", "amount", "day", "tags", "address", "customer name"]}, "FM-TRANSFORM-002", None, None),
        ({"filter_rows": "id > 0) OR (1 = 1"}, "FM-TRANSFORM-006", None, None),
        ({"filter_rows": "id; DROP TABLE x"}, "FM-TRANSFORM-006", None, None),
        ({"derive_columns": {"columns": {"a": "id AS b"}}}, "FM-TRANSFORM-006", None, None),
        ({"derive_columns": {"columns": {"a": "*"}}}, "FM-TRANSFORM-006", None, None),
        ({"derive_columns": {"columns": {"a": "SELECT 1"}}}, "FM-TRANSFORM-006", None, None),
        ({"aggregate": {"columns": {"n": "amount"}}}, "FM-TRANSFORM-006", None, None),
        ({"window_calculation": {"columns": {"n": "id + 1"}}}, "FM-TRANSFORM-006", None, None),
        ({"join": {"with": "costumers", "on": "id"}}, "FM-TRANSFORM-007", None, "customers"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_columns_names_the_step_the_column_and_the_nearest(
    step: Any, code: str, column: str | None, nearest: str | None
) -> None:
    error = refused({"sort": "id"}, step)

    assert (error.code, error.step, error.transform) == (code, 2, next(iter(step)))
    assert (error.column, error.nearest) == (column, nearest)
    assert error.state == "nothing was read or written"
    assert error.next


def test_the_key_on_is_understood_although_yaml_reads_it_as_true() -> None:
    (step,) = yaml.safe_load("- join: {with: customers, on: {id: id}, columns: [name]}")

    assert True in step["join"]
    assert names(traced(step))[-1] == "name"


def test_all_mistakes_are_told_at_once() -> None:
    found = problems([{"selct": ["id"]}, {"limit": 1}, {"limit": None}, {"sql": "SELECT (1"}])

    assert [(error.step, error.code[-3:]) for error in found] == [
        (1, "001"),
        (3, "002"),
        (4, "006"),
    ]


def test_expressions_may_use_what_only_spark_knows() -> None:
    for text in (
        "amount > 0 AND current_date() > day",
        "transform(tags, t -> upper(t)) IS NOT NULL",
        "exists(tags, t -> t.x = id)",
        "id IN (SELECT other_id FROM other_table)",
        "address.city = user",
        "`Customer Name` RLIKE '(' AND customer_function(id)",
        "tags[0] = 'a' -- why",
        "id BETWEEN 1 AND 2 /* ( */",
    ):
        found = traced({"filter_rows": text})

        assert names(found) == [column.name for column in ORDERS], text


def test_what_sqlglot_cannot_read_goes_to_spark_and_depends_on_every_column() -> None:
    from floodmark.transforms import Built, Relation

    relation, derive = Relation(ORDERS), standard()["derive_columns"]
    built = derive.build(relation, derive.parse({"columns": {"x": "tags:field.sub::string"}}))

    assert isinstance(built, Built)
    assert "(tags:field.sub::string) AS `x`" in built.sql()
    assert len(built.lineage.columns["x"]) == len(ORDERS)


def test_dates_may_be_text_as_they_are_in_a_file() -> None:
    found = traced({"fill_nulls": {"columns": {"day": "2026-02-28"}}})

    assert found.columns is not None
    assert found.columns[2].type == "date"


def test_lineage_follows_expressions_joins_and_row_conditions() -> None:
    found = traced(
        {"derive_columns": {"columns": {"total": "amount * id", "one": "1"}}},
        {"filter_rows": "day > '2026-01-01'"},
        {"join": {"with": "customers", "on": "id", "columns": ["name"], "how": "full"}},
    )

    first, second, third = found.lineage
    assert first.columns["total"] == (ColumnRef("input", "amount"), ColumnRef("input", "id"))
    assert first.columns["one"] == ()
    assert second.rows == (ColumnRef("input", "day"),)
    assert third.columns["name"] == (ColumnRef("customers", "name"),)
    assert third.columns["id"] == (ColumnRef("input", "id"), ColumnRef("customers", "id"))
    assert third.frames == ("input", "customers")


def test_lineage_of_sql_is_by_column_where_it_can_be_read() -> None:
    found = traced(
        {
            "sql": """
            WITH big AS (SELECT *, amount * 2 AS twice FROM input WHERE amount > 0)
            SELECT big.id, twice + c.amount AS sum_of_both, c.name AS `Their Name`, 1 AS one
            FROM big JOIN customers c ON c.id = big.id
            """
        },
        {"filter_rows": "`their name` > 'a'"},
    )

    lineage = found.lineage[0]
    assert lineage.level == "column"
    both = {ColumnRef("input", "amount"), ColumnRef("customers", "amount")}
    assert set(lineage.columns["sum_of_both"]) == both
    assert lineage.columns["Their Name"] == (ColumnRef("customers", "name"),)
    assert lineage.columns["one"] == ()
    assert set(lineage.frames) == {"input", "customers"}
    assert names(found) == ["id", "sum_of_both", "Their Name", "one"]


@pytest.mark.parametrize(
    ("step", "note"),
    [
        (
            {"sql": "SELECT * FROM input JOIN elsewhere.orders USING (id)"},
            "the SQL could not be read",
        ),
        ({"sql": "SELECT tags:field.x FROM input"}, "the SQL could not be read"),
        ({"python": "steps:own"}, "Python is not read for lineage"),
    ],
)
def test_lineage_falls_to_tables_and_says_so(step: Any, note: str) -> None:
    found = traced(step, {"filter_rows": "anything > 0"})

    assert [lineage.level for lineage in found.lineage] == ["table", "table"]
    assert note in (found.lineage[0].note or "")
    assert "not known" in (found.lineage[1].note or "")
    assert found.columns is None


def test_fields_of_a_struct_that_only_spark_knows_end_the_trace() -> None:
    found = traced(
        {"derive_columns": {"columns": {"s": "struct(id)"}}}, {"unpack_struct": {"column": "s"}}
    )

    assert found.columns is None
    assert 'the fields of "s"' in (found.lineage[1].note or "")


def test_a_name_that_spark_would_rewrite_is_refused() -> None:
    error = refused({"rename": {"columns": {"id": "${env:HOME}"}}})

    assert error.code == "FM-TRANSFORM-002"
    assert "${" in str(error)


def test_sqlglot_is_behind_one_package() -> None:
    users = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = getattr(node, "module", None) or ""
            plain = [
                alias.name for alias in getattr(node, "names", []) if isinstance(node, ast.Import)
            ]
            if any(re.match(r"sqlglot\b", name) for name in [module, *plain]):
                users.add(path.relative_to(ROOM).parent.as_posix())
    assert users == {"sql"}
