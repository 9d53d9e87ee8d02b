"""Kafka's topics, offsets and records. The client is imported on first use.

Settings are those of librdkafka: `bootstrap.servers`, `security.protocol`, `sasl.username`, ...
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.engines.kafka_refusals import is_login_refused
from floodmark.errors import SetupError, StreamError
from floodmark.model.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError, Message

ANSWER_SECONDS = 15.0
SEND_SECONDS = 60.0
FAR_OFFSETS = 500
"""Further ahead than this, seeking is quicker than reading on."""
POLL_SECONDS = 0.02
HEAR_SECONDS = 1.0
"""How often somebody who waits listens for a refusal."""

# Losses of connections come back as errors of calls; on the terminal they help nobody.
_QUIET = {"log_level": 0, "log.connection.close": False}


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send; without a partition the key decides, as for every producer of Kafka."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Complaints:
    """What the client says beside its answers.

    A refused login or certificate is told here alone: the answers just do not come.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Called by the client, where it waits."""
        from confluent_kafka import KafkaError as Known

        refusals = (Known._AUTHENTICATION, Known._SSL, Known.SASL_AUTHENTICATION_FAILED)
        if error.code() in refusals:
            self._last = error

    @property
    def is_refused(self) -> bool:
        """Whether a login or certificate was refused."""
        return self._last is not None

    def forget(self) -> None:
        """Begin anew: what is told from here on is of what is asked now."""
        self._last = None

    def may_pass(self, error: KafkaError) -> bool:
        """Whether the same may succeed later; a login that looks refused is tried by ourselves."""
        from confluent_kafka import KafkaError as Known

        if error.code() == Known._AUTHENTICATION:
            return not is_login_refused(self._settings)
        return _is_retryable(error)

    def instead_of(self, error: KafkaError | None) -> KafkaError | None:
        """The refusal behind an answer that did not come, or the error itself."""
        from confluent_kafka import KafkaError as Known

        silent = (Known._TIMED_OUT, Known._MSG_TIMED_OUT, Known._TRANSPORT, Known._ALL_BROKERS_DOWN)
        is_silence = error is None or error.code() in silent
        return self._last or error if is_silence else error


class KafkaAdmin:
    """Looks at topics, and changes them when told to; connects when first asked.

    Every method raises StreamError FM-STREAM-020 where the broker does not answer or refuses
    (`retryable` as the client says), FM-STREAM-021 for a topic that is not there. Making one raises
    SetupError FM-SETUP-010 without the client.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        _require_client()
        from confluent_kafka.admin import AdminClient

        self._brokers = str(settings.get("bootstrap.servers", ""))
        self._seconds = answer_seconds
        self._complaints = Complaints(settings)
        self._client = AdminClient({**_QUIET, **settings, "error_cb": self._complaints})

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        """The id of each topic, new whenever one is made; None where the broker knows no ids."""
        return {name: _id(found) for name, found in self._described(topics).items()}

    def partitions(self, topics: Sequence[str]) -> frozenset[TopicPartition]:
        """Every partition that the topics have."""
        return frozenset(
            (name, partition.id)
            for name, found in self._described(topics).items()
            for partition in found.partitions
        )

    def earliest(self, topics: Sequence[str]) -> Offsets:
        """The first offset of each partition that can still be read."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topics, OffsetSpec.earliest(), committed=False)

    def latest(self, topics: Sequence[str], *, committed: bool = False) -> Offsets:
        """The offset behind the last record of each partition; with `committed` behind the last one
        that no open transaction precedes, which is where a reader of committed records stops.
        """
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topics, OffsetSpec.latest(), committed=committed)

    def create_topic(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic of one replica; FM-STREAM-020 if it is already there."""
        from confluent_kafka.admin import NewTopic

        wish = NewTopic(topic, partitions, 1, config=dict(settings or {}))
        self._wait(self._client.create_topics([wish], operation_timeout=self._seconds))
        self._until(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""
        self._wait(self._client.delete_topics([topic], operation_timeout=self._seconds))
        self._until(topic, 0)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions."""
        from confluent_kafka.admin import NewPartitions

        wish = NewPartitions(topic, total)
        self._wait(self._client.create_partitions([wish], operation_timeout=self._seconds))
        self._until(topic, total)

    def delete_records(self, before: Offsets) -> None:
        """Delete what lies before these offsets, as retention would."""
        from confluent_kafka import TopicPartition as Place

        places = [Place(topic, partition, offset) for (topic, partition), offset in before.items()]
        self._settled(lambda: self._client.delete_records(places, request_timeout=self._seconds))

    def _until(self, topic: str, partitions: int) -> None:
        """Wait until the broker shows what the controller has decided, which takes a moment."""
        deadline = time.monotonic() + self._seconds
        while self._count(topic) != partitions:
            if time.monotonic() > deadline:
                raise _late(self._brokers)
            time.sleep(POLL_SECONDS)

    def _count(self, topic: str) -> int:
        try:
            return len(self.partitions([topic]))
        except StreamError as error:
            if error.code != "FM-STREAM-021":
                raise
            return 0

    def _described(self, topics: Sequence[str]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        wanted = TopicCollection(list(dict.fromkeys(topics)))
        return self._wait(self._client.describe_topics(wanted, request_timeout=self._seconds))

    def _offsets(self, topics: Sequence[str], spec: Any, *, committed: bool) -> Offsets:
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as Place

        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {Place(*partition): spec for partition in self.partitions(topics)}
        answers = self._settled(
            lambda: self._client.list_offsets(
                wanted, isolation_level=level, request_timeout=self._seconds
            ),
            # While a broker starts, the client may say that there is no offset, and no error.
            is_answer=lambda said: said.offset >= 0,
        )
        return Offsets.of({(p.topic, p.partition): said.offset for p, said in answers.items()})

    def _settled(
        self,
        ask: Callable[[], Mapping[Any, Future[Any]]],
        is_answer: Callable[[Any], bool] = lambda _: True,
    ) -> dict[Any, Any]:
        """Ask again while leaders move: the client then looks for them anew."""
        from confluent_kafka import KafkaException

        self._complaints.forget()
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline:
            asked = ask()
            try:
                answers = {name: self._answer(future) for name, future in asked.items()}
                if all(map(is_answer, answers.values())):
                    return answers
            except TimeoutError:
                break
            except KafkaException as error:
                if error.args[0].code() not in _moving():
                    break
            time.sleep(POLL_SECONDS)
        answers = self._answers(asked)
        if not all(map(is_answer, answers.values())):
            raise _late(self._brokers)
        return answers

    def _wait(self, asked: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        self._complaints.forget()
        return self._answers(asked)

    def _answers(self, asked: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        return {name: self._told_answer(name, future) for name, future in asked.items()}

    def _told_answer(self, name: Any, future: Future[Any]) -> Any:
        topic = getattr(name, "topic", name)
        with _told(f"topic {topic} at {self._brokers}", self._complaints):
            return self._answer(future)

    def _answer(self, future: Future[Any]) -> Any:
        """What was asked for; a refusal ends the waiting, which the client itself would not."""
        # The client gives up by itself after the time it was told; this is for one that hangs.
        deadline = time.monotonic() + 2 * self._seconds
        while True:
            try:
                return future.result(HEAR_SECONDS)
            except TimeoutError:
                self._client.poll(0)
                if self._complaints.is_refused or time.monotonic() > deadline:
                    raise


class KafkaProducer:
    """Sends records and knows that they arrived: idempotent, acknowledged by all replicas."""

    def __init__(self, settings: Mapping[str, Any], *, send_seconds: float = SEND_SECONDS) -> None:
        _require_client()
        from confluent_kafka import Producer

        self._brokers = str(settings.get("bootstrap.servers", ""))
        self._seconds = send_seconds
        sure = {"enable.idempotence": True, "message.timeout.ms": int(send_seconds * 1000)}
        self._complaints = Complaints(settings)
        self._client = Producer({**_QUIET, **sure, **settings, "error_cb": self._complaints})

    def send(self, records: Iterable[Record]) -> int:
        """Send all and wait until each is acknowledged; the number of them.

        Raises StreamError FM-STREAM-022 if one was not: others may have arrived, so whoever sends
        again sends some twice.
        """
        sent, refused = self._delivered(records)
        if refused:
            error, topic = next(iter(refused.values()))
            raise self._not_sent(error, topic, len(refused))
        return sent

    def refusals(self, records: Iterable[Record]) -> dict[int, StreamError]:
        """Send all and wait for every answer; why records were not taken, by their place from 0.

        Every record that is not in the result was acknowledged. Raises StreamError FM-STREAM-022
        where answers do not come: then it is not known which records arrived.
        """
        _, refused = self._delivered(records)
        return {n: self._not_sent(error, topic, 1) for n, (error, topic) in refused.items()}

    def _delivered(
        self, records: Iterable[Record]
    ) -> tuple[int, dict[int, tuple[KafkaError, str]]]:
        """How many were handed over, and what Kafka said of those that it did not take."""
        from confluent_kafka import KafkaException

        refused: dict[int, tuple[KafkaError, str]] = {}
        sent = 0
        with _told(self._brokers, self._complaints, code="FM-STREAM-022"):
            for record in records:
                try:
                    self._enqueue(record, _noting(refused, sent, record.topic))
                except KafkaException as error:
                    # The client refuses by itself what is larger than its own limit.
                    refused[sent] = (error.args[0], record.topic)
                sent += 1
            # Each message has its own end, message.timeout.ms: this is for a client that hangs.
            if self._client.flush(2 * self._seconds):
                raise TimeoutError
        return sent, refused

    def _not_sent(self, error: KafkaError, topic: str, count: int) -> StreamError:
        where = f"topic {topic} at {self._brokers}"
        known = self._complaints.instead_of(error) or error
        may_pass = self._complaints.may_pass(known)
        return _failed("FM-STREAM-022", known, where, may_pass=may_pass, count=count)

    def _enqueue(self, record: Record, delivered: Callable[..., None]) -> None:
        more: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.headers:
            more["headers"] = list(record.headers)
        while True:
            try:
                self._client.produce(
                    record.topic, record.value, record.key, on_delivery=delivered, **more
                )
            except BufferError:
                self._client.poll(0.1)
            else:
                self._client.poll(0)
                return


def _noting(
    refused: dict[int, tuple[KafkaError, str]], number: int, topic: str
) -> Callable[[KafkaError | None, Message], None]:
    """What the client calls with the answer for one record."""

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused[number] = (error, topic)

    return delivered


def records_at(
    settings: Mapping[str, Any],
    positions: Sequence[tuple[str, int, int]],
    *,
    answer_seconds: float = ANSWER_SECONDS,
) -> dict[tuple[str, int, int], tuple[bytes | None, bytes | None]]:
    """Key and value of some records by topic, partition and offset; what is gone is left out.

    Raises StreamError FM-STREAM-020 where the broker does not answer.
    """
    _require_client()
    from confluent_kafka import Consumer

    # Librdkafka wants a group; partitions are assigned, so it joins none.
    own = {"group.id": "floodmark", "enable.auto.commit": False, "enable.partition.eof": True}
    complaints = Complaints(settings)
    consumer = Consumer({**_QUIET, **settings, **own, "error_cb": complaints})
    found: dict[tuple[str, int, int], tuple[bytes | None, bytes | None]] = {}
    by_partition: dict[TopicPartition, list[int]] = {}
    for topic, partition, offset in sorted(set(positions)):
        by_partition.setdefault((topic, partition), []).append(offset)
    try:
        with _told(str(settings.get("bootstrap.servers", "")), complaints):
            for place, offsets in by_partition.items():
                for offset, key, value in _fetched(consumer, place, offsets, answer_seconds):
                    found[(*place, offset)] = (key, value)
    finally:
        consumer.close()
    return found


def _fetched(
    consumer: Any, place: TopicPartition, offsets: Sequence[int], seconds: float
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    from confluent_kafka import KafkaError as Known
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Place

    wanted = deque(offsets)
    consumer.assign([Place(*place, wanted[0])])
    while wanted:
        message = consumer.poll(seconds)
        if message is None:
            raise TimeoutError
        error = message.error()
        if error is not None and error.code() == Known._PARTITION_EOF:
            return
        if error is not None:
            raise KafkaException(error)
        passed = message.offset()
        if passed == wanted[0]:
            yield passed, message.key(), message.value()
        while wanted and wanted[0] <= passed:
            wanted.popleft()
        if wanted and wanted[0] > passed + FAR_OFFSETS:
            consumer.seek(Place(*place, wanted[0]))


@contextmanager
def _told(
    where: str,
    complaints: Complaints,
    code: str = "FM-STREAM-020",
) -> Iterator[None]:
    """Errors of the client as our own; `complaints` has the one behind another, or behind none."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TimeoutError) as error:
        known = complaints.instead_of(error.args[0] if isinstance(error, KafkaException) else None)
        if known is None:
            raise _late(where) from error
        raise _failed(code, known, where, may_pass=complaints.may_pass(known)) from error


def _late(where: str) -> StreamError:
    return StreamError(
        "FM-STREAM-020",
        _TITLES["FM-STREAM-020"],
        where=where,
        found="no answer in time",
        state=_STATE,
        next=_NEXT,
        retryable=True,
    )


def _failed(
    code: str, error: KafkaError, where: str, *, may_pass: bool, count: int = 1
) -> StreamError:
    from confluent_kafka import KafkaError as Known

    absent = (Known.UNKNOWN_TOPIC_OR_PART, Known._UNKNOWN_TOPIC)
    if code == "FM-STREAM-020" and error.code() in absent:
        code = "FM-STREAM-021"
    return StreamError(
        code,
        _TITLES[code],
        where=where,
        found=f"{error.name()}: {error.str()}" + (f" ({count} records)" if count > 1 else ""),
        state=_STATE,
        next="create the topic, or name the one that is meant" if code.endswith("21") else _NEXT,
        retryable=may_pass,
        details={"kafka_error": error.name()},
    )


_STATE = "nothing of the stream has changed"
_NEXT = "look at the broker and at what it allows, then run the same command again"
_TITLES = {
    "FM-STREAM-020": "Kafka could not be asked",
    "FM-STREAM-021": "a topic of Kafka is not there",
    "FM-STREAM-022": "records could not be sent to Kafka",
}


def _is_retryable(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Known

    # Losses of the connection are the client's own errors, which it does not class as retriable.
    lost = (Known._TRANSPORT, Known._ALL_BROKERS_DOWN, Known._TIMED_OUT, Known._MSG_TIMED_OUT)
    busy = (Known.REQUEST_TIMED_OUT, Known.NETWORK_EXCEPTION, Known.NOT_ENOUGH_REPLICAS)
    # A broker that goes away while it is greeted looks like one that refuses.
    return bool(error.retriable()) or error.code() in (*lost, *busy, Known._SSL, *_moving())


def _moving() -> tuple[int, ...]:
    """What is said of a partition whose leader the client does not know any more."""
    from confluent_kafka import KafkaError as Known

    return (
        Known.NOT_LEADER_FOR_PARTITION,
        Known.LEADER_NOT_AVAILABLE,
        Known.FENCED_LEADER_EPOCH,
        Known.UNKNOWN_LEADER_EPOCH,
    )


def _id(described: Any) -> str | None:
    found = described.topic_id
    has_none = found.get_most_significant_bits() == 0 and found.get_least_significant_bits() == 0
    return None if has_none else str(found)


def _require_client() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise SetupError(
            "FM-SETUP-010",
            "the Kafka client is not installed",
            found=str(error),
            state="nothing was started",
            next="pip install 'floodmark[kafka]'",
        ) from error
