"""A range that is processed again as a snapshot: keys that came later are not missing from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

import floodmark as fm

Append = Callable[..., str]


@pytest.fixture
def orders(coordinator: fm.Coordinator, grow: Append, tmp_path: Path) -> str:
    """Versions 0 and 1, processed into a target that keeps deleted keys."""
    source = grow("orders", 1)
    coordinator.register("p", [source])
    for number in (1, 2):
        batch_id = str(coordinator.create_batch().batch_id)
        coordinator.run_pipeline("p", batch_id, merging(source, tmp_path, "delete"))
        coordinator.finalize_batch(batch_id)
        if number == 1:
            grow("orders", 2)
    return source


def merging(source: str, tmp_path: Path, missing: str) -> Callable[..., None]:
    def merge(inputs: Mapping[str, Any], run: Any) -> None:
        options = {"keys": ["id"], "deletes": "soft", "sequence_by": "id", "missing": missing}
        run.write(inputs[source], str(tmp_path / "copy"), mode="merge", **options)

    return merge


def living(tmp_path: Path) -> list[int]:
    query = "SELECT id FROM t WHERE NOT is_deleted"
    rows = QueryBuilder().register("t", DeltaTable(str(tmp_path / "copy"))).execute(query)
    return sorted(rows.read_all()["id"].to_pylist())


def test_keys_that_came_later_are_not_deleted(
    coordinator: fm.Coordinator, orders: str, tmp_path: Path
) -> None:
    batch = coordinator.backfill(orders, start=0, end=0, pipelines=["p"])

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", str(batch.batch_id), merging(orders, tmp_path, "delete"))

    assert batch.window(orders).method == "snapshot"
    assert caught.value.code == "FM-SINK-022"
    assert living(tmp_path) == [1, 2]


def test_they_stay_where_the_write_keeps_what_is_missing(
    coordinator: fm.Coordinator, orders: str, tmp_path: Path
) -> None:
    batch = coordinator.backfill(orders, start=0, end=0, pipelines=["p"])

    coordinator.run_pipeline("p", str(batch.batch_id), merging(orders, tmp_path, "keep"))

    assert living(tmp_path) == [1, 2]
