"""An older copy of the control store put back beside newer targets: refused, never a lost row."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import floodmark as fm
from floodmark.testing.crash import ArrowEngine

Append = Callable[..., str]


def run_once(coordinator: fm.Coordinator, source: str, target: str) -> None:
    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[source], target, mode="append")

    batch_id = str(coordinator.create_batch([source]).batch_id)
    coordinator.run_pipeline("p", batch_id, copy)
    coordinator.finalize_batch(batch_id)


def opened(control: Path) -> fm.Coordinator:
    coordinator = fm.Coordinator(str(control), actor="t", lease_ttl=2)
    coordinator._engine = ArrowEngine()
    return coordinator


@pytest.mark.parametrize("numbers_used_meanwhile", [0, 1])
def test_a_batch_the_store_has_forgotten_is_not_taken_for_ours(
    tmp_path: Path, grow: Append, numbers_used_meanwhile: int
) -> None:
    control, source, target = tmp_path / "_control", grow("orders", 1), str(tmp_path / "copy")
    coordinator = opened(control)
    coordinator.register("p", [source])
    run_once(coordinator, source, target)
    shutil.copytree(control, tmp_path / "old")
    grow("orders", 2)
    run_once(coordinator, source, target)
    shutil.rmtree(control)
    shutil.move(tmp_path / "old", control)
    restored = opened(control)
    for number in range(numbers_used_meanwhile):
        restored.create_batch([grow(f"other{number}", 1)], scope="other")
    grow("orders", 3)

    with pytest.raises(fm.FloodmarkError) as caught:
        run_once(restored, source, target)

    assert caught.value.code == "FM-SINK-015"
    assert restored.checkpoints([source])[0].version == 0
    assert "G11" in [finding.name for finding in restored.verify() if not finding.ok]
