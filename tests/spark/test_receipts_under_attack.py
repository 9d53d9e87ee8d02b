"""Receipts under attack on real Spark: lost targets, forgetful targets, and a runner that wakes late."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support import crash
from tests.support.node_projects import table_rows
from tests.support.sessions import SMALL

import floodmark as fm
from floodmark.deltalog import DeltaLog
from floodmark.failpoints import FailpointReached
from floodmark.model.state import OnLostTarget
from floodmark.model.write import WriteMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.run.context import Run

pytestmark = pytest.mark.spark

COLUMNS = [("id", pa.int32()), ("name", pa.string())]
FENCED_EXIT = 4
IS_FULL = os.environ.get("FLOODMARK_TEST_SIZE") == "full"
"""A late append takes a JVM more; one that lands after its driver's death is in test_spark_crashes."""
RETENTION = "delta.setTransactionRetentionDuration"


@pytest.fixture
def orders(tmp_lake: Path) -> str:
    """An upstream; made without Spark, which is asked about targets here."""
    path = f"{tmp_lake}/orders"
    DeltaTable.create(
        path, pa.schema(COLUMNS), configuration={"delta.enableChangeDataFeed": "true"}
    )
    return path


@pytest.fixture
def coordinator(spark: SparkSession, tmp_lake: Path, orders: str) -> fm.Coordinator:
    coordinator = fm.Coordinator(
        f"{tmp_lake}/_control", spark, actor="tester", lease_ttl=2, schema=None
    )
    coordinator.register("p", [orders])
    return coordinator


def ids(path: str) -> list[int]:
    return [id_ for (id_,) in table_rows(Path(path), "id")]


def grow(orders: str, number: int) -> None:
    rows = pa.table({"id": [number], "name": [f"n{number}"]}, schema=pa.schema(COLUMNS))
    write_deltalake(orders, rows, mode="append")


def copying(orders: str, target: str, mode: str) -> Callable[..., None]:
    keys = {"keys": ["id"]} if mode == "merge" else {}

    def copy(inputs: Mapping[str, DataFrame], run: Run) -> None:
        run.write(inputs[orders], target, mode=mode, **keys)  # type: ignore[arg-type]

    return copy


def applied(
    coordinator: fm.Coordinator, function: Callable[..., None], choice: OnLostTarget | None = None
) -> None:
    batch_id = str(coordinator.create_batch().batch_id)
    coordinator.run_pipeline("p", batch_id, function, on_lost_target=choice)
    coordinator.finalize_batch(batch_id)


def refused(coordinator: fm.Coordinator, function: Callable[..., None]) -> fm.FloodmarkError:
    batch_id = str(coordinator.create_batch().batch_id)
    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, function)
    return caught.value


# Attacks: what somebody does to the target, with Spark -------------------------------------------


def drop(_: SparkSession, target: str) -> None:
    shutil.rmtree(target)


def recreate(spark: SparkSession, target: str) -> None:
    shutil.rmtree(target)
    spark.sql("SELECT 70 AS id, 'x' AS name").write.format("delta").save(target)


def restore(spark: SparkSession, target: str) -> None:
    spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF 0")


def delete_all(spark: SparkSession, target: str) -> None:
    spark.sql(f"DELETE FROM delta.`{target}`")


def delete_true(spark: SparkSession, target: str) -> None:
    spark.sql(f"DELETE FROM delta.`{target}` WHERE true")


def overwrite(spark: SparkSession, target: str) -> None:
    spark.sql("SELECT 70 AS id, 'x' AS name").write.format("delta").mode("overwrite").save(target)


def create_or_replace(spark: SparkSession, target: str) -> None:
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{target}` USING delta AS SELECT 70 AS id, 'x' AS name"
    )


CODES = {
    drop: ("FM-SINK-007",),
    recreate: ("FM-SINK-007",),
    restore: ("FM-SINK-009",),
    delete_all: ("FM-SINK-016",),
    delete_true: ("FM-SINK-016",),
    overwrite: ("FM-SINK-016",),
    create_or_replace: ("FM-SINK-007", "FM-SINK-016"),
}


@pytest.mark.parametrize(
    ("mode", "attacks"),
    [
        ("append", (drop, recreate, restore, delete_all, create_or_replace)),
        ("merge", (restore, delete_true, overwrite)),
    ],
)
def test_lost_targets_are_refused_and_rebuilt(
    spark: SparkSession, coordinator: fm.Coordinator, orders: str, mode: str, attacks: Any
) -> None:
    target = orders.replace("orders", "copy")
    function = copying(orders, target, mode)
    for number in (1, 2):
        grow(orders, number)
        applied(coordinator, function)
    for number, attack in enumerate(attacks, start=3):
        attack(spark, target)
        grow(orders, number)

        error = refused(coordinator, function)
        assert error.code in CODES[attack], attack.__name__
        applied(coordinator, function, "rebuild")

        assert ids(target) == list(range(1, number + 1)), attack.__name__
    grow(orders, 50)
    applied(coordinator, function)
    assert ids(target)[-1] == 50
    assert [f.text for f in coordinator.verify() if not f.ok] == []


def test_a_restore_that_is_accepted_is_not_skipped_by_the_receipt_it_kept(
    spark: SparkSession, coordinator: fm.Coordinator, orders: str, tmp_lake: Path
) -> None:
    target = f"{tmp_lake}/copy"
    function = copying(orders, target, "append")
    grow(orders, 1)
    applied(coordinator, function)
    grow(orders, 2)
    batch = coordinator.create_batch()
    with crash.armed("sink.after_commit"), pytest.raises(FailpointReached):
        coordinator.run_pipeline("p", str(batch.batch_id), function)
    app_id = next(iter(DeltaLog(target).transactions()))
    restore(spark, target)
    assert DeltaLog(target).transaction_version(app_id) == batch.seq
    assert ids(target) == [1]

    assert refused(coordinator, function).code == "FM-SINK-009"
    applied(coordinator, function, "accept")

    assert ids(target) == [1, 2]


def test_others_may_delete_by_condition_optimize_and_vacuum(
    spark: SparkSession, coordinator: fm.Coordinator, orders: str, tmp_lake: Path
) -> None:
    target = f"{tmp_lake}/copy"
    function = copying(orders, target, "append")
    for number in (1, 2):
        grow(orders, number)
        applied(coordinator, function)
    spark.sql(f"DELETE FROM delta.`{target}` WHERE id = 1")
    spark.sql(f"OPTIMIZE delta.`{target}`")
    spark.sql(f"VACUUM delta.`{target}`")
    grow(orders, 3)

    applied(coordinator, function)

    assert ids(target) == [2, 3]


def test_a_target_that_forgets_receipts_is_refused_until_the_command_in_the_error_was_run(
    spark: SparkSession, coordinator: fm.Coordinator, orders: str, tmp_lake: Path
) -> None:
    target = f"{tmp_lake}/copy"
    function = copying(orders, target, "append")
    grow(orders, 1)
    applied(coordinator, function)
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('{RETENTION}' = 'interval 1 day')")
    grow(orders, 2)

    error = refused(coordinator, function)
    assert error.code == "FM-SINK-010"
    assert ids(target) == [1]
    statement, _, command = str(error.next).partition("; then: ")
    assert command.startswith("floodmark retry batch_")
    spark.sql(statement)
    applied(coordinator, function)

    assert ids(target) == [1, 2]


def test_a_target_on_a_full_disk_is_told_from_an_error_of_the_function(
    spark: SparkSession, coordinator: fm.Coordinator, orders: str, tmp_lake: Path
) -> None:
    disk = tmp_lake / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    grow(orders, 1)
    batch_id = str(coordinator.create_batch().batch_id)

    def fill(inputs: Mapping[str, DataFrame], run: Run) -> None:
        run.write(inputs[orders], f"{disk}/copy", mode="append")

    def fails(inputs: Mapping[str, DataFrame], run: Run) -> None:
        rows = spark.range(3).selectExpr("id", "cast(raise_error('mine') AS string) AS text")
        run.write(rows, f"{disk}/copy", mode="append")

    try:
        with suppress(OSError):
            (disk / "ballast").write_bytes(bytes(2 << 20))
        with pytest.raises(fm.FloodmarkError) as full:
            coordinator.run_pipeline("p", batch_id, fill)
        (disk / "ballast").unlink()
        with pytest.raises(Exception, match="mine") as own:
            coordinator.run_pipeline("p", batch_id, fails)
        result = coordinator.run_pipeline("p", batch_id, fill)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)

    assert (full.value.code, full.value.retryable) == ("FM-SINK-019", True)
    assert not isinstance(own.value, fm.FloodmarkError)
    assert (result.status, result.rows_written) == ("SUCCESS", 1)


# A runner that wakes up after another one has finished -------------------------------------------


def spark_step(root: Path, mode: WriteMode) -> None:
    """Run one batch with Spark, and be stopped on the way if a failpoint says so."""
    from floodmark.engines.spark import local_session

    told = crash.Story(root, mode, 0.3, ("copy",))
    coordinator = told.coordinator()
    told.register(coordinator)
    session = local_session({**SMALL, "spark.driver.memory": "1g"})
    told.step(coordinator, runner=told.coordinator(spark=session))


def arrow_step(root: Path, mode: WriteMode) -> None:
    told = crash.Story(root, mode, 0.3, ("copy",))
    told.step(told.coordinator())


def prepared_for(root: Path, mode: WriteMode) -> None:
    """A lake; for a merge also its targets, so that the late write is a MERGE."""
    crash.build_lake(root)
    if mode == "merge":
        told = crash.Story(root, mode, 0.3, ("copy",))
        coordinator = told.coordinator()
        told.register(coordinator)
        told.step(coordinator)
        crash.grow_lake(root)


def wait_until_stopped(process: Any, log: Path) -> None:
    deadline = time.monotonic() + 120
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert crash.exit_code(process) is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["append", "merge"] if IS_FULL else ["merge"])
def test_a_late_spark_write_is_a_no_op_and_its_record_is_fenced(
    tmp_path: Path, mode: WriteMode
) -> None:
    log = tmp_path / "log"
    assert crash.run(prepared_for, tmp_path, mode, log=log) == 0, log.read_text()
    environment = {
        "FLOODMARK_FAILPOINT": "sink.before_commit",
        "FLOODMARK_FAILPOINT_ACTION": "stop",
    }
    zombie = crash.start(spark_step, tmp_path, mode, log=log, environment=environment)
    wait_until_stopped(zombie, log)
    assert crash.run(arrow_step, tmp_path, mode, log=log) == 0, log.read_text()
    before = crash.result(crash.end_state, str(tmp_path), ("copy",), log=log)

    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGCONT)

    assert crash.ended(zombie) == FENCED_EXIT, log.read_text()[-3000:]
    assert "FM-CONTROL-007" in log.read_text()
    assert crash.result(crash.end_state, str(tmp_path), ("copy",), log=log) == before
    assert before["problems"] == []
    assert {count for name in before["receipts"] for *_, count in before["receipts"][name]} == {1}
