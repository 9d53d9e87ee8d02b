"""Where a stream stands in Kafka, and what comes next: offsets planned, losses told before reading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from floodmark.errors import StreamError
from floodmark.model.offsets import (
    Break,
    Offsets,
    TopicPartition,
    aged_out,
    behind,
    next_end,
    records,
)

EARLIEST, LATEST = -2, -1


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

    stream_id: str
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
        other = [name for name, known in found.items() if stored.get(name, known) != known]
        if other:
            raise _recreated(self.stream_id, other[0], stored[other[0]], found[other[0]])
        return found

    def begin(self, said: str) -> Offsets:
        """The offsets that `startingOffsets` means today."""
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
        found = {}
        for place in latest:
            offset = wished.get(place, EARLIEST)
            special = {EARLIEST: earliest.at(place), LATEST: latest.at(place)}
            found[place] = special.get(offset, offset)
        return Offsets.of(found)

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
        lost = self.lost(start)
        if lost:
            raise gone(self.stream_id, lost)
        latest = self.latest()
        ahead = behind(start, latest)
        if ahead:
            raise _shorter(self.stream_id, ahead)
        return Next(start, next_end(start, latest, limit), records(start, start.updated(latest)))


def skipped(start: Offsets, lost: Sequence[Break]) -> Offsets:
    """The offsets behind what is lost."""
    return start.updated(Offsets.of({(b.topic, b.partition): b.found for b in lost}))


def _told(found: Sequence[Break]) -> str:
    return "; ".join(
        f"{b.topic}-{b.partition}: next is {b.expected}, there is {b.found}" for b in found[:5]
    )


def gone(stream_id: str, lost: Sequence[Break]) -> StreamError:
    """FM-STREAM-023: records aged out before they were read."""
    count = sum(b.found - b.expected for b in lost)
    return StreamError(
        "FM-STREAM-023",
        f"{count:,} records that come next are gone from Kafka",
        where=f"stream {stream_id}",
        found=_told(lost),
        allowed="a retention that outlives the longest pause",
        state="nothing was read or written",
        next=f"floodmark stream run {stream_id} --skip-to-earliest, which records the loss",
    )


def _recreated(stream_id: str, topic: str, before: str, now: str) -> StreamError:
    return StreamError(
        "FM-STREAM-024",
        f"the topic {topic} was recreated",
        where=f"stream {stream_id}",
        found=f"id {now}; {before} was read before",
        state="nothing was read or written; the target holds what the old topic had",
        next=f"floodmark stream reset {stream_id} --to earliest, to read the new topic whole",
    )


def _shorter(stream_id: str, ahead: Sequence[Break]) -> StreamError:
    return StreamError(
        "FM-STREAM-025",
        "a topic ends before the offsets that were read",
        where=f"stream {stream_id}",
        found="; ".join(
            f"{b.topic}-{b.partition} ends at {b.found}, {b.expected} is next" for b in ahead[:5]
        ),
        state="nothing was read or written",
        next=f"floodmark stream reset {stream_id} --to earliest, if the topic was replaced",
    )
