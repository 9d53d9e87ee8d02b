"""An older copy of the control store put back beside newer targets: refused, never a lost row."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.outsides import ON_ARROW

import floodmark as fm

Append = Callable[..., str]


def run_once(coordinator: fm.Coordinator, source: str, target: str) -> None:
    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[source], target, mode="append")

    batch_id = str(coordinator.create_batch([source]).batch_id)
    coordinator.run_pipeline("p", batch_id, copy)
    coordinator.finalize_batch(batch_id)


def opened(control: Path) -> fm.Coordinator:
    return fm.Coordinator(str(control), actor="t", outside=ON_ARROW)


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


def test_of_two_copies_of_a_store_only_the_first_writes_a_batch(
    tmp_path: Path, grow: Append
) -> None:
    control, source, target = tmp_path / "_control", grow("orders", 1), str(tmp_path / "copy")
    first = opened(control)
    first.register("p", [source])
    run_once(first, source, target)
    shutil.copytree(control, tmp_path / "twin")
    second = opened(tmp_path / "twin")
    grow("orders", 2)
    run_once(first, source, target)
    for number in (3, 4):
        with pytest.raises(fm.FloodmarkError) as caught:
            run_once(second, source, target)
        assert caught.value.code == "FM-SINK-015"
        grow("orders", number)

    assert DeltaTable(target).version() == 1
    assert [finding.name for finding in first.verify() if not finding.ok] == []
    assert "G11" in [finding.name for finding in second.verify() if not finding.ok]


def test_two_copies_of_a_store_that_write_at_once_leave_one_of_their_batches(
    tmp_path: Path, grow: Append
) -> None:
    control, source, target = tmp_path / "_control", grow("orders", 1), str(tmp_path / "copy")
    first = opened(control)
    first.register("p", [source])
    run_once(first, source, target)
    shutil.copytree(control, tmp_path / "twin")
    grow("orders", 2)
    outcomes: list[str] = []
    together = threading.Barrier(2)

    def work(coordinator: fm.Coordinator) -> None:
        def copy(inputs: Mapping[str, Any], run: Any) -> None:
            together.wait()
            run.write(inputs[source], target, mode="append")

        batch_id = str(coordinator.create_batch([source]).batch_id)
        try:
            outcomes.append(coordinator.run_pipeline("p", batch_id, copy).status)
        except fm.FloodmarkError as error:
            outcomes.append(error.code)

    threads = [
        threading.Thread(target=work, args=(each,)) for each in (first, opened(tmp_path / "twin"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["FM-SINK-015", "SUCCESS"]
    assert DeltaTable(target).version() == 1


def test_the_number_alone_tells_of_another_copy_where_the_commit_is_gone(
    tmp_path: Path, grow: Append
) -> None:
    control, source, target = tmp_path / "_control", grow("orders", 1), tmp_path / "copy"
    first = opened(control)
    first.register("p", [source])
    run_once(first, source, str(target))
    shutil.copytree(control, tmp_path / "twin")
    grow("orders", 2)
    run_once(first, source, str(target))
    grow("orders", 3)
    table = DeltaTable(target)
    table.create_checkpoint()
    for version in (0, 1):
        (target / "_delta_log" / f"{version:020d}.json").unlink()
    second = opened(tmp_path / "twin")
    for number in range(2):  # its own numbers go on meanwhile
        second.create_batch([grow(f"other{number}", 1)], scope=f"other{number}")

    with pytest.raises(fm.FloodmarkError) as caught:
        run_once(second, source, str(target))

    assert caught.value.code == "FM-SINK-015"
    assert DeltaTable(target).version() == 1
