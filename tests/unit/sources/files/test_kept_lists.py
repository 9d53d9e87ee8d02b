"""Lists of files go where their store goes; one that is lost has a way out that works."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from pathlib import Path

import pytest

from floodmark.cli.main import main
from floodmark.errors import FloodmarkError
from floodmark.project import Project

PROJECT = """\
project: shop
connections: {inbox: {type: files, root: in}, lake: {type: lake, root: lake}}
pipelines:
  - pipeline: rows
    nodes:
      - name: rows
        read: {connection: inbox, format: text, path: "*.txt"BASELINE}
        write: {connection: lake, path: rows, mode: append}
"""


class Inbox:
    """A project over a folder; what a run would read is recorded as read, so no engine is needed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "in").mkdir()
        self.write()

    def write(self, baseline: str = "") -> None:
        (self.root / "floodmark.yaml").write_text(PROJECT.replace("BASELINE", baseline))

    def put(self, name: str) -> None:
        (self.root / "in" / name).write_text(name)

    @property
    def project(self) -> Project:
        return Project.load(self.root)

    def read(self) -> None:
        project = self.project
        (batch,) = project.freeze()
        project.coordinator.record_run("rows", str(batch.batch_id), status="SUCCESS")
        project.coordinator.finalize_batch(str(batch.batch_id))

    def news(self) -> str:
        ((window,),) = [batch.windows for batch in self.project.plan()]
        return window.reason


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    inbox = Inbox(tmp_path)
    inbox.put("a.txt")
    inbox.read()
    inbox.put("b.txt")
    inbox.read()
    return inbox


def kept(inbox: Inbox) -> list[str]:
    folder = inbox.root / "lake/_control"
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


def test_a_preview_from_python_keeps_no_list(inbox: Inbox) -> None:
    inbox.put("c.txt")
    before, project = kept(inbox), inbox.project

    batch = project.coordinator.preview(
        pipelines=["rows"], scope="rows", register=project.definitions.members("rows")
    )

    assert batch.windows[0].reason == "1 new file (3 seen in total)"
    assert kept(inbox) == before


def test_an_imported_store_knows_the_files_that_were_processed(inbox: Inbox) -> None:
    file = inbox.root / "store.jsonl"
    inbox.put("c.txt")
    inbox.project.coordinator.admin.export_state(str(file))
    shutil.rmtree(inbox.root / "lake/_control")

    inbox.project.coordinator.admin.import_state(str(file))

    assert inbox.news() == "1 new file (3 seen in total)"


def test_an_export_with_a_file_of_elsewhere_is_refused_before_anything_is_written(
    inbox: Inbox,
) -> None:
    file = inbox.root / "store.jsonl"
    inbox.project.coordinator.admin.export_state(str(file))
    shutil.rmtree(inbox.root / "lake/_control")
    assert '"file": "files/' in file.read_text()
    file.write_text(file.read_text().replace('"file": "files/', '"file": "files/../../'))

    with pytest.raises(FloodmarkError) as caught:
        inbox.project.coordinator.admin.import_state(str(file))

    assert caught.value.code == "FM-CONTROL-022"
    assert not (inbox.root / "lake/_control").exists()


def test_a_file_that_was_written_a_moment_ago_waits_until_it_has_settled(inbox: Inbox) -> None:
    inbox.write(", settle: 10 minutes")
    for name, seconds in (("c.txt", 700), ("d.txt", 500)):
        inbox.put(name)
        at = time.time() - seconds
        os.utime(inbox.root / "in" / name, (at, at))

    assert inbox.news() == "1 new file (3 seen in total); 1 newer file waits to settle"
    inbox.read()
    assert inbox.news() == "no news; 1 newer file waits to settle"
    inbox.write()
    assert inbox.news() == "1 new file (4 seen in total)"


@pytest.mark.parametrize(
    ("baseline", "news"),
    [("", "3 new files (3 seen in total)"), (", baseline: latest", "no news")],
)
def test_lost_lists_are_given_up_by_the_command_that_is_told(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, baseline: str, news: str
) -> None:
    shutil.rmtree(inbox.root / "lake/_control/files")
    inbox.put("c.txt")
    with pytest.raises(FloodmarkError) as caught:
        inbox.project.plan()
    assert caught.value.code == "FM-SOURCE-040"
    command = shlex.split("floodmark " + str(caught.value.next).rpartition("floodmark ")[2])
    inbox.write(baseline)
    monkeypatch.chdir(inbox.root)

    assert main(command[1:]) == 0
    assert inbox.news() == news
