"""The control plane under random schedules with kills, stalls and lost answers (G1-G8, G10)."""

from __future__ import annotations

import pytest
from tests.support.mutants import MUTANTS, mutated
from tests.support.rows import SinkTruth
from tests.support.simulator import Schedule, campaign, first_failure, play

SCHEDULES = 20_000
SCHEDULES_FULL = 1_000_000
MUST_BE_CAUGHT_WITHIN = 2_000


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_no_schedule_breaks_a_guarantee(full_size: bool) -> None:
    failure = campaign(SCHEDULES_FULL if full_size else SCHEDULES, processes=2)
    assert failure is None, str(failure)


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_broken_protocol_is_caught(mutant: str) -> None:
    with mutated(mutant) as mutation:
        failure = first_failure(range(MUST_BE_CAUGHT_WITHIN))

    assert failure is not None, f"{mutant} survived {MUST_BE_CAUGHT_WITHIN} schedules"
    # Caught for what it breaks: not for a fault of its own, nor without having run at all.
    assert not failure.violation.startswith("untyped"), str(failure)
    assert mutation.idle() == []


def test_a_seed_is_one_schedule() -> None:
    assert _story(11) == _story(11)


def test_a_failure_can_be_played_again() -> None:
    failure = first_failure(range(100), "sink_without_receipt")
    assert failure is not None
    again = play(failure.seed, "sink_without_receipt")
    assert again is not None
    assert again.violation == failure.violation
    assert f"--seed {failure.seed} --mutant sink_without_receipt" in str(failure)
    assert len(failure.trace) <= 40


def test_a_mutant_leaves_nothing_behind() -> None:
    for name in MUTANTS:
        with mutated(name):
            pass
    assert first_failure(range(20)) is None


@pytest.mark.parametrize(("kept", "is_lost"), [(3, False), (2, True)])
def test_the_judge_asks_for_a_rebuild_only_where_a_restore_took_rows(
    kept: int, *, is_lost: bool
) -> None:
    sink = SinkTruth("/t/1", awaits_record=True)  # a rebuild has committed, and nobody recorded it
    sink.add("/u/a", ((0, 0), "snapshot", None))
    sink.there[1] = (3, {"/u/a": range(1)})

    sink.lose_since(moment=4, kept=kept)

    assert (sink.rebuilds, bool(sink.losses), sink.lacks()) == (is_lost, is_lost, is_lost)


def _story(seed: int) -> list[tuple[str, str]]:
    schedule = Schedule(seed)
    schedule.run()
    return [(line.split()[0], line.split()[-1][:2]) for line in schedule.world.trace()]
