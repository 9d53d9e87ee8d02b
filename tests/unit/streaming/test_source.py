"""What comes next in Kafka is planned from facts; losses are told before anything is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from floodmark.errors import ConfigError, StreamError
from floodmark.model.offsets import Offsets, TopicPartition
from floodmark.streaming.moving import moved_to
from floodmark.streaming.position.source import KafkaSource, skipped


@dataclass
class KnownTopics:
    """Brokers whose answers are known."""

    first: Offsets
    last: Offsets
    ids: dict[str, str | None]

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        return {topic: self.ids[topic] for topic in topics}

    def partitions(self, topics: Sequence[str]) -> frozenset[TopicPartition]:
        return self.last.partitions

    def earliest(self, topics: Sequence[str]) -> Offsets:
        return self.first

    def latest(self, topics: Sequence[str], *, committed: bool = False) -> Offsets:
        return self.last


def at(*offsets: int) -> Offsets:
    return Offsets.of({("t", p): offset for p, offset in enumerate(offsets)})


def source(first: Offsets, last: Offsets, topic_id: str | None = "a") -> KafkaSource:
    return KafkaSource("s", ("t",), KnownTopics(first, last, {"t": topic_id}))


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        ("earliest", at(3, 0)),
        ("Latest", at(10, 7)),
        (json.dumps({"t": {"0": 5, "1": -1}}), at(5, 7)),
        (json.dumps({"t": {"0": -2, "1": 7}}), at(3, 7)),
    ],
)
def test_starting_offsets_mean_offsets_of_today(said: str, begins: Offsets) -> None:
    assert source(at(3, 0), at(10, 7)).begin(said) == begins


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            {"u": {"0": 5, "1": 0}},
            "u is no topic of the stream; t-0 is not named; t-1 is not named",
        ),
        ({"t": {"0": 5}}, "t-1 is not named"),
        ({}, "t-0 is not named; t-1 is not named"),
        ({"t": {"0": 5, "1": 0, "2": 0}}, "t-2 is not there"),
        ({"t": {"0": 11, "1": 0}}, "t-0 has 3 to 10, not 11"),
        ({"t": {"0": 2, "1": 0}}, "t-0 has 3 to 10, not 2"),
    ],
)
def test_offsets_that_do_not_fit_the_topics_are_refused(
    said: dict[str, dict[str, int]], found: str
) -> None:
    with pytest.raises(StreamError) as caught:
        source(at(3, 0), at(10, 7)).begin(json.dumps(said))

    assert caught.value.code == "FM-STREAM-044"
    assert caught.value.found == found
    assert caught.value.allowed == "t-0 from 3 to 10, t-1 from 0 to 7; -2 earliest, -1 latest"


def test_a_batch_is_limited_and_tells_what_waits() -> None:
    planned = source(at(0, 0), at(100, 100)).next_batch(at(50, 0), 30)

    assert planned.start == at(50, 0)
    assert planned.records == 30
    assert planned.waiting == 150


def test_nothing_new_is_a_batch_of_nothing() -> None:
    planned = source(at(0), at(7)).next_batch(at(7), 10)

    assert (planned.records, planned.waiting) == (0, 0)


def test_a_partition_that_is_new_begins_at_its_first_record() -> None:
    planned = source(at(0, 0), at(5, 4)).next_batch(at(5), None)

    assert (planned.records, planned.end) == (4, at(5, 4))


def test_records_that_are_gone_are_told_by_partition() -> None:
    with pytest.raises(StreamError) as caught:
        source(at(9, 0), at(20, 5)).next_batch(at(7, 5), None)

    assert caught.value.code == "FM-STREAM-023"
    assert caught.value.found == "t-0 begins at 9, offset 7 is wanted"
    assert "--skip-to-earliest" in (caught.value.next or "")


def test_a_new_partition_whose_first_records_are_gone_is_a_loss() -> None:
    with pytest.raises(StreamError) as caught:
        source(at(0, 2), at(5, 4)).next_batch(at(5), None)

    assert caught.value.code == "FM-STREAM-023"


def test_a_topic_that_ends_earlier_is_refused() -> None:
    with pytest.raises(StreamError) as caught:
        source(at(0, 0), at(4, 5)).next_batch(at(7, 5), None)

    assert caught.value.code == "FM-STREAM-025"


def test_a_recreated_topic_is_known_by_its_id() -> None:
    with pytest.raises(StreamError) as caught:
        source(at(0), at(4), "b").refuse_recreated({"t": "a"})

    assert caught.value.code == "FM-STREAM-024"
    assert source(at(0), at(4), "b").refuse_recreated({"t": "b"}) == {"t": "b"}
    assert source(at(0), at(4), None).refuse_recreated({"t": "a"}) == {}


def test_skipping_goes_exactly_behind_what_is_lost() -> None:
    there = source(at(9, 0), at(20, 5))

    assert skipped(at(7, 5), there.lost(at(7, 5))) == at(9, 5)


@pytest.mark.parametrize("to", ["yesterday", "{", '{"t": {"0": "x"}}'])
def test_a_stream_is_not_moved_to_what_is_no_place(to: str) -> None:
    with pytest.raises(ConfigError) as caught:
        moved_to(cast("Any", None), to)  # refused before anything is asked
    assert caught.value.code == "FM-CONFIG-007"
    assert "earliest" in (caught.value.allowed or "")
