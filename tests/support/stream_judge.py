"""Judges what a stream has left against the topic it read: lost, doubled, wrongly counted.

The topic is the truth: what lies in it, record by record, says what has to be in the target, in the
dead letters and in the counts of every batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, TypeVar

from floodmark.model.offsets import Offsets, TopicPartition, span
from floodmark.streaming.ledger.batches import LoadCounts

Fate = Literal["row", "poison", "late"]
"""What has to become of a record: a row of the target, a dead letter, or dropped and counted."""

Position = tuple[str, int, int]
"""Topic, partition, offset."""

Row = tuple[int, ...]
"""Key and number of a row; of a window its start in seconds, its key, and what it counts and adds."""

Known = TypeVar("Known", Position, Row)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHOWN = 5
"""How many of a kind a problem names."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as it lies in its topic."""

    position: Position
    fate: Fate
    number: int | None = None
    """Of a row: its own in all of the topic."""
    key: int | None = None
    """Of a row; all records of a key lie in one partition."""
    at: datetime = EPOCH
    """When it happened."""


@dataclass(frozen=True, slots=True)
class TrackedBatch:
    """A row of the tracker."""

    batch_id: int
    start: Offsets
    end: Offsets
    counts: LoadCounts


@dataclass(frozen=True)
class Found:
    """What a stream has left in its database."""

    rows: Sequence[Row]
    """Of the target."""
    letters: Sequence[Position]
    batches: Sequence[TrackedBatch]
    """In the order of their numbers."""
    end: Offsets
    """Up to which the stream says that everything is committed."""


def problems(
    sent: Sequence[Sent],
    found: Found,
    *,
    keeps_last: bool = False,
    wanted: Counter[Row] | None = None,
) -> list[str]:
    """Everything that is wrong; `keeps_last` for an upsert, which keeps the last row of each key.

    `wanted` are the rows of a target whose rows are not records: `windows_of` tells them.
    """
    if wanted is None:
        wanted = _last_of_each_key(sent) if keeps_last else _rows(sent)
    poison = Counter(record.position for record in sent if record.fate == "poison")
    return [
        *_differences("row", wanted, Counter(found.rows)),
        *_differences("dead letter (topic, partition, offset)", poison, Counter(found.letters)),
        *_breaks(found, _end_of(sent)),
        *_miscounts(sent, found.batches),
    ]


def windows_of(sent: Iterable[Sent], length: timedelta) -> Counter[Row]:
    """Every window of every key: its start in seconds, its key, how many rows, and their sum."""
    totals: dict[tuple[int, int], tuple[int, int]] = {}
    for record in sent:
        if record.fate == "row" and record.key is not None and record.number is not None:
            start = (record.at - EPOCH) // length * length
            window = int(start.total_seconds()), record.key
            n, total = totals.get(window, (0, 0))
            totals[window] = n + 1, total + record.number
    return Counter([(*window, *total) for window, total in totals.items()])


def without_repeated(sent: Iterable[Sent], batches: Sequence[TrackedBatch]) -> list[Sent]:
    """The same where a number counts once: in the first batch that has it, else it is dropped."""
    seen: set[int] = set()
    told = []
    for record in sorted(sent, key=lambda record: (_batch_of(record, batches), record.position)):
        if record.fate == "row" and record.number in seen:
            told.append(replace(record, fate="late"))
            continue
        if record.fate == "row" and record.number is not None:
            seen.add(record.number)
        told.append(record)
    return told


def _batch_of(record: Sent, batches: Sequence[TrackedBatch]) -> int:
    """The place of the batch that a record lies in; batches lie end to end."""
    topic, partition, offset = record.position
    return bisect_right(batches, offset, key=lambda batch: batch.end.at((topic, partition)))


def _rows(sent: Iterable[Sent]) -> Counter[Row]:
    return Counter(
        (record.key, record.number)
        for record in sent
        if record.key is not None and record.number is not None and record.fate == "row"
    )


def _last_of_each_key(sent: Iterable[Sent]) -> Counter[Row]:
    last: dict[int, int] = {}
    for record in sorted(sent, key=lambda record: record.position):
        if record.key is not None and record.number is not None and record.fate == "row":
            last[record.key] = record.number
    return Counter(last.items())


def unsent_letters(
    arrived: Collection[Position], letters: Collection[Position], left: int
) -> list[str]:
    """Dead letters that did not reach their topic, and messages of records that are none.

    A letter may have come more than once; `left` is how many the outbox still has.
    """
    lost, strange = set(letters) - set(arrived), set(arrived) - set(letters)
    found = [f"{left} dead letters still wait for their topic"] if left else []
    found += [f"dead letter {at} did not reach its topic" for at in sorted(lost)[:5]]
    return [*found, *(f"{at} was sent, and is no dead letter" for at in sorted(strange)[:5])]


def _differences(what: str, wanted: Counter[Known], there: Counter[Known]) -> Iterator[str]:
    for word, these in (
        ("lost", sorted(wanted.keys() - there.keys())),
        ("not of the topic", sorted(there.keys() - wanted.keys())),
        ("doubled", sorted(one for one, n in there.items() if n > wanted[one] > 0)),
        ("there too seldom", sorted(one for one, n in there.items() if n < wanted[one])),
    ):
        if these:
            named = ", ".join(map(str, these[:SHOWN]))
            yield f"{len(these)} times a {what} is {word}: {named}"


def _end_of(sent: Iterable[Sent]) -> Offsets:
    end: dict[TopicPartition, int] = {}
    for topic, partition, offset in (record.position for record in sent):
        place = topic, partition
        end[place] = max(end.get(place, 0), offset + 1)
    return Offsets.of(end)


def _breaks(found: Found, end: Offsets) -> Iterator[str]:
    """Where batches do not lie end to end, from the beginning of the topic to its end."""
    if not found.batches:
        yield "the tracker has no batch"
        return
    first, last = found.batches[0], found.batches[-1]
    if (first.batch_id, first.start) != (0, Offsets()):
        yield f"batch {first.batch_id} is the first one and begins at {first.start}"
    for before, after in pairwise(found.batches):
        if after.batch_id != before.batch_id + 1:
            yield f"batch {before.batch_id} is followed by batch {after.batch_id}"
        if after.start != before.end:
            yield f"batch {after.batch_id} begins at {after.start}, after {before.end}"
    for what, where in (("the tracker", last.end), ("the stream", found.end)):
        if where != end:
            yield f"{what} ends at {where}, the topic at {end}"


def _miscounts(sent: Iterable[Sent], batches: Iterable[TrackedBatch]) -> Iterator[str]:
    """Batches whose counts are not those of the records between their offsets."""
    offsets = _offsets_by_fate(sent)
    for batch in batches:
        if not batch.start <= batch.end:
            yield f"batch {batch.batch_id} ends before it begins"
            continue
        fates = _fates(offsets, batch)
        said = batch.counts
        counted = (said.received, said.written, said.dead_lettered, said.dropped)
        lie_there = (sum(fates.values()), fates["row"], fates["poison"], fates["late"])
        if counted != lie_there:
            right = LoadCounts(*lie_there)
            yield f"batch {batch.batch_id} says {said}; between its offsets are {right}"


def _offsets_by_fate(sent: Iterable[Sent]) -> dict[TopicPartition, dict[Fate, list[int]]]:
    found: dict[TopicPartition, dict[Fate, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in sorted(sent, key=lambda record: record.position):
        topic, partition, offset = record.position
        found[topic, partition][record.fate].append(offset)
    return found


def _fates(
    offsets: Mapping[TopicPartition, Mapping[Fate, Sequence[int]]], batch: TrackedBatch
) -> Counter[Fate]:
    fates: Counter[Fate] = Counter()
    for part in span(batch.start, batch.end):
        for fate, places in offsets.get((part.topic, part.partition), {}).items():
            fates[fate] += bisect_left(places, part.until) - bisect_left(places, part.start)
    return fates
