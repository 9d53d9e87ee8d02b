"""A store as a file: the same store again, or nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.crash import Story, build_lake, churn_lake, end_state

import floodmark as fm
from floodmark.errors import FloodmarkError


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Two finished batches, folded, and an open one."""
    build_lake(tmp_path)
    told = Story(tmp_path, "append")
    coordinator = told.coordinator()
    told.tell(coordinator)
    coordinator.admin.upkeep()
    churn_lake(tmp_path, 1)
    coordinator.create_batch()
    return told


@pytest.fixture
def file(story: Story) -> Path:
    path = story.root / "store.jsonl"
    story.coordinator().admin.export_state(str(path))
    return path


def lose_store(story: Story) -> None:
    shutil.rmtree(story.root / "control")


def test_an_export_says_what_is_in_it(story: Story) -> None:
    content = story.coordinator().admin.export_state(str(story.root / "out.jsonl"))

    state = story.coordinator().look.state()
    assert content.control_id == state.control_id
    assert content.events == state.seq
    assert (content.batches, content.watermarks) == (3, 2)
    assert content.pipelines == ("copy", "wide")
    assert len(content.open_batches) == 1
    assert content.is_complete


def test_an_imported_store_is_the_same_store_and_goes_on(story: Story, file: Path) -> None:
    before = story.coordinator()
    state, history = before.look.state(), before.history()
    lose_store(story)

    content = story.coordinator().admin.import_state(str(file))

    after = story.coordinator()
    assert after.look.state() == state
    assert after.history() == history
    assert content.control_id == state.control_id
    story.step(after)
    assert end_state(str(story.root))["problems"] == []


def test_an_import_into_a_store_is_refused_and_changes_nothing(story: Story, file: Path) -> None:
    state = story.coordinator().look.state()

    with pytest.raises(FloodmarkError) as caught:
        story.coordinator().admin.import_state(str(file))

    assert caught.value.code == "FM-CONTROL-021"
    assert story.coordinator().look.state() == state


def test_an_import_beside_published_tables_is_refused(story: Story, file: Path) -> None:
    shutil.rmtree(story.root / "control/_journal")

    with pytest.raises(FloodmarkError) as caught:
        story.coordinator().admin.import_state(str(file))

    assert caught.value.code == "FM-CONTROL-021"
    assert not (story.root / "control/_journal").exists()


def test_an_import_that_was_killed_before_its_commit_can_be_repeated(
    story: Story, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark import failpoints

    state = story.coordinator().look.state()
    lose_store(story)
    failpoints.rearm()
    monkeypatch.setenv("FLOODMARK_FAILPOINT", "journal.after_data_file")
    monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
    with pytest.raises(failpoints.FailpointReached):
        story.coordinator().admin.import_state(str(file))
    monkeypatch.delenv("FLOODMARK_FAILPOINT")

    story.coordinator().admin.import_state(str(file))

    assert story.coordinator().look.state() == state


def test_an_export_never_replaces_a_file(story: Story, file: Path) -> None:
    before = file.read_bytes()

    with pytest.raises(FloodmarkError) as caught:
        story.coordinator().admin.export_state(str(file))

    assert caught.value.code == "FM-CONFIG-007"
    assert file.read_bytes() == before


def cut_off(lines: list[str]) -> list[str]:
    return lines[:-1]


def no_json(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1][:20]]


def of_a_newer_version(lines: list[str]) -> list[str]:
    return [json.dumps({**json.loads(lines[0]), "floodmark_export": 99}), *lines[1:]]


def without_one(lines: list[str]) -> list[str]:
    header = json.loads(lines[0])
    header["events"] -= 1
    return [json.dumps(header), *lines[1:3], *lines[4:]]


def other(lines: list[str]) -> list[str]:
    return [json.dumps({**json.loads(lines[0]), "control_id": "x"}), *lines[1:]]


@pytest.mark.parametrize(
    "damage", [cut_off, no_json, of_a_newer_version, without_one, other, lambda _: []]
)
def test_a_damaged_file_is_refused_and_no_store_is_made(
    story: Story, file: Path, damage: Callable[[list[str]], list[str]]
) -> None:
    lose_store(story)
    file.write_text("\n".join(damage(file.read_text().splitlines())))

    with pytest.raises(FloodmarkError) as caught:
        story.coordinator().admin.import_state(str(file))

    assert caught.value.code == "FM-CONTROL-022"
    assert not (story.root / "control").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError) as caught:
        fm.Coordinator(str(tmp_path / "control")).admin.import_state(str(tmp_path / "none"))

    assert caught.value.code == "FM-CONTROL-022"
