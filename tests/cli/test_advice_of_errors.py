"""What an error says to type mends what it is about: the `next` of the error is typed here."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType
from tests.cli.conftest import ON_DELTA_RS, Answer

from floodmark.cli.call import Opening

Command = Callable[..., Answer]

PROJECT = """\
project: shop
pipelines:
  - pipeline: copy
    scope: nightly
    upstreams: [{name: lake/orders}]
    function: jobs:process
"""
JOBS = """\
from pathlib import Path


def process(inputs, run):
    if Path("broken").exists():
        raise ValueError("broken on purpose")
    said = eval(Path("write").read_text())
    run.write(inputs["lake/orders"], "lake/copy", **said)
"""
MERGE = '{"mode": "merge", "keys": ["id"], "missing": "delete"}'
MERGE_UNSAID = '{"mode": "merge", "keys": ["id"]}'
APPEND = '{"mode": "append", "changes": "log"}'
RETRY = r"floodmark retry batch_\w+"
NOTE = Field("note", PrimitiveType("string"), nullable=True)


def command_of(said: str, command: str) -> str:
    found = re.search(command, said)
    assert found, said
    return found[0]


class Shop:
    """Orders that are copied by one pipeline; its commands run on delta-rs."""

    def __init__(self, root: Path, floodmark: Command) -> None:
        self.root, self.floodmark = root, floodmark
        self.orders, self.copy = root / "lake/orders", root / "lake/copy"

    def grow(self, *ids: int) -> None:
        rows = {"id": pa.array(ids, pa.int64()), "amount": pa.array(ids, pa.int64())}
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(self.orders), pa.table(rows), mode="append", configuration=feed)

    def update(self) -> None:
        DeltaTable(self.orders).update({"amount": "amount + 100"}, predicate="id = 0")

    def says(self, write: str) -> None:
        (self.root / "write").write_text(write)

    def option(self, text: str) -> None:
        options = f"lake/orders, {text}" if text else "lake/orders"
        (self.root / "floodmark.yaml").write_text(PROJECT.replace("lake/orders", options, 1))

    def run(self) -> None:
        assert self.floodmark("run").code == 0

    def plan(self) -> None:
        assert self.floodmark("plan", "--freeze").code == 0

    def refused(self, code: str, *arguments: str) -> str:
        """The `next` of the error with which a command is refused."""
        answer = self.floodmark(*(arguments or ("run",)))
        said = answer.out + answer.err
        assert answer.code != 0, said
        assert code in said, said
        found = re.search(r"^ +next +(.+)$", said[said.index(code) :], re.MULTILINE)
        assert found, said
        return found[1]

    def type(self, said: str, command: str) -> None:
        """Type the command of that form as the error gave it."""
        answer = self.floodmark(*shlex.split(command_of(said, command))[1:])
        assert answer.code == 0, answer.out + answer.err

    def rows(self, table: Path) -> list[tuple[int, int]]:
        query = "SELECT id, amount FROM t ORDER BY id, amount"
        found = QueryBuilder().register("t", DeltaTable(table)).execute(query).read_all()
        return [(row["id"], row["amount"]) for row in pa.table(found).to_pylist()]

    def is_mended(self) -> None:
        """The copy is the table it copies, nothing is open, and the guarantees hold."""
        assert self.floodmark("lag", "--fail-above", "0").code == 0
        assert self.rows(self.copy) == self.rows(self.orders)
        assert self.floodmark("verify").code == 0


@pytest.fixture
def opening() -> Opening:
    """Commands of these tests run on delta-rs."""
    return ON_DELTA_RS


@pytest.fixture
def shop(project: Path, floodmark: Command, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Three versions of the orders, merged."""
    monkeypatch.setenv("COLUMNS", "2000")
    (project / "jobs.py").write_text(JOBS)
    shop = Shop(project, floodmark)
    shop.option("")
    shop.says(MERGE)
    for number in range(3):
        shop.grow(number)
    shop.run()
    return shop


# Upstreams ------------------------------------------------------------------------------------------


def vacuumed(shop: Shop) -> None:
    shop.update()
    shop.plan()
    shutil.move(shop.orders / "_change_data", shop.root / "aside")


def put_files_back(shop: Shop) -> None:
    shutil.move(shop.root / "aside", shop.orders / "_change_data")


def cleaned(shop: Shop) -> None:
    for number in (3, 4, 5):
        shop.grow(number)
    shop.plan()
    shutil.copytree(shop.orders / "_delta_log", shop.root / "aside")
    clean_log(shop)


def clean_log(shop: Shop) -> None:
    newest = DeltaTable(shop.orders)
    newest.create_checkpoint()
    for version in range(newest.version()):
        (shop.orders / "_delta_log" / f"{version:020}.json").unlink()


def put_log_back(shop: Shop) -> None:
    shutil.rmtree(shop.orders / "_delta_log")
    shutil.move(shop.root / "aside", shop.orders / "_delta_log")


def older(shop: Shop) -> None:
    shutil.copytree(shop.orders, shop.root / "older")
    shop.grow(3)
    shop.plan()
    shutil.move(shop.orders, shop.root / "newer")
    shutil.move(shop.root / "older", shop.orders)


def put_newer_back(shop: Shop) -> None:
    shutil.rmtree(shop.orders)
    shutil.move(shop.root / "newer", shop.orders)


def recreated(shop: Shop) -> None:
    shop.grow(3)
    shop.plan()
    shutil.move(shop.orders, shop.root / "newer")
    shop.grow(7, 8)


def rewritten(shop: Shop, change: Callable[[DeltaTable], None]) -> None:
    """A backup is put back, and the planned versions come again with other commits."""
    shutil.copytree(shop.orders, shop.root / "older")
    shop.grow(3)
    shop.grow(4)
    shop.plan()
    shutil.move(shop.orders, shop.root / "newer")
    shutil.move(shop.root / "older", shop.orders)
    change(DeltaTable(shop.orders))
    shop.update()


def rewritten_without_feed(shop: Shop) -> None:
    off = {"delta.enableChangeDataFeed": "false"}
    rewritten(shop, lambda orders: orders.alter.set_table_properties(off))


def rewritten_with_a_column(shop: Shop) -> None:
    rewritten(shop, lambda orders: orders.alter.add_columns([NOTE]))


LOST = [
    ("FM-SOURCE-006", vacuumed, None, f"{RETRY} --on-lost-range snapshot"),
    ("FM-SOURCE-006", vacuumed, put_files_back, RETRY),
    ("FM-SOURCE-002", cleaned, None, f"{RETRY} --on-lost-range snapshot"),
    ("FM-SOURCE-002", cleaned, put_log_back, RETRY),
    ("FM-SOURCE-001", older, put_newer_back, RETRY),
    ("FM-SOURCE-003", recreated, put_newer_back, RETRY),
    ("FM-SOURCE-004", rewritten_without_feed, None, f"{RETRY} --on-lost-range snapshot"),
    ("FM-SOURCE-004", rewritten_without_feed, put_newer_back, RETRY),
    ("FM-SOURCE-007", rewritten_with_a_column, put_newer_back, RETRY),
]


@pytest.mark.parametrize(("code", "fault", "mend", "command"), LOST)
def test_a_planned_range_that_is_lost_is_read_by_the_command_in_the_error(
    code: str,
    fault: Callable[[Shop], None],
    mend: Callable[[Shop], None] | None,
    command: str,
    shop: Shop,
) -> None:
    fault(shop)

    said = shop.refused(code)
    if mend:
        mend(shop)
    shop.type(said, command)

    shop.is_mended()


def test_a_planned_end_of_another_schema_is_declared_lost(shop: Shop) -> None:
    rewritten_with_a_column(shop)

    said = shop.refused("FM-SOURCE-007")
    assert "snapshot" not in said, "the whole table has that schema too"
    accept = command_of(said, f"{RETRY} --on-lost-range accept")
    said = shop.refused("FM-SINK-011", *shlex.split(accept)[1:])
    DeltaTable(shop.copy).alter.add_columns([NOTE])
    shop.type(said, RETRY)

    assert shop.rows(shop.copy) == [(0, 0), (1, 1), (2, 2)]
    assert shop.floodmark("gaps").code == 1
    assert shop.floodmark("verify").code == 0


def test_files_that_are_gone_may_be_declared_lost(shop: Shop) -> None:
    vacuumed(shop)

    said = shop.refused("FM-SOURCE-006")
    assert "or accept (the loss is declared)" in said
    other = command_of(said, f"{RETRY} --on-lost-range snapshot").replace("snapshot", "accept")
    shop.type(other, other)

    assert shop.rows(shop.copy) == [(0, 0), (1, 1), (2, 2)]
    assert shop.floodmark("gaps").code == 1
    assert shop.floodmark("verify").code == 0
    shop.update()
    shop.run()
    assert shop.rows(shop.copy) == shop.rows(shop.orders)


def test_where_the_whole_table_is_gone_too_the_range_is_declared_lost(shop: Shop) -> None:
    vacuumed(shop)
    for file in shop.orders.glob("*.parquet"):
        file.unlink()
    snapshot = command_of(shop.refused("FM-SOURCE-006"), f"{RETRY} --on-lost-range snapshot")

    said = shop.refused("FM-SOURCE-010", *shlex.split(snapshot)[1:])
    shop.type(said, f"{RETRY} --on-lost-range accept")

    assert shop.floodmark("verify").code == 0
    assert shop.floodmark("lag", "--fail-above", "0").code == 0


def test_an_older_table_that_stays_is_loaded_from_its_beginning(shop: Shop) -> None:
    older(shop)
    shop.type(shop.refused("FM-SOURCE-001"), f"{RETRY} --on-lost-range accept")

    said = shop.refused("FM-PLAN-010")
    shop.type(said, r"floodmark state reset --scope \S+ --upstream \S+ --yes")
    shop.run()

    shop.is_mended()


def test_a_table_recreated_under_a_plan_is_loaded_from_its_beginning(shop: Shop) -> None:
    recreated(shop)
    shop.type(shop.refused("FM-SOURCE-003"), f"{RETRY} --on-lost-range accept")

    said = shop.refused("FM-PLAN-005")
    shop.type(said, r"floodmark state reset --scope \S+ --upstream \S+ --yes")
    shop.run()

    shop.is_mended()
    assert shop.rows(shop.copy) == [(7, 7), (8, 8)]


def test_a_log_that_was_cleaned_before_the_plan_is_read_as_the_error_says(shop: Shop) -> None:
    for number in (3, 4, 5):
        shop.grow(number)
    clean_log(shop)

    shop.type(shop.refused("FM-PLAN-006"), r"floodmark run --on-lost-range snapshot")

    shop.is_mended()


def test_a_damaged_commit_is_read_once_it_is_restored(shop: Shop) -> None:
    shop.grow(3)
    commit = shop.orders / "_delta_log" / f"{3:020}.json"
    sound = commit.read_bytes()
    commit.write_bytes(sound[: len(sound) // 2])

    assert "run the same command again" in shop.refused("FM-SOURCE-008")
    commit.write_bytes(sound)
    shop.run()

    shop.is_mended()


def test_a_schema_that_was_to_be_looked_at_goes_on_with_the_option_and_the_column(
    shop: Shop,
) -> None:
    shop.option("on_schema_change: fail")
    DeltaTable(shop.orders).alter.add_columns([NOTE])
    shop.update()

    assert "then: floodmark run" in shop.refused("FM-PLAN-007")
    shop.option("on_schema_change: evolve")
    said = shop.refused("FM-SINK-011")
    DeltaTable(shop.copy).alter.add_columns([NOTE])
    shop.type(said, RETRY)

    shop.is_mended()


def test_a_gap_of_the_feed_is_read_with_the_option(shop: Shop) -> None:
    shop.option("on_feed_gap: fail")
    orders = DeltaTable(shop.orders)
    orders.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    shop.update()

    said = shop.refused("FM-PLAN-020")
    shop.option("on_feed_gap: snapshot")
    shop.type(said, "floodmark run")

    shop.is_mended()


# Targets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["rebuild", "accept"])
def test_a_target_that_was_emptied(choice: str, shop: Shop) -> None:
    DeltaTable(shop.copy).delete()
    shop.grow(3)

    shop.type(shop.refused("FM-SINK-016"), f"{RETRY} --on-lost-target {choice}")

    whole = shop.rows(shop.orders)
    assert shop.rows(shop.copy) == (whole if choice == "rebuild" else [(3, 3)])
    assert shop.floodmark("verify").code == 0


@pytest.mark.parametrize("choice", ["rebuild", "accept"])
def test_a_target_that_lost_its_receipts(choice: str, shop: Shop) -> None:
    for commit in (shop.copy / "_delta_log").glob("*.json"):
        actions = commit.read_text().splitlines()
        commit.write_text("\n".join(each for each in actions if '"txn"' not in each))
    shop.grow(3)

    shop.type(shop.refused("FM-SINK-017"), f"{RETRY} --on-lost-target {choice}")

    shop.is_mended()


def test_a_target_that_cannot_be_written_is_retried_once_it_can(shop: Shop) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(shop.copy).alter.set_table_properties(feed)
    in_the_way = shop.copy / "_change_data"
    in_the_way.write_text("")
    shop.update()

    said = shop.refused("FM-SINK-019")
    in_the_way.unlink()
    shop.type(said, RETRY)

    shop.is_mended()


def test_a_snapshot_that_an_append_refuses_is_written_in_another_way(shop: Shop) -> None:
    shop.says(APPEND)
    for number in (3, 4, 5):
        shop.grow(number)
    clean_log(shop)

    said = shop.refused("FM-SINK-002", "run", "--on-lost-range", "snapshot")
    shop.says('{"mode": "overwrite"}')
    shop.type(said, RETRY)

    shop.is_mended()


def test_a_merge_of_a_snapshot_that_does_not_say_what_is_missing(shop: Shop) -> None:
    shop.says(MERGE_UNSAID)
    shop.option("method: snapshot")
    shop.grow(3)

    said = shop.refused("FM-SINK-004")
    shop.says(MERGE)
    shop.type(said, RETRY)

    shop.is_mended()


def test_changes_that_an_append_says_nothing_about(shop: Shop) -> None:
    shop.says('{"mode": "append"}')
    shop.update()

    said = shop.refused("FM-SINK-001")
    shop.says(MERGE)
    shop.type(said, RETRY)

    shop.is_mended()


def test_changes_that_would_overwrite_a_whole_target(shop: Shop) -> None:
    shop.says('{"mode": "overwrite"}')
    shop.grow(3)

    said = shop.refused("FM-SINK-003")
    shop.says(MERGE)
    shop.type(said, RETRY)

    shop.is_mended()


def test_a_backfill_that_is_refused_is_given_up_and_said_otherwise(shop: Shop) -> None:
    shop.grow(3)
    shop.run()
    backfill = ("backfill", "lake/orders", "copy", "--start", "1", "--end", "2")

    said = shop.refused("FM-SINK-022", *backfill)
    shop.type(said, r"floodmark cancel batch_\w+")
    assert "--allow-stale" in said
    assert shop.floodmark(*backfill, "--allow-stale").code == 0

    shop.is_mended()


# The control store ----------------------------------------------------------------------------------


def broken(shop: Shop) -> None:
    """A batch that failed."""
    (shop.root / "broken").touch()
    shop.grow(3)
    shop.refused("FM-RUN-001")
    (shop.root / "broken").unlink()


def test_a_batch_that_was_begun_goes_forward(shop: Shop) -> None:
    broken(shop)
    batch = command_of(shop.floodmark("status").out, r"batch_\w+")

    shop.type(shop.refused("FM-CONTROL-012", "cancel", batch), RETRY)

    shop.is_mended()


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("FM-CONTROL-020", ("refresh", "copy")),
        ("FM-CONTROL-023", ("state", "reset", "--upstream", "lake/orders", "--yes")),
    ],
)
def test_what_an_open_batch_holds_is_free_after_the_command_in_the_error(
    code: str, command: tuple[str, ...], shop: Shop
) -> None:
    broken(shop)

    shop.type(shop.refused(code, *command), RETRY)
    assert shop.floodmark(*command).code == 0
    shop.run()

    shop.is_mended()


def test_a_paused_pipeline_runs_after_the_command_in_the_error(shop: Shop) -> None:
    broken(shop)
    batch = command_of(shop.floodmark("status").out, r"batch_\w+")
    assert shop.floodmark("pause", "copy").code == 0

    assert "next: floodmark resume copy" in shop.floodmark("run").out
    shop.type(shop.refused("FM-CONTROL-018", "retry", batch), r"floodmark resume copy")
    assert shop.floodmark("pause", "copy").code == 0
    shop.type(shop.refused("FM-CONTROL-018", "retry", batch, "copy"), r"floodmark resume copy")
    shop.run()

    shop.is_mended()


def test_a_backfill_into_an_emptied_target_goes_on_as_its_errors_say(shop: Shop) -> None:
    DeltaTable(shop.copy).delete()
    backfill = ("backfill", "lake/orders", "copy", "--start", "2", "--end", "2", "--allow-stale")

    said = shop.refused("FM-SINK-016", *backfill)
    batch = command_of(said, r"batch_\w+")
    said = shop.refused("FM-SINK-018", "retry", batch, "--on-lost-target", "rebuild")
    shop.type(said, f"{RETRY} --on-lost-target accept")
    assert shop.rows(shop.copy) == [(2, 2)]
    shop.grow(3)
    shop.type(shop.refused("FM-SINK-016"), f"{RETRY} --on-lost-target rebuild")

    shop.is_mended()


def test_a_backfill_into_an_emptied_target_and_then_everything_anew(shop: Shop) -> None:
    DeltaTable(shop.copy).delete()
    backfill = ("backfill", "lake/orders", "copy", "--start", "2", "--end", "2", "--allow-stale")

    said = shop.refused("FM-SINK-016", *backfill)
    shop.type(said, f"{RETRY} --on-lost-target accept")
    shop.type(said, "floodmark refresh copy")
    shop.type(said, "floodmark run copy --on-lost-target rebuild")

    shop.is_mended()


def test_an_upstream_that_nobody_reads_is_told_with_the_nearest_one(shop: Shop) -> None:
    said = shop.floodmark("state", "reset", "--upstream", "lake/order", "--yes")

    assert said.code == 2
    assert "FM-CONTROL-005" in said.err
    assert "lake/orders" in said.err
    assert "--scope" not in said.err


def test_an_upstream_that_cannot_be_looked_at_is_read_once_it_can(shop: Shop) -> None:
    shop.grow(3)
    aside = shop.root / "aside"
    log = shop.orders / "_delta_log"
    log.rename(aside)
    log.symlink_to(log)  # nobody can look there, not even root

    said = shop.refused("FM-SOURCE-009", "plan")
    assert "run the same command again" in said
    log.unlink()
    aside.rename(log)
    shop.run()

    shop.is_mended()
