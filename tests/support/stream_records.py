"""The numbered records that flow through tortured streams, and what has to become of each."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from tests.support.stream_judge import Fate, Position, Sent

from floodmark.engines.kafka import KafkaProducer, Record
from floodmark.errors import StreamError

TOPIC = "numbers"
PARTITIONS = 3
KEYS = 300
POISON_EVERY = 1_000
FIRST_NUMBERS = 20_000
"""Sent before the streams begin: the first two batches, which may know no late records, have only
these."""
SENT_AT_ONCE = 50
FLOW_PER_SECOND = 400
TICK = timedelta(milliseconds=10)
"""From the event of one number to that of the next."""
REPEATED_EVERY, REPEATED_AFTER = 10, 200
"""Where records are repeated: so many numbers from one to the next, and behind the first time."""

SCHEMA = "number BIGINT NOT NULL, key BIGINT NOT NULL, at TIMESTAMP, word STRING"
REFUSED = "refused"
"""A word that the tables of PostgreSQL refuse."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LATE = datetime(2020, 1, 1, tzinfo=UTC)
LAST = datetime(2040, 1, 1, tzinfo=UTC)
"""The event behind all others: it closes their windows."""


def record(number: int, *, at: datetime | None = None) -> Record:
    """The record of a number: one of a thousand is poison, one of a thousand is late.

    Poison has a key of its own: an upsert never tries a row that a later one of its key replaces in
    the same batch, so it would depend on the batches whether the database refuses it.
    """
    kind = number % POISON_EVERY
    key = number * 7919 % KEYS if kind else -number
    value = {
        "number": number,
        "key": key,
        "at": (at or EPOCH + TICK * number).isoformat(),
        "word": f"word {number}",
    }
    if kind == 0:
        return Record(TOPIC, _poison(number // POISON_EVERY, value), b"%d" % key, key % PARTITIONS)
    if kind == POISON_EVERY // 2 and number > FIRST_NUMBERS:
        value["at"] = LATE.isoformat()
    return Record(TOPIC, json.dumps(value).encode(), b"%d" % key, key % PARTITIONS)


def _poison(number: int, value: dict[str, Any]) -> bytes:
    """What no stream can write: no JSON, a column without a value, a row the database refuses."""
    kinds = (
        b"poison %d" % number,
        json.dumps({**value, "number": None}).encode(),
        json.dumps({**value, "word": REFUSED}).encode(),
    )
    return kinds[number % len(kinds)]


def sent_as(position: Position, value: bytes | None, *, refuses: bool = True) -> Sent:
    """What has to become of a record, by its bytes; `refuses` for a target that refuses a word."""
    try:
        said = json.loads(value or b"")
    except ValueError:
        return Sent(position, "poison")
    if said["number"] is None or (refuses and said["word"] == REFUSED):
        return Sent(position, "poison")
    at = datetime.fromisoformat(said["at"])
    fate: Fate = "late" if at == LATE else "row"
    return Sent(position, fate, said["number"], said["key"], at)


class Flow:
    """Sends numbered records from a thread of its own, for as long as the block runs."""

    def __init__(self, bootstrap: str, *, repeats: bool = False) -> None:
        self._producer = KafkaProducer({"bootstrap.servers": bootstrap})
        self._repeats = repeats
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)
        self.numbers = 0
        self.error: BaseException | None = None

    def send(self, count: int) -> None:
        """The next numbers; where records are repeated, earlier ones too."""
        last = self.numbers + count
        for first in range(self.numbers, last, SENT_AT_ONCE):
            numbers = range(first, min(last, first + SENT_AT_ONCE))
            again = (n - REPEATED_AFTER for n in numbers if n % REPEATED_EVERY == 3)
            repeated = [n for n in again if self._repeats and n >= 0]
            self._producer.send(record(n) for n in [*numbers, *repeated])
        self.numbers = last

    def close_windows(self) -> None:
        """One more record, behind all events there are."""
        number = self.numbers + POISON_EVERY - self.numbers % POISON_EVERY + 1
        self._producer.send([record(number, at=LAST)])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(SENT_AT_ONCE / FLOW_PER_SECOND):
                self.send(SENT_AT_ONCE)
        # The boundary of a thread: whoever judges tells it.
        except StreamError as error:
            self.error = error
