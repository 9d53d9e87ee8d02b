"""Clean-up of dead letters by age: PostgreSQL and Delta alike."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support import crash

from floodmark import failpoints
from floodmark.engines.postgres_server import PostgresServer
from floodmark.errors import StreamError
from floodmark.streaming.batches import DeadLetter
from floodmark.streaming.delta_ledger import DEAD_LETTERS, DeltaLedger
from floodmark.streaming.ledger import Ledger

from .stream_places import StreamPlace, letter_table

pytestmark = pytest.mark.postgres


@dataclass
class Letters:
    """Dead letters of streams, which were written days ago."""

    ledger: Ledger | DeltaLedger
    place: StreamPlace

    def add(self, batch_id: int, days: float, stream_id: str = "it's") -> None:
        letter = DeadLetter("t", 0, batch_id, "value", "detail")
        if isinstance(self.ledger, Ledger):
            self.place.query(
                "INSERT INTO floodmark_dead_letters (stream_id, batch_id, reason, detail, created_at)"
                f" VALUES ('{stream_id.replace(chr(39), chr(39) * 2)}', {batch_id}, 'value', 'd',"
                f" now() - make_interval(secs => {days * 86_400}))"
            )
            return
        at = datetime.now(UTC) - timedelta(days=days)
        write_deltalake(self.path, letter_table([letter], batch_id, stream_id, at), mode="append")

    def left(self) -> list[int]:
        if isinstance(self.ledger, Ledger):
            rows = self.place.query("SELECT batch_id FROM floodmark_dead_letters")
            return sorted(row["batch_id"] for row in rows)
        return sorted(pa.table(DeltaTable(self.path).to_pyarrow_table())["batch_id"].to_pylist())

    @property
    def path(self) -> str:
        assert isinstance(self.ledger, DeltaLedger)
        return f"{self.ledger.path}{DEAD_LETTERS}"


@pytest.fixture(params=["postgres", "delta"])
def letters(
    request: pytest.FixtureRequest, postgres: PostgresServer, pg_schema: str, tmp_path: Path
) -> Iterator[Letters]:
    place = StreamPlace(postgres.dsn, pg_schema)
    ledger: Ledger | DeltaLedger = DeltaLedger(str(tmp_path / "numbers"), "it's")
    if request.param == "postgres":
        ledger = place.ledger("it's")
    ledger.ensure()
    yield Letters(ledger, place)
    ledger.close()


def test_old_letters_go_and_every_other_stays(letters: Letters) -> None:
    none_yet = letters.ledger.cleanup_dead_letters(0)
    for batch_id, days in ((0, 40), (1, 31), (2, 29), (3, 0)):
        letters.add(batch_id, days)
    letters.add(4, 40, "another")

    removed = [letters.ledger.cleanup_dead_letters(30) for _ in range(2)]

    assert (none_yet, removed) == (0, [2, 0])
    assert letters.left() == [2, 3, 4]


def test_messages_that_wait_stay_and_so_do_the_letters_of_their_batch(letters: Letters) -> None:
    if isinstance(letters.ledger, DeltaLedger):
        pytest.skip("a Delta target has no outbox")
    letters.add(0, 40)
    letters.add(1, 40)
    letters.place.query(
        "INSERT INTO floodmark_outbox (stream_id, batch_id, topic, created_at)"
        " VALUES ('it''s', 1, 'letters', now() - interval '40 days')"
    )

    assert letters.ledger.cleanup_dead_letters(30) == 1
    assert letters.left() == [1]
    assert letters.place.query("SELECT count(*) AS n FROM floodmark_outbox") == [{"n": 1}]


def clean(path: str, dsn: str, schema: str) -> None:
    ledger: Ledger | DeltaLedger = StreamPlace(dsn, schema).ledger("it's")
    if path:
        ledger = DeltaLedger(path, "it's")
    ledger.cleanup_dead_letters(30)
    ledger.close()


@pytest.mark.parametrize("point", failpoints.LETTER_POINTS)
def test_killed_in_the_middle_it_repeats_cleanly(
    letters: Letters, point: str, tmp_path: Path
) -> None:
    letters.add(0, 40)
    letters.add(1, 0)
    path = letters.ledger.path if isinstance(letters.ledger, DeltaLedger) else ""
    arguments = (path, letters.place.dsn, letters.place.schema)

    code = crash.run(
        clean, *arguments, log=tmp_path / "log", environment={"FLOODMARK_FAILPOINT": point}
    )
    half_way = letters.left()
    clean(*arguments)

    assert code == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert (half_way, letters.left()) == ([0, 1], [1])


def test_a_table_that_cannot_be_read_is_a_typed_error(letters: Letters) -> None:
    if isinstance(letters.ledger, Ledger):
        pytest.skip("what a database refuses is FM-STREAM-005")
    letters.add(0, 40)
    for file in Path(letters.path).glob("*.parquet"):
        file.write_bytes(b"no Parquet")

    with pytest.raises(StreamError) as caught:
        letters.ledger.cleanup_dead_letters(30)

    assert caught.value.code == "FM-STREAM-053"
