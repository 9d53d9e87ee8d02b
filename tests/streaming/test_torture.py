"""Streams under torture: whatever is killed when, every record is accounted for exactly once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.support.stream_kinds import KINDS, KindName
from tests.support.stream_torture import StreamTorture

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

SECONDS = os.environ.get("FLOODMARK_TORTURE_SECONDS")
FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
IS_LONG = FULL or SECONDS is not None
TORTURED = list(KINDS) if IS_LONG else ["database"]
BRIEFLY = ("connections", "database", "broker", "driver")
"""Once each, in a minute or two; a second runner that takes over is tested in test_stream_runners."""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", TORTURED)
def test_streams_that_are_killed_at_random_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: KindName
) -> None:
    seconds = float(SECONDS or (600 if FULL else 0))
    seed = int(os.environ.get("FLOODMARK_TORTURE_SEED", random.SystemRandom().randrange(10**6)))

    outcome = StreamTorture(tmp_path, seconds, seed, kind, () if IS_LONG else BRIEFLY).run()

    with capsys.disabled():
        print(f"\ntorture of {kind}, {outcome}")  # noqa: T201 the torture's one line
    assert not outcome.problems, f"seed {seed}:\n" + "\n".join(outcome.problems[:20])
    assert outcome.sent > 5_000
