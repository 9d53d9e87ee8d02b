"""Batches that end because a pipeline left are shown as ended, whatever kind they are of."""

from __future__ import annotations

from collections.abc import Callable

import floodmark as fm

Append = Callable[..., str]


def finish(coordinator: fm.Coordinator, *pipelines: str) -> None:
    batch_id = str(coordinator.create_batch().batch_id)
    for pipeline in pipelines:
        coordinator.record_run(pipeline, batch_id, status="SUCCESS")
    coordinator.finalize_batch(batch_id)


def unsound(coordinator: fm.Coordinator) -> list[str]:
    return [f"{f.name}: {f.text}" for f in coordinator.verify() if not f.ok]


def test_a_seed_whose_pipeline_is_removed_is_published_as_cancelled(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    coordinator.register("p", [orders])
    finish(coordinator, "p")
    coordinator.register("late", [orders])
    seed = coordinator.create_batch()
    coordinator.record_run("late", str(seed.batch_id), status="FAILED", error="on purpose")

    coordinator.unregister("late")

    assert coordinator.status(str(seed.batch_id))[0].status == "CANCELLED"
    assert unsound(coordinator) == []


def test_a_backfill_that_only_a_removed_pipeline_held_is_published_as_completed(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    orders = grow("orders", 1)
    for pipeline in ("p", "q"):
        coordinator.register(pipeline, [orders])
    finish(coordinator, "p", "q")
    backfill = coordinator.backfill(orders, start=0, end=0, pipelines=["p", "q"])
    coordinator.record_run("p", str(backfill.batch_id), status="SUCCESS")

    coordinator.unregister("q")

    assert not coordinator.status(str(backfill.batch_id))[0].is_open
    assert unsound(coordinator) == []
