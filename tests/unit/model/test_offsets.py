from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.offsets import (
    MAX_OFFSET,
    Break,
    OffsetRange,
    Offsets,
    aged_out,
    behind,
    breaks,
    follows,
    next_end,
    records,
    span,
)

PARTITIONS = st.tuples(st.sampled_from(["orders", "clicks.v2", "ä"]), st.integers(0, 12))
NUMBERS = st.one_of(st.integers(0, 50), st.integers(0, MAX_OFFSET))
POSITIONS = st.dictionaries(PARTITIONS, NUMBERS, max_size=8).map(Offsets.of)


def at(**topics: dict[int, int]) -> Offsets:
    return Offsets.of({(t, p): o for t, ps in topics.items() for p, o in ps.items()})


@given(POSITIONS)
def test_text_and_mapping_give_the_same_positions_back(positions: Offsets) -> None:
    assert Offsets.parse(positions.to_json()).items() == positions.items()
    assert Offsets.parse(positions.as_mapping()).items() == positions.items()
    assert json.loads(positions.to_json()) == positions.as_mapping()


def test_the_order_in_which_spark_writes_partitions_does_not_matter() -> None:
    assert Offsets.parse('{"t":{"10":1,"2":5}}') == Offsets.parse('{"t":{"2":5,"10":1}}')


@pytest.mark.parametrize(
    "said",
    [
        "",
        "null",
        "[]",
        "12",
        '{"t":12}',
        '{"t":[1]}',
        '{"t":null}',
        '{"t":{"0":-1}}',
        '{"t":{"0":-2}}',
        '{"t":{"0":"12"}}',
        '{"t":{"0":1.0}}',
        '{"t":{"0":true}}',
        '{"t":{"0":null}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":{"01":1}}',
        '{"t":{"-1":1}}',
        '{"t":{"²":1}}',
        '{"t":{"":1}}',
        '{"t":{"2147483648":1}}',
        '{"":{"0":1}}',
        '{"t":{"0":1},"t":{"0":2}}',
        '{"t":{"0":1,"0":2}}',
        '{"t":{"0":1}',
        '{"t":{"0":1}} {}',
        "[" * 100_000,
        '{"t":{"0":NaN}}',
        {"t": 1},
        {1: {"0": 1}},
        {"t": {0: 1}},
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_position_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Offsets.parse(said)


@given(POSITIONS, POSITIONS)
def test_order_and_equality_agree(one: Offsets, other: Offsets) -> None:
    assert (one <= other <= one) == (one == other)
    assert (one < other) == (one <= other and one != other)
    assert (one > other) == (other < one)
    assert one != other or hash(one) == hash(other)
    assert follows(one, other) == (one == other) == (not breaks(one, other))


def test_a_partition_at_zero_is_the_same_as_one_not_named() -> None:
    assert at(t={0: 5, 1: 0}) == at(t={0: 5})
    assert follows(at(t={0: 5}), at(t={0: 5, 1: 0}))


@pytest.mark.parametrize(
    ("stored", "begins", "kind"),
    [
        ({0: 5}, {0: 6}, "gap"),
        ({0: 5}, {0: 4}, "overlap"),
        ({0: 5}, {0: 5, 1: 3}, "gap"),
        ({0: 5, 1: 3}, {0: 5}, "overlap"),
    ],
)
def test_a_batch_that_does_not_go_on_is_told_by_partition(
    stored: dict[int, int], begins: dict[int, int], kind: str
) -> None:
    (found,) = breaks(at(t=stored), at(t=begins))

    assert found.kind == kind
    assert str(found).startswith(f"t-{found.partition} begins at {found.found}")


@given(POSITIONS, POSITIONS, st.one_of(st.none(), st.integers(1, 10**6)))
def test_the_next_end_lies_between_start_and_latest(
    start: Offsets, latest: Offsets, limit: int | None
) -> None:
    end = next_end(start, latest, limit)

    assert start <= end
    assert end.partitions == start.partitions | latest.partitions
    assert all(o <= max(latest.at(p), start.at(p)) for p, o in end.items())
    assert limit is None or records(start, end) <= limit + len(end)
    waiting = {p for p in latest if latest.at(p) > start.at(p)}
    assert {(r.topic, r.partition) for r in span(start, end)} == waiting


@given(POSITIONS, POSITIONS, st.integers(1, 10**6))
def test_batch_after_batch_everything_is_taken_once(
    start: Offsets, latest: Offsets, limit: int
) -> None:
    waiting = sum(max(0, o - start.at(p)) for p, o in latest.items())
    limit = max(limit, waiting // 50)
    ends = [start]
    while records(ends[-1], end := next_end(ends[-1], latest, limit)):
        ends.append(end)

    taken = [part for one, two in pairwise(ends) for part in span(one, two)]
    assert sum(part.records for part in taken) == waiting
    assert latest <= ends[-1]
    for partition in latest:
        own = [part for part in taken if (part.topic, part.partition) == partition]
        assert all(a.until == b.start for a, b in pairwise(own))


def test_shares_are_those_of_sparks_kafka_source() -> None:
    start, latest = at(t={0: 100, 1: 0}), at(t={0: 1_100, 1: 9_000, 2: 1})

    end = next_end(start, latest, 1_000)

    # Spark: floor(1000 * 1000/10001), floor(1000 * 9000/10001), ceil(1000 * 1/10001).
    assert end == at(t={0: 199, 1: 899, 2: 1})


def test_everything_that_waits_is_taken_where_the_limit_allows() -> None:
    assert next_end(at(t={0: 1}), at(t={0: 7, 1: 3}), 9) == at(t={0: 7, 1: 3})


def test_a_limit_that_lets_nothing_through_is_refused() -> None:
    with pytest.raises(ValueError, match="0 records"):
        next_end(Offsets(), at(t={0: 1}), 0)


def test_a_partition_that_went_back_holds_its_place_and_is_named() -> None:
    start, latest = at(t={0: 10, 1: 4}), at(t={0: 3, 1: 6})

    assert next_end(start, latest, None) == at(t={0: 10, 1: 6})
    assert behind(start, latest) == (Break("t", 0, 10, 3),)


def test_records_that_are_gone_are_named() -> None:
    earliest = at(t={0: 12, 1: 0, 2: 3})

    assert aged_out(at(t={0: 10, 1: 4}), earliest) == (Break("t", 0, 10, 12), Break("t", 2, 0, 3))


def test_the_span_of_two_positions_leaves_empty_ranges_out() -> None:
    ranges = span(at(t={0: 2, 1: 5}), at(t={0: 4, 1: 5}, u={3: 2}))

    assert ranges == (OffsetRange("t", 0, 2, 4), OffsetRange("u", 3, 0, 2))
    assert str(ranges[0]) == "t-0 [2, 4)"


def test_a_span_that_goes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="t-0 begins at 4, 5 is next"):
        span(at(t={0: 5}), at(t={0: 4}))


def test_positions_of_two_sources_are_joined() -> None:
    joined = at(t={0: 1, 1: 2}).updated(at(t={1: 5}, u={0: 3}))

    assert joined == at(t={0: 1, 1: 5}, u={0: 3})
    assert (joined.topics, len(joined), bool(Offsets())) == (("t", "u"), 3, False)
