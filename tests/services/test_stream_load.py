"""Rows of a batch into a real PostgreSQL: all that fit, and a dead letter for each of the others."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from tests.services.stream_places import ME, StreamPlace, at, batch
from tests.support import crash

from floodmark import failpoints
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import StreamError
from floodmark.postgres import run
from floodmark.postgres.transactions import fault, is_of_rows, savepoint
from floodmark.streaming.ledger.batches import DeadLetter, LoadCounts, Loaded
from floodmark.streaming.ledger.postgres import AlreadyApplied, Applied, Claim, PostgresLedger
from floodmark.streaming.ledger.tables import RESET, grants, written_query
from floodmark.streaming.load.rows import PostgresLoad
from floodmark.streaming.load.target import TargetSpec

if TYPE_CHECKING:
    from floodmark.postgres import Cursor

pytestmark = pytest.mark.postgres

BAD = 17
ROWS = 50
AT = datetime(2026, 1, 1, tzinfo=UTC)


def records(values: pa.Array | list[Any], name: str = "v", **more: Any) -> pa.Table:
    """A frame as it comes from Kafka: a number, a value, and where each row comes from."""
    count = len(values)
    columns = {
        "id": pa.array(range(count), pa.int64()),
        name: values if isinstance(values, pa.Array) else pa.array(values),
        "_topic": pa.array(["t"] * count),
        "_partition": pa.array([0] * count, pa.int32()),
        "_offset": pa.array(range(count), pa.int64()),
        "_timestamp": pa.array([AT] * count, pa.timestamp("us", "UTC")),
        "_value": pa.array([f"record {number}".encode() for number in range(count)]),
    }
    return pa.table({**columns, **more})


@dataclass
class Stage:
    """A stream that writes batch after batch into one target."""

    place: StreamPlace
    ledger: PostgresLedger
    claim: Claim
    number: int = 0

    def load(self, frame: pa.Table, mode: Any = "append", **options: Any) -> LoadCounts:
        done = self.commit(frame, PostgresLoad(self.spec(mode, **_of_spec(options)), **options))
        assert isinstance(done, Applied)
        return done.counts

    def commit(self, frame: pa.Table, load: PostgresLoad, **more: Any) -> Applied | AlreadyApplied:
        planned = batch(self.claim, self.number, 1000 * self.number, 1000 * (self.number + 1))
        done = self.ledger.commit(
            self.claim, planned, lambda cursor: load.apply(cursor, frame, **more)
        )
        self.number += 1
        return done

    def spec(self, mode: Any, **options: Any) -> TargetSpec:
        keys = ("id",) if mode == "upsert" else ()
        table = f'"{self.place.path}".target'
        return TargetSpec(table, mode, **{"keys": keys, **options})

    def refused(self, frame: pa.Table, mode: Any = "append", **options: Any) -> StreamError:
        with pytest.raises(StreamError) as caught:
            self.load(frame, mode, **options)
        return caught.value

    def rows(self, columns: str = "*") -> list[dict[str, Any]]:
        return self.place.query(f"SELECT {columns} FROM target ORDER BY 1")

    def letters(self) -> list[dict[str, Any]]:
        return self.place.query("SELECT * FROM floodmark_dead_letters ORDER BY kafka_offset")

    def table(self, *columns: str) -> None:
        self.place.query(f"CREATE TABLE target ({', '.join(columns)})")


def _of_spec(options: dict[str, Any]) -> dict[str, Any]:
    names = ("keys", "creates_table", "adds_columns", "written_if")
    return {name: options.pop(name) for name in names if name in options}


@pytest.fixture
def stage(postgres: PostgresServer, pg_schema: str) -> Iterator[Stage]:
    place = StreamPlace(postgres.dsn, pg_schema)
    ledger = place.ledger()
    ledger.ensure()
    yield Stage(place, ledger, ledger.claim(ME, None))
    ledger.close()


def with_bad(good: Any, bad: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([bad if row == BAD else good for row in range(ROWS)], kind)


def broken_text() -> pa.Array:
    """A text whose bytes are none: Spark hands on what Kafka has."""
    raw = [b"\xff\xfe" if row == BAD else b"1" for row in range(ROWS)]
    binary = pa.array(raw, pa.binary())
    return pa.Array.from_buffers(pa.string(), ROWS, binary.buffers())


def distinct(bad: int) -> pa.Array:
    return pa.array([bad if row == BAD else 1000 + row for row in range(ROWS)], pa.int32())


FAULTS: dict[str, tuple[str, pa.Array, str, str | None]] = {
    "nul": ("text", with_bad("a", "a\0b", pa.string()), "value", "v"),
    "utf-8": ("text", broken_text(), "value", "v"),
    "utf-8 of a type without binary form": ("jsonb", broken_text(), "value", "v"),
    "integer overflow": ("integer", with_bad(1, 2**31, pa.int64()), "value", "v"),
    "smallint overflow": ("smallint", with_bad(1, -(2**15) - 1, pa.int32()), "value", "v"),
    "numeric overflow": (
        "numeric(5,2)",
        with_bad(Decimal("1.00"), Decimal("1000.00"), pa.decimal128(12, 2)),
        "value",
        "v",
    ),
    "numeric scale": (
        "numeric(5,2)",
        with_bad(Decimal("1.000"), Decimal("1.001"), pa.decimal128(12, 3)),
        "value",
        "v",
    ),
    "year 10000": (
        "date",
        with_bad(1, 2_932_897, pa.int32()).cast(pa.date32()),
        "value",
        "v",
    ),
    "infinity": ("date", with_bad(1, 2**31 - 1, pa.int32()).cast(pa.date32()), "value", "v"),
    "instant of infinity": (
        "timestamptz",
        with_bad(1, -(2**63) + 1, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "value",
        "v",
    ),
    "too long": ("varchar(3)", with_bad("abc", "abcd", pa.string()), "value", "v"),
    "not null": ("text NOT NULL", with_bad("a", None, pa.string()), "value", "v"),
    "check": ("integer CHECK (v < 10)", with_bad(1, 10, pa.int32()), "23514", None),
    "unique within the batch": ("integer UNIQUE", distinct(1000), "23505", None),
    "foreign key": (
        "integer REFERENCES known DEFERRABLE INITIALLY DEFERRED",
        with_bad(1, 2, pa.int32()),
        "23503",
        None,
    ),
    "no uuid": ("uuid", with_bad("0" * 32, "no", pa.string()), "22P02", None),
    "no json": ("jsonb", with_bad("{}", "{", pa.string()), "22P02", None),
    "no search text": ("tsvector", with_bad("a", "'a", pa.string()), "42601", None),
    "no path": ("jsonpath", with_bad("$.a", "$.", pa.string()), "42601", None),
    "domain": ("positive", with_bad("1", "-1", pa.string()), "23514", None),
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_row_that_does_not_fit_becomes_a_dead_letter_and_the_others_are_written(
    stage: Stage, name: str, mode: str
) -> None:
    kind, values, reason, column = FAULTS[name]
    stage.place.query("CREATE TABLE known (k integer PRIMARY KEY); INSERT INTO known VALUES (1)")
    stage.place.query("CREATE DOMAIN positive AS integer CHECK (value > 0)")
    stage.table("id bigint PRIMARY KEY", f"v {kind}")

    counts = stage.load(records(values), mode)

    assert counts == LoadCounts(ROWS, ROWS - 1, 1)
    assert len(stage.rows()) == ROWS - 1
    (letter,) = stage.letters()
    at = letter["kafka_offset"]
    assert (letter["topic"], letter["kafka_partition"], letter["event_time"]) == ("t", 0, AT)
    assert letter["record_value"] == f"record {at}".encode()
    assert at == BAD or name == "unique within the batch"
    assert (letter["reason"], letter["column_name"]) == (reason, column), letter["detail"]


def test_good_rows_of_every_type_come_back_as_they_went(stage: Stage) -> None:
    stage.table(
        "id bigint", "v numeric(12,2)", "d date", "t text", "f float8", "b bytea", "j jsonb"
    )
    more = {
        "d": pa.array([date(9999, 12, 31), None]),
        "t": pa.array(["żółć", ""]),
        "f": pa.array([float("inf"), -0.5]),
        "b": pa.array([b"\0", None]),
        "j": pa.array(['{"a": 1}', None]),
    }

    counts = stage.load(records([Decimal("1.25"), None], **more))

    assert counts == LoadCounts(2, 2)
    first, second = stage.rows()
    assert list(first.values()) == [
        *(0, Decimal("1.25"), date(9999, 12, 31), "żółć", float("inf"), b"\0", {"a": 1})
    ]
    assert list(second.values()) == [1, None, None, "", -0.5, None, None]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_many_bad_rows_of_both_kinds_in_one_batch(stage: Stage, mode: str) -> None:
    stage.table("id bigint PRIMARY KEY", "v integer CHECK (v % 7 <> 0)")
    values = [2**40 if row % 11 == 0 else row for row in range(3_000)]
    refused = sum(row % 7 == 0 or row % 11 == 0 for row in range(3_000))

    counts = stage.load(records(pa.array(values, pa.int64())), mode)

    assert counts == LoadCounts(3_000, 3_000 - refused, refused)
    assert [row["id"] for row in stage.rows()] == [
        row for row in range(3_000) if row % 7 and row % 11
    ]
    assert len(stage.letters()) == refused


def test_a_batch_of_only_bad_rows_is_committed_with_its_dead_letters(stage: Stage) -> None:
    stage.table("id bigint", "v integer CHECK (v < 0)")

    assert stage.load(records([1, 2, 3])) == LoadCounts(3, 0, 3)
    assert stage.rows() == []


def test_an_empty_batch_is_committed(stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v bigint")
    nothing = records(pa.array([], pa.int64()))

    assert stage.load(nothing) == stage.load(nothing, "upsert") == LoadCounts(0, 0)


def test_one_bad_row_of_many_is_found_quickly(stage: Stage, full_size: bool) -> None:
    size = 1_000_000 if full_size else 100_000
    stage.table("id bigint", "v integer CHECK (v < 10)")
    values = [10 if row == size // 3 else 1 for row in range(size)]
    frame = records(pa.array(values, pa.int32()))
    started = time.monotonic()

    counts = stage.load(frame)

    assert counts == LoadCounts(size, size - 1, 1)
    assert time.monotonic() - started < 60


def test_rejects_and_dropped_records_are_counted_with_the_batch(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    reject = DeadLetter("t", 0, 9, "malformed", "no JSON", None, b"{")

    done = stage.commit(
        records([1, 2]), PostgresLoad(stage.spec("append")), rejects=[reject], dropped=3
    )

    assert done == Applied(0, LoadCounts(6, 2, 1, 3))
    assert stage.letters()[0]["record_value"] == b"{"


def test_without_bytes_the_row_itself_is_kept_as_json(stage: Stage) -> None:
    stage.table("id bigint", "v text", "d date")
    days = pa.array([1, 2**31 - 1], pa.int32()).cast(pa.date32())
    frame = records(["ok", "ż"], d=days).drop_columns(["_value"])

    stage.load(frame)

    kept = json.loads(stage.letters()[0]["record_value"])
    assert (kept["id"], kept["v"]) == (1, "ż")


def test_a_refused_record_may_have_been_sent_in_any_year(stage: Stage) -> None:
    stage.table("id bigint", "v integer")
    far = pa.array([1_700_000_000_000_000_000] * 2).cast(pa.timestamp("us", "UTC"))
    frame = records([1, 2**40])
    frame = frame.set_column(frame.schema.get_field_index("_timestamp"), "_timestamp", far)

    assert stage.load(frame) == LoadCounts(2, 1, 1)
    assert [letter["event_time"] for letter in stage.letters()] == [None]


CANARY = "4711-of-Mrs-Jones"
RAISES = {
    "P0001": "RAISE EXCEPTION 'no % here', NEW.v",
    "23514": "RAISE check_violation USING MESSAGE = 'bad ' || NEW.v, DETAIL = NEW.v, HINT = NEW.v",
    "XY123": "RAISE EXCEPTION USING ERRCODE = 'XY123', MESSAGE = NEW.v",
}


@pytest.mark.parametrize("state", RAISES)
def test_what_a_trigger_says_of_a_row_is_nowhere_but_in_the_record(
    stage: Stage, state: str
) -> None:
    stage.table("id bigint", "v text")
    stage.place.query(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.v LIKE '4711%'"
        f" THEN {RAISES[state]}; END IF; RETURN NEW; END $$;"
        " CREATE TRIGGER looks BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    frame = records(["good", CANARY])

    told = str(stage.refused(frame, fail_fast=True))
    counts = stage.load(frame)

    (letter,) = stage.letters()
    assert (counts, letter["reason"]) == (LoadCounts(2, 1, 1), state)
    assert state in told
    assert "4711" not in told + letter["detail"]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_trigger_that_is_broken_refuses_no_row_but_stops_the_stream(
    stage: Stage, mode: str
) -> None:
    """Its error is the same for every row: dead letters of all of them would help nobody."""
    stage.table("id bigint PRIMARY KEY", "v text")
    stage.place.query(
        "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO nowhere VALUES (NEW.v); RETURN NEW; END $$;"
        " CREATE TRIGGER fails BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION broken()"
    )

    error = stage.refused(records(["a", "b"]), mode)

    assert (error.code, error.details["sqlstate"]) == ("FM-STREAM-005", "42P01")
    assert not error.retryable
    assert (stage.rows(), stage.letters()) == ([], [])


def test_what_fails_without_rows_too_is_no_rows_fault(stage: Stage) -> None:
    no_text = "SELECT $1::text::tsvector"
    with psycopg.connect(stage.place.dsn) as connection:
        cursor = psycopg.RawCursor(connection)
        with pytest.raises(psycopg.errors.SyntaxError) as caught, savepoint(cursor):
            run(cursor, no_text, ("'a",))

        answers = [
            is_of_rows(cursor, caught.value, partial(run, cursor, no_text, (value,)))
            for value in ("'a", "a")
        ]

    assert fault(caught.value) == "unclear"
    assert answers == [False, True]


def test_a_row_that_a_policy_refuses_becomes_a_dead_letter(
    stage: Stage, postgres: PostgresServer
) -> None:
    """With the state of missing rights; COPY knows no policies, an upsert does."""
    stage.table("id bigint PRIMARY KEY", "v integer")
    stage.place.query(
        "ALTER TABLE target ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
        " CREATE POLICY small ON target USING (true) WITH CHECK (v < 10)"
    )
    stage.place.query("DROP ROLE IF EXISTS bounded")
    stage.place.query("CREATE ROLE bounded")
    path = stage.place.path
    stage.place.query(
        f'GRANT ALL ON SCHEMA "{path}" TO bounded;'
        f' GRANT ALL ON ALL TABLES IN SCHEMA "{path}" TO bounded'
    )
    frame = records(pa.array([1, 20, 3], pa.int32()))
    load = PostgresLoad(stage.spec("upsert"))
    planned = batch(stage.claim, 0, 0, 1000)

    def as_role(cursor: Any) -> Loaded:
        cursor.execute(b"SET LOCAL ROLE bounded")
        return load.apply(cursor, frame)

    done = stage.ledger.commit(stage.claim, planned, as_role)

    stage.place.query("DROP OWNED BY bounded; DROP ROLE bounded")
    assert isinstance(done, Applied)
    assert done.counts == LoadCounts(3, 2, 1)
    assert [letter["reason"] for letter in stage.letters()] == ["42501"]


def test_original_bytes_are_asked_for_where_the_frame_has_none(stage: Stage) -> None:
    stage.table("id bigint", "v integer CHECK (v < 10)")
    asked = []

    def originals(places: Any) -> Any:
        asked.extend(places)
        return dict.fromkeys(places, (b"key", b"as it was"))

    stage.load(records([1, 10, 2]).drop_columns(["_value"]), originals=originals)

    (letter,) = stage.letters()
    assert asked == [("t", 0, 1)]
    assert (letter["record_key"], letter["record_value"]) == (b"key", b"as it was")


@pytest.mark.parametrize("kind", ["smallint", "integer CHECK (v < 10)"])
def test_fail_fast_stops_at_the_first_refused_row_and_writes_nothing(
    stage: Stage, kind: str
) -> None:
    stage.table("id bigint", f"v {kind}")

    error = stage.refused(records(pa.array([1, 40_000, 2], pa.int32())), fail_fast=True)

    assert (error.code, error.retryable) == ("FM-STREAM-009", False)
    assert "t-0 offset 1" in (error.where or "")
    assert stage.rows() == stage.letters() == stage.place.tracker() == []


def test_a_connection_that_breaks_is_no_rows_fault(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    load = PostgresLoad(stage.spec("append"))

    def broken(cursor: Cursor) -> Loaded:
        stage.place.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'floodmark stream %'"
        )
        return load.apply(cursor, records([1, 2]))

    with pytest.raises(StreamError) as caught:
        stage.ledger.commit(stage.claim, batch(stage.claim, 0, 0, 2), broken)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-005", True)
    assert stage.load(records([1, 2])) == LoadCounts(2, 2)
    assert stage.letters() == []


def test_an_upsert_keeps_the_last_record_of_each_key_by_its_offset(stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v text")
    frame = records(["newest", "oldest", "middle", "other"]).set_column(
        0, "id", pa.array([1, 1, 1, 2], pa.int64())
    )
    frame = frame.set_column(4, "_offset", pa.array([30, 10, 20, 5], pa.int64()))

    counts = stage.load(frame, "upsert")
    again = stage.load(records(["first", "second", "third"]), "upsert")

    assert (counts, again) == (LoadCounts(4, 4, duplicates=2), LoadCounts(3, 3))
    assert [tuple(row.values()) for row in stage.rows()] == [
        (0, "first"),
        (1, "second"),
        (2, "third"),
    ]


def test_the_order_of_records_is_by_topic_partition_and_offset(stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v text")
    frame = records(["b0", "a1", "a0"]).set_column(0, "id", pa.array([1, 1, 1], pa.int64()))
    frame = frame.set_column(2, "_topic", pa.array(["b", "a", "a"]))
    frame = frame.set_column(3, "_partition", pa.array([0, 1, 0], pa.int32()))
    frame = frame.set_column(4, "_offset", pa.array([0, 1, 2], pa.int64()))

    stage.load(frame, "upsert")

    assert stage.rows() == [{"id": 1, "v": "b0"}]


def test_if_the_newest_record_of_a_key_is_refused_the_one_before_it_counts(stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v integer CHECK (v < 10)")
    frame = records([1, 2, 30, 40, 5]).set_column(0, "id", pa.array([1, 1, 1, 1, 2], pa.int64()))

    counts = stage.load(frame, "upsert")

    assert counts == LoadCounts(5, 3, 2, duplicates=1)
    assert [row["v"] for row in stage.rows()] == [2, 5]
    assert [letter["kafka_offset"] for letter in stage.letters()] == [2, 3]


def test_unique_values_that_change_places_are_written(stage: Stage) -> None:
    stage.table("id bigint PRIMARY KEY", "v integer UNIQUE")
    stage.load(records([10, 20]), "upsert")

    counts = stage.load(records([30, 10]), "upsert")

    assert counts == LoadCounts(2, 2)
    assert [row["v"] for row in stage.rows()] == [30, 10]


def test_a_key_that_somebody_else_inserts_meanwhile_is_updated(stage: Stage) -> None:
    """MERGE does not see it and would refuse the row."""
    stage.table("id bigint PRIMARY KEY", "v text")
    other = psycopg.connect(stage.place.dsn)
    other.execute(f"""INSERT INTO "{stage.place.path}".target VALUES (1, 'theirs')""".encode())
    counts: list[LoadCounts] = []
    load = threading.Thread(
        target=lambda: counts.append(stage.load(records(["a", "b", "c"]), "upsert"))
    )
    load.start()
    until_somebody_waits(stage)
    other.commit()
    load.join()
    other.close()

    assert counts == [LoadCounts(3, 3)]
    assert [row["v"] for row in stage.rows()] == ["a", "b", "c"]


def until_somebody_waits(stage: Stage) -> None:
    for _ in range(500):
        if stage.place.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            return
        time.sleep(0.02)
    raise AssertionError("nobody waits for the lock")


@pytest.mark.parametrize(
    "more",
    [
        "CREATE RULE nothing AS ON DELETE TO target DO ALSO NOTHING",
        'ALTER TABLE target ALTER id TYPE text COLLATE "C"',
    ],
)
def test_tables_that_merge_does_not_change_are_upserted(stage: Stage, more: str) -> None:
    stage.table("id text PRIMARY KEY", "v bigint")
    stage.place.query(more)
    frame = records([1, 2]).set_column(0, "id", pa.array(["a", "b"]))

    counts = [stage.load(frame, "upsert") for _ in range(2)]

    assert counts == [LoadCounts(2, 2)] * 2
    assert len(stage.rows()) == 2


def test_a_key_without_a_value_is_refused(stage: Stage) -> None:
    stage.table("id bigint UNIQUE", "v integer")
    frame = records([1, 2]).set_column(0, "id", pa.array([None, 2], pa.int64()))

    assert stage.load(frame, "upsert") == LoadCounts(2, 1, 1)
    assert stage.letters()[0]["column_name"] == "id"


def test_a_table_of_keys_alone_counts_what_is_there(stage: Stage) -> None:
    stage.table("id bigint", "v bigint", "PRIMARY KEY (v, id)")
    frame = records([1, 2])

    counts = [stage.load(frame, "upsert", keys=("id", "v")) for _ in range(2)]

    assert counts == [LoadCounts(2, 2)] * 2
    assert len(stage.rows()) == 2


def test_an_overwrite_replaces_what_is_there(stage: Stage) -> None:
    stage.table("id bigint", "v bigint")
    stage.load(records([1, 2, 3]), "overwrite")

    stage.load(records([4]), "overwrite")

    assert [row["v"] for row in stage.rows()] == [4]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_is_created_and_widened_when_asked(stage: Stage, mode: str) -> None:
    wide = records([1], extra=pa.array(["x"]))

    stage.load(records([1]), mode, creates_table=True)
    missing = stage.refused(wide, mode)
    stage.load(wide.set_column(0, "id", pa.array([5], pa.int64())), mode, adds_columns=True)

    assert missing.code == "FM-STREAM-008"
    assert "extra: not in the table" in (missing.found or "")
    assert stage.rows() == [{"id": 0, "v": 1, "extra": None}, {"id": 5, "v": 1, "extra": "x"}]


def test_every_difference_to_the_target_is_named_at_once(stage: Stage) -> None:
    stage.table("id text", "needed integer NOT NULL", "given integer NOT NULL DEFAULT 3")

    error = stage.refused(records([1]))

    assert error.code == "FM-STREAM-008"
    assert error.found == (
        "id: int64 in the stream, text in the table; v: not in the table;"
        " needed: NOT NULL without a default, and not in the stream"
    )
    assert stage.place.tracker() == []


@pytest.mark.parametrize(
    ("columns", "keys", "why"),
    [
        (("id bigint", "v bigint"), ("id",), "there is: none"),
        (("id bigint PRIMARY KEY", "v bigint"), ("id", "v"), "there is: id"),
        (("id bigint PRIMARY KEY", "v bigint"), (), "without keys"),
        (("id bigint PRIMARY KEY", "v bigint"), ("x",), "the key x"),
        (("id bigint UNIQUE DEFERRABLE", "v bigint"), ("id",), "there is: none"),
    ],
)
def test_an_upsert_asks_for_a_unique_index_on_its_keys(
    stage: Stage, columns: tuple[str, ...], keys: tuple[str, ...], why: str
) -> None:
    stage.table(*columns)

    error = stage.refused(records([1]), "upsert", keys=keys)

    assert error.code == "FM-STREAM-008"
    assert why in (error.found or "")


def test_a_missing_table_is_not_created_unasked(stage: Stage) -> None:
    assert "no such table" in (stage.refused(records([1])).found or "")


def test_a_table_that_is_gone_is_not_made_again_empty(stage: Stage) -> None:
    def moved(offset: int, note: str) -> None:
        stage.claim = stage.ledger.move(stage.claim, at(offset), note)
        stage.number = offset // 1000

    asked = (written_query(stage.ledger.schema), stage.ledger.stream_id)
    # Before anything is written the table may be made, also in a later incarnation.
    moved(1000, "begins at earliest")
    moved(2000, "rewind by somebody")
    stage.load(records([1]), creates_table=True, written_if=asked)
    stage.place.query("DROP TABLE target")

    gone = stage.refused(records([2]), creates_table=True, written_if=asked)
    moved(4000, f"{RESET} earliest by somebody")
    stage.load(records([3]), creates_table=True, written_if=asked)

    assert gone.code == "FM-STREAM-037"
    assert "reset --to earliest" in (gone.next or "")
    assert stage.rows("v") == [{"v": 3}]


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_the_documented_grants_are_enough_for_every_mode(
    postgres: PostgresServer, stage: Stage, mode: Any
) -> None:
    stage.table("id bigint PRIMARY KEY", "v integer CHECK (v < 10)")
    role = f"loader {stage.place.schema[-9:-1]}"
    place = stage.place
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE \"{role}\" LOGIN PASSWORD 'secret'".encode())
    place.query(f"REVOKE TEMPORARY ON DATABASE {postgres.database} FROM PUBLIC")
    try:
        target = (place.schema, "target")
        for statement in grants(role, postgres.database, place.schema, target, mode):
            place.query(statement)
        poor = place.ledger(dsn=f"{postgres.dsn} user='{role}' password=secret")
        taken = Stage(place, poor, poor.claim(ME, poor.stored()))
        assert taken.load(records([1, 10]), mode) == LoadCounts(2, 1, 1)
        poor.close()
    finally:
        place.query(f"GRANT TEMPORARY ON DATABASE {postgres.database} TO PUBLIC")
        place.query(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def loaded(dsn: str, schema: str, mode: Any) -> None:
    """A runner that writes two batches of three records, the second of them bad."""
    place = StreamPlace(dsn, schema)
    ledger = place.ledger()
    claim = ledger.claim(ME, ledger.stored())
    stage = Stage(place, ledger, claim, claim.next_batch_id)
    for number in range(claim.next_batch_id, 2):
        ids = pa.array([10 * number + row for row in range(3)], pa.int64())
        stage.load(records([1, 10, 2]).set_column(0, "id", ids), mode)
    ledger.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("point", failpoints.STREAM_POINTS[:-1])  # the last is the runner's
def test_killed_anywhere_and_started_again_it_ends_as_if_nothing_had_happened(
    stage: Stage, point: str, mode: str, tmp_path: Path
) -> None:
    stage.table("id bigint PRIMARY KEY", "v integer CHECK (v < 10)")
    log = tmp_path / "log"
    place = stage.place

    code = crash.run(
        loaded,
        place.dsn,
        place.schema,
        mode,
        log=log,
        environment={"FLOODMARK_FAILPOINT": f"{point}:2"},
    )
    loaded(place.dsn, place.schema, mode)

    assert code == -signal.SIGKILL, log.read_text()
    assert [row["id"] for row in stage.rows()] == [0, 2, 10, 12]
    assert [letter["batch_id"] for letter in stage.letters()] == [0, 1]
    counts = [
        (row["record_count"], row["written"], row["dead_lettered"]) for row in place.tracker()
    ]
    assert counts == [(3, 2, 1)] * 2
