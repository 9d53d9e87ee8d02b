"""A full disk under the journal or under the targets: a typed error, no half state, and a retry.

The small disk is a tmpfs; where the tests may not mount one, these are skipped and say so, and
the ones with a limit on the size of files are left.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import crash

import floodmark as fm
from floodmark.model.write import WriteMode

REFUSED, DONE = 4, 0
PAGE = 4096
SIZE = 8 << 20
PAGES_LEFT = (0, 1, 3, 8, 21, 55)
"""How many pages of the disk are free when the commands begin: they run out at another step."""


class SmallDisk:
    """A tmpfs at a folder, with ballast."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, pages_left: int) -> None:
        """Take all the space but some pages."""
        handle = os.open(self._ballast, os.O_CREAT | os.O_WRONLY)
        written = 0
        try:
            while True:
                written += os.write(handle, bytes(PAGE))
        except OSError:
            os.ftruncate(handle, written - pages_left * PAGE)
        finally:
            os.close(handle)

    def free(self) -> None:
        self._ballast.unlink()


def mounted(folder: Path) -> Iterator[SmallDisk]:
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield SmallDisk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    assert crash.run(crash.build_lake, tmp_path, log=tmp_path / "log") == 0
    return tmp_path


@pytest.fixture
def control_disk(lake: Path) -> Iterator[SmallDisk]:
    yield from mounted(lake / "control")


@pytest.fixture
def sink_disk(lake: Path) -> Iterator[SmallDisk]:
    yield from mounted(lake / "sinks")


def told(root: Path, mode: WriteMode) -> int:
    return crash.run(crash.tell, str(root), mode, log=root / "log")


def assert_mended(root: Path, expected: dict[str, Any], mode: WriteMode) -> None:
    """The normal commands finish what the full disk stopped, as if nothing had been."""
    log = root / "log"
    assert told(root, mode) == DONE, log.read_text()[-3000:]
    rebuilt = crash.result(rebuilt_tables, str(root), log=log)
    assert rebuilt
    assert crash.result(crash.end_state, str(root), log=log) == expected


def rebuilt_tables(root: str) -> bool:
    """A table that could not be refreshed is warned about, with this command."""
    return fm.Coordinator(f"{root}/control", base=root).admin.rebuild_tables()


@pytest.mark.parametrize("pages_left", PAGES_LEFT)
def test_a_full_disk_under_the_journal_stops_everything_and_breaks_nothing(
    lake: Path, control_disk: SmallDisk, undisturbed: dict[str, Any], pages_left: int
) -> None:
    assert crash.run(register, lake, log=lake / "log") == DONE
    control_disk.fill(pages_left)

    assert told(lake, "append") == REFUSED, (lake / "log").read_text()[-3000:]

    said = (lake / "log").read_text()
    assert "FM-CONTROL-002" in said or "FM-CONTROL-014" in said
    control_disk.free()
    assert_mended(lake, undisturbed["append"], "append")


def register(root: Path) -> None:
    story = crash.Story(root, "append")
    story.register(story.coordinator())


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("pages_left", PAGES_LEFT[:3])
def test_a_full_disk_under_the_targets_fails_the_run_and_the_retry_finishes_it(
    lake: Path,
    sink_disk: SmallDisk,
    undisturbed: dict[str, Any],
    pages_left: int,
    mode: WriteMode,
) -> None:
    sink_disk.fill(pages_left)

    assert told(lake, mode) == REFUSED, (lake / "log").read_text()[-3000:]

    assert "FM-SINK-019" in (lake / "log").read_text()
    failed = [r for b in state_of(lake).batches.values() for r in b.runs.values()]
    assert {run.status for run in failed} <= {"FAILED", "SUCCESS"}
    sink_disk.free()
    assert_mended(lake, undisturbed[mode], mode)


def state_of(root: Path) -> Any:
    return fm.Coordinator(str(root / "control"), base=str(root)).look.state()


def told_without_room(root: Path) -> None:
    """The story, with no room for any file from the planning of the first batch on."""
    story = crash.Story(root, "append")
    coordinator = story.coordinator()
    story.register(coordinator)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        story.step(coordinator)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_a_process_that_may_write_no_file_is_refused_and_leaves_no_half_state(
    lake: Path, undisturbed: dict[str, Any]
) -> None:
    assert crash.run(told_without_room, lake, log=lake / "log") == REFUSED

    assert "FM-CONTROL-002" in (lake / "log").read_text()
    assert state_of(lake).batches == {}
    assert_mended(lake, undisturbed["append"], "append")
