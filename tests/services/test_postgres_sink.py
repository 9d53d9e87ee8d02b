"""What only the PostgreSQL sink promises; the rest is in the contract of the sinks."""

from __future__ import annotations

import os
import signal
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.postgres_places import PgLake, PgPlace
from tests.contract.sink_contract import receipt, window
from tests.support import crash

from floodmark import failpoints
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import SinkError
from floodmark.model.state import SinkDone
from floodmark.model.write import CHANGE_COLUMNS, WriteSpec
from floodmark.postgres import connector
from floodmark.sinks import postgres as module
from floodmark.sinks.postgres import PostgresSink
from floodmark.testing.arrow import last_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.postgres import Connect, Connection

pytestmark = pytest.mark.postgres

AT = datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
SHARED = settings(
    max_examples=200 if os.environ.get("FLOODMARK_TEST_SIZE") == "full" else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def connect(postgres: PostgresServer) -> Connect:
    return connector(postgres.dsn)


@pytest.fixture
def lake(postgres: PostgresServer, pg_schema: str) -> PgLake:
    return PgLake(postgres.dsn, pg_schema)


@pytest.fixture
def target(lake: PgLake) -> PgPlace:
    return lake / "out"


def spec(target: PgPlace, mode: Any = "append", **options: Any) -> WriteSpec:
    return WriteSpec(str(target), mode, "out", **options)


def refused(
    connect: Connect, place: PgPlace, frame: Any, seq: int = 1, **options: Any
) -> SinkError:
    with pytest.raises(SinkError) as caught:
        PostgresSink(connect, spec(place, **options), ()).write(frame, receipt(seq))
    return caught.value


def test_a_created_table_holds_every_plain_type_exactly(connect: Connect, target: PgPlace) -> None:
    kinds = {
        "flag": (pa.bool_(), True, "boolean"),
        "tiny": (pa.int8(), -128, "smallint"),
        "short": (pa.uint8(), 255, "smallint"),
        "number": (pa.int32(), -(2**31), "integer"),
        "long": (pa.int64(), 2**63 - 1, "bigint"),
        "huge": (pa.uint64(), Decimal(2**64 - 1), "numeric"),
        "single": (pa.float32(), 0.5, "real"),
        "double": (pa.float64(), 0.1, "double precision"),
        "money": (pa.decimal128(38, 10), Decimal("-12345678901234567890.0123456789"), "numeric"),
        "text": (pa.large_string(), "żółć\t\n\\N'\"", "text"),
        "empty": (pa.string(), "", "text"),
        "bytes": (pa.binary(), b"\0\xff", "bytea"),
        "day": (pa.date32(), date(1, 1, 1), "date"),
        "wall": (pa.timestamp("us"), AT.replace(year=9999, tzinfo=None), "timestamp"),
        "instant": (pa.timestamp("us", "Asia/Tokyo"), AT, "timestamp with time zone"),
        "clock": (pa.time64("us"), time(23, 59, 59, 999999), "time without time zone"),
    }
    schema = pa.schema([(name, kind) for name, (kind, _, _) in kinds.items()])
    values = {name: value for name, (_, value, _) in kinds.items()}
    frame = pa.Table.from_pylist([{**values, "huge": 2**64 - 1}, dict.fromkeys(kinds)], schema)

    result = PostgresSink(connect, spec(target), ()).write(frame, receipt(1))

    rows = sorted(target.rows(), key=lambda row: row["flag"] is None)
    assert rows == [values, dict.fromkeys(kinds)]
    assert result.rows_written == 2
    types = target.query(
        "SELECT attname, format_type(atttypid, atttypmod) AS shown FROM pg_attribute"
        f" WHERE attrelid = '{target.table}'::regclass"
    )
    by_name = {row["attname"]: row["shown"] for row in types}
    assert all(by_name[name].startswith(shown) for name, (_, _, shown) in kinds.items())


@SHARED
@given(
    st.lists(
        st.tuples(
            st.none() | st.decimals(-(10**18), 10**18, places=6),
            st.none() | st.datetimes(),
            st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
            st.none() | st.floats(allow_nan=False),
        )
    )
)
def test_values_come_back_as_they_went(
    connect: Connect, target: PgPlace, rows: list[tuple[Any, ...]]
) -> None:
    fields = [pa.decimal128(38, 6), pa.timestamp("us"), pa.string(), pa.float64()]
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(fields)]
    frame = pa.table([*arrays, pa.array(range(len(rows)), pa.int32())], names=[*"abcd", "row"])
    flags = pa.array([number % 3 == 0 for number in range(len(rows))])
    # A slice: the buffers begin before the rows do.
    frame = pa.concat_tables([frame.slice(0, 1)] * 3 + [frame]).combine_chunks()
    frame = frame.slice(frame.num_rows - len(rows)).append_column("flag", flags)
    target.query(f"DROP TABLE IF EXISTS {target.table}")

    PostgresSink(connect, spec(target), ()).write(frame, receipt(1))

    back = sorted(target.rows(), key=lambda row: int(row["row"]))
    assert [(r["a"], r["b"], r["c"], r["d"]) for r in back] == rows
    assert [r["flag"] for r in back] == flags.to_pylist()


@pytest.mark.parametrize(
    ("kind", "array", "why"),
    [
        ("text", pa.array(["a", None, "b\0"]), "a NUL character"),
        ("varchar(2)", pa.array(["żó", "x", "abc"]), "more than 2 characters"),
        ("char(2)", pa.array(["a", "b", "c  "]), "more than 2 characters"),
        ("smallint", pa.array([1, 2, 40_000]), "not exact as smallint"),
        ("numeric(4,2)", pa.array([1, 2, 100]), "not exact as numeric(4,2)"),
        (
            "numeric(4,2)",
            pa.array([Decimal("1.10"), None, Decimal("1.001")], pa.decimal128(9, 3)),
            "not exact as numeric(4,2)",
        ),
        ("timestamp", pa.array([0, 1000, 1001], pa.timestamp("ns")), "not exact as timestamp"),
        ("text NOT NULL", pa.array(["a", "b", None]), "NULL, and the column takes none"),
    ],
)
def test_a_value_that_does_not_fit_is_named_and_nothing_is_kept(
    connect: Connect, target: PgPlace, kind: str, array: pa.Array, why: str
) -> None:
    target.query(f"CREATE TABLE {target.table} (id int, v {kind})")
    frame = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": array})

    error = refused(connect, target, frame)

    assert error.code == "FM-SINK-030"
    assert (error.found or "").startswith(f"row 3, column v: {why}")
    assert target.rows() == []
    assert target.history() == []


def test_what_the_server_refuses_is_named_by_column_or_constraint(
    connect: Connect, target: PgPlace
) -> None:
    target.query(f"CREATE TABLE {target.table} (id int CONSTRAINT small CHECK (id < 10))")

    error = refused(connect, target, pa.table({"id": pa.array([1, 10], pa.int32())}))

    assert error.code == "FM-SINK-030"
    assert "constraint small" in (error.found or "")
    assert "10" not in (error.found or "")  # the values of the row are nobody's business


def made(target: PgPlace, *statements: str) -> None:
    for statement in statements:
        target.query(statement.replace("OUT", target.table))


def test_a_column_that_the_target_fills_itself_is_told_as_such(
    connect: Connect, target: PgPlace
) -> None:
    made(target, "CREATE TABLE OUT (id bigint GENERATED ALWAYS AS IDENTITY, v text)")
    frame = pa.table({"ID": [1], "v": ["a"]})

    plain = refused(connect, target, frame)
    widening = refused(connect, target, frame, adds_columns=True)
    PostgresSink(connect, spec(target), ()).write(frame.select(["v"]), receipt(1))

    assert (plain.code, widening.code) == ("FM-SINK-011", "FM-SINK-011")
    assert plain.found == "the target makes the values of ID itself (GENERATED ALWAYS)"
    assert "SET GENERATED BY DEFAULT" in str(plain.next)
    assert target.rows() == [{"id": 1, "v": "a"}]


def test_a_row_without_a_partition_or_against_a_constraint_is_told_as_such(
    connect: Connect, target: PgPlace
) -> None:
    made(
        target,
        "CREATE TABLE OUT (id bigint CHECK (id <> 1)) PARTITION BY RANGE (id)",
        'CREATE TABLE "part" PARTITION OF OUT FOR VALUES FROM (0) TO (3)'.replace(
            '"part"', target.table[:-1] + '_part"'
        ),
    )

    no_partition = refused(connect, target, pa.table({"id": [5]}))
    checked = refused(connect, target, pa.table({"id": [1]}))

    assert no_partition.title == "a row has no partition in its table"
    assert str(no_partition.next).startswith("create the partition")
    assert checked.title == "a row breaks a constraint of its table"
    assert {no_partition.code, checked.code} == {"FM-SINK-030"}


@pytest.mark.parametrize("options", [{}, {"mode": "replace_where", "replace_where": "id > 0"}])
def test_rows_that_a_trigger_does_not_take_are_counted(
    connect: Connect, target: PgPlace, options: dict[str, Any]
) -> None:
    function = target.table[:-1] + '_even"'
    made(
        target,
        "CREATE TABLE OUT (id bigint)",
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.id % 2 = 1 THEN RETURN NULL; END IF; RETURN NEW; END'",
        f"CREATE TRIGGER even BEFORE INSERT ON OUT FOR EACH ROW EXECUTE FUNCTION {function}()",
    )

    result = PostgresSink(connect, spec(target, **options), ()).write(
        pa.table({"id": [1, 2, 3]}), receipt(1)
    )

    assert target.rows() == [{"id": 2}]
    assert (result.rows_written, result.metrics["rows_left_out"]) == (1, "2")


def test_types_that_differ_are_refused_with_the_difference(
    connect: Connect, target: PgPlace
) -> None:
    target.query(f"CREATE TABLE {target.table} (id int, at timestamptz, n int)")
    columns = {"id": pa.array([1]), "at": pa.array([AT], pa.timestamp("us")), "n": pa.array([1.5])}

    error = refused(connect, target, pa.table(columns))

    assert error.code == "FM-SINK-011"
    assert error.found == (
        "at: timestamp[us] in the rows, timestamp with time zone in the target;"
        " n: double in the rows, integer in the target"
    )


def test_other_types_read_their_text_form(connect: Connect, target: PgPlace) -> None:
    target.query(
        f"CREATE TABLE {target.table} (id uuid, doc jsonb, n int, r oid GENERATED ALWAYS AS (1) STORED)"
    )
    one = "12345678-1234-5678-1234-567812345678"
    frame = pa.table({"ID": [one, None], "doc": ['{"a": [1]}', None], "n": [1, 2]})

    PostgresSink(connect, spec(target), ()).write(frame, receipt(1))

    rows = target.query(f"SELECT id::text, doc->'a' AS a, n FROM {target.table} ORDER BY n")
    assert rows == [{"id": one, "a": [1], "n": 1}, {"id": None, "a": None, "n": 2}]


@pytest.mark.parametrize("name", ["", "a.b.c", "x" * 64, 'open"quote', '"'])
def test_what_is_no_name_of_a_table_is_refused(connect: Connect, name: str) -> None:
    with pytest.raises(SinkError) as caught:
        PostgresSink(connect, WriteSpec(f"shop:{name}", "append", "out"), ()).committed(receipt(1))

    assert caught.value.code == "FM-SINK-005"


def test_views_and_long_column_names_and_lists_are_refused(connect: Connect, lake: PgLake) -> None:
    view, new = lake / "seen", lake / "new"
    view.query(f"CREATE VIEW {view.table} AS SELECT 1 AS id")
    frame = pa.table({"id": [1]})

    assert refused(connect, view, frame).code == "FM-SINK-005"
    assert refused(connect, new, pa.table({"x" * 64: [1]})).code == "FM-SINK-011"
    assert refused(connect, new, pa.table({"x": [[1]]})).code == "FM-SINK-011"
    assert refused(connect, new, frame, partition_by=("id",)).code == "FM-SINK-011"
    assert not new.exists()


def test_an_unknown_change_type_is_refused(connect: Connect, target: PgPlace) -> None:
    frame = pa.table(
        {"id": [1, 2], "_change_type": ["insert", "upsert"], "_commit_version": [1, 1]}
    )

    error = refused(connect, target, frame, mode="merge", keys=("id",))

    assert error.found == "row 2, column _change_type: not a change type of Delta"
    assert not target.exists()


keys = st.sampled_from([None, 1, 2, 3])
staged = st.lists(
    st.tuples(
        keys,
        keys,
        st.integers(0, 3),
        st.sampled_from(["insert", "update_preimage", "update_postimage", "delete"]),
        st.integers(1, 3),
    ),
    max_size=12,
)


@pytest.mark.parametrize("deletes", ["apply", "soft", "ignore"])
@SHARED
@given(staged, staged, st.sampled_from([None, "n"]))
def test_merges_do_what_the_plain_oracle_does(  # noqa: PLR0917 - fixtures and drawn values
    connect: Connect,
    target: PgPlace,
    deletes: Any,
    first: list[Any],
    second: list[Any],
    sequence: str | None,
) -> None:
    target.query(f"DROP TABLE IF EXISTS {target.table}")
    chosen = spec(target, "merge", keys=("a", "b"), deletes=deletes, sequence_by=sequence)
    names = ["a", "b", "n", *CHANGE_COLUMNS]
    kinds = [pa.int64()] * 3 + [pa.string(), pa.int64(), pa.timestamp("us", "UTC")]
    expected: dict[Any, Any] = {}

    previous = None
    for seq, rows in enumerate((first, second), start=1):
        listed = [dict(zip(names, (*row, AT), strict=True)) for row in rows]
        frame = pa.Table.from_pylist(listed, pa.schema(list(zip(names, kinds, strict=True))))
        sink = PostgresSink(connect, chosen, (window("feed", "update"),), previous)
        done = sink.write(frame, receipt(seq))
        previous = SinkDone(
            "out", receipt(seq).app_id, str(target), done.table_id, done.version, None, seq
        )
        merged(expected, listed, deletes, sequence)

    found = {(r["a"], r["b"]): (r["n"], bool(r.get("is_deleted"))) for r in target.rows()}
    assert found == expected
    assert len(target.rows()) == len(found)


def merged(state: dict[Any, Any], rows: list[Any], deletes: str, sequence: str | None) -> None:
    """The oracle; rows of one claim differ in nothing that it keeps, or the case is skipped."""
    if deletes == "ignore":
        rows = [r for r in rows if r["_change_type"] in ("insert", "update_postimage")]
    last = last_changes(rows, ["a", "b"], sequence)
    assume_decided(rows, last.ties)
    for row in last.winners:
        key = (row["a"], row["b"])
        is_gone = row["_change_type"] not in ("insert", "update_postimage")
        old = state.get(key)
        if old is not None and sequence and row["n"] < old[0]:
            continue
        if not is_gone:
            state[key] = (row["n"], False)
        elif deletes == "soft":
            state[key] = (row["n"], True)
        else:
            state.pop(key, None)


def assume_decided(rows: list[Any], ties: list[Any]) -> None:
    """Which of two tied rows wins is each engine's own choice."""
    from hypothesis import assume

    for tie in ties:
        values = {r["n"] for r in rows if all(r[key] == tie[key] for key in tie)}
        assume(len(values) == 1)


class Unheard(psycopg.Connection[Any]):
    """A connection whose COMMIT happens, and whose answer never arrives."""

    def commit(self) -> None:
        super().commit()
        self._break()

    def _break(self) -> None:
        self.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


class Cut(Unheard):
    """A connection that breaks before COMMIT reaches the server."""

    def commit(self) -> None:
        self._break()


@pytest.fixture
def known(connect: Connect, target: PgPlace) -> SinkDone:
    """A target with one row of a first batch."""
    done = PostgresSink(connect, spec(target), ()).write(pa.table({"id": [0]}), receipt(1))
    return SinkDone("out", receipt(1).app_id, str(target), done.table_id, done.version, None, 1)


@pytest.mark.parametrize("kind", [Unheard, Cut])
def test_a_commit_without_an_answer_is_decided_by_the_receipt(
    postgres: PostgresServer,
    connect: Connect,
    target: PgPlace,
    known: SinkDone,
    kind: type[Unheard],
) -> None:
    sink = PostgresSink(lambda: kind.connect(postgres.dsn), spec(target), (), known)
    frame = pa.table({"id": [1]})

    if kind is Unheard:
        assert not sink.write(frame, receipt(2)).already_applied
    else:
        with pytest.raises(SinkError) as caught:
            sink.write(frame, receipt(2))
        assert (caught.value.code, caught.value.retryable) == ("FM-SINK-019", True)
    again = PostgresSink(connect, spec(target), (), known).write(frame, receipt(2))

    assert again.already_applied == (kind is Unheard)
    assert sorted(row["id"] for row in target.rows()) == [0, 1]


def test_a_server_that_is_gone_after_the_commit_leaves_the_outcome_open(
    postgres: PostgresServer, connect: Connect, target: PgPlace, known: SinkDone
) -> None:
    openings = [psycopg.Connection, Unheard]

    def flaky() -> Connection:
        """One to look, one to write, and then nobody is there."""
        if openings:
            return openings.pop(0).connect(postgres.dsn)
        return psycopg.connect("host=127.0.0.1 port=1 connect_timeout=2")

    frame = pa.table({"id": [1]})
    with pytest.raises(SinkError) as caught:
        PostgresSink(flaky, spec(target), (), known).write(frame, receipt(2))
    again = PostgresSink(connect, spec(target), (), known).write(frame, receipt(2))

    assert (caught.value.code, caught.value.retryable) == ("FM-SINK-031", True)
    assert again.already_applied
    assert sorted(row["id"] for row in target.rows()) == [0, 1]


def test_a_killed_backend_rolls_everything_back(
    connect: Connect, target: PgPlace, known: SinkDone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches() -> Any:
        yield pa.record_batch({"id": pa.array([1])})
        target.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'floodmark' AND state <> 'idle'"
        )
        for _ in range(200):
            yield pa.record_batch({"id": pa.array(range(10_000))})

    monkeypatch.setattr(module, "record_batches", lambda frame: batches())
    sink = PostgresSink(connect, spec(target), (), known)
    with pytest.raises(SinkError) as caught:
        sink.write(pa.table({"id": [1]}), receipt(2))

    assert (caught.value.code, caught.value.retryable) == ("FM-SINK-019", True)
    assert target.rows() == [{"id": 0}]
    assert sink.committed(receipt(2)) is None


def test_a_server_that_does_not_answer_is_never_an_empty_target() -> None:
    nowhere = connector("host=127.0.0.1 port=1")

    with pytest.raises(SinkError) as caught:
        PostgresSink(nowhere, WriteSpec("shop:t", "append", "out"), ()).committed(receipt(1))

    assert (caught.value.code, caught.value.retryable) == ("FM-SINK-032", True)


def written(dsn: str, target: str, mode: Any) -> None:
    """One write of the second batch, for a process that is killed on the way."""
    keys = ("id",) if mode == "merge" else ()
    sink = PostgresSink(connector(dsn), WriteSpec(target, mode, "out", keys=keys), ())
    sink.write(pa.table({"id": [1, 2]}), receipt(2))


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        *((point, "merge") for point in failpoints.POSTGRES_POINTS),
        ("sink.before_commit", "append"),
        ("sink.before_commit", "overwrite"),
        ("sink.after_commit", "merge"),
    ],
)
def test_a_killed_process_leaves_all_or_nothing(
    postgres: PostgresServer, target: PgPlace, mode: str, point: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    armed = {"FLOODMARK_FAILPOINT": point}

    code = crash.run(written, postgres.dsn, str(target), mode, log=log, environment=armed)
    is_there = target.exists()
    written(postgres.dsn, str(target), mode)

    assert code == -signal.SIGKILL, log.read_text()
    assert is_there == (point == "sink.after_commit")
    assert sorted(row["id"] for row in target.rows()) == [1, 2]
    assert target.history() == [{receipt(2).app_id: 2}]


def test_a_table_restored_without_its_identity_is_not_taken_for_ours(
    connect: Connect, target: PgPlace
) -> None:
    sink = PostgresSink(connect, spec(target), ())
    sink.write(pa.table({"id": [1]}), receipt(1))
    target.lose()

    error = refused(connect, target, pa.table({"id": [1]}))

    assert error.code == "FM-SINK-007"
    assert "UPDATE" in (error.next or "")
    target.query((error.next or "").split("rows: ")[1].split(";")[0])
    assert sink.write(pa.table({"id": [1]}), receipt(1)).already_applied


def test_readers_see_the_old_rows_until_an_overwrite_is_committed(
    connect: Connect, target: PgPlace, known: SinkDone, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(failpoints, "reached", lambda point: seen.append((point, target.rows())))

    chosen = spec(target, "overwrite")
    PostgresSink(connect, chosen, (), known).write(pa.table({"id": [7]}), receipt(2))

    assert dict(seen)["sink.before_commit"] == [{"id": 0}]
    assert target.rows() == [{"id": 7}]


@pytest.mark.spark
def test_a_spark_frame_is_written_partition_by_partition(
    connect: Connect, target: PgPlace, lake: PgLake, spark: SparkSession
) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr(
        "id",
        "concat('é', id) AS name",
        "cast(id / 8 AS decimal(12, 3)) AS amount",
        "timestamp_micros(id * 1000001) AS at",
        "cast(null AS date) AS day",
    )

    appended = PostgresSink(connect, spec(target), ()).write(frame, receipt(1))
    merged = PostgresSink(connect, spec(lake / "m", "merge", keys=("id",)), ())
    counted = merged.write(frame.unionByName(frame.where("id < 10")), receipt(1))
    nested = refused(connect, lake / "n", frame.selectExpr("array(id) AS ids"))

    assert (appended.rows_written, counted.rows_written) == (1000, 1000)
    assert counted.metrics["ties"] == "10"
    row = target.query(f"SELECT * FROM {target.table} WHERE id = 999")[0]
    assert row["name"] == "é999"
    assert row["amount"] == Decimal("124.875")
    assert row["at"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=999 * 1000001)
    assert nested.found == "column ids is of type array<bigint>"
