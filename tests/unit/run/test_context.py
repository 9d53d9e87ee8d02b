"""What a user's function gets is small; the rest of a pass is for nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import crash

from floodmark.run.context import Run


def test_a_function_sees_a_handful_of_names(tmp_path: Path) -> None:
    crash.append_rows(tmp_path, crash.ORDERS, [(1, 10)])
    story = crash.Story(tmp_path, "append", pipelines=("copy",))
    coordinator = story.coordinator()
    story.register(coordinator)
    seen: list[str] = []

    def function(inputs: Mapping[str, Any], run: Run) -> None:
        seen.extend(name for name in dir(run) if not name.startswith("_"))

    coordinator.run_pipeline("copy", coordinator.create_batch().batch_id or "", function)

    assert seen == sorted(
        ["batch", "pipeline", "run_id", "spark", "table", "window", "windows", "write"]
    )
