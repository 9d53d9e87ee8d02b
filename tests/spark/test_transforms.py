"""Steps on real frames: the examples, SQL and Python steps, plug-ins and refusals by Spark."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.properties.transform_frames import applied, frame_of, in_utc, quick, rows_of, unordered

import floodmark as fm
from floodmark.errors import TransformError
from floodmark.transforms import Registry, Table, apply_steps, parse_steps, standard, transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS = Table({"id": "int", "amount": "int"}, [(1, 5), (2, -1), (3, None)])
CUSTOMERS = Table({"id": "int", "name": "string"}, [(1, "ann"), (2, "bob")])

STEPS_MODULE = """
def doubled(frame, context, times=2):
    frame.sparkSession.sql("SELECT 'goes round the context'")
    context.spark.sql("SELECT 'seen'")
    return context.sql(f"SELECT input.*, amount * {times} AS more, name "
                       "FROM input JOIN customers USING (id)")

def careless(frame, context):
    return frame.count() and None

def broken(frame, context):
    raise KeyError("amount")
"""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return quick(spark)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A project's folder with a module of steps."""
    (tmp_path / "own_steps.py").write_text(STEPS_MODULE, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("own_steps", None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def refused(steps: list[Any], frame: DataFrame, **more: Any) -> TransformError:
    with pytest.raises(TransformError) as caught:
        apply_steps(parse_steps(steps), frame, **more)
    return caught.value


def test_every_example_gives_what_it_shows(session: SparkSession) -> None:
    for name, each in standard().items():
        example = each.example
        assert example, f"{name} has no example"

        frame = applied(session, [{name: example.params}], example.given, example.others)

        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        assert kinds == dict(example.gives.columns), name
        found, expected = rows_of(frame), list(example.gives.rows)
        assert unordered(found) == unordered(expected), name
        assert found == expected or not example.in_order, name


def test_steps_follow_one_another_and_start_no_job(session: SparkSession) -> None:
    tracker, steps = (
        session.sparkContext.statusTracker(),
        [
            {"derive_columns": {"columns": {"vat": "amount * 2"}}},
            {"filter_rows": "vat IS NOT NULL"},
            {"deduplicate": ["id", "vat", "amount"]},
            {
                "sql": "WITH t AS (SELECT * FROM input) SELECT id, vat, '{x}' AS braces FROM t; -- end"
            },
            {"sort": "id desc"},
        ],
    )
    session.sparkContext.setJobGroup("steps", "")
    done = apply_steps(parse_steps(steps), frame_of(session, ORDERS))
    jobs = tracker.getJobIdsForGroup("steps")

    assert rows_of(done.frame) == [(2, -2, "{x}"), (1, 10, "{x}")]
    assert list(jobs) == []
    assert [statement.step for statement in done.statements] == [1, 2, 3, 4, 5]
    assert done.statements[0].text == "SELECT `id`, `amount`, (amount * 2) AS `vat` FROM input"
    assert session.catalog.listTables() == []


def test_sql_reads_other_nodes_by_name_and_hides_no_table(session: SparkSession) -> None:
    session.sql("CREATE OR REPLACE TEMP VIEW customers AS SELECT 1 AS not_this_one")
    try:
        frames = {"customers": frame_of(session, CUSTOMERS), "unused": frame_of(session, ORDERS)}
        text = "SELECT name, amount FROM input LEFT JOIN Customers c ON c.id = input.id"
        done = apply_steps(parse_steps([{"sql": text}]), frame_of(session, ORDERS), others=frames)

        assert unordered(rows_of(done.frame)) == unordered([("ann", 5), ("bob", -1), (None, None)])
        assert done.statements[0].frames == ("customers", "input")
        assert session.table("customers").columns == ["not_this_one"]
    finally:
        session.catalog.dropTempView("customers")


def test_a_python_step_gets_a_frame_and_its_sql_is_written_down(
    session: SparkSession, root: Path
) -> None:
    steps = [{"python": {"function": "own_steps:doubled", "params": {"times": 3}}}]
    others = {"customers": frame_of(session, CUSTOMERS)}

    done = apply_steps(parse_steps(steps), frame_of(session, ORDERS), others=others, root=root)

    assert done.frame.columns == ["id", "amount", "more", "name"]
    assert unordered(rows_of(done.frame)) == unordered([(1, 5, 15, "ann"), (2, -1, -3, "bob")])
    assert [s.text.split()[1] for s in done.statements] == ["'seen'", "input.*,"]
    assert done.lineage[0].level == "table"
    assert set(done.lineage[0].frames) == {"input", "customers"}


def test_the_session_of_the_context_is_the_session_of_the_frame(session: SparkSession) -> None:
    from pyspark.sql import SparkSession as Session

    seen = {}

    @transform
    def look(frame: Any, context: Any, *, setting: str) -> Any:
        seen["is_session"] = isinstance(context.spark, Session)
        seen["setting"] = context.spark.conf.get(setting)
        seen["rows"] = context.spark.range(3).count()
        return frame

    steps = parse_steps([{"look": {"setting": "spark.sql.shuffle.partitions"}}], Registry([look]))
    apply_steps(steps, frame_of(session, ORDERS))

    assert seen == {"is_session": True, "setting": "1", "rows": 3}


@pytest.mark.parametrize(
    ("function", "code", "found"),
    [
        ("own_steps:careless", "FM-TRANSFORM-011", "a NoneType"),
        ("own_steps:broken", "FM-TRANSFORM-010", "KeyError: 'amount'"),
        (
            "own_steps:doubld",
            "FM-TRANSFORM-009",
            "its functions: broken, careless, doubled; nearest: doubled",
        ),
        ("no_steps:doubled", "FM-TRANSFORM-009", None),
    ],
)
def test_python_steps_that_fail_are_told(
    function: str, code: str, found: str | None, session: SparkSession, root: Path
) -> None:
    error = refused([{"limit": 1}, {"python": function}], frame_of(session, ORDERS), root=root)

    assert (error.code, error.where) == (code, "step 2, python")
    assert found is None or error.found == found


def test_what_spark_refuses_names_the_step_and_its_condition(session: SparkSession) -> None:
    steps = [{"limit": 1}, {"sql": "SELECT amonut FROM input"}]

    error = refused(steps, frame_of(session, ORDERS))

    assert (error.code, error.where, error.step) == ("FM-TRANSFORM-008", "step 2, sql", 2)
    assert error.details["spark"].startswith("UNRESOLVED_COLUMN")
    assert "amount" in (error.found or "")


def test_only_queries_are_run(session: SparkSession) -> None:
    for text in ("DROP TABLE IF EXISTS t", "CREATE TEMP VIEW v AS SELECT 1", "SELEC 1", "SET a=1"):
        error = refused([{"sql": text}], frame_of(session, ORDERS))

        assert error.code == "FM-TRANSFORM-006", text


def test_columns_that_differ_only_in_case_are_refused_unless_the_session_tells_them_apart(
    spark: SparkSession,
) -> None:
    child = quick(spark)
    frame = frame_of(child, Table({"a": "int", "A": "int"}, [(1, 2)]))

    assert refused([{"limit": 1}], frame).code == "FM-TRANSFORM-005"
    by_hand = apply_steps(parse_steps([{"sql": "SELECT * FROM input AS t(one, two)"}]), frame)
    assert by_hand.frame.columns == ["one", "two"]
    assert by_hand.lineage[0].level == "table"
    unused = {"doubled": frame}
    done = apply_steps(parse_steps([{"limit": 1}]), frame_of(child, ORDERS), others=unused)
    assert done.frame.columns == ["id", "amount"]
    child.conf.set("spark.sql.caseSensitive", "true")
    done = apply_steps(
        parse_steps([{"drop": "a"}, {"derive_columns": {"columns": {"b": "A"}}}]), frame
    )
    assert done.frame.columns == ["A", "b"]
    assert rows_of(done.frame) == [(2, 2)]


def test_types_of_the_frame_are_checked_before_anything_runs(session: SparkSession) -> None:
    error = refused([{"clean_text": {"columns": ["amount"]}}], frame_of(session, ORDERS))

    assert (error.code, error.column, error.found) == ("FM-TRANSFORM-004", "amount", "int")


def test_times_with_a_zone_keep_their_type(session: SparkSession) -> None:
    noon = dt.datetime(2026, 7, 1, 12, 30, tzinfo=dt.UTC)
    steps = [
        {"convert_timezone": {"column": "at", "to": "Asia/Kolkata", "into": "there"}},
        {"date_trunc": {"column": "at", "unit": "hour", "into": "hour"}},
        {"date_add": {"column": "at", "amount": 2, "unit": "hour", "into": "later"}},
    ]

    frame = applied(session, steps, Table({"at": "timestamp"}, [(noon,)]))

    assert {field.dataType.simpleString() for field in frame.schema.fields} == {"timestamp"}
    clock = [f"{in_utc(value):%H:%M}" for value in frame.collect()[0]]
    assert clock == ["12:30", "18:00", "12:00", "14:30"]


def test_a_sample_is_a_part_of_the_rows_and_the_same_each_time(session: SparkSession) -> None:
    many = session.range(4000).selectExpr("id", "id % 7 AS customer")

    def chosen(**params: Any) -> list[Any]:
        steps = parse_steps([{"sample": {"fraction": 0.25, **params}}])
        return sorted(tuple(row) for row in apply_steps(steps, many).frame.collect())

    first, other_seed, by_customer = chosen(), chosen(seed=1), chosen(by="customer", seed=3)

    assert chosen() == first
    assert 850 < len(first) < 1150
    assert first != other_seed
    kept = {customer for _, customer in by_customer}
    assert len(by_customer) == sum(1 for n in range(4000) if n % 7 in kept)


def test_a_literal_is_what_it_was_in_any_dress(session: SparkSession) -> None:
    from decimal import Decimal

    from floodmark.transforms import sql

    values: list[Any] = ["it's", "${env:HOME}", "a\\b\n\t'\"`{}", "-- x", "", -(2**63), 2**63, -1, 1.5e-300,
              Decimal("-12.340"), b"\x00'", True, None, dt.date(1, 1, 1), "\u0000", "$", "${", "列"]  # fmt: skip
    columns = [(f"c{number}", sql.literal(value)) for number, value in enumerate(values)]
    text = sql.text_of(
        sql.select(columns, sql.nested(sql.select([("x", sql.literal(1))], "input"), "t"))
    )

    done = apply_steps(parse_steps([{"sql": text}, {"limit": 1}]), frame_of(session, ORDERS))

    assert list(done.frame.collect()[0]) == values


def test_the_decorator_is_public() -> None:
    assert fm.transform is transform
