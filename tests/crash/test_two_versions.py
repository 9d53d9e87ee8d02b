"""A version that others still run, and this one, side by side on one control store.

Each is killed where the other has to go on: an app id, a payload or a holder that one of them
reads otherwise would double rows, lose them, or leave a batch that nobody can finish.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Literal

import pytest
from tests.support import crash

from floodmark import failpoints
from floodmark.model.write import WriteMode

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "tests/fixtures/version-0.1/floodmark.zip"
"""The package as it was at 34db721: `git archive --format=zip 34db721 src/floodmark`."""

Version = Literal["old", "new"]

IMPORTS: dict[Version, str] = {
    "old": "from floodmark.control import upkeep\nfrom floodmark.testing import crash",
    "new": "from floodmark.control.upkeep import upkeep\nfrom tests.support import crash",
}
"""Where each version has what its story is told with."""
TELL = """
import sys
from pathlib import Path
import floodmark
{imports}
assert Path(floodmark.__file__).is_relative_to(sys.argv[1]), floodmark.__file__
upkeep.COMPACT_AFTER_FILES = crash.COMPACT_AFTER_FILES
crash.tell(sys.argv[2], sys.argv[3])
"""
"""The whole story; what is done already is skipped."""

IS_FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
POINTS = (
    "run.after_lease",
    "sink.after_commit",
    "run.after_success",
    "finalize.after_commit",
    "compact.after_commit",
)
"""Where what one version has written is all that the other one knows."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[Version, Path]:
    """Where the code of each version is."""
    folder = tmp_path_factory.mktemp("version")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return {"old": folder / "src", "new": ROOT / "src"}


def tell(
    sources: dict[Version, Path],
    version: Version,
    root: Path,
    mode: WriteMode,
    failpoint: str | None = None,
) -> int:
    """The story by one version in a process of its own; its exit code."""
    source = sources[version]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
    if failpoint:
        environment["FLOODMARK_FAILPOINT"] = failpoint
    story = TELL.format(imports=IMPORTS[version])
    command = [sys.executable, "-c", story, str(source), str(root), mode]
    with (root / "log").open("a") as log:
        return subprocess.run(
            command, env=environment, stdout=log, stderr=log, timeout=120, check=False
        ).returncode


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Where this version alone gets to."""
    root = tmp_path_factory.mktemp("alone")
    crash.build_lake(root)
    crash.tell(str(root), "append")
    return crash.end_state(str(root))


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("point", failpoints.POINTS if IS_FULL else POINTS)
def test_one_version_goes_on_where_the_other_was_killed(
    tmp_path: Path,
    sources: dict[Version, Path],
    undisturbed: dict[str, object],
    first: Version,
    point: str,
) -> None:
    second: Version = "new" if first == "old" else "old"
    crash.build_lake(tmp_path)

    killed = tell(sources, first, tmp_path, "append", point)
    finished = tell(sources, second, tmp_path, "append")
    repeated = tell(sources, first, tmp_path, "append")

    log = (tmp_path / "log").read_text()
    assert (killed, finished, repeated) == (-signal.SIGKILL, 0, 0), log
    assert crash.end_state(str(tmp_path)) == undisturbed, log
