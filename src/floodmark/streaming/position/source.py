"""Where a stream stands in Kafka, and what comes next: offsets planned, losses told before reading."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from floodmark.errors import StreamError
from floodmark.model.offsets import Break, Offsets, TopicPartition, aged_out, next_end, records
from floodmark.streaming.position.decisions import check_offsets, check_topics

log = logging.getLogger("floodmark.streaming")

EARLIEST, LATEST = -2, -1
TOLD = 20
"""Partitions that a text names."""


class Topics(Protocol):
    """What is asked of the brokers: engines.kafka.KafkaAdmin."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]: ...

    def partitions(self, topics: Sequence[str]) -> frozenset[TopicPartition]: ...

    def earliest(self, topics: Sequence[str]) -> Offsets: ...

    def latest(self, topics: Sequence[str], *, committed: bool = False) -> Offsets: ...


@dataclass(frozen=True)
class Next:
    """The records of the next batch, and how many lie behind them."""

    start: Offsets
    end: Offsets
    waiting: int
    """Offsets from the start to the end of the topics."""

    @property
    def records(self) -> int:
        """Offsets of the batch; records can be fewer."""
        return records(self.start, self.end)


@dataclass(frozen=True)
class KafkaSource:
    """The topics of one stream."""

    stream: str
    """What its commands call it."""
    topics: tuple[str, ...]
    admin: Topics
    reads_committed: bool = True

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics, of brokers that have some; FM-STREAM-021 if one is not there."""
        found = self.admin.topic_ids(self.topics)
        return {topic: known for topic, known in found.items() if known is not None}

    def refuse_recreated(self, stored: Mapping[str, str]) -> dict[str, str]:
        """The ids of the topics; FM-STREAM-024 if one is not the topic that was read before."""
        found = self.topic_ids()
        for remark in check_topics(self.stream, stored, found):
            log.info("stream %s: %s", self.stream, remark)
        return found

    def begin(self, said: str) -> Offsets:
        """The offsets that `startingOffsets` means today.

        Raises FM-STREAM-044 unless it names every partition, no other, and offsets that they have.
        """
        word = said.strip().lower()
        if word == "earliest":
            return self.admin.earliest(self.topics)
        latest = self.latest()
        if word == "latest":
            return latest
        return self._by_partition(json.loads(said), latest)

    def _by_partition(self, said: Mapping[str, Mapping[str, int]], latest: Offsets) -> Offsets:
        earliest = self.admin.earliest(self.topics)
        wished = {(topic, int(p)): offset for topic, of in said.items() for p, offset in of.items()}
        unfit = [*self._unknown(said, wished, latest), *_outside(wished, earliest, latest)]
        if unfit:
            raise _not_offsets(self.stream, unfit, earliest, latest)
        special = {EARLIEST: earliest, LATEST: latest}
        return Offsets.of(
            {
                place: special[offset].at(place) if offset in special else offset
                for place, offset in wished.items()
            }
        )

    def _unknown(
        self,
        said: Iterable[str],
        wished: Mapping[TopicPartition, int],
        latest: Offsets,
    ) -> Iterator[str]:
        """Topics and partitions that are not there, or not named.

        One that is not named would have to begin somewhere: in silence, records would be written
        again or skipped.
        """
        yield from (f"{name} is no topic of the stream" for name in said if name not in self.topics)
        for topic, partition in sorted(latest.partitions.symmetric_difference(wished)):
            if topic in self.topics:
                lacks = "not there" if (topic, partition) in wished else "not named"
                yield f"{topic}-{partition} is {lacks}"

    def latest(self) -> Offsets:
        """Behind the last record that may be read."""
        return self.admin.latest(self.topics, committed=self.reads_committed)

    def lost(self, start: Offsets) -> tuple[Break, ...]:
        """Partitions whose next records are gone from Kafka."""
        return aged_out(start, self.admin.earliest(self.topics))

    def next_batch(self, start: Offsets, limit: int | None) -> Next:
        """What comes after `start`, at most `limit` records.

        Raises FM-STREAM-023 if some of it is gone, FM-STREAM-025 if the topic ends before `start`.
        """
        latest = self.latest()
        check_offsets(self.stream, start, self.admin.earliest(self.topics), latest)
        return Next(start, next_end(start, latest, limit), records(start, start.updated(latest)))


def _outside(
    wished: Mapping[TopicPartition, int], earliest: Offsets, latest: Offsets
) -> Iterator[str]:
    for place in sorted(latest.partitions.intersection(wished)):
        first, end, offset = earliest.at(place), latest.at(place), wished[place]
        if offset not in (EARLIEST, LATEST) and not first <= offset <= end:
            yield f"{place[0]}-{place[1]} has {first} to {end}, not {offset}"


def _not_offsets(
    stream: str, unfit: Sequence[str], earliest: Offsets, latest: Offsets
) -> StreamError:
    """FM-STREAM-044: what would become of a partition is not said, or not possible."""
    known = [f"{t}-{p} from {earliest.at((t, p))} to {end}" for (t, p), end in latest.items()]
    return StreamError(
        "FM-STREAM-044",
        "offsets do not fit the topics of the stream",
        stream=stream,
        found="; ".join(unfit[:TOLD]),
        allowed=f"{', '.join(known[:TOLD])}; -2 earliest, -1 latest",
        state="nothing was read or written; the stored offsets are as they were",
        next="name every partition with an offset that it has, then repeat the command",
    )


def skipped(start: Offsets, lost: Sequence[Break]) -> Offsets:
    """The offsets behind what is lost."""
    return start.updated(Offsets.of({(b.topic, b.partition): b.found for b in lost}))


def told(lost: Sequence[Break]) -> str:
    """What is lost, by partition."""
    return "; ".join(
        f"{b.topic}-{b.partition} offsets {b.expected} to {b.found - 1}" for b in lost[:TOLD]
    )
