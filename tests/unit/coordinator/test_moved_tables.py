"""A table that is known under a path that is gone, and given by a new one, is the same upstream."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import floodmark as fm

from .conftest import Append


def finish(coordinator: fm.Coordinator) -> None:
    batch_id = str(coordinator.create_batch().batch_id)
    coordinator.record_run("p", batch_id, status="SUCCESS")
    coordinator.finalize_batch(batch_id)


@pytest.fixture
def orders(coordinator: fm.Coordinator, grow: Append) -> str:
    """A table of which one batch was processed."""
    path = grow("orders", 1)
    coordinator.register("p", [path])
    finish(coordinator)
    return path


def moved(path: str) -> str:
    shutil.move(path, f"{path}_new")
    return f"{path}_new"


def kinds(coordinator: fm.Coordinator) -> list[str]:
    return [event.kind for event in coordinator.history()]


def test_a_new_path_goes_on_where_the_old_one_stood(
    coordinator: fm.Coordinator, orders: str, grow: Append, tmp_path: Path
) -> None:
    place = moved(orders)
    grow("orders_new", 2)

    coordinator.register("p", [place])
    window = coordinator.create_batch([place]).window(orders)

    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        assert inputs[place].to_pylist()[0]["id"] == inputs[orders].to_pylist()[0]["id"] == 2
        assert run.table(place).num_rows == 2
        run.write(inputs[place], f"{tmp_path}/copy", mode="append")

    batch_id = str(coordinator.current_plan()[0].batch_id)
    coordinator.run_pipeline("p", batch_id, copy)
    assert coordinator.finalize_batch(batch_id) == (orders,)
    assert (window.start, window.end, window.method) == (1, 1, "feed")
    assert kinds(coordinator).count("MOVE") == 1
    assert [(lag.upstream, lag.latest) for lag in coordinator.lag()] == [(orders, 1)]
    assert [f.text for f in coordinator.verify() if not f.ok] == []
    coordinator.register("p", [place])
    assert kinds(coordinator).count("MOVE") == 1


def test_an_open_batch_is_read_in_the_new_place(
    coordinator: fm.Coordinator, orders: str, grow: Append
) -> None:
    grow("orders", 2)
    batch_id = str(coordinator.create_batch().batch_id)
    place = moved(orders)
    coordinator.register("p", [place])

    assert coordinator.inputs(batch_id, "p")[place].num_rows == 1


def test_a_preview_sees_the_move_and_writes_nothing(
    coordinator: fm.Coordinator, orders: str, grow: Append
) -> None:
    place = moved(orders)
    grow("orders_new", 2)

    preview = coordinator.preview([place], register={"p": [place]})

    assert preview.window(orders).start == 1
    assert "MOVE" not in kinds(coordinator)


def test_a_copy_is_no_move(coordinator: fm.Coordinator, orders: str) -> None:
    shutil.copytree(orders, f"{orders}_copy")

    coordinator.register("p", [f"{orders}_copy"])
    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.create_batch([f"{orders}_copy"])

    assert caught.value.code == "FM-PLAN-003"
    assert "MOVE" not in kinds(coordinator)


def test_a_table_that_is_being_read_does_not_move(
    coordinator: fm.Coordinator, orders: str, grow: Append
) -> None:
    grow("orders", 2)
    batch_id = str(coordinator.create_batch().batch_id)
    coordinator.record_run("p", batch_id, status="RUNNING")
    place = moved(orders)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.register("p", [place])
    coordinator.record_run("p", batch_id, status="FAILED")
    coordinator.register("p", [place])

    assert caught.value.code == "FM-PLAN-031"
    assert batch_id in str(caught.value.next)
    assert coordinator.look.state().places == {orders: place}


def test_another_table_in_the_old_place_is_refused_under_that_name(
    coordinator: fm.Coordinator, orders: str, grow: Append
) -> None:
    place = moved(orders)
    coordinator.register("p", [place])
    grow("orders", 9)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.register("q", [orders])

    assert caught.value.code == "FM-PLAN-031"
    assert place in str(caught.value.next)


def test_a_moved_table_is_reset_and_moves_back(
    coordinator: fm.Coordinator, orders: str, grow: Append
) -> None:
    place = moved(orders)
    grow("orders_new", 2)
    coordinator.register("p", [place])
    coordinator.admin.reset(place, to_version=1)
    shutil.move(place, orders)

    coordinator.register("p", [orders])

    assert coordinator.look.state().places == {}
    assert [(c.upstream, c.version) for c in coordinator.checkpoints()] == [(orders, 1)]
