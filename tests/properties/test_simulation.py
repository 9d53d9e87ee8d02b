"""The control plane under random schedules with kills, stalls and lost answers (G1-G8, G10)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.support.mutants import MUTANTS, mutated
from tests.support.rows import SinkTruth
from tests.support.simulator import Schedule, campaign, first_failure, play
from tests.support.truth import Truth, Violation

from floodmark.control.events.bodies import Body, Created, Event, Planned, Registered
from floodmark.model.window import VersionWindow

SCHEDULES = 20_000
SCHEDULES_FULL = 1_000_000
MUST_BE_CAUGHT_WITHIN = 2_000
BROKE_ONCE = (119_782,)
"""Found in campaigns: a runner left behind journaled into a batch that a snapshot had left out, and
nobody who began with the snapshot could read the journal any more."""


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_no_schedule_breaks_a_guarantee(full_size: bool) -> None:
    failure = campaign(SCHEDULES_FULL if full_size else SCHEDULES, processes=2)
    assert failure is None, str(failure)


@pytest.mark.parametrize("seed", BROKE_ONCE)
def test_a_schedule_that_broke_a_guarantee_breaks_none_now(seed: int) -> None:
    failure = play(seed)
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


def test_the_judge_knows_a_rebuild_behind_the_write_of_a_runner_that_was_left_behind() -> None:
    """It replaces what that one wrote; twice without replacing, or replacing less, stays wrong."""
    whole = {"/u/a": ((0, 1), "snapshot", None)}
    truth = _planned("/u/a", through=1)
    truth.sinks["P", "out"].rebuilds = True

    truth.written("P", "out", 1, whole, 1)  # by the runner that was left behind
    truth.written("P", "out", 1, whole, 2, replaces=True)

    with pytest.raises(Violation, match="applied twice"):
        truth.written("P", "out", 1, whole, 3)
    with pytest.raises(Violation, match="not everything"):
        truth.written("P", "out", 1, {"/u/a": ((1, 1), "feed", 0)}, 3, replaces=True)


def _planned(upstream: str, through: int) -> Truth:
    """The judge of a store in which P writes to one target, with the first batch planned."""
    truth = Truth({"P": {"out": "/t/1"}}, {upstream: through}, {}, lambda *_: 0)
    window = VersionWindow(
        upstream=upstream,
        method="snapshot",
        after=-1,
        through=through,
        reason="",
        table_id="id",
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=through,
    )
    bodies: tuple[Body, ...] = (
        Created("store"),
        Registered("P", "default", (upstream,), "hash"),
        Planned("batch", 1, "default", (window,), {"P": (upstream,)}),
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    truth.committed_events([Event(n, body, f"op{n}", "me", at) for n, body in enumerate(bodies)])
    return truth


def _story(seed: int) -> list[tuple[str, str]]:
    schedule = Schedule(seed)
    schedule.run()
    return [(line.split()[0], line.split()[-1][:2]) for line in schedule.world.trace()]
