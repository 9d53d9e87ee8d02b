"""Positions in Kafka topics: for each partition the offset of the record that comes next.

A partition that is not named stands at 0, everywhere in this module: that is where a partition
begins that was added to a topic, and a position that left one out by mistake is then found to be
behind instead of being believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

TopicPartition = tuple[str, int]

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Offsets:
    """The next offset of each partition; equal, and of one hash, if every partition is the same.

    `a <= b` says that no partition of `a` is ahead of `b`. Two positions may be neither before nor
    behind one another, so `not a <= b` does not mean `a > b`.
    """

    _next: tuple[tuple[TopicPartition, int], ...] = ()

    @classmethod
    def of(cls, positions: Mapping[TopicPartition, int]) -> Offsets:
        """Positions by (topic, partition); raises ValueError for what no broker could have."""
        for (topic, partition), offset in positions.items():
            _check(topic, partition, offset)
        return cls(tuple(sorted(positions.items())))

    @classmethod
    def parse(cls, said: str | bytes | Mapping[str, Any]) -> Offsets:
        """Spark's form, `{"topic":{"0":12}}`, as text or as a mapping (of jsonb, say).

        Raises ValueError for anything else, names that stand twice and Spark's -1 and -2 (latest
        and earliest) included: those are wishes, not positions.
        """
        topics = _loaded(said) if isinstance(said, str | bytes) else said
        if not isinstance(topics, Mapping):
            raise _not("an object of topics", topics)
        return cls.of(dict(_positions(topics)))

    def to_json(self) -> str:
        """The text that Spark takes as startingOffsets; sorted, so equal positions give one text.

        >>> Offsets.of({("b", 10): 3, ("b", 9): 0, ("a", 0): 7}).to_json()
        '{"a":{"0":7},"b":{"9":0,"10":3}}'
        """
        return json.dumps(self.as_mapping(), separators=(",", ":"), ensure_ascii=False)

    def as_mapping(self) -> dict[str, dict[str, int]]:
        """The same as a mapping, for jsonb."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in self._next:
            topics.setdefault(topic, {})[str(partition)] = offset
        return topics

    def items(self) -> tuple[tuple[TopicPartition, int], ...]:
        """Every named partition with its next offset, in order."""
        return self._next

    def at(self, partition: TopicPartition) -> int:
        """The next offset of a partition; 0 if it is not named."""
        return dict(self._next).get(partition, 0)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are named."""
        return frozenset(partition for partition, _ in self._next)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for (topic, _), _ in self._next}))

    def updated(self, other: Offsets) -> Offsets:
        """These positions, and those of `other` where it names a partition."""
        return Offsets(tuple(sorted({**dict(self._next), **dict(other._next)}.items())))

    def __le__(self, other: Offsets) -> bool:
        there = dict(other._next)
        return all(offset <= there.get(partition, 0) for partition, offset in self._next)

    def __ge__(self, other: Offsets) -> bool:
        return other <= self

    def __lt__(self, other: Offsets) -> bool:
        return self <= other and not other <= self

    def __gt__(self, other: Offsets) -> bool:
        return other < self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._moved == other._moved

    def __hash__(self) -> int:
        return hash(self._moved)

    def __bool__(self) -> bool:
        return bool(self._next)

    def __iter__(self) -> Iterator[TopicPartition]:
        return (partition for partition, _ in self._next)

    def __len__(self) -> int:
        return len(self._next)

    def __str__(self) -> str:
        return self.to_json()

    @property
    def _moved(self) -> tuple[tuple[TopicPartition, int], ...]:
        return tuple(item for item in self._next if item[1])


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Records of one partition: `start` is included, `until` is not."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def records(self) -> int:
        """How many offsets; the records can be fewer: compaction and transactions leave gaps."""
        return self.until - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.until})"


@dataclass(frozen=True, slots=True, order=True)
class Break:
    """A partition in which a batch does not begin where the last one ended."""

    topic: str
    partition: int
    expected: int
    found: int

    @property
    def kind(self) -> Literal["gap", "overlap"]:
        """gap: records between would be lost. overlap: records would come twice."""
        return "gap" if self.found > self.expected else "overlap"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} begins at {self.found}, {self.expected} is next"


def span(start: Offsets, end: Offsets) -> tuple[OffsetRange, ...]:
    """The records between two positions, by partition, empty ranges left out.

    Raises ValueError where the end lies before the start.
    """
    if not start <= end:
        worst = breaks(start, end)
        raise ValueError(f"the end lies before the start: {', '.join(map(str, worst[:5]))}")
    begun = dict(start.items())
    ranges = (OffsetRange(t, p, begun.get((t, p), 0), until) for (t, p), until in end.items())
    return tuple(found for found in ranges if found.records)


def records(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between two positions."""
    return sum(found.records for found in span(start, end))


def breaks(stored_end: Offsets, batch_start: Offsets) -> tuple[Break, ...]:
    """Where a batch does not go on exactly at the end that is stored; empty if it does.

    A partition that is new since then has to begin at 0, and none may be left out.
    """
    ended, begun = dict(stored_end.items()), dict(batch_start.items())
    return tuple(
        Break(*partition, ended.get(partition, 0), begun.get(partition, 0))
        for partition in sorted(ended.keys() | begun.keys())
        if ended.get(partition, 0) != begun.get(partition, 0)
    )


def follows(stored_end: Offsets, batch_start: Offsets) -> bool:
    """Whether a batch goes on exactly at the end that is stored: see `breaks`."""
    return stored_end == batch_start


def behind(start: Offsets, latest: Offsets) -> tuple[Break, ...]:
    """Partitions whose last record lies before the position: the broker lost or replaced them."""
    return tuple(found for found in breaks(start, latest) if found.kind == "overlap")


def aged_out(start: Offsets, earliest: Offsets) -> tuple[Break, ...]:
    """Partitions whose first record that is still there lies behind the position: some are gone.

    Only partitions that `earliest` names are looked at.
    """
    there = breaks(start, earliest)
    return tuple(found for found in there if found.kind == "gap")


def next_end(start: Offsets, latest: Offsets, limit: int | None) -> Offsets:
    """The end of the next batch: at most `limit` records, shared by what each partition has waiting.

    As Spark's Kafka source does it: a share is rounded down, but never to nothing, so that small
    partitions are not starved; a batch can so be larger than the limit by one record for each
    partition. Never beyond `latest` and never before `start`. Every partition is named. Raises
    ValueError for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"a limit of {limit} records lets nothing through")
    begun, there = dict(start.items()), dict(latest.items())
    waiting = {
        partition: max(0, there.get(partition, 0) - begun.get(partition, 0))
        for partition in begun.keys() | there.keys()
    }
    total = sum(waiting.values())
    shares = waiting if limit is None or total <= limit else _shares(waiting, total, limit)
    return Offsets.of({p: begun.get(p, 0) + share for p, share in shares.items()})


def _shares(
    waiting: Mapping[TopicPartition, int], total: int, limit: int
) -> dict[TopicPartition, int]:
    return {
        partition: max(1, limit * size // total) if size else 0
        for partition, size in waiting.items()
    }


def _positions(topics: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, int]]:
    for topic, partitions in topics.items():
        if not isinstance(partitions, Mapping):
            raise _not("an object of partitions", partitions)
        for partition, offset in partitions.items():
            yield (topic, _partition(partition)), offset


def _partition(said: object) -> int:
    # Only the canonical text: "01" and "1" would be one partition under two names.
    if isinstance(said, str) and said.isascii() and said.isdigit() and str(int(said)) == said:
        return int(said)
    raise _not("the number of a partition", said)


def _check(topic: object, partition: object, offset: object) -> None:
    if not isinstance(topic, str) or not topic:
        raise _not("the name of a topic", topic)
    if type(partition) is not int or not 0 <= partition <= MAX_PARTITION:
        raise _not("the number of a partition", partition)
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise _not(f"an offset of {topic}-{partition}", offset)


def _loaded(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_named_once)
    except RecursionError as error:
        raise ValueError("not an object of topics: nested too deeply") from error


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a topic or partition stands twice")
    return found


def _not(what: str, said: object) -> ValueError:
    return ValueError(f"not {what}: {repr(said)[:100]}")
