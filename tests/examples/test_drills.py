"""The pages of the operations guide, run: every command they show, with the output they show."""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import floodmark as fm
from floodmark.cli.main import main
from floodmark.testing import ArrowEngine

PAGES = Path(__file__).resolve().parents[2] / "docs" / "operations"

REPORT = """\
project: shop
jobs: 1
pipelines:
  - pipeline: report
    scope: shop
    upstreams: [lake/orders]
    function: jobs:report
"""
BOTH = f"""{REPORT}\
  - pipeline: ledger
    scope: shop
    upstreams: [lake/orders]
    function: jobs:ledger
"""
JOBS = """\
from pathlib import Path


def report(inputs, run):
    newer = {"sequence_by": "amount"} if Path("newer").exists() else {}
    options = {"mode": "merge", "keys": ["id"], "deletes": "soft", "missing": "delete", **newer}
    run.write(inputs["lake/orders"], "lake/report", **options)


def ledger(inputs, run):
    if Path("broken").exists():
        raise ValueError("broken on purpose")
    run.write(inputs["lake/orders"], "lake/ledger", mode="append", changes="log")
"""
ON_DELTA_RS = """\
import floodmark.coordinator, floodmark.engines.spark
from floodmark.cli.main import main
from floodmark.testing import ArrowEngine
floodmark.coordinator.running.spark_engine = lambda *_: ArrowEngine()
floodmark.engines.spark.local_session = lambda *_: None
main(["run"])
"""
BATCH = re.compile(r"batch_\d{8}T\d{12}Z_[0-9a-f]{8}")
STEP = re.compile(
    r"^<!-- fault: (?P<fault>.+?) -->$|^```(?P<kind>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
EXIT_CODE = re.compile(r"# exit code (\d+)")


# The shop -----------------------------------------------------------------------------------------


def grow(*ids: int) -> None:
    """One more commit of orders."""
    rows = {"id": pa.array(ids, pa.int64()), "amount": pa.array([10 * i for i in ids], pa.int64())}
    is_new = not Path("lake/orders").exists()
    feed: dict[str, str | None] | None = {"delta.enableChangeDataFeed": "true"} if is_new else None
    write_deltalake("lake/orders", pa.table(rows), mode="append", configuration=feed)


def rows_of(path: str) -> list[tuple[int, int]]:
    living = " WHERE NOT is_deleted" if path == "lake/report" else ""
    builder = QueryBuilder().register("t", DeltaTable(path))
    table = pa.table(builder.execute(f"SELECT id, amount FROM t{living}").read_all())
    return sorted(zip(table["id"].to_pylist(), table["amount"].to_pylist(), strict=True))


def update_an_order() -> None:
    DeltaTable("lake/orders").update({"amount": "amount + 1"}, predicate="id = 1")


def run() -> None:
    assert main(["run"]) == 0


def process_an_update() -> None:
    update_an_order()
    run()


def grown_twice() -> None:
    """Three batches in both targets."""
    for ids in ((1, 2), (3,), (4,)):
        grow(*ids)
        run()


def grown_once() -> None:
    grow(1, 2)
    run()


# The faults ---------------------------------------------------------------------------------------


def lose_the_store() -> None:
    shutil.rmtree("lake/_control")


def put_an_older_store_back() -> None:
    grow(1, 2)
    run()
    grow(3)
    run()
    shutil.copytree("lake/_control", "backup")
    grow(4)
    run()
    shutil.rmtree("lake/_control")
    shutil.move("backup", "lake/_control")
    grow(5)


def drop_and_restore_targets() -> None:
    shutil.rmtree("lake/report")
    DeltaTable("lake/ledger").restore(0)
    grow(5)


def clean_the_log() -> None:
    grow(3)
    grow(4)
    DeltaTable("lake/orders").create_checkpoint()
    for version in (0, 1):
        Path(f"lake/orders/_delta_log/{version:020}.json").unlink()


def clean_the_log_again() -> None:
    grow(5)
    grow(6)
    DeltaTable("lake/orders").create_checkpoint()
    for version in (2, 3):
        Path(f"lake/orders/_delta_log/{version:020}.json").unlink()


def plan_then_vacuum() -> None:
    update_an_order()
    assert main(["plan", "--freeze"]) == 0
    for file in Path("lake/orders/_change_data").iterdir():
        file.unlink()


def recreate_orders() -> None:
    grow(3)
    run()
    shutil.rmtree("lake/orders")
    grow(1, 2, 9)


def recreate_orders_again() -> None:
    shutil.rmtree("lake/orders")
    grow(1, 7)


def kill_a_run() -> None:
    grow(3)
    armed = {**os.environ, "FLOODMARK_FAILPOINT": "sink.after_commit"}
    killed = subprocess.run(
        [sys.executable, "-c", ON_DELTA_RS], env=armed, capture_output=True, check=False, timeout=60
    )
    assert killed.returncode == -9, killed.stderr.decode()


def break_the_ledger() -> None:
    grow(3)
    Path("broken").touch()


def replay_the_newest() -> str:
    """The id that the page calls BATCH from here on."""
    batches = fm.Project.load().coordinator.status()
    return next(batch.batch_id for batch in batches if batch.kind == "forward")


@dataclass(frozen=True)
class Drill:
    """How the shop stands before a page begins, what its markers do, and what must come out."""

    start: Callable[[], None]
    faults: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    project: str = BOTH
    ledger: tuple[int, ...] | None = None
    """The ids in the ledger at the end; the report must always equal the orders."""


new_rows = {"new rows": lambda: grow(5)}
DRILLS = {
    "index": Drill(grown_once, {"new rows": lambda: grow(3)}, ledger=(1, 2, 3)),
    "store-lost": Drill(
        grown_twice, {"store lost": lose_the_store, **new_rows}, ledger=(1, 2, 3, 4, 5)
    ),
    "store-restored": Drill(
        lambda: None,
        {"older store put back": put_an_older_store_back},
        ledger=(1, 2, 3, 4, 5),
    ),
    "target-lost": Drill(
        grown_twice,
        {"report dropped, ledger restored": drop_and_restore_targets},
        ledger=(1, 2, 3, 4, 5),
    ),
    "range-lost": Drill(
        grown_once,
        {
            "log cleaned": clean_the_log,
            "log cleaned again": clean_the_log_again,
            "planned, then vacuumed": plan_then_vacuum,
        },
        project=REPORT,
    ),
    "table-recreated": Drill(
        grown_once,
        {
            "orders recreated": recreate_orders,
            "orders recreated again": recreate_orders_again,
        },
        project=REPORT,
    ),
    "killed": Drill(
        grown_once, {"killed after the commit of the target": kill_a_run}, ledger=(1, 2, 3)
    ),
    "pause-remove-reload": Drill(
        grown_once,
        {
            "ledger broken": break_the_ledger,
            "ledger mended": lambda: Path("broken").unlink(),
            "new rows": lambda: grow(4),
        },
        ledger=(1, 2, 3, 4),
    ),
    "backfill-replay": Drill(
        grown_twice,
        {
            "one order updated": process_an_update,
            "report takes the newer row": lambda: Path("newer").touch(),
            "the newest forward batch": replay_the_newest,
        },
        project=REPORT,
    ),
}


# Running a page -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command of a page, its exit code, and the lines of output that the page shows."""

    line: str
    code: int
    shown: tuple[str, ...]


def commands_of(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *rest = part.splitlines()
        codes = [int(found[1]) for text in rest if (found := EXIT_CODE.fullmatch(text))]
        shown = [text for text in rest if text.strip() and not EXIT_CODE.fullmatch(text)]
        yield Command(line, codes[0] if codes else 0, tuple(shown))


def steady(text: str, root: Path) -> list[str]:
    """Lines of output as the pages have them: one space, paths of the project, BATCH."""
    text = BATCH.sub("BATCH", text.replace(f"{root}/", ""))
    return [" ".join(line.split()) for line in text.splitlines()]


def missing_line(shown: tuple[str, ...], output: list[str]) -> str | None:
    """The first line that the output does not have after the ones before it; None if all are.

    Three dots at the begin or end of a line stand for anything.
    """
    rest = iter(output)
    for line in shown:
        parts = [re.escape(part) for part in " ".join(line.split()).split("...")]
        pattern = re.compile(".*".join(parts).replace("\\ .*", ".*").replace(".*\\ ", ".*"))
        if not any(pattern.fullmatch(seen) for seen in rest):
            return line
    return None


class Player:
    """Plays the steps of a page in the project of the working directory."""

    def __init__(self, root: Path, drill: Drill) -> None:
        self.root = root
        self.drill = drill
        self.batch = ""
        self.played: list[str] = []

    def play(self, page: str) -> None:
        for step in STEP.finditer(page):
            if step["fault"]:
                self.batch = self.drill.faults[step["fault"]]() or self.batch
                self.played.append(step["fault"])
            elif step["kind"] == "yaml":
                (self.root / "floodmark.yaml").write_text(step["code"])
            elif step["kind"] == "console":
                for command in commands_of(step["code"]):
                    self.type(command)

    def type(self, command: Command) -> None:
        words = shlex.split(re.sub(r"\bBATCH\b", self.batch, command.line))
        code, output = floodmark(words[1:]) if words[0] == "floodmark" else shell(words)
        self.batch = next(iter(BATCH.findall(output)), self.batch)
        self.played.append(command.line)
        assert code == command.code, f"$ {command.line}\n{output}"
        missing = missing_line(command.shown, steady(output, self.root))
        assert missing is None, f"$ {command.line}\n{missing!r} is not in\n{output}"


def floodmark(arguments: list[str]) -> tuple[int, str]:
    """The exit code, and what a terminal shows."""
    terminal = io.StringIO()
    with redirect_stdout(terminal), redirect_stderr(terminal):
        code = main(arguments)
    return code, terminal.getvalue()


def shell(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project as the working directory, whose runs use delta-rs in the place of Spark."""
    root = tmp_path / "shop"
    root.mkdir()
    (root / "jobs.py").write_text(JOBS)
    sys.modules.pop("jobs", None)  # of a project that another test left
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("floodmark.coordinator.running.spark_engine", lambda *_: ArrowEngine())
    monkeypatch.setattr("floodmark.engines.spark.local_session", lambda *_: None)
    logger = logging.getLogger("floodmark")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield root
    logger.handlers[:], logger.level, logger.propagate = before
    sys.modules.pop("jobs", None)


def player(root: Path, drill: Drill) -> Player:
    (root / "floodmark.yaml").write_text(drill.project)
    drill.start()
    return Player(root, drill)


# The tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRILLS)
def test_the_page_does_what_it_says(name: str, shop: Path) -> None:
    drill = DRILLS[name]
    play = player(shop, drill)

    play.play((PAGES / f"{name}.md").read_text(encoding="utf-8"))

    assert set(drill.faults) <= set(play.played)
    assert play.played[-1] == "floodmark verify"
    assert rows_of("lake/report") == rows_of("lake/orders")
    if drill.ledger is not None:
        assert tuple(number for number, _ in rows_of("lake/ledger")) == drill.ledger


def test_every_page_is_run() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(DRILLS)


@pytest.mark.parametrize(
    "block",
    [
        "$ floodmark status\nno batch was ever made\n",
        "$ floodmark status\n# exit code 4\n",
        "$ floodmark lag\n  since\nlake/orders\n",
        "$ floodmark undo\n",
    ],
)
def test_a_page_that_is_wrong_is_noticed(block: str, shop: Path) -> None:
    play = player(shop, DRILLS["index"])

    with pytest.raises(AssertionError, match=r"\$ floodmark"):
        play.play(f"```console\n{block}```\n")


def test_a_fault_that_nobody_causes_is_noticed(shop: Path) -> None:
    play = player(shop, DRILLS["index"])

    with pytest.raises(KeyError, match="earthquake"):
        play.play("<!-- fault: earthquake -->\n")
