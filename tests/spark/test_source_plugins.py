"""Sources and sinks by plug-in: the guide's project, and what goes wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import crash
from tests.support.outsides import ALONE

from floodmark import failpoints
from floodmark.errors import FloodmarkError
from floodmark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/plug-ins.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(language: str) -> str:
    found = [str(code) for name, code in FENCE.findall(GUIDE.read_text()) if name == language]
    return found[1]


SEEN = """
    def seen(self, receipt):
        import os
        lines = open(self.file).read().split("\\n") if os.path.exists(self.file) else []
        return any(line.startswith(f"{receipt.seq}: ") for line in lines)
"""


class Desk:
    """The project of the guide."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        (root / "out").mkdir()
        self.tickets = root / "tickets.csv"
        self.write()

    def write(self, module: str | None = None, project: str | None = None) -> None:
        """Each test has a module of its own name: imported ones are not read again."""
        name = f"desk_{self.root.name}_{len(list(self.root.glob('desk_*.py')))}"
        (self.root / f"{name}.py").write_text(module or block("python"))
        text = (project or block("yaml")).replace("[desk]", f"[{name}]\nlease_ttl: 1s")
        text = text.replace("tickets.csv", str(self.tickets)).replace(
            "folder: out", f"folder: {self.root}/out"
        )
        (self.root / "floodmark.yaml").write_text(text)

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark, outside=ALONE)

    def run(self) -> Any:
        summary = self.project.run()
        for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
            raise error
        return summary

    def shown(self) -> list[str]:
        path = self.root / "out/open.txt"
        return sorted(path.read_text().splitlines()) if path.exists() else []


@pytest.fixture
def desk(tmp_path: Path, spark: SparkSession) -> Iterator[Desk]:
    path = list(sys.path)
    yield Desk(tmp_path, spark)
    sys.path[:] = path


def failure(desk: Desk) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        desk.run()
    return caught.value


def test_a_second_run_hands_on_what_is_new_and_late_ties(desk: Desk) -> None:
    desk.tickets.write_text("1,broken\n2,lost\n")
    desk.run()
    desk.tickets.write_text("1,broken\n2,lost\n2,late\n3,new\n")
    (plan,) = desk.project.plan()
    assert [w.reason for w in plan.windows] == [
        "rows with number after 2 through 3; late ones as far back as the overlap"
    ]
    desk.run()
    desk.run()

    texts = [line.partition(": ")[2] for line in desk.shown()]
    assert texts == ["1 broken", "2 lost", "2 late", "3 new"]


def test_rows_beside_the_window_are_left_out(desk: Desk) -> None:
    module = block("python").replace("if (start is None or start <= row[0]) and row[0] <= end", "")
    desk.write(module.replace("return max((", "return 2 if len(self._rows()) == 3 else max(("))
    desk.tickets.write_text("1,a\n2,b\n3,c\n")
    desk.run()

    assert [line.partition(": ")[2] for line in desk.shown()] == ["1 a", "2 b"]


@pytest.mark.parametrize(
    ("old", "new", "title", "found"),
    [
        ("return max(", "return 1.5 or max(", "latest gave no mark", "a float"),
        ("return max(", "raise OSError('down') or max(", "latest raised an error", "OSError: down"),
        ("return spark.", "return None and spark.", "read gave no frame", "a NoneType"),
        ('"number LONG, text', '"number INT, text', "read gave other columns", "number int"),
    ],
)
def test_a_source_that_does_something_else_is_named(
    old: str, new: str, title: str, found: str, desk: Desk
) -> None:
    desk.write(block("python").replace(old, new))
    desk.tickets.write_text("1,a\n")

    error = failure(desk)

    assert error.code == "FM-SOURCE-045"
    assert error.title.endswith(f":Tickets.{title}")
    assert error.found == found
    assert desk.shown() == []


def crashed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    failpoints.rearm()
    with monkeypatch.context() as armed:
        armed.setenv("FLOODMARK_FAILPOINT", "run.before_done")
        armed.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
        with pytest.raises(failpoints.FailpointReached):
            desk.run()


@pytest.mark.parametrize(("more", "times"), [("", 2), (SEEN, 1)])
def test_a_write_that_died_is_repeated_unless_the_sink_has_seen_it(
    more: str, times: int, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    desk.write(block("python") + more)
    desk.tickets.write_text("1,a\n")
    crashed(desk, monkeypatch)
    time.sleep(1.1)  # until the lease of the dead run has run out
    desk.tickets.write_text("1,changed\n")
    desk.run()

    assert [line.partition(": ")[2] for line in desk.shown()] == ["1 a"] * times
    assert all(finding.ok for finding in desk.project.verify())


DEATHS = (
    "landing.after_write",
    "run.before_done",
    "plan.after_discover",
    "run.after_lease",
    "edge.after_write",
    "finalize.before_commit",
    "edge.before_remove",
)
"""The first two are tried in every run of the tests, all of them with --full."""


def test_a_run_that_dies_anywhere_hands_each_row_once_to_a_sink_that_remembers(
    desk: Desk, full_size: bool
) -> None:
    import time

    desk.write(block("python") + SEEN)
    tickets: list[str] = []
    for number, point in enumerate(DEATHS if full_size else DEATHS[:2], 1):
        tickets.append(f"{number},ticket")
        desk.tickets.write_text("\n".join(tickets) + "\n")
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            desk.run()
        time.sleep(0.4)  # until the lease of the dead run has run out
        desk.run()

        texts = [line.partition(": ")[2] for line in desk.shown()]
        assert texts == [f"{n} ticket" for n in range(1, number + 1)], point
    assert all(finding.ok for finding in desk.project.verify())


def test_a_sink_that_raises_is_named_without_its_secrets(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOARD_TOKEN", "geheim-44")
    module = block("python").replace(
        "self.file = f", "self.token = options['token']; self.file = f"
    )
    project = block("yaml").replace("{folder: out}", '{folder: out, token: "${env:BOARD_TOKEN}"}')
    desk.write(
        module.replace(
            "with open(self.file, ", "raise OSError(self.token)\n        with open(self.file, "
        ),
        project,
    )
    desk.tickets.write_text("1,a\n")

    error = failure(desk)

    assert error.code == "FM-SINK-035"
    assert error.found == "OSError: ***"
    assert error.title.endswith(":Board.write raised an error")


def test_unknown_names_are_refused_with_their_place(desk: Desk) -> None:
    desk.write(project=block("yaml").replace("name: tickets,", "name: tickest,"))

    for call in (lambda: Project.check(desk.root), desk.project.plan):
        with pytest.raises(FloodmarkError) as caught:
            call()
        assert caught.value.code == "FM-CONFIG-013"
        assert caught.value.allowed == "tickets; nearest: tickets"
        assert re.search(r"floodmark.yaml:\d+:\d+", caught.value.where or "")
