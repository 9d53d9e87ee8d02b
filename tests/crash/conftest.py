"""What an undisturbed story ends with, for the tests that disturb it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import crash


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The end state of the story in each mode."""
    states: dict[str, dict[str, Any]] = {}
    for mode in crash.MODES:
        root = tmp_path_factory.mktemp(f"undisturbed-{mode}")
        log = root / "log"
        assert crash.run(crash.build_lake, root, log=log) == 0, log.read_text()
        assert crash.run(crash.tell, str(root), mode, log=log) == 0, log.read_text()
        states[mode] = crash.result(crash.end_state, str(root), log=log)
    return states
