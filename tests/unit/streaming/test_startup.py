from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import StreamRow
from floodmark.streaming.position.checkpoint import Checkpoint
from floodmark.streaming.position.decisions import (
    Stored,
    adopted,
    check_offsets,
    check_topics,
    decide,
    stored_of,
)

IDS = {"t": "id-1"}


def at(offset: int, **more: int) -> Offsets:
    return Offsets.of({("t", 0): offset, **{("t", int(p[1:])): o for p, o in more.items()}})


def checkpoint(last_batch: int | None, last_commit: int | None) -> Checkpoint:
    """Batch n ends at 10 * (n + 1)."""
    kept = [] if last_batch is None else [n for n in (last_batch - 1, last_batch) if n >= 0]
    ends = {number: at(10 * (number + 1)) for number in kept}
    return Checkpoint("/cp", "query-1", last_batch, last_commit, ends, at(0))


def stored(batch: int | None, end: int, query: str | None = "query-1") -> Stored:
    return Stored(at(end), query, batch, IDS)


def stop(*args: object, **options: bool) -> StreamError:
    with pytest.raises(StreamError) as caught:
        decide("clicks", *args, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == 4
    assert "nothing was read or written" in (caught.value.state or "")
    return caught.value


def test_with_nothing_anywhere_it_begins_as_configured() -> None:
    start = decide("clicks", None, None, IDS, keeps_state=True)

    assert (start.kind, start.offsets) == ("fresh", None)


def test_a_checkpoint_in_which_nothing_was_planned_is_none() -> None:
    begun = replace(checkpoint(None, None), initial=None)

    assert decide("clicks", begun, None, IDS).kind == "fresh"
    assert decide("clicks", begun, Stored(None, "query-2"), IDS).kind == "fresh"


@pytest.mark.parametrize("planned", [None, 0])
def test_a_stream_that_was_killed_in_its_first_batch_goes_on_where_it_began(
    planned: int | None,
) -> None:
    start = decide("clicks", checkpoint(planned, None), Stored(None, "query-1"), IDS)

    assert (start.kind, start.offsets) == ("resume", at(0))


@pytest.mark.parametrize(
    "found", [None, replace(checkpoint(4, 4), query_id="query-2")], ids=["deleted", "of another"]
)
def test_without_its_checkpoint_a_stream_goes_on_where_the_target_ends(
    found: Checkpoint | None,
) -> None:
    start = decide("clicks", found, stored(9, 77), IDS)

    assert (start.kind, start.offsets) == ("new_incarnation", at(77))


@pytest.mark.parametrize(
    "found", [None, replace(checkpoint(4, 4), query_id="query-2")], ids=["deleted", "of another"]
)
def test_without_its_checkpoint_a_query_with_state_asks_first(found: Checkpoint | None) -> None:
    error = stop(found, stored(9, 77), IDS, keeps_state=True)

    assert error.code == "FM-STREAM-033"
    assert "floodmark stream run clicks --accept-state-loss" in (error.next or "")
    told = decide("clicks", found, stored(9, 77), IDS, keeps_state=True, accepts_state_loss=True)
    assert (told.kind, told.offsets) == ("new_incarnation", at(77))


def test_an_incarnation_that_did_nothing_yet_has_no_state_to_lose() -> None:
    start = decide("clicks", checkpoint(0, None), stored(None, 77, None), IDS, keeps_state=True)

    assert (start.kind, start.offsets) == ("new_incarnation", at(77))


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (checkpoint(3, 3), None),
        (checkpoint(0, 0), Stored(None, "query-1")),
        (checkpoint(0, None), None),
        (checkpoint(0, None), Stored(None, "query-2")),
        (checkpoint(None, None), None),
    ],
)
def test_a_target_that_forgot_stops_the_stream(found: Checkpoint, known: Stored | None) -> None:
    error = stop(found, known, IDS)

    assert error.code == "FM-STREAM-034"
    assert "floodmark stream adopt clicks" in (error.next or "")
    assert "floodmark stream reset clicks --to earliest --yes" in (error.next or "")


@pytest.mark.parametrize(
    ("planned", "committed", "batch", "end"),
    [
        (3, 3, 3, 40),
        (4, 3, 3, 40),
        (4, 3, 4, 50),
        (0, None, 0, 10),
        (0, None, None, 0),
        (None, None, None, 0),
    ],
)
def test_where_both_agree_the_stream_resumes(
    planned: int | None, committed: int | None, batch: int | None, end: int
) -> None:
    start = decide(
        "clicks", checkpoint(planned, committed), stored(batch, end), IDS, keeps_state=True
    )

    assert (start.kind, start.offsets) == ("resume", at(end))


def test_an_incarnation_whose_checkpoint_planned_nothing_begins_at_the_targets_end() -> None:
    begun = replace(checkpoint(None, None), initial=None)

    start = decide("clicks", begun, stored(None, 77), IDS, keeps_state=True)

    assert (start.kind, start.offsets) == ("resume", at(77))


def test_a_row_tells_position_query_and_batch() -> None:
    row = StreamRow(
        "s", 1, None, 2, IDS, None, None, None, 7, "q", None, None, None, True, None, ""
    )

    assert stored_of(None) is None
    assert stored_of(row) == Stored(None, "q", 7, IDS)
    assert stored_of(replace(row, end_offsets=at(5))) == Stored(at(5), "q", 7, IDS)


@pytest.mark.parametrize(
    ("planned", "committed", "batch", "end", "why"),
    [
        (3, 3, 2, 30, "the database was restored"),
        (3, 3, None, 0, "the database was restored"),
        (0, 0, None, 0, "the database was restored"),
        (3, 3, 3, 41, "batch 3 ends elsewhere"),
        (4, 3, 4, 51, "batch 4 ends elsewhere"),
        (3, 3, 4, 50, "the checkpoint was restored"),
        (3, 3, 9, 100, "the checkpoint was restored"),
        (4, 3, 5, 60, "the checkpoint was restored"),
        (None, None, 0, 10, "the checkpoint was restored"),
        (None, None, None, 5, "batch -1 ends elsewhere"),
    ],
)
def test_where_they_do_not_agree_the_stream_stops(
    planned: int | None, committed: int | None, batch: int | None, end: int, why: str
) -> None:
    error = stop(checkpoint(planned, committed), stored(batch, end), IDS)

    assert error.code == "FM-STREAM-035"
    assert why in (error.found or "")
    assert (error.next or "").startswith("floodmark stream rewind clicks (")
    assert error.details["target"].endswith(f", ends at {at(end)}")


def test_a_rewind_of_a_query_with_state_says_that_it_costs_the_state() -> None:
    error = stop(checkpoint(3, 3), stored(2, 30), IDS, keeps_state=True)

    assert (error.next or "").startswith("floodmark stream rewind clicks --accept-state-loss ")


@pytest.mark.parametrize("found", [None, checkpoint(3, 3)])
def test_a_recreated_topic_stops_the_stream_whatever_the_checkpoint(
    found: Checkpoint | None,
) -> None:
    error = stop(found, stored(3, 40), {"t": "id-2"})

    assert error.code == "FM-STREAM-024"
    assert (error.found, "id-1" in (error.allowed or "")) == ("id id-2", True)
    assert (error.next or "").startswith("floodmark stream reset clicks --to earliest --yes")


@pytest.mark.parametrize(
    ("before", "now"), [({"t": None}, {"t": "id-2"}), ({"t": "id-1"}, {"t": None})]
)
def test_topics_without_ids_are_not_compared_and_that_is_said(
    before: dict[str, str | None], now: dict[str, str | None]
) -> None:
    start = decide("clicks", checkpoint(3, 3), replace(stored(3, 40), topic_ids=before), now)

    assert start.kind == "resume"
    assert start.remarks == ("topic t has no id: whether it was recreated is not known",)


def test_a_topic_that_is_read_for_the_first_time_has_nothing_to_compare() -> None:
    assert check_topics("clicks", {"t": "id-1"}, {"t": "id-1", "u": "id-9"}) == ()


def test_what_is_adopted_agrees_with_the_checkpoint() -> None:
    found = checkpoint(4, 3)

    assert decide("clicks", found, adopted(found, IDS), IDS).kind == "resume"
    with pytest.raises(ValueError, match="no commit"):
        adopted(checkpoint(0, None), IDS)


def test_records_that_aged_out_are_named_with_partition_wanted_and_available() -> None:
    with pytest.raises(StreamError) as caught:
        check_offsets("clicks", at(10, p1=5), at(12, p1=0, p2=3), at(20, p1=9, p2=4))

    error = caught.value
    assert error.code == "FM-STREAM-023"
    assert error.found == (
        "t-0 begins at 12, offset 10 is wanted; t-2 begins at 3, offset 0 is wanted"
    )
    assert (error.next or "").startswith("floodmark stream run clicks --skip-to-earliest ")


def test_a_topic_that_ends_too_early_is_named() -> None:
    with pytest.raises(StreamError) as caught:
        check_offsets("clicks", at(10, p1=5), at(0), at(3, p1=9))

    assert caught.value.code == "FM-STREAM-025"
    assert caught.value.found == "t-0 ends at 3, offset 10 is wanted"
    assert "floodmark stream reset clicks --to earliest --yes" in (caught.value.next or "")


def test_offsets_that_are_all_there_are_fine() -> None:
    check_offsets("clicks", at(10), at(10, p1=0), at(10, p1=4))


def test_many_partitions_are_counted() -> None:
    start = Offsets.of({("t", n): 1 for n in range(30)})

    with pytest.raises(StreamError, match="Kafka") as caught:
        check_offsets(
            "clicks",
            start,
            Offsets.of({("t", n): 2 for n in range(30)}),
            Offsets.of({("t", n): 3 for n in range(30)}),
        )

    assert (caught.value.found or "").endswith("and 10 more partitions")
