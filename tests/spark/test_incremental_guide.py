"""docs/guides/incremental-loading.md, run: every block of it, section by section."""

from __future__ import annotations

import logging
import re
import shlex
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.examples.test_drills import (
    BATCH,
    Command,
    commands_of,
    floodmark,
    missing_line,
    steady,
)

from floodmark.engines.postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.usefixtures("raw_names"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/incremental-loading.md"
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FIRST = "The project"
OVERLAY = """\
lease_ttl: 1s
connections:
  erp: {{host: {host}, port: {port}, database: {database}, user: {user}}}
"""


@dataclass(frozen=True)
class Block:
    """What stands between two fences: its kind, what else the first fence says, and the text."""

    kind: str
    place: str
    text: str


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page, in their order; SQL is told apart by where it is run."""
    found = []
    for said, code in FENCE.findall(text):
        kind, _, place = said.strip().partition(" ")
        found.append(Block(*((said, "", code) if kind == "sql" else (kind, place, code))))
    return found


def sections(page: str) -> dict[str, str]:
    """The text below each heading of the second level."""
    parts = HEADING.split(page)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


SECTIONS = sections(PAGE.read_text(encoding="utf-8"))


# Playing a section --------------------------------------------------------------------------------


@dataclass
class Player:
    """Does what the blocks say, in the project of the working directory."""

    root: Path
    dsn: str
    spark: SparkSession
    batch: str = ""
    played: list[Block] = field(default_factory=list)

    def play(self, blocks: Sequence[Block]) -> None:
        ways: dict[str, Callable[[Block], None]] = {
            "yaml": self._write_yaml,
            "csv": lambda block: self._write(block.place, block.text),
            "sql postgres": self._run_postgres,
            "sql spark": self._run_spark,
            "console": self._type_all,
            "text": self._compare,
        }
        for block in blocks:
            ways[block.kind](block)
            self.played.append(block)

    def _write_yaml(self, block: Block) -> None:
        first, _, text = block.text.partition("\n")
        self._write(first.removeprefix("# "), text)

    def _write(self, place: str, text: str) -> None:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _run_postgres(self, block: Block) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(block.text.encode())

    def _run_spark(self, block: Block) -> None:
        text = block.text.replace("delta.`", f"delta.`{self.root}/")
        for statement in filter(str.strip, text.split(";")):
            self.spark.sql(statement)

    def _type_all(self, block: Block) -> None:
        for command in commands_of(block.text):
            self._type(command)

    def _type(self, command: Command) -> None:
        words = shlex.split(re.sub(r"\bBATCH\b", self.batch, command.line))
        assert words[0] == "floodmark", command.line
        code, output = floodmark(words[1:])
        self.batch = next(iter(BATCH.findall(output)), self.batch)
        assert code == command.code, f"$ {command.line}\n{output}"
        missing = missing_line(command.shown, steady(output, self.root))
        assert missing is None, f"$ {command.line}\n{missing!r} is not in\n{output}"

    def _compare(self, block: Block) -> None:
        place, header, *lines = block.text.splitlines()
        columns = cells(header)
        frame = self.spark.read.format("delta").load(str(self.root / place))
        found = sorted([shown(row[column]) for column in columns] for row in frame.collect())
        assert found == sorted(map(cells, lines)), f"{place} holds\n{found}"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def shown(value: Any) -> str:
    """A value as the page shows it."""
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database of the test's own: the page writes its tables without a schema."""
    name = f"guide_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield name
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def player(
    tmp_path: Path,
    postgres: PostgresServer,
    database: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Player]:
    """The project of the page, where its server is said by an overlay."""
    said = {"host": postgres.host, "port": postgres.port, "user": postgres.user}
    (tmp_path / "env").mkdir()
    (tmp_path / "env/test.yaml").write_text(OVERLAY.format(**said, database=database))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOODMARK_ENV", "test")
    monkeypatch.setenv("ERP_PASSWORD", postgres.password)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("floodmark.engines.spark.local_session", lambda *_: spark)
    logger = logging.getLogger("floodmark")
    before = (list(logger.handlers), logger.level, logger.propagate)
    dsn = postgres.dsn.replace(f"dbname={postgres.database}", f"dbname={database}")
    player = Player(tmp_path, dsn, spark)
    player.play(blocks_of(SECTIONS[FIRST]))
    player.played.clear()
    yield player
    logger.handlers[:], logger.level, logger.propagate = before


def played(player: Player, heading: str) -> None:
    """Play a section of the page, all of it."""
    blocks = blocks_of(SECTIONS[heading])
    player.play(blocks)
    assert player.played == blocks


# The tests ----------------------------------------------------------------------------------------


def test_a_daily_load_appends_what_is_new(player: Player) -> None:
    played(player, "Daily load")


def test_changes_are_captured_from_tables_logs_and_delta(player: Player) -> None:
    played(player, "Change data capture")


def test_many_tables_are_loaded_side_by_side_and_hold_no_other(player: Player) -> None:
    played(player, "Many tables")


def test_late_arrivals_come_within_the_overlap(player: Player) -> None:
    played(player, "Late arrivals")


def test_a_range_is_backfilled_by_values_and_everything_refreshed(player: Player) -> None:
    played(player, "Backfill")


def test_soft_deletes_are_kept_and_hard_ones_found(player: Player) -> None:
    played(player, "Soft deletes")


def test_a_hand_written_job_is_taken_over_where_it_stopped(player: Player) -> None:
    played(player, "Migration from hand-written jobs")


def test_each_trouble_is_met_and_mended(player: Player) -> None:
    played(player, "Troubleshooting")


def test_every_block_of_the_page_belongs_to_a_section_that_is_played() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    heard = {*re.findall(r'played\(player, "(.+)"\)', source), FIRST}
    with_blocks = {heading for heading, text in SECTIONS.items() if blocks_of(text)}
    page = PAGE.read_text(encoding="utf-8")

    assert with_blocks == heard
    assert [b for text in SECTIONS.values() for b in blocks_of(text)] == blocks_of(page)
    assert len(re.findall(r"^```", page, re.MULTILINE)) == 2 * len(blocks_of(page))


WRONG = {
    "```text\nlake/raw/t\nid\n1\n2\n```": "holds",
    "```console\n$ floodmark jars list\nSUCCESS\n```": "is not in",
    "```sql mysql\nSELECT 1\n```": "sql mysql",
}


@pytest.mark.parametrize("block", WRONG)
def test_a_block_that_is_wrong_is_noticed(player: Player, block: str) -> None:
    make = "CREATE TABLE delta.`lake/raw/t` (id INT) USING delta; INSERT INTO delta.`lake/raw/t` VALUES (1)"
    player.play([Block("sql spark", "", make)])

    wrong: Callable[[], None] = partial(player.play, blocks_of(block))

    with pytest.raises((AssertionError, KeyError), match=WRONG[block]):
        wrong()
