"""What the memory of every stream promises: nothing lost, nothing twice, whoever dies when.

Run on both ledgers by test_stream_ledgers.py. What happens to targets that are put back, copied or
cleaned in the middle of a story is receipt_contract.py's.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.contract.ledger_places import LedgerPlace, end_of
from tests.services.stream_places import ME, at, batch
from tests.support import crash

from floodmark import failpoints
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import (
    AlreadyApplied,
    Applied,
    Claim,
    ClaimFacts,
    LoadCounts,
    StreamBatch,
)
from floodmark.streaming.ledger.protocol import StreamLedger
from floodmark.streaming.ledger.requests import GONE_SECONDS, Listener, SignOfLife

OTHER = ClaimFacts(holder="the other one", topic_ids={"t": "id-1"})


class StreamLedgerContract:
    """Subclasses give the fixture `place`."""

    @pytest.fixture
    def ledger(self, place: LedgerPlace) -> Iterator[StreamLedger[Any]]:
        made = place.ledger()
        made.ensure()
        yield made
        made.close()

    @pytest.fixture
    def claim(self, ledger: StreamLedger[Any]) -> Claim:
        """Of a stream that begins at offset 0."""
        return begun(ledger)

    # Claims -------------------------------------------------------------------------------------

    def test_a_stream_that_nobody_claimed_is_not_there(self, ledger: StreamLedger[Any]) -> None:
        ledger.ensure()
        ledger.ensure(creates=False)

        assert ledger.stored() is None
        assert ledger.trusted("numbers") is None
        assert ledger.history().batches == 0

    def test_a_claim_says_who_and_what_and_is_the_next_epoch(
        self, ledger: StreamLedger[Any]
    ) -> None:
        facts = ClaimFacts("here", {"t": "id-1"}, "query-1", "checkpoint", "hash")

        first = ledger.claim(facts, ledger.stored())
        second = ledger.claim(OTHER, ledger.stored())

        row = ledger.stored()
        assert row is not None
        assert (first.epoch, second.epoch, row.epoch) == (1, 2, 2)
        assert (first.query_id, first.checkpoint, first.config_hash) == (
            *("query-1", "checkpoint"),
            "hash",
        )
        assert (row.holder, row.claim_id) == ("the other one", second.claim_id)
        assert dict(row.topic_ids) == {"t": "id-1"}
        assert first.claim_id != second.claim_id

    def test_the_runner_that_lost_its_stream_is_fenced(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        other = place.ledger()
        taken = other.claim(OTHER, other.stored())

        error = refused(place, ledger, claim, 3)
        with pytest.raises(StreamError) as moving:
            ledger.move(claim, at(9), "too late")
        with pytest.raises(StreamError) as told:
            ledger.refuse_fenced(claim)
        other.refuse_fenced(taken)

        assert (error.code, error.exit_code, error.retryable) == ("FM-STREAM-001", 4, False)
        assert (moving.value.code, told.value.code) == (error.code, error.code)
        assert "the other one" in (error.found or "")
        assert place.numbers() == []
        assert isinstance(committed(place, other, taken, 3), Applied)
        other.close()

    def test_a_claim_on_what_has_moved_since_fences_nobody(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        other = place.ledger()
        seen = other.stored()
        committed(place, ledger, claim, 3)

        with pytest.raises(StreamError) as caught:
            other.claim(ME, seen)

        assert (caught.value.code, caught.value.retryable) == ("FM-STREAM-011", True)
        assert isinstance(committed(place, ledger, behind(ledger, claim), 4), Applied)
        other.close()

    def test_of_runners_that_claim_at_one_moment_one_has_the_stream(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        del claim
        seen, claims, codes = ledger.stored(), list[Claim](), list[str]()

        def take() -> None:
            mine = place.ledger()
            try:
                claims.append(mine.claim(ME, seen))
            except StreamError as error:
                codes.append(error.code)
            mine.close()

        side_by_side([take] * 3)

        held = [each for each in claims if not is_fenced(ledger, each)]
        assert len(held) == 1
        assert len(claims) + len(codes) == 3
        assert set(codes) <= {"FM-STREAM-011"}

    def test_of_runners_that_find_no_ledger_at_one_moment_one_has_the_stream(
        self, place: LedgerPlace
    ) -> None:
        """All of them make it; some databases and delta-rs let more than one of them succeed."""
        gate, claims, codes = threading.Barrier(4), list[Claim](), list[str]()

        def take() -> None:
            mine = place.ledger()
            gate.wait()
            mine.ensure()
            try:
                claims.append(begun(mine))
            except StreamError as error:
                codes.append(error.code)
            mine.close()

        side_by_side([take] * 4)

        ledger = place.ledger()
        held = [each for each in claims if not is_fenced(ledger, each)]
        assert len(held) == 1
        assert len(claims) + len(codes) == 4
        assert set(codes) <= {"FM-STREAM-001", "FM-STREAM-011"}
        assert isinstance(committed(place, ledger, held[0], 3), Applied)
        ledger.close()

    # Batches ------------------------------------------------------------------------------------

    def test_a_batch_is_there_with_its_offsets(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        reached = datetime(2026, 1, 1, tzinfo=UTC)
        number = claim.next_batch_id
        planned = batch(
            claim, number, 0, 3, spark_batch_id=7, checkpoint="c", event_watermark=reached
        )

        done = ledger.commit(claim, planned, place.load(0, 3))

        row = place.ledger().stored()
        assert done == Applied(number, LoadCounts(3, 3))
        assert row is not None
        assert (row.start_offsets, row.end_offsets) == (at(0), at(3))
        assert (row.batch_id, row.spark_batch_id, row.incarnation) == (number, 7, 1)
        assert row.event_watermark == reached
        assert place.ledger().trusted("numbers") == row
        assert place.numbers() == [0, 1, 2]

    def test_a_repeated_batch_changes_nothing(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        first = committed(place, ledger, claim, 3)
        before = ledger.stored()

        again = [committed(place, each, claim, 3) for each in (ledger, place.ledger())]

        assert again == [AlreadyApplied(first.batch_id)] * 2
        assert ledger.stored() == before
        assert place.numbers() == [0, 1, 2]

    def test_gaps_and_overlaps_are_refused_with_the_partition(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        committed(place, ledger, claim, 3)
        there = behind(ledger, claim)

        gap = refused(place, ledger, there, 6, start=4)
        overlap = refused(place, ledger, there, 6, start=2)

        assert (gap.code, overlap.code) == ("FM-STREAM-002", "FM-STREAM-003")
        assert "t-0 begins at 4, 3 is next" in (gap.found or "")
        assert place.numbers() == [0, 1, 2]
        assert isinstance(committed(place, ledger, there, 5), Applied)

    def test_a_new_partition_begins_at_0_or_is_a_gap(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        committed(place, ledger, claim, 3)
        there = behind(ledger, claim)
        end = Offsets.of({("t", 0): 4, ("t", 1): 2})
        start = Offsets.of({("t", 0): 3, ("t", 1): 1})

        gap, whole = (StreamBatch(there.next_batch_id, 1, each, end) for each in (start, at(3)))

        with pytest.raises(StreamError) as caught:
            ledger.commit(there, gap, place.load(3, 5))
        done = ledger.commit(there, whole, place.load(3, 6))

        assert caught.value.code == "FM-STREAM-002"
        assert isinstance(done, Applied)

    def test_a_record_that_is_not_accounted_for_leaves_nothing(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        planned = batch(claim, claim.next_batch_id, 0, 3)

        with pytest.raises(StreamError) as caught:
            ledger.commit(claim, planned, place.load(0, 2, LoadCounts(3, 2)))

        assert caught.value.code == "FM-STREAM-007"
        assert place.numbers() == []
        assert isinstance(committed(place, ledger, claim, 3), Applied)

    @pytest.mark.parametrize("arrives", [True, False])
    def test_a_commit_without_an_answer_is_there_once(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim, arrives: bool
    ) -> None:
        place.commit_without_answer(claim, 3, arrives=arrives)

        again = committed(place, ledger, claim, 3)

        assert isinstance(again, AlreadyApplied if arrives else Applied)
        assert place.numbers() == [0, 1, 2]
        assert isinstance(committed(place, ledger, behind(ledger, claim), 5), Applied)

    def test_a_new_incarnation_goes_on_at_the_stored_offsets(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        planned = batch(claim, claim.next_batch_id, 0, 3, spark_batch_id=12)
        ledger.commit(claim, planned, place.load(0, 3))

        facts = ClaimFacts(holder="test", query_id="q2", begins_incarnation=True)
        again = ledger.claim(facts, ledger.stored())
        done = committed(place, ledger, again, 5)

        assert (again.incarnation, again.spark_batch_id, again.end_offsets) == (2, None, at(3))
        assert done.batch_id == planned.batch_id + 1
        row = ledger.stored()
        assert row is not None
        assert (row.incarnation, row.end_offsets, row.query_id) == (2, at(5), "q2")

    def test_a_position_moved_by_decision_is_kept_and_numbers_go_on(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        first = committed(place, ledger, claim, 2)

        skipped = ledger.move(claim, at(10), "8 records lost")
        second = committed(place, ledger, skipped, 11)
        anew = ledger.move(behind(ledger, skipped), None, "reset")

        assert (skipped.incarnation, skipped.end_offsets) == (2, at(10))
        assert second.batch_id == first.batch_id + 2
        assert (anew.incarnation, anew.end_offsets, anew.event_watermark) == (3, None, None)
        row = ledger.stored()
        assert row is not None
        assert (row.incarnation, row.end_offsets, row.batch_id) == (3, None, anew.batch_id)
        assert place.numbers() == [0, 1, 10]

    def test_writers_that_pause_and_take_over_at_random_leave_every_record_once(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim, full_size: bool
    ) -> None:
        del claim
        outcomes = Outcomes(seconds=20.0 if full_size else 1.0)
        writers = [RandomWriter(place, seed, outcomes) for seed in range(3)]

        side_by_side([writer.run for writer in writers])

        stored = ledger.stored()
        assert stored is not None
        assert stored.end_offsets is not None
        assert place.numbers() == list(range(stored.end_offsets.at(("t", 0))))
        assert outcomes.are_all_there, outcomes.counts
        assert set(outcomes.counts) <= {
            *("Applied", "AlreadyApplied", "FM-STREAM-001", "FM-STREAM-002", "FM-STREAM-003"),
            *("FM-STREAM-011", "FM-STREAM-015", "FM-STREAM-046"),
        }

    # Targets that parted from their memory --------------------------------------------------------

    def test_an_older_copy_of_the_target_is_not_gone_on_from(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        committed(place, ledger, claim, 3)
        place.save()
        committed(place, ledger, behind(ledger, claim), 5)
        ledger.claim(ME, ledger.stored())
        place.put_back()

        with pytest.raises(StreamError) as caught:
            place.ledger().trusted("numbers")

        assert caught.value.code == place.restored
        assert caught.value.next

    def test_a_target_that_went_its_own_way_is_not_gone_on_from(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        committed(place, ledger, claim, 3)
        done = committed(place, ledger, behind(ledger, claim), 5)
        ledger.claim(ME, ledger.stored())
        place.go_its_own_way(done.batch_id)

        with pytest.raises(StreamError) as caught:
            place.ledger().trusted("numbers")

        assert caught.value.code == place.forked

    def test_a_batch_whose_own_record_was_cleaned_is_not_written_again(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        first = committed(place, ledger, claim, 3)
        place.clean()

        if place.cleaned is None:
            assert committed(place, ledger, claim, 3) == AlreadyApplied(first.batch_id)
            assert isinstance(committed(place, ledger, behind(ledger, claim), 4), Applied)
            return
        assert refused(place, ledger, claim, 3).code == place.cleaned
        assert place.numbers() == [0, 1, 2]

    # Clean-up -----------------------------------------------------------------------------------

    def test_clean_up_leaves_the_position_and_what_is_applied_known(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        committed(place, ledger, claim, 3)
        there = behind(ledger, claim)
        committed(place, ledger, there, 5)
        before = ledger.stored()

        ledger.cleanup(0)
        removed = ledger.cleanup(0)

        assert removed == 0
        assert ledger.stored() == before
        assert ledger.trusted("numbers") == before
        assert isinstance(committed(place, ledger, there, 5), AlreadyApplied)
        with pytest.raises(ValueError, match="retention"):
            ledger.cleanup(-1)

    def test_old_letters_go_and_every_other_stays(
        self, place: LedgerPlace, ledger: StreamLedger[Any]
    ) -> None:
        none_yet = ledger.cleanup_dead_letters(0)
        for batch_id, days in ((0, 40), (1, 31), (2, 29), (3, 0)):
            place.add_letter(batch_id, days)
        place.add_letter(4, 40, "another's")

        removed = [ledger.cleanup_dead_letters(30) for _ in range(2)]

        assert (none_yet, removed) == (0, [2, 0])
        assert place.letters() == [2, 3, 4]
        with pytest.raises(ValueError, match="retention"):
            ledger.cleanup_dead_letters(-1)

    @pytest.mark.parametrize("point", failpoints.LETTER_POINTS)
    def test_a_clean_up_of_letters_that_is_killed_repeats_cleanly(
        self, place: LedgerPlace, ledger: StreamLedger[Any], point: str, tmp_path: Path
    ) -> None:
        place.add_letter(0, 40)
        place.add_letter(1, 0)
        armed = {"FLOODMARK_FAILPOINT": point}

        code = crash.run(clean_letters, place, log=tmp_path / "log", environment=armed)
        half_way = place.letters()
        ledger.cleanup_dead_letters(30)

        assert code == -signal.SIGKILL, (tmp_path / "log").read_text()
        assert (half_way, place.letters()) == ([0, 1], [1])

    def test_history_counts_batches_and_what_became_of_their_records(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        planned = batch(claim, claim.next_batch_id, 0, 3)
        ledger.commit(claim, planned, place.load(0, 2, LoadCounts(3, 2, dropped=1)))

        history = ledger.history()

        records = {"received": 3, "written": 2, "dead_lettered": 0, "dropped": 1}
        assert dict(history.records or {}) == records
        assert (history.records_last_minute, history.dead_letters) == (3, 0)
        assert history.seconds_since_last_batch is not None
        assert 0 <= history.seconds_since_last_batch < 60
        assert history.batches_last_minute == history.batches >= 1

    # Requests and signs of life -------------------------------------------------------------------

    def test_the_runner_that_is_meant_ends_and_answers(self, ledger: StreamLedger[Any]) -> None:
        claim_id, before = claimed(ledger), ledger.stored()

        ledger.ask_to_stop(claim_id, "me")
        ledger.ask_to_stop(claim_id, "me too")
        has_ended = ledger.has_ended(claim_id)

        assert not has_ended
        assert hears(ledger, claim_id, 30)
        assert ledger.has_ended(claim_id)
        assert ledger.stored() == before

    def test_a_later_runner_does_not_take_the_request_for_its_own(
        self, ledger: StreamLedger[Any]
    ) -> None:
        first = claimed(ledger)
        ledger.ask_to_stop(first, "me")

        second = claimed(ledger)

        assert not hears(ledger, second, 0.2)
        assert not ledger.has_ended(first)

    def test_a_runner_that_ends_by_itself_answers_a_request_that_it_had_not_heard(
        self, ledger: StreamLedger[Any]
    ) -> None:
        claim_id, stop = claimed(ledger), threading.Event()

        with Listener(ledger.another(), stop, "numbers", claim_id, look_seconds=60).listening():
            ledger.ask_to_stop(claim_id, "me")

        assert not stop.is_set()
        assert ledger.has_ended(claim_id)

    def test_a_runner_that_nobody_asked_says_that_it_has_ended(
        self, ledger: StreamLedger[Any]
    ) -> None:
        claim_id = claimed(ledger)
        before = ledger.has_ended(claim_id)

        assert not hears(ledger, claim_id, 0.2)
        assert (before, ledger.has_ended(claim_id)) == (False, True)

    def test_a_batch_that_is_under_way_does_not_hold_up_the_request(
        self, place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim
    ) -> None:
        asker, claim_id = place.ledger(), str(claim.claim_id)
        load = place.load(0, 1, during=lambda: asker.ask_to_stop(claim_id, "me"))

        ledger.commit(claim, batch(claim, claim.next_batch_id, 0, 1), load)

        assert asker.is_asked_to_stop(claim_id)
        asker.close()

    def test_a_runner_that_is_killed_right_behind_its_claim_is_missed(
        self, place: LedgerPlace, ledger: StreamLedger[Any]
    ) -> None:
        claim_id = claimed(ledger)
        before = sign_of(ledger, claim_id)

        place.let_pass(GONE_SECONDS)

        assert not before.is_gone
        assert before.seconds_ago < 30
        assert sign_of(ledger, claim_id).is_gone

    def test_a_runner_at_work_gives_signs_also_behind_a_request_to_end(
        self, place: LedgerPlace, ledger: StreamLedger[Any]
    ) -> None:
        claim_id = claimed(ledger)
        place.let_pass(2 * GONE_SECONDS)

        runs(ledger, claim_id, lambda: until_young(ledger, claim_id), stops=True)

        assert sign_of(ledger, claim_id).has_ended

    def test_an_end_that_nobody_asked_for_is_missed_and_any_other_is_not(
        self, place: LedgerPlace, ledger: StreamLedger[Any]
    ) -> None:
        failed = claimed(ledger)
        with pytest.raises(StreamError):
            runs(ledger, failed, fail)
        place.let_pass(GONE_SECONDS)
        after_error = sign_of(ledger, failed)
        done = claimed(ledger)
        runs(ledger, done, lambda: None)
        place.let_pass(GONE_SECONDS)
        after_end = sign_of(ledger, done)
        stopped = claimed(ledger)
        with pytest.raises(StreamError):
            runs(ledger, stopped, fail, stops=True)
        place.let_pass(GONE_SECONDS)

        assert (after_error.is_gone, after_error.has_ended) == (True, False)
        assert (after_end.is_gone, after_end.has_ended) == (False, True)
        assert not sign_of(ledger, stopped).is_gone

    def test_a_runner_that_was_fenced_is_not_taken_for_the_one_behind_it(
        self, place: LedgerPlace, ledger: StreamLedger[Any]
    ) -> None:
        first, second = claimed(ledger), claimed(ledger)
        place.let_pass(GONE_SECONDS)

        ledger.give_sign(first)
        ledger.note_end(first)

        assert sign_of(ledger, second).is_gone
        assert not ledger.has_ended(second)

    def test_a_memory_of_an_older_floodmark_tells_of_no_sign(
        self, place: LedgerPlace, ledger: StreamLedger[Any]
    ) -> None:
        claim_id = claimed(ledger)
        place.forget_sign(claim_id)

        assert ledger.sign_of_life(claim_id) is None
        ledger.ensure()  # which gives an older table its column again
        ledger.give_sign(claim_id)
        assert not sign_of(ledger, claim_id).is_gone


def clean_letters(place: LedgerPlace) -> None:
    ledger = place.ledger()
    ledger.cleanup_dead_letters(30)
    ledger.close()


class Outcomes:
    """What became of batches; a busy machine gets more time until each kind has come."""

    def __init__(self, seconds: float) -> None:
        self.counts: Counter[str] = Counter()
        began = time.monotonic()
        self._soonest, self._latest = began + seconds, began + 120

    @property
    def are_all_there(self) -> bool:
        """Whether batches were written, repeated, fenced and refused."""
        breaks = self.counts["FM-STREAM-002"] + self.counts["FM-STREAM-003"]
        others = [self.counts[kind] for kind in ("Applied", "AlreadyApplied", "FM-STREAM-001")]
        return breaks > 0 and all(others)

    @property
    def are_enough(self) -> bool:
        """Whether the writers may end."""
        now = time.monotonic()
        return now > self._latest or (now > self._soonest and self.are_all_there)


class RandomWriter:
    """A runner that pauses, restarts from stale offsets and takes over at random."""

    def __init__(self, place: LedgerPlace, seed: int, outcomes: Outcomes) -> None:
        self._random = random.Random(seed)
        self._place = place
        self._outcomes = outcomes
        self._ledger = place.ledger()

    def run(self) -> None:
        while not self._outcomes.are_enough:
            try:
                self._live(self._ledger.claim(ME, self._ledger.stored()))
            except StreamError as error:
                self._outcomes.counts[error.code] += 1
            time.sleep(self._random.choice((0, 0, 0.01, 0.05)))
        self._ledger.close()

    def _live(self, claim: Claim) -> None:
        # What a runner believes is now and then older than what is stored, or newer.
        doubt = self._random.choice((0, 0, 0, -3, 2))
        number, start = claim.next_batch_id, max(0, end_of(claim) + doubt)
        for _ in range(self._random.randrange(1, 12)):
            end = start + self._random.randrange(1, 20)
            for _ in range(self._random.choice((1, 1, 1, 2))):
                planned = batch(claim, number, start, end)
                load = self._place.load(start, end, during=self._pause)
                done = self._ledger.commit(claim, planned, load)
                self._outcomes.counts[type(done).__name__] += 1
            claim = replace(claim, batch_id=number, end_offsets=at(end))
            number, start = number + 1, end
            time.sleep(self._random.choice((0, 0.005)))

    def _pause(self) -> None:
        time.sleep(self._random.choice((0, 0, 0, 0.02)))


def begun(ledger: StreamLedger[Any]) -> Claim:
    claim = ledger.claim(ME, ledger.stored())
    return ledger.move(claim, at(0), "begins at earliest", begins_incarnation=False)


def committed(
    place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim, end: int, start: int | None = None
) -> Applied | AlreadyApplied:
    """Commit the batch behind a claim, up to an offset."""
    begin = end_of(claim) if start is None else start
    planned = batch(claim, claim.next_batch_id, begin, end)
    return ledger.commit(claim, planned, place.load(begin, end))


def refused(
    place: LedgerPlace, ledger: StreamLedger[Any], claim: Claim, end: int, start: int | None = None
) -> StreamError:
    with pytest.raises(StreamError) as caught:
        committed(place, ledger, claim, end, start)
    return caught.value


def behind(ledger: StreamLedger[Any], claim: Claim) -> Claim:
    """The claim as its runner has it once its batch is committed."""
    row = ledger.stored()
    assert row is not None
    return replace(
        claim,
        start_offsets=row.start_offsets,
        end_offsets=row.end_offsets,
        batch_id=row.batch_id,
        incarnation=row.incarnation,
    )


def is_fenced(ledger: StreamLedger[Any], claim: Claim) -> bool:
    try:
        ledger.refuse_fenced(claim)
    except StreamError as error:
        if error.code != "FM-STREAM-001":
            raise
        return True
    return False


def side_by_side(acts: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def claimed(ledger: StreamLedger[Any], facts: ClaimFacts = ME) -> str:
    return str(ledger.claim(facts, ledger.stored()).claim_id)


def hears(ledger: StreamLedger[Any], claim_id: str, seconds: float) -> bool:
    """Whether the runner with a claim hears a request; it ends in any case."""
    stop = threading.Event()
    listener = Listener(ledger.another(), stop, "numbers", claim_id, look_seconds=0.02)
    with listener.listening():
        return stop.wait(seconds)


def runs(
    ledger: StreamLedger[Any], claim_id: str, act: Callable[[], object], *, stops: bool = False
) -> None:
    """A runner that does `act` while it listens."""
    stop = threading.Event()
    listener = Listener(
        ledger.another(), stop, "numbers", claim_id, look_seconds=0.02, sign_seconds=0.02
    )
    with listener.listening():
        if stops:
            stop.set()
        act()


def fail() -> None:
    raise StreamError("FM-STREAM-005", "the database did not do what was asked")


def sign_of(ledger: StreamLedger[Any], claim_id: str) -> SignOfLife:
    sign = ledger.sign_of_life(claim_id)
    assert sign is not None
    return sign


def until_young(ledger: StreamLedger[Any], claim_id: str) -> None:
    deadline = time.monotonic() + 30
    while sign_of(ledger, claim_id).is_gone:
        assert time.monotonic() < deadline
        time.sleep(0.02)
