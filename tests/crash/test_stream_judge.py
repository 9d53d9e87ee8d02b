"""The judge of the stream torture finds what it is there to find."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.stream_judge import (
    EPOCH,
    Found,
    Sent,
    TrackedBatch,
    problems,
    unsent_letters,
    windows_of,
    without_repeated,
)

from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import LoadCounts


def at(first: int, second: int) -> Offsets:
    return Offsets.of({("t", 0): first, ("t", 1): second})


SENT = [
    Sent(("t", 0, 0), "row", 1, 10),
    Sent(("t", 0, 1), "poison"),
    Sent(("t", 0, 2), "row", 3, 10),
    Sent(("t", 1, 0), "row", 2, 11),
    Sent(("t", 1, 1), "late", 4, 11),
]
APPENDED = Found(
    rows=[(10, 1), (10, 3), (11, 2)],
    letters=[("t", 0, 1)],
    batches=[
        TrackedBatch(0, at(0, 0), at(2, 1), LoadCounts(3, 2, 1, 0)),
        TrackedBatch(1, at(2, 1), at(3, 2), LoadCounts(2, 1, 0, 1)),
    ],
    end=at(3, 2),
)
UPSERTED = replace(APPENDED, rows=[(10, 3), (11, 2)])


def batches(**second: object) -> list[TrackedBatch]:
    first, last = APPENDED.batches
    return [first, replace(last, **second)]  # type: ignore[arg-type]


def test_what_is_right_is_left_alone() -> None:
    assert problems(SENT, APPENDED) == []
    assert problems(SENT, UPSERTED, keeps_last=True) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (replace(APPENDED, rows=[(10, 1), (11, 2)]), "lost: (10, 3)"),
        (replace(APPENDED, rows=[*APPENDED.rows, (10, 3)]), "doubled: (10, 3)"),
        (replace(APPENDED, rows=[*APPENDED.rows, (11, 4)]), "not of the topic: (11, 4)"),
        (replace(APPENDED, letters=[]), "is lost: ('t', 0, 1)"),
        (replace(APPENDED, letters=[*APPENDED.letters] * 2), "doubled: ('t', 0, 1)"),
        (replace(APPENDED, batches=[]), "no batch"),
        (replace(APPENDED, batches=APPENDED.batches[:1]), "the tracker ends at"),
        (replace(APPENDED, batches=APPENDED.batches[1:]), "is the first one"),
        (replace(APPENDED, end=at(2, 2)), "the stream ends at"),
        (replace(APPENDED, batches=batches(batch_id=2)), "is followed by batch 2"),
        (replace(APPENDED, batches=batches(start=at(1, 1))), "batch 1 begins at"),
        (replace(APPENDED, batches=batches(end=at(1, 1))), "ends before it begins"),
        (replace(APPENDED, batches=batches(counts=LoadCounts(2, 2, 0, 0))), "batch 1 says 2"),
        (replace(APPENDED, batches=batches(counts=LoadCounts(3, 2, 0, 1))), "batch 1 says 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_told(found: Found, told: str) -> None:
    assert any(told in problem for problem in problems(SENT, found))


@pytest.mark.parametrize("rows", [[(10, 1), (11, 2)], [(10, 3)], [(10, 3), (11, 2), (10, 3)]])
def test_an_upsert_that_keeps_another_row_than_the_last_one_is_told(
    rows: list[tuple[int, int]],
) -> None:
    assert problems(SENT, replace(UPSERTED, rows=rows), keeps_last=True)


def test_a_number_that_was_sent_twice_is_there_twice() -> None:
    sent = [*SENT, Sent(("t", 0, 3), "row", 1, 10)]

    found = problems(sent, APPENDED)

    assert any("there too seldom: (10, 1)" in problem for problem in found)


MINUTE = timedelta(minutes=1)
TIMED = [replace(record, at=EPOCH + 40 * n * timedelta(seconds=1)) for n, record in enumerate(SENT)]
WINDOWS = [(0, 10, 1, 1), (60, 10, 1, 3), (120, 11, 1, 2)]


def test_windows_are_counted_from_the_topic() -> None:
    twice = [*TIMED, Sent(("t", 0, 3), "row", 5, 10, EPOCH + MINUTE - timedelta(milliseconds=1))]

    assert windows_of(TIMED, MINUTE) == Counter(WINDOWS)
    assert windows_of(twice, MINUTE) == Counter([(0, 10, 2, 6), *WINDOWS[1:]])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (WINDOWS[1:], "lost: (0, 10, 1, 1)"),
        ([*WINDOWS, WINDOWS[0]], "doubled: (0, 10, 1, 1)"),
        ([(0, 10, 2, 2), *WINDOWS[1:]], "not of the topic: (0, 10, 2, 2)"),
    ],
)
def test_a_window_that_is_wrong_is_told(rows: list[tuple[int, ...]], told: str) -> None:
    wanted = windows_of(TIMED, MINUTE)

    found = problems(TIMED, replace(APPENDED, rows=rows), wanted=wanted)

    assert problems(TIMED, replace(APPENDED, rows=WINDOWS), wanted=wanted) == []
    assert any(told in problem for problem in found)


def test_a_record_that_was_repeated_counts_in_the_first_batch_that_has_it() -> None:
    again = [Sent(("t", 0, 3), "row", 1, 10), Sent(("t", 1, 2), "row", 2, 11)]
    end = at(4, 3)
    last = [batches(end=end, counts=LoadCounts(4, 1, 0, 3))]
    found = replace(APPENDED, batches=last[0], end=end)

    told = without_repeated([*SENT, *again], found.batches)

    assert problems(told, found) == []
    assert problems(told, replace(found, rows=[*found.rows, (10, 1)]))


@pytest.mark.parametrize(
    ("arrived", "left", "told"),
    [
        ([("t", 0, 1), ("t", 0, 1)], 0, []),
        ([], 0, ["dead letter ('t', 0, 1) did not reach its topic"]),
        ([("t", 0, 1)], 2, ["2 dead letters still wait for their topic"]),
        ([("t", 0, 1), ("t", 0, 2)], 0, ["('t', 0, 2) was sent, and is no dead letter"]),
    ],
)
def test_messages_of_dead_letters_are_compared_with_the_letters(
    arrived: list[tuple[str, int, int]], left: int, told: list[str]
) -> None:
    assert unsent_letters(arrived, APPENDED.letters, left) == told
