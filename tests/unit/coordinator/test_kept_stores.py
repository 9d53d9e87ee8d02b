"""Stores of older versions are opened, planned on, run and verified by this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.crash import Story, churn_lake, end_state
from tests.support.stores import PLACE, unpack

import floodmark as fm
from floodmark.control.published.reading import read_published
from floodmark.deltalog import Storage

KEPT = sorted((Path(__file__).parents[2] / "fixtures").glob("store-v*/store.zip"))


@pytest.fixture(params=KEPT, ids=lambda archive: archive.parent.name)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    unpack(request.param, tmp_path)
    return Story(tmp_path, "append")


def problems(coordinator: fm.Coordinator) -> list[Any]:
    return [finding for finding in coordinator.verify() if not finding.ok]


def test_there_is_a_kept_store_of_the_first_format() -> None:
    assert next(archive.parent.name for archive in KEPT) == "store-v1"


def test_it_opens_and_every_guarantee_holds(kept: Story) -> None:
    coordinator = kept.coordinator()

    open_one, *finished = coordinator.status()

    assert open_one.status == "FAILED"
    assert sorted(batch.status for batch in finished) == ["CANCELLED", "COMPLETED", "COMPLETED"]
    assert problems(coordinator) == []


def test_no_name_of_the_place_where_it_was_made_is_left(kept: Story) -> None:
    names = [each.upstream for each in kept.coordinator().lag()]

    assert names
    assert all(name.startswith(str(kept.root)) for name in names)
    assert PLACE not in str(kept.coordinator().history())


def test_its_open_batch_is_finished_and_the_next_one_follows(kept: Story) -> None:
    coordinator = kept.coordinator()

    again = kept.step(coordinator)
    churn_lake(kept.root, 2)
    following = kept.step(coordinator)

    assert again.reused
    assert not following.reused
    assert following.seq == 5
    assert not coordinator.current_plan()
    assert end_state(str(kept.root))["problems"] == []


def test_columns_that_came_later_are_added_and_old_rows_do_not_tell(kept: Story) -> None:
    coordinator = kept.coordinator()
    again = kept.step(coordinator)
    coordinator.admin.upkeep(keep_rows=0)

    efforts = {row["batch_id"]: row for row in rows_of(f"{coordinator.control}/watermarks")}
    archived = rows_of(f"{coordinator.control}/archive/watermarks")

    assert efforts[again.batch_id]["retries"] >= 1
    assert efforts[again.batch_id]["duration_seconds"] > 0
    assert {row["retries"] for row in archived} == {None}
    assert problems(coordinator) == []


def rows_of(path: str) -> list[dict[str, Any]]:
    rows = read_published(path, Storage(), "SELECT * FROM t")
    assert rows is not None
    return list(rows.to_pylist())


def test_its_tables_can_be_written_anew(kept: Story) -> None:
    coordinator = kept.coordinator()

    assert coordinator.admin.rebuild_tables()
    assert problems(coordinator) == []
