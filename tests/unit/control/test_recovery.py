"""A lost store is restored from its targets: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.crash import (
    CUSTOMERS,
    MODES,
    ORDERS,
    PIPELINES,
    WRITES,
    Story,
    append_rows,
    build_lake,
    churn_lake,
    end_state,
)

import floodmark as fm
from floodmark import failpoints
from floodmark.errors import FloodmarkError
from floodmark.model.write import WriteMode

TARGETS = [target for writes in WRITES.values() for _, target in writes]


def tell(root: Path, mode: WriteMode = "append") -> Story:
    build_lake(root)
    story = Story(root, mode)
    story.tell()
    return story


def lose_store(story: Story) -> fm.Coordinator:
    shutil.rmtree(story.root / "control")
    return story.coordinator()


def go_on(story: Story) -> dict[str, Any]:
    """Two more batches, and what they lead to."""
    for number in (7, 8):
        churn_lake(story.root, number)
        append_rows(story.root, CUSTOMERS, [(number, number)])
        story.step(story.coordinator())
    state = end_state(str(story.root))
    return {name: state[name] for name in ("rows", "receipts", "marks", "problems")}


@pytest.mark.parametrize("mode", MODES)
def test_after_a_rebuild_the_next_batches_lead_where_they_would_have(
    tmp_path: Path, mode: WriteMode
) -> None:
    undisturbed = go_on(tell(tmp_path / "undisturbed", mode))
    story = tell(tmp_path / "lost", mode)
    before = story.coordinator().look.state()

    content = lose_store(story).admin.rebuild_from_targets(TARGETS)

    after = story.coordinator().look.state()
    assert content.control_id == before.control_id
    assert after.batch_seq == before.batch_seq
    assert {k: m.version for k, m in after.marks.items()} == {
        k: m.version for k, m in before.marks.items()
    }
    assert go_on(story) == undisturbed
    assert undisturbed["problems"] == []


def test_a_table_that_was_recreated_stands_where_its_newest_batch_ended(tmp_path: Path) -> None:
    story = tell(tmp_path, "merge")
    for number in (20, 21, 22):
        append_rows(tmp_path, CUSTOMERS, [(number, number)])
    story.step(story.coordinator())
    shutil.rmtree(tmp_path / CUSTOMERS)
    append_rows(tmp_path, CUSTOMERS, [(1, 1), (70, 7)])
    story.coordinator().admin.reset(str(tmp_path / CUSTOMERS))
    keep = {"mode": "merge", "keys": ["id"], "missing": "keep"}
    coordinator = story.coordinator()
    batch = str(coordinator.create_batch().batch_id)
    for pipeline in coordinator.current_plan()[0].pipelines:

        def write(inputs: Any, run: Any, pipeline: str = pipeline) -> None:
            for upstream, target in WRITES[pipeline]:
                run.write(inputs[upstream], target, upstreams=upstream, **keep)

        coordinator.run_pipeline(pipeline, batch, write)
    coordinator.finalize_batch(batch)
    before = {k: (m.version, m.table_id) for k, m in coordinator.look.state().marks.items()}

    lose_store(story).admin.rebuild_from_targets(TARGETS)

    after = story.coordinator().look.state().marks
    assert {k: (m.version, m.table_id) for k, m in after.items()} == before
    assert story.coordinator().create_batch().status == "NOOP"


def test_it_says_what_could_not_be_restored(tmp_path: Path) -> None:
    story = tell(tmp_path)

    content = lose_store(story).admin.rebuild_from_targets(
        TARGETS, {"copy": ("default", [ORDERS]), "silent": ("default", [ORDERS])}
    )

    assert any("failed, cancelled and external runs" in text for text in content.not_restored)
    assert any("how far silent had come" in text for text in content.not_restored)
    assert set(content.pipelines) == {"copy", "wide", "silent"}


def test_a_name_of_a_catalog_is_not_taken_for_a_path(tmp_path: Path) -> None:
    story = tell(tmp_path)
    known = {"copy": ("default", [ORDERS, "lake.customers"])}

    content = lose_store(story).admin.rebuild_from_targets(TARGETS, known)

    upstreams = story.coordinator().look.state().pipelines["copy"].upstreams
    assert not any("lake.customers" in upstream for upstream in upstreams)
    assert any("names of a catalog and lookups" in text for text in content.not_restored)


def test_nothing_new_is_planned_when_everything_was_done(tmp_path: Path) -> None:
    story = tell(tmp_path)

    lose_store(story).admin.rebuild_from_targets(TARGETS)

    assert story.coordinator().create_batch().status == "NOOP"
    assert [f for f in story.coordinator().verify() if not f.ok] == []


@pytest.mark.parametrize(
    "point", ["sink.between_sinks", "sink.between_sinks:2", "run.after_success"]
)
def test_a_batch_that_some_writes_hold_is_open_again_and_is_finished(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = tell(tmp_path / "undisturbed")
    churn_lake(undisturbed.root, 1)
    undisturbed.step(undisturbed.coordinator())
    story = tell(tmp_path / "lost")
    churn_lake(story.root, 1)
    failpoints.rearm()
    monkeypatch.setenv("FLOODMARK_FAILPOINT", point)
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    with pytest.raises(failpoints.FailpointReached):
        story.step(story.coordinator())
    monkeypatch.delenv("FLOODMARK_FAILPOINT")
    [lost] = story.coordinator().current_plan()

    content = lose_store(story).admin.rebuild_from_targets(TARGETS)
    again = story.step(story.coordinator())

    assert content.open_batches == (lost.batch_id,)
    assert (again.batch_id, again.seq, again.reused) == (lost.batch_id, lost.seq, True)
    assert go_on(story) == go_on(undisturbed)


def test_a_store_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    story = tell(tmp_path)
    before = story.coordinator().look.state()

    with pytest.raises(FloodmarkError) as caught:
        story.coordinator().admin.rebuild_from_targets(TARGETS)

    assert caught.value.code == "FM-CONTROL-021"
    assert story.coordinator().look.state() == before


def test_targets_of_no_store_are_refused(tmp_path: Path) -> None:
    story = tell(tmp_path)

    with pytest.raises(FloodmarkError) as caught:
        lose_store(story).admin.rebuild_from_targets([ORDERS])

    assert caught.value.code == "FM-CONTROL-024"
    assert not (tmp_path / "control").exists()


def test_targets_of_two_stores_are_refused(tmp_path: Path) -> None:
    first, second = tell(tmp_path / "a"), tell(tmp_path / "b")
    shutil.copytree(second.root / "sinks/first", first.root / "sinks/other")

    with pytest.raises(FloodmarkError) as caught:
        lose_store(first).admin.rebuild_from_targets([*TARGETS, "./sinks/other"])

    assert caught.value.code == "FM-CONTROL-024"
    assert "several" in caught.value.title


def test_a_target_that_was_not_named_is_not_written_twice(tmp_path: Path) -> None:
    story = tell(tmp_path)
    named = [target for _, target in WRITES["copy"]]

    lose_store(story).admin.rebuild_from_targets(
        named, {name: ("default", upstreams) for name, upstreams in PIPELINES.items()}
    )
    coordinator = story.coordinator()
    churn_lake(tmp_path, 1)
    coordinator.create_batch()
    [first, *_] = coordinator.look.state().batches_owed_by("wide")

    with pytest.raises(FloodmarkError) as caught:
        coordinator.run_pipeline("wide", first.batch_id, story.function("wide"))

    assert caught.value.code.startswith("FM-SINK-")


def test_a_rebuilt_store_can_be_kept_up_exported_and_rebuilt(tmp_path: Path) -> None:
    story = tell(tmp_path)
    lose_store(story).admin.rebuild_from_targets(TARGETS)
    go_on(story)
    coordinator = story.coordinator()

    done = coordinator.admin.upkeep(0, allow_short=True)
    exported = coordinator.admin.export_state(str(tmp_path / "out"))

    assert done.folded_events == exported.events
    assert coordinator.admin.rebuild_tables()
    assert [f for f in story.coordinator().verify() if not f.ok] == []
    assert "log" not in os.listdir(tmp_path)
