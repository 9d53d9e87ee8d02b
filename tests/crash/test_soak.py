"""Ten processes on one store, killed and stopped at random: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.support.soak import Soak


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_processes_killed_and_stopped_at_random_lose_and_repeat_nothing(
    tmp_path: Path, full_size: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(os.environ.get("FLOODMARK_SOAK_SECONDS", "600" if full_size else "60"))
    seed = int(os.environ.get("FLOODMARK_SOAK_SEED", random.SystemRandom().randrange(10**6)))
    outcome = Soak(tmp_path, seconds, seed).run()
    problems = outcome.pop("problems")
    with capsys.disabled():
        numbers = ", ".join(f"{name} {value}" for name, value in outcome.items())
        print(f"\nsoak of {seconds:g} s: {numbers}, problems {len(problems)}")  # noqa: T201 the soak's one line
    assert not problems, f"seed {seed}:\n" + "\n".join(problems[:20])
    assert outcome["batches"] > 1
