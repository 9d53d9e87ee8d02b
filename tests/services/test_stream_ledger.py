"""The memory of a stream, on a real server: nothing lost, nothing twice, whoever dies when."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.contract.ledger_places import Unheard
from tests.services.stream_places import ME, StreamPlace, at, batch, committed, put
from tests.support import crash

from floodmark import failpoints
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import StreamError
from floodmark.postgres import connector
from floodmark.streaming.ledger import postgres as module
from floodmark.streaming.ledger.postgres import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    DeadLetter,
    LoadCounts,
    Loaded,
    OutboxMessage,
    PostgresLedger,
)
from floodmark.streaming.ledger.tables import TABLES, TRACKER, grants

if TYPE_CHECKING:
    from floodmark.postgres import Connection, Cursor

pytestmark = pytest.mark.postgres

MONITORING = Path(__file__).parents[1] / "fixtures" / "seed_004_monitoring.sql"
SEED_TABLE = """CREATE TABLE batch_tracker (
  pipeline_id VARCHAR(255) NOT NULL,
  batch_id BIGINT NOT NULL,
  processed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  record_count BIGINT,
  checkpoint_location VARCHAR(500),
  PRIMARY KEY (pipeline_id, batch_id)
)"""


@pytest.fixture
def place(postgres: PostgresServer, pg_schema: str) -> StreamPlace:
    found = StreamPlace(postgres.dsn, pg_schema)
    found.query("CREATE TABLE numbers (n bigint)")
    return found


@pytest.fixture
def ledger(place: StreamPlace) -> Iterator[PostgresLedger]:
    made = place.ledger()
    made.ensure()
    yield made
    made.close()


@pytest.fixture
def claim(ledger: PostgresLedger) -> Claim:
    return ledger.claim(ME, ledger.stored())


def refused(ledger: PostgresLedger, claim: Claim, place: StreamPlace, *where: int) -> StreamError:
    with pytest.raises(StreamError) as caught:
        committed(ledger, claim, place.table, *where)
    return caught.value


def test_a_batch_is_there_with_its_offsets_and_its_row_of_the_tracker(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    late = datetime(2026, 1, 1, tzinfo=UTC)
    planned = batch(claim, 0, 0, 3, spark_batch_id=7, checkpoint="/c" * 400, event_watermark=late)

    done = ledger.commit(claim, planned, lambda cursor: put(cursor, place.table, range(3)))

    stored = ledger.stored()
    assert done == Applied(0, LoadCounts(3, 3))
    assert stored is not None
    assert (stored.end_offsets, stored.batch_id, stored.spark_batch_id) == (at(3), 0, 7)
    assert stored.event_watermark == late
    (row,) = place.tracker()
    assert (row["record_count"], row["written"], row["incarnation"]) == (3, 3, 1)
    assert (row["start_offsets"], row["end_offsets"]) == ({"t": {"0": 0}}, {"t": {"0": 3}})
    assert row["checkpoint_location"] == ("/c" * 400)[:500]


def test_a_restored_row_with_the_same_epoch_is_still_another_claim(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    place.query("UPDATE floodmark_stream SET epoch = epoch - 1, claim_id = 'older'")
    other = place.ledger()
    taken = other.claim(ME, other.stored())

    assert taken.epoch == claim.epoch
    assert refused(ledger, claim, place, 0, 0, 3).code == "FM-STREAM-001"
    other.close()


def test_a_row_that_is_gone_fences_too(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    place.query("DELETE FROM floodmark_stream")

    assert refused(ledger, claim, place, 0, 0, 3).code == "FM-STREAM-001"


def test_a_runner_that_hangs_in_its_batch_is_ended_by_the_next_one(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAKEOVER_SECONDS", 0.2)
    monkeypatch.setattr(module, "CLAIM_ATTEMPTS", 40)
    other = place.ledger()
    taken = []

    def hang(cursor: Cursor) -> Loaded:
        loaded = put(cursor, place.table, [0])
        taken.append(other.claim(ME, other.stored()))
        return loaded

    with pytest.raises(StreamError) as caught:
        ledger.commit(claim, batch(claim, 0, 0, 1), hang)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-005", True)
    assert refused(ledger, claim, place, 0, 0, 1).code == "FM-STREAM-001"
    assert isinstance(committed(other, taken[0], place.table, 0, 0, 1), Applied)
    assert place.numbers() == [0]
    other.close()


def test_dead_letters_and_outbox_come_with_the_batch(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    letter = DeadLetter("t", 0, 1, "22003", "too \0 large", b"k", b"\0\xff", "n")
    counts = LoadCounts(3, 1, dead_lettered=1, dropped=1)
    outbox = [letter.message("failed", "numbers"), OutboxMessage("late", b"x")]

    def load(cursor: Cursor) -> Loaded:
        put(cursor, place.table, [0])
        return Loaded(counts, [letter], outbox)

    ledger.commit(claim, batch(claim, 0, 0, 3), load)

    (row,) = place.query("SELECT * FROM floodmark_dead_letters")
    assert (row["kafka_offset"], row["record_value"], row["reason"]) == (1, b"\0\xff", "22003")
    assert (row["detail"], row["column_name"], row["batch_id"]) == ("too \\0 large", "n", 0)
    sent = place.query("SELECT * FROM floodmark_outbox ORDER BY message_id")
    assert [(m["topic"], m["message_key"]) for m in sent] == [("failed", b"k"), ("late", None)]
    assert b'"value_base64": "AP8="' in sent[0]["message_value"]


@pytest.mark.parametrize(
    ("counts", "letters"), [(LoadCounts(3, 2), 0), (LoadCounts(3, 2, dead_lettered=1), 0)]
)
def test_a_record_that_is_not_accounted_for_rolls_the_batch_back(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim, counts: LoadCounts, letters: int
) -> None:
    def load(cursor: Cursor) -> Loaded:
        put(cursor, place.table, [0, 1])
        return Loaded(counts, [DeadLetter("t", 0, 0, "value", "")] * letters)

    with pytest.raises(StreamError) as caught:
        ledger.commit(claim, batch(claim, 0, 0, 3), load)

    assert caught.value.code == "FM-STREAM-007"
    assert place.numbers() == []
    assert isinstance(committed(ledger, claim, place.table, 0, 0, 3), Applied)


def test_our_commit_is_found_also_if_another_runner_has_gone_on(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    other = place.ledger()

    class Overtaken(psycopg.Connection[Any]):
        def commit(self) -> None:
            super().commit()
            self.close()
            taken = other.claim(ME, other.stored())
            committed(other, taken, place.table, 1, 3, 4)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    openings: list[Any] = [Overtaken, psycopg.Connection]
    slow = PostgresLedger(lambda: openings.pop(0).connect(place.dsn), "numbers", place.schema)

    assert isinstance(committed(slow, claim, place.table, 0, 0, 3), Applied)
    assert place.numbers() == [0, 1, 2, 3]
    other.close()


def test_a_server_that_is_gone_after_the_commit_leaves_the_outcome_open(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    openings = [Unheard]

    def flaky() -> Connection:
        if openings:
            return openings.pop().connect(place.dsn)
        return psycopg.connect("host=127.0.0.1 port=1 connect_timeout=2")

    error = refused(PostgresLedger(flaky, "numbers", place.schema), claim, place, 0, 0, 3)

    assert (error.code, error.retryable) == ("FM-STREAM-006", True)
    assert committed(ledger, claim, place.table, 0, 0, 3) == AlreadyApplied(0)


def test_a_connection_that_broke_between_two_batches_is_replaced(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    committed(ledger, claim, place.table, 0, 0, 3)
    ended = place.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'floodmark%'"
    )

    assert ended
    assert isinstance(committed(ledger, claim, place.table, 1, 3, 4), Applied)


def test_a_connection_that_breaks_within_a_batch_leaves_nothing(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    def load(cursor: Cursor) -> Loaded:
        put(cursor, place.table, [0])
        place.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'floodmark stream %'"
        )
        return put(cursor, place.table, [1])

    with pytest.raises(StreamError) as caught:
        ledger.commit(claim, batch(claim, 0, 0, 2), load)

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-005", True)
    assert isinstance(committed(ledger, claim, place.table, 0, 0, 2), Applied)
    assert place.numbers() == [0, 1]


def test_the_monitoring_of_the_seed_runs_unchanged(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    for number in range(3):
        committed(ledger, claim, place.table, number, number * 2, number * 2 + 2)
    place.query(
        "UPDATE batch_tracker SET processed_at = now() - interval '2 hours' WHERE batch_id < 2"
    )
    last, stale, rate, gaps = [
        place.query(statement)
        for statement in MONITORING.read_text().split(";")
        if statement.strip()
    ]

    assert [(r["pipeline_id"], r["last_batch_id"], int(r["total_records"])) for r in last] == [
        ("numbers", 2, 6)
    ]
    assert stale == []
    assert [(r["batches_per_minute"], int(r["records_per_minute"])) for r in rate] == [(1, 2)]
    assert gaps == []


def test_batches_stay_known_when_their_rows_are_cleaned_up(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    for number in range(3):
        committed(ledger, claim, place.table, number, number, number + 1)
    before = ledger.stored()
    place.query(
        "UPDATE batch_tracker SET processed_at = now() - interval '31 days' WHERE batch_id < 2"
    )

    removed = (ledger.cleanup(30), ledger.cleanup(30))

    assert removed == (2, 0)
    assert ledger.tracked() == ledger.history().batches == 1
    assert ledger.cleanup(0) == 0  # by the last one an older copy of the row is known
    assert ledger.stored() == before
    assert committed(ledger, claim, place.table, 2, 2, 3) == AlreadyApplied(2)
    assert place.numbers() == [0, 1, 2]


def test_clean_up_is_for_one_stream(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    other = place.ledger("others")
    taken = other.claim(ME, None)
    committed(other, taken, place.table, 0, 0, 1)

    assert ledger.cleanup(0) == 0
    assert other.tracked() == 1
    other.close()


def test_a_tracker_of_the_seed_is_taken_over_and_counts_on(place: StreamPlace) -> None:
    place.query(SEED_TABLE)
    place.query("INSERT INTO batch_tracker VALUES ('numbers', 41, now(), 5, '/c')")
    ledger = place.ledger()
    ledger.ensure()
    ledger.ensure(creates=False)
    assert (ledger.stored(), ledger.tracked()) == (None, 1)

    claim = ledger.claim(ME, ledger.stored())
    committed(ledger, claim, place.table, claim.next_batch_id, 0, 2)

    assert [row["batch_id"] for row in place.tracker()] == [41, 42]
    ledger.close()


def test_without_exactly_once_a_batch_is_written_again_and_the_stream_goes_on_exactly_later(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    committed(ledger, claim, place.table, 0, 0, 2)
    off = ledger.claim(ClaimFacts(holder="test", exactly_once=False), ledger.stored())

    committed(ledger, off, place.table, 1, 2, 4)
    committed(ledger, off, place.table, 2, 2, 4)
    flagged = ledger.stored()
    on = ledger.claim(ME, flagged)
    gap = refused(ledger, on, place, 3, 5, 6)
    committed(ledger, on, place.table, 3, 4, 6)

    assert flagged is not None
    assert (flagged.exactly_once, flagged.end_offsets) == (False, at(4))
    assert gap.code == "FM-STREAM-002"
    assert place.numbers() == [0, 1, 2, 2, 3, 3, 4, 5]
    assert [row["batch_id"] for row in place.tracker()] == [0, 3]


def test_without_exactly_once_a_batch_is_repeated_under_its_old_number(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    """Spark repeats a micro-batch that it does not know to be done: killed behind the COMMIT."""
    committed(ledger, claim, place.table, 0, 0, 2)
    off = ledger.claim(ClaimFacts(holder="test", exactly_once=False), ledger.stored())
    deaf = PostgresLedger(lambda: Unheard.connect(place.dsn), "numbers", place.schema)

    first = committed(ledger, off, place.table, 1, 2, 4)
    repeated = [committed(each, off, place.table, 1, 2, 4) for each in (ledger, deaf, ledger)]

    assert [first, *repeated] == [Applied(n, LoadCounts(2, 2)) for n in (1, 2, 3, 4)]
    assert place.numbers() == [0, 1, *[2] * 4, *[3] * 4]
    row = ledger.stored()
    assert row is not None
    assert (row.batch_id, row.end_offsets) == (4, at(4))


def test_letters_of_messages_that_wait_stay(place: StreamPlace, ledger: PostgresLedger) -> None:
    for number in (0, 1):
        place.query(
            "INSERT INTO floodmark_dead_letters (stream_id, batch_id, reason, detail, created_at)"
            f" VALUES ('numbers', {number}, 'value', 'd', now() - interval '40 days')"
        )
    place.query(
        "INSERT INTO floodmark_outbox (stream_id, batch_id, topic, created_at)"
        " VALUES ('numbers', 1, 'letters', now() - interval '40 days')"
    )

    assert ledger.cleanup_dead_letters(30) == 1
    assert place.query("SELECT batch_id FROM floodmark_dead_letters") == [{"batch_id": 1}]
    assert place.query("SELECT count(*) AS n FROM floodmark_outbox") == [{"n": 1}]


def test_offsets_moved_by_decision_are_noted_and_keep_the_tracker_whole(
    place: StreamPlace, ledger: PostgresLedger, claim: Claim
) -> None:
    committed(ledger, claim, place.table, 0, 0, 2)

    skipped = ledger.move(claim, at(10), "skip-to-earliest: 8 records lost")
    committed(ledger, skipped, place.table, 2, 10, 11)
    begun = ledger.move(skipped, None, "reset")

    ends = [(row["start_offsets"]["t"]["0"], row["note"]) for row in place.tracker()[:3]]
    assert ends == [(0, None), (2, "skip-to-earliest: 8 records lost"), (10, None)]
    assert (skipped.incarnation, begun.incarnation, begun.end_offsets) == (2, 3, None)
    assert begun.next_batch_id == 4


def test_missing_tables_are_named_and_created_only_when_asked(place: StreamPlace) -> None:
    ledger = place.ledger()

    for attempt in (lambda: ledger.ensure(creates=False), ledger.stored):
        with pytest.raises(StreamError) as caught:
            attempt()
        assert caught.value.code == "FM-STREAM-004"

    ledger.ensure()
    assert ledger.stored() is None
    ledger.close()


def test_runners_that_create_the_tables_at_once_do_not_meet(place: StreamPlace) -> None:
    found: list[BaseException] = []

    def create() -> None:
        mine = place.ledger()
        try:
            mine.ensure()
        except StreamError as error:
            found.append(error)
        mine.close()

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == []


@pytest.fixture
def role(postgres: PostgresServer, pg_schema: str) -> Iterator[str]:
    name = f"writer {pg_schema[-4:-1]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'secret'".encode())
        connection.execute(f"REVOKE TEMPORARY ON DATABASE {postgres.database} FROM PUBLIC".encode())
        yield name
        connection.execute(f"GRANT TEMPORARY ON DATABASE {postgres.database} TO PUBLIC".encode())
        connection.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"'.encode())


def test_the_documented_grants_are_enough(
    postgres: PostgresServer, place: StreamPlace, role: str
) -> None:
    place.ledger().ensure()
    dsn = f"{postgres.dsn} user='{role}' password=secret"
    poor = place.ledger(dsn=dsn)
    with pytest.raises(StreamError) as caught:
        poor.stored()
    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-005", False)

    for statement in grants(
        role, postgres.database, place.schema, (place.schema, "numbers"), "append"
    ):
        place.query(statement)
    poor.ensure()
    claim = poor.claim(ME, poor.stored())
    letter = DeadLetter("t", 0, 1, "value", "no")

    def load(cursor: Cursor) -> Loaded:
        put(cursor, place.table, [0])
        return Loaded(LoadCounts(2, 1, 1), [letter], [letter.message("dlq", "numbers")])

    assert isinstance(poor.commit(claim, batch(claim, 0, 0, 2), load), Applied)
    assert committed(poor, claim, place.table, 1, 2, 3) == Applied(1, LoadCounts(1, 1))
    assert (poor.cleanup(0), poor.history().batches) == (1, 1)
    poor.close()


def test_a_role_that_may_not_create_tables_is_told_which_are_missing(
    postgres: PostgresServer, place: StreamPlace, role: str
) -> None:
    place.query(f'GRANT USAGE ON SCHEMA "{place.path}" TO "{role}"')
    poor = place.ledger(dsn=f"{postgres.dsn} user='{role}' password=secret")

    with pytest.raises(StreamError) as caught:
        poor.ensure()

    assert caught.value.code == "FM-STREAM-004"
    poor.close()


def written(dsn: str, schema: str) -> None:
    """A runner: claims, then writes two batches from where the stream stands."""
    ledger = StreamPlace(dsn, schema).ledger()
    table = StreamPlace(dsn, schema).table
    claim = ledger.claim(ME, ledger.stored())
    start = claim.end_offsets.at(("t", 0)) if claim.end_offsets else 0
    for number in range(claim.next_batch_id, 2):
        committed(ledger, claim, table, number, start, start + 3)
        start += 3
    ledger.close()


OF_OTHERS = ("stream.mid_copy", "stream.after_return")
OF_THE_LEDGER = [point for point in failpoints.STREAM_POINTS if point not in OF_OTHERS]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", OF_THE_LEDGER)
def test_killed_anywhere_and_started_again_it_ends_as_if_nothing_had_happened(
    place: StreamPlace, ledger: PostgresLedger, point: str, count: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    armed = {"FLOODMARK_FAILPOINT": f"{point}:{count}"}

    code = crash.run(written, place.dsn, place.schema, log=log, environment=armed)
    half_way = place.numbers()
    written(place.dsn, place.schema)

    assert code == -signal.SIGKILL, log.read_text()
    is_committed = count - 1 + (point == "stream.after_commit")
    assert half_way == list(range(3 * is_committed))
    assert place.numbers() == list(range(6))
    rows = [(r["batch_id"], r["record_count"], r["end_offsets"]) for r in place.tracker()]
    assert rows == [(0, 3, {"t": {"0": 3}}), (1, 3, {"t": {"0": 6}})]


def test_the_columns_of_the_seed_are_there_by_their_names() -> None:
    names = [name for name, _ in TRACKER.columns]

    assert names[:5] == [
        "pipeline_id",
        "batch_id",
        "processed_at",
        "record_count",
        "checkpoint_location",
    ]
    assert TRACKER.key == "pipeline_id, batch_id"
    assert len(TABLES) == 5


def test_a_server_that_does_not_answer_is_never_a_fresh_stream() -> None:
    nowhere = PostgresLedger(connector("host=127.0.0.1 port=1"), "numbers")

    with pytest.raises(StreamError) as caught:
        nowhere.stored()

    assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-005", True)


def test_the_guide_lists_the_grants() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "streams.md").read_text()

    for statement in grants("etl_writer", "db", "public", ("public", "events"), "append"):
        assert f"{statement};\n" in guide
