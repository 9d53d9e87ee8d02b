"""The dead letters beside a Delta target as an outbox, with a real broker: without Spark."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.services.stream_places import letter_table
from tests.support import crash

from floodmark.deltalog import is_delta_table
from floodmark.engines.kafka import KafkaAdmin, KafkaProducer, records_at
from floodmark.engines.kafka_server import KafkaServer
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import (
    Claim,
    ClaimFacts,
    DeadLetter,
    LoadCounts,
    StreamBatch,
)
from floodmark.streaming.ledger.delta import OUTBOX, DeltaLedger
from floodmark.streaming.outbox.delta import PIECE, DeltaOutbox, queried
from floodmark.streaming.outbox.relay import Relay

pytestmark = pytest.mark.kafka

FACTS = ClaimFacts("here", {"t": "id-1"}, "query-1", "checkpoint")
LARGEST = 30_000
"""What the topic of these tests takes; a dead letter of 25,000 bytes is larger in base64."""


@pytest.fixture
def admin(kafka: KafkaServer) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    name = f"letters-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, 1)
    yield name
    admin.delete_topic(name)


@pytest.fixture
def narrow_topic(admin: KafkaAdmin) -> Iterator[str]:
    name = f"letters-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, 1, {"max.message.bytes": str(LARGEST)})
    yield name
    admin.delete_topic(name)


class Stream:
    """A stream into a Delta table whose batches hold nothing but dead letters."""

    def __init__(self, path: str) -> None:
        self.ledger = DeltaLedger(path, "numbers")
        self.ledger.ensure()
        claim = self.ledger.claim(FACTS, self.ledger.stored())
        begin = Offsets.of({("t", 0): 0})
        self.claim: Claim = self.ledger.move(claim, begin, "begins", begins_incarnation=False)

    def letters(
        self, topic: str | None, offsets: Sequence[int], size: int = 5, **more: Any
    ) -> None:
        """Those of the next batch, without its rows."""
        value = b"{" + b"x" * size
        key = more.get("key", b"k")
        made = [DeadLetter("t", 0, n, "malformed", "no JSON", key, value) for n in offsets]
        number = self.claim.next_batch_id
        rows = letter_table(made, number, topic=topic, incarnation=self.claim.incarnation)
        for at in range(0, len(made), 1_000):
            write_deltalake(
                self.ledger.letters.path, rows.slice(at, 1_000), mode="append", schema_mode="merge"
            )

    def rows(self, end: int) -> None:
        """Commit the rows of the next batch, which there are none of."""
        claim = self.claim
        number, to = claim.next_batch_id, Offsets.of({("t", 0): end})
        batch = StreamBatch(number, claim.incarnation, claim.end_offsets or Offsets(), to, number)
        receipt = self.ledger.receipt(claim, batch, LoadCounts(1, 0, 1))
        properties = CommitProperties(
            custom_metadata={"userMetadata": receipt.user_metadata},
            app_transactions=[Transaction(receipt.app_id, receipt.seq)],
        )
        rows = pa.table({"id": [number]})
        write_deltalake(self.ledger.path, rows, mode="append", commit_properties=properties)
        self.claim = replace(claim, batch_id=number, end_offsets=to)

    def left(self) -> list[int]:
        """The offsets of the letters that are there."""
        rows = queried(DeltaTable(self.ledger.letters.path), "SELECT kafka_offset FROM t")
        return sorted(row["kafka_offset"] for row in rows)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(str(tmp_path / "events"))


def client(kafka: KafkaServer) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap, "topic.metadata.propagation.max.ms": 500}


def relay_of(stream: Stream, kafka: KafkaServer) -> Relay:
    """As of a new process."""
    outbox = DeltaOutbox(DeltaLedger(stream.ledger.path, "numbers"))
    return Relay(outbox, lambda: KafkaProducer(client(kafka), send_seconds=20))


def sent(admin: KafkaAdmin, kafka: KafkaServer, topic: str) -> list[dict[str, Any]]:
    end = admin.latest([topic]).at((topic, 0))
    found = records_at(client(kafka), [(topic, 0, n) for n in range(end)])
    return [json.loads(found[key][1] or b"") for key in sorted(found)]


def test_letters_go_out_once_their_batch_is_in_the_target(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    stream.letters(topic, [0, 1, 2])
    relay = relay_of(stream, kafka)
    before = relay.send()
    stream.rows(3)
    waiting = relay.waiting()
    left = relay.send()
    stream.letters(None, [3])  # of a time without a topic
    stream.rows(4)
    stream.letters(topic, [5])
    stream.rows(6)

    after = relay_of(stream, kafka).send()

    assert (before, waiting, left, after) == (0, 3, 0, 0)
    assert [each["offset"] for each in sent(admin, kafka, topic)] == [0, 1, 2, 5]


def test_messages_that_kafka_refuses_hold_up_no_other_one(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin, narrow_topic: str
) -> None:
    topic, absent = narrow_topic, f"{narrow_topic}-absent"
    stream.letters(absent, [0])
    stream.letters(topic, [1])
    stream.letters(topic, [2], 25_000)
    stream.letters(topic, [3], 1_200_000)
    # Not even without the bytes of its record: it waits for the next start, and is tried again.
    stream.letters(topic, [4], 5, key=b"k" * 40_000)
    stream.letters(topic, [5, 6, 7])
    stream.rows(8)
    relay = relay_of(stream, kafka)

    with pytest.raises(StreamError) as refusal:
        relay.send()

    told = {each["offset"]: each for each in sent(admin, kafka, topic)}
    assert (refusal.value.code, sorted(told)) == ("FM-STREAM-022", list(range(1, 8)))
    assert {n for n, each in told.items() if "left_out" in each} == {2, 3, 4}
    assert (told[3]["value_bytes"], told[3]["left_out"]) == (1_200_001, "MSG_SIZE_TOO_LARGE")
    assert relay.waiting() == 1
    admin.create_topic(absent, 1)
    assert relay_of(stream, kafka).send() == 0
    assert [each["offset"] for each in sent(admin, kafka, absent)] == [0]
    admin.delete_topic(absent)


def test_a_letter_that_the_broker_never_takes_waits_and_the_others_go_out(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin
) -> None:
    """A compacted topic takes no message without a key."""
    topic = f"letters-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic, 1, {"cleanup.policy": "compact"})
    stream.letters(topic, [0], key=None)
    stream.letters(topic, [1, 2])
    stream.rows(3)
    with pytest.raises(StreamError):
        relay_of(stream, kafka).send()
    first = [each["offset"] for each in sent(admin, kafka, topic)]
    again = relay_of(stream, kafka)
    waiting = again.waiting()
    with pytest.raises(StreamError):
        again.send()
    removed = stream.ledger.cleanup_dead_letters(0)
    there = stream.left()

    left = again.send()
    DeltaTable(stream.ledger.letters.path).delete()
    last = relay_of(stream, kafka).send()

    admin.delete_topic(topic)
    assert (first, waiting, left, last) == ([1, 2], 1, 1, 0)
    # The clean-up leaves the one that waits; what somebody takes out by hand waits no more.
    assert (removed, there) == (2, [0])


def test_a_broker_that_does_not_answer_leaves_every_letter_where_it_is(stream: Stream) -> None:
    stream.letters("t2", [0, 1, 2])
    stream.rows(3)
    silent = {"bootstrap.servers": "127.0.0.1:1"}
    relay = Relay(DeltaOutbox(stream.ledger), lambda: KafkaProducer(silent, send_seconds=1))

    with pytest.raises(StreamError) as silence:
        relay.send()

    assert (silence.value.retryable, relay.waiting(), relay.send()) == (True, 3, 3)
    assert not is_delta_table(stream.ledger.path + OUTBOX, stream.ledger.storage)


def send_all(path: str, bootstrap: str) -> None:
    outbox = DeltaOutbox(DeltaLedger(path, "numbers"))
    Relay(outbox, lambda: KafkaProducer({"bootstrap.servers": bootstrap})).send()


@pytest.mark.parametrize("point", ["dlq.before_relay", "dlq.after_send"])
def test_a_relay_that_is_killed_repeats_one_piece_at_most(
    stream: Stream, kafka: KafkaServer, topic: str, tmp_path: Path, point: str
) -> None:
    admin = KafkaAdmin(client(kafka))
    total = 3 * PIECE
    stream.letters(topic, range(total))
    stream.rows(total)

    code = crash.run(
        send_all,
        stream.ledger.path,
        kafka.bootstrap,
        log=tmp_path / "log",
        environment={"FLOODMARK_FAILPOINT": f"{point}:2"},
    )
    waited = relay_of(stream, kafka).waiting()
    left = relay_of(stream, kafka).send()

    offsets = [each["offset"] for each in sent(admin, kafka, topic)]
    repeated = PIECE if point == "dlq.after_send" else 0
    assert (code, waited, left) == (-signal.SIGKILL, total - PIECE, 0)
    assert (len(offsets), set(offsets)) == (total + repeated, set(range(total)))


def test_of_two_that_relay_at_once_none_moves_the_other_back(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    """One is between its send and its note when the other one sends everything."""
    total = 3 * PIECE
    stream.letters(topic, range(total))
    stream.rows(total)
    other = relay_of(stream, kafka)

    class Slow(KafkaProducer):
        def refusals(self, records: Any) -> Any:
            answer = super().refusals(records)
            other.send()
            return answer

    slow = Relay(DeltaOutbox(stream.ledger), lambda: Slow(client(kafka)))

    slow.send()

    offsets = [each["offset"] for each in sent(admin, kafka, topic)]
    assert (other.waiting(), slow.waiting()) == (0, 0)
    assert (len(offsets), set(offsets)) == (total + PIECE, set(range(total)))


def test_housekeeping_between_two_pieces_loses_and_repeats_nothing(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    stream.letters(topic, range(2 * PIECE))
    stream.rows(2 * PIECE)
    tables = [stream.ledger.letters.path, stream.ledger.path + OUTBOX]

    class Tidied(KafkaProducer):
        def refusals(self, records: Any) -> Any:
            for path in tables:
                if is_delta_table(path, stream.ledger.storage):
                    table = DeltaTable(path)
                    table.optimize.compact()
                    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            return super().refusals(records)

    outbox = DeltaOutbox(stream.ledger)
    # A compaction of the positions in between is a commit of somebody else: the next pass goes on.
    for _ in range(3):
        Relay(outbox, lambda: Tidied(client(kafka))).send()

    offsets = [each["offset"] for each in sent(admin, kafka, topic)]
    assert (outbox.waiting(), sorted(set(offsets))) == (0, list(range(2 * PIECE)))


def test_positions_that_are_lost_send_again_and_lose_nothing(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin, topic: str
) -> None:
    stream.letters(topic, [0, 1])
    stream.rows(2)
    relay_of(stream, kafka).send()
    shutil.rmtree(stream.ledger.path + OUTBOX)

    relay_of(stream, kafka).send()

    assert [each["offset"] for each in sent(admin, kafka, topic)] == [0, 1, 0, 1]


def test_a_clean_up_leaves_letters_that_wait_and_those_without_rows(
    stream: Stream, kafka: KafkaServer, topic: str
) -> None:
    stream.letters(topic, [0])
    stream.rows(1)
    relay_of(stream, kafka).send()
    stream.letters(topic, [1])
    stream.letters(None, [2])
    stream.rows(3)
    stream.letters(None, [3])

    removed = stream.ledger.cleanup_dead_letters(0)

    assert (removed, stream.left()) == (2, [1, 3])


def peak_of_relaying(path: str, bootstrap: str, told: str) -> None:
    def peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024

    outbox = DeltaOutbox(DeltaLedger(path, "numbers"))
    outbox.waiting()
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 20_000})
    before = peak()
    left = Relay(outbox, lambda: producer).send()
    Path(told).write_text(json.dumps([left, before, peak()]))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak of memory")
def test_many_letters_are_never_all_in_memory(
    stream: Stream, kafka: KafkaServer, admin: KafkaAdmin, tmp_path: Path
) -> None:
    """200 MB of them; a thousand are 10 MB, in a few copies."""
    topic, total, size = f"letters-{uuid.uuid4().hex[:8]}", 20_000, 10_000
    admin.create_topic(topic, 1)
    for first in range(0, total, 4_000):
        stream.letters(topic, range(first, first + 4_000), size)
        stream.rows(first + 4_000)
    told = tmp_path / "told"

    code = crash.run(
        peak_of_relaying, stream.ledger.path, kafka.bootstrap, str(told), log=tmp_path / "log"
    )

    assert code == 0, (tmp_path / "log").read_text()
    left, before, peak = json.loads(told.read_text())
    print(f"relaying {total * size // 10**6} MB of letters took {peak - before} MB")  # noqa: T201
    assert (left, admin.latest([topic]).at((topic, 0))) == (0, total)
    admin.delete_topic(topic)
    assert peak - before < 150
