"""Where landed rows begin is decided once: settings may be edited at any moment of a batch."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

import pytest
from deltalake import DeltaTable
from tests.spark.database_shop import Shop, shop
from tests.spark.test_old_ranges import aged
from tests.support import crash

from floodmark.errors import FloodmarkError
from floodmark.failpoints import FailpointReached

pytestmark = [pytest.mark.spark, pytest.mark.postgres]
__all__ = ["shop"]

READ = """
        read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, overlap: OVERLAP, KEYS}}
        write: {connection: lake, path: NAME, mode: append}"""
SHORT, LONG = 0, 500


def nodes(shop: Shop, overlap: int, *names: str, keys: str = "keys: [id]") -> None:
    """A project whose nodes read one table, each into a target of its own name."""
    read = READ.replace("OVERLAP", str(overlap)).replace("KEYS", keys)
    each = [f"      - name: {name}{read.replace('NAME', name)}\n" for name in names]
    shop.write("  - pipeline: orders\n    nodes:\n" + "".join(each))


def insert(shop: Shop, first: int, last: int) -> None:
    shop.run_sql(f"INSERT INTO orders SELECT n, n FROM generate_series({first}, {last}) n")


def ids(shop: Shop, name: str) -> list[int]:
    return [row[0] for row in shop.rows(f"lake/{name}", "id")]


def create(shop: Shop, last: int) -> None:
    shop.run_sql("CREATE TABLE orders (id int, at int)")
    insert(shop, 1, last)


def rebuild(shop: Shop, name: str) -> None:
    shutil.rmtree(shop.root / "lake" / name)
    with pytest.raises(FloodmarkError):
        shop.run()
    batches = shop.project.coordinator.current_plan()
    for batch in batches:
        assert shop.project.retry(str(batch.batch_id), on_lost_target="rebuild").exit_code == 0


def test_a_longer_overlap_loses_nothing_of_a_new_node_or_a_rebuilt_target(shop: Shop) -> None:
    create(shop, 1000)
    nodes(shop, SHORT, "one")
    shop.run()
    insert(shop, 1001, 1100)
    nodes(shop, LONG, "one", "two")
    shop.run()
    insert(shop, 1101, 1200)
    rebuild(shop, "one")

    assert ids(shop, "two") == list(range(1, 1201))
    assert ids(shop, "one") == list(range(1, 1201))


@pytest.mark.parametrize(
    ("overlaps", "point"),
    [
        ((SHORT, LONG), "landing.after_write"),
        ((LONG, SHORT), "edge.after_write"),
        ((SHORT, LONG), "sink.after_commit:3"),
    ],
    ids=["longer_after_landing", "shorter_after_edge", "longer_after_a_write"],
)
def test_an_overlap_edited_between_attempts_changes_nothing_of_the_batch(
    shop: Shop, overlaps: tuple[int, int], point: str
) -> None:
    before, after = overlaps
    create(shop, 1000)
    nodes(shop, before, "one")
    shop.run()
    insert(shop, 1001, 1100)
    # Node two is new, so it reads everything, beside what is put aside for node one.
    nodes(shop, before, "one", "two")
    with crash.armed(point), pytest.raises(FailpointReached):
        shop.run()
    insert(shop, 1101, 1150)
    nodes(shop, after, "one", "two")
    shop.run()
    shop.run_sql("INSERT INTO orders VALUES (2000, 1150)")
    insert(shop, 1151, 1200)
    shop.run()

    everything = [*range(1, 1201), 2000]
    assert ids(shop, "two") == everything
    assert ids(shop, "one") == everything


def delete_rows(path: str) -> None:
    DeltaTable(path).delete("applied > 0")


def optimize_and_vacuum(path: str) -> None:
    DeltaTable(path).optimize.z_order(["identity"])
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def delete_and_age(path: str) -> None:
    """Delta refuses to read what is not the newest version of a table so old."""
    delete_rows(path)
    aged(path, DeltaTable(path).version())


def delete_and_vacuum(path: str) -> None:
    DeltaTable(path).delete()
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


@pytest.mark.parametrize(
    ("operation", "is_lost"),
    [
        (delete_rows, False),
        (optimize_and_vacuum, False),
        (delete_and_age, False),
        (delete_and_vacuum, True),
    ],
)
def test_an_edge_that_others_look_after_is_read_as_it_was_left(
    shop: Shop, operation: Callable[[str], None], is_lost: bool
) -> None:
    create(shop, 10)
    nodes(shop, 5, "one")
    shop.run()
    insert(shop, 11, 20)
    shop.run_sql("INSERT INTO orders VALUES (500, 8)")
    (edge,) = (log.parent for log in (shop.root / "lake/_control/edges").rglob("_delta_log"))
    operation(str(edge))

    if is_lost:
        with pytest.raises(FloodmarkError) as caught:
            shop.run()
        assert caught.value.code == "FM-SOURCE-037"
        assert ids(shop, "one") == list(range(1, 11))
        (batch,) = shop.project.coordinator.current_plan()
        retried = shop.project.retry(str(batch.batch_id), on_lost_range="accept")
        assert retried.exit_code == 0
        assert ids(shop, "one") == list(range(1, 21))
        return
    with crash.armed("edge.after_write"), pytest.raises(FailpointReached):
        shop.run()
    for log in (shop.root / "lake/_control/edges").rglob("_delta_log"):
        operation(str(log.parent))  # also of the batch that is under way
    shop.run()
    assert ids(shop, "one") == [*range(1, 21), 500]
    shop.run_sql("INSERT INTO orders VALUES (501, 18)")
    insert(shop, 21, 22)
    shop.run()
    assert ids(shop, "one") == [*range(1, 23), 500, 501]


def test_landed_rows_that_others_changed_are_read_as_landed_at_20_days(shop: Shop) -> None:
    create(shop, 10)
    nodes(shop, 5, "one", "two")
    with crash.armed("run.after_done"), pytest.raises(FailpointReached):
        shop.run()
    for log in (shop.root / "lake/_control/landing").rglob("_delta_log"):
        DeltaTable(log.parent).delete("id > 5")
        aged(log.parent, DeltaTable(log.parent).version())
    insert(shop, 11, 12)

    shop.run()

    # The open batch first, from what was landed for it, then a batch of its own for the new rows.
    assert ids(shop, "one") == ids(shop, "two") == list(range(1, 13))


def test_a_query_that_is_corrected_twice_leaves_every_node_the_rows_that_one_has_taken(
    shop: Shop,
) -> None:
    create(shop, 10)
    nodes(shop, 5, "one")
    shop.run()
    insert(shop, 11, 20)
    nodes(shop, 5, "one", "two")
    with crash.armed("landing.after_write"), pytest.raises(FailpointReached):
        shop.run()
    # Other keys are another way to tell rows apart: the rows are put aside anew, and one takes them.
    shop.run_sql("INSERT INTO orders VALUES (500, 20)")
    nodes(shop, 5, "one", "two", keys="keys: [id, at]")
    with crash.armed("run.after_done"), pytest.raises(FailpointReached):
        shop.run()
    nodes(shop, 5, "one", "two")
    shop.run()
    insert(shop, 21, 22)
    shop.run()

    everything = [*range(1, 23), 500]
    assert ids(shop, "one") == everything
    assert ids(shop, "two") == everything


UPDATED = """\
  - pipeline: orders
    nodes:
      - name: load
        read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, OVERLAP keys: [id]}}
      - {name: state, depends_on: [load], write: {connection: lake, path: state, merge: {keys: [id]}}}
      - name: merged
        read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, OVERLAP keys: [id]}}
        write: {connection: lake, path: merged, merge: {keys: [id], sequence_by: at}}
      - name: states
        read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, OVERLAP keys: [id]}}
        write: {connection: lake, path: states, mode: append}
"""


@pytest.mark.parametrize("overlap", ["", "overlap: 3,"], ids=["no overlap", "overlap"])
def test_merges_show_a_row_that_was_updated_without_its_cursor_once_it_is_read_again(
    shop: Shop, overlap: str
) -> None:
    """As with any cut between two updates of one second: the newer one is in the source."""
    shop.run_sql("CREATE TABLE orders (id int, at int, status text)")
    shop.run_sql("INSERT INTO orders VALUES (1, 10, 'open'), (2, 10, 'open')")
    shop.write(UPDATED.replace("OVERLAP", overlap))
    shop.run()
    shop.run_sql("UPDATE orders SET status = 'paid' WHERE id = 1")
    shop.run_sql("INSERT INTO orders VALUES (3, 11, 'open')")
    shop.run()

    everything = [(1, 10, "paid"), (2, 10, "open"), (3, 11, "open")]
    assert shop.rows("lake/state") == everything
    assert shop.rows("lake/merged") == everything
    assert shop.rows("lake/states", "id") == [(1,), (2,), (3,)]


BESIDE = """\
  - pipeline: orders
    parallel: 1
    nodes:
      - name: one
        read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, overlap: 5, keys: [id]}}
      - name: other
        read: {connection: lake, path: noise}
        transform: [{python: 'late_row:arrives'}]
        write: {connection: lake, path: quiet, mode: append}
      - name: two
        read: {connection: erp, table: 'ORDERS', incremental: {cursor: at, overlap: 5, keys: [id]}}
        write: {connection: lake, path: two, mode: append}
      - name: below
        depends_on: [one]
        write: {connection: lake, path: below, mode: append}
"""
ARRIVES = """\
import psycopg

def arrives(frame, run):
    with psycopg.connect({dsn!r}, autocommit=True) as connection:
        connection.execute({statement!r})
    return frame
"""


def test_a_full_refresh_lands_once_for_nodes_that_write_in_different_ways(shop: Shop) -> None:
    """A row comes between the reads of two nodes, of which one has no write of its own."""
    create(shop, 10)
    statement = (
        f"INSERT INTO {shop.orders} SELECT 500, 10 WHERE EXISTS"
        f" (SELECT FROM {shop.orders} WHERE id = 20)"
    )
    (shop.root / "late_row.py").write_text(ARRIVES.format(dsn=shop.server.dsn, statement=statement))
    shop.spark.range(1).write.format("delta").save(str(shop.root / "lake/noise"))
    shop.write(BESIDE)
    shop.run()
    insert(shop, 11, 20)
    shop.run(full_refresh=True)
    insert(shop, 21, 22)
    shop.run()

    everything = [*range(1, 23), 500]
    assert ids(shop, "two") == everything
    assert ids(shop, "below") == everything


def test_a_full_refresh_begins_at_the_baseline(shop: Shop) -> None:
    create(shop, 10)
    nodes(shop, 5, "one", keys="keys: [id], baseline: 4")
    shop.run()
    shop.run_sql("DELETE FROM orders WHERE id = 7")
    shop.run(full_refresh=True)

    assert ids(shop, "one") == [5, 6, 8, 9, 10]


def test_no_order_of_edits_new_nodes_rebuilds_and_kills_loses_or_doubles_a_row(
    shop: Shop, full_size: bool
) -> None:
    """Random sequences; the source decides what is right. Late rows stay within the overlap."""
    for seed in range(12 if full_size else 1):
        history = History(shop, random.Random(seed), f"h{seed}_")
        history.play(steps=25 if full_size else 8)
        history.judge()


class History:
    """A project that somebody works on while its batches fail."""

    def __init__(self, shop: Shop, chance: random.Random, prefix: str) -> None:
        self.shop, self.chance, self.prefix = shop, chance, prefix
        self.names = [f"{prefix}0"]
        self.overlap = self.shortest = 0
        self.last = self.number = 0
        self.log: list[str] = []
        shop.run_sql("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int, at int)")
        shutil.rmtree(shop.root / "lake", ignore_errors=True)
        self.add_rows()
        self.run()

    def play(self, steps: int) -> None:
        doings: list[Callable[[], None]] = [
            self.edit_overlap,
            self.add_node,
            self.lose_target,
            self.run_and_die,
            self.run,
        ]
        for _ in range(steps):
            self.chance.choice(doings)()
            if self.chance.random() < 0.7:
                self.add_rows()
            if self.chance.random() < 0.5:
                self.run()

    def judge(self) -> None:
        self.add_rows()
        self.run()
        for name in self.names:
            assert ids(self.shop, name) == list(range(1, self.number + 1)), (name, self.log)

    def note(self, text: str) -> None:
        self.log.append(text)

    def add_rows(self) -> None:
        """New ones, and ties with the newest."""
        ats = [self.last + self.chance.randint(0, 30) for _ in range(self.chance.randint(1, 4))]
        for at in sorted(ats):
            self.number += 1
            self.shop.run_sql(f"INSERT INTO orders VALUES ({self.number}, {at})")
        self.last = max(self.last, *ats)
        self.note(f"rows to {self.number} at {self.last}")

    def edit_overlap(self) -> None:
        self.overlap = self.chance.choice([0, 5, 40, 200])
        self.note(f"overlap {self.overlap}")

    def add_node(self) -> None:
        if len(self.names) < 3:
            self.names.append(f"{self.prefix}{len(self.names)}")
            self.note("node added")

    def lose_target(self) -> None:
        shutil.rmtree(self.shop.root / "lake" / self.chance.choice(self.names), ignore_errors=True)
        self.note("target lost")

    def run_and_die(self) -> None:
        point = self.chance.choice(
            [
                "landing.after_write",
                "landing.after_write:2",
                "edge.after_write",
                "sink.after_commit:3",
            ]
        )
        self.note(f"die at {point}")
        with crash.armed(point):
            try:
                self.once()
            except FailpointReached:
                return

    def run(self) -> None:
        self.note("run")
        self.once()

    def once(self) -> None:
        nodes(self.shop, self.overlap, *self.names)
        self.shop.run(on_lost_target="rebuild")
