"""The control plane under random schedules with kills, stalls and lost answers (G1-G8, G10)."""

from __future__ import annotations

import pytest

from floodmark.testing.mutants import MUTANTS, mutated
from floodmark.testing.simulator import Schedule, campaign, first_failure, play

SCHEDULES = 20_000
SCHEDULES_FULL = 200_000
MUST_BE_CAUGHT_WITHIN = 2_000


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_schedule_breaks_a_guarantee(full_size: bool) -> None:
    failure = campaign(SCHEDULES_FULL if full_size else SCHEDULES, processes=2)
    assert failure is None, str(failure)


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_broken_protocol_is_caught(mutant: str) -> None:
    failure = first_failure(range(MUST_BE_CAUGHT_WITHIN), mutant)
    assert failure is not None, f"{mutant} survived {MUST_BE_CAUGHT_WITHIN} schedules"


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


def _story(seed: int) -> list[tuple[str, str]]:
    schedule = Schedule(seed)
    schedule.run()
    return [(line.split()[0], line.split()[-1][:2]) for line in schedule.world.trace()]
