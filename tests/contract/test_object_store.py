"""Control store, upstreams and targets in an object store, through delta-rs, on a local S3 server."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import floodmark as fm
from floodmark.control.published.reading import read_published
from floodmark.coordinator import Outside
from floodmark.deltalog import DeltaLog, Storage
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.sources import Sources
from floodmark.testing import ArrowEngine
from floodmark.testing.arrow import ArrowSink, arrow_sources

SERVER = Path(__file__).with_name("s3_server.py")
NOBODY = "http://127.0.0.1:9"
"""A port where nothing listens."""

Options = dict[str, str]


def options_for(endpoint: str) -> Options:
    """Everything is said, so that no client asks the machine for credentials."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not a secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    pytest.importorskip("moto")
    process = subprocess.Popen(
        [sys.executable, str(SERVER)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(autouse=True)
def no_machine_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own for a test."""

    root: str
    options: Options

    def grow(self, name: str, *ids: int) -> str:
        """Append one commit to a table, which is made with its change feed on."""
        path = f"{self.root}/{name}"
        write_deltalake(
            path,
            pa.table({"id": pa.array(ids, pa.int64())}),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
            storage_options=self.options,
        )
        return path

    def ids(self, path: str) -> list[int]:
        table = DeltaTable(path, storage_options=self.options)
        rows = QueryBuilder().register("t", table).execute("SELECT id FROM t ORDER BY id")
        return [row["id"] for row in pa.table(rows).to_pylist()]

    def coordinator(self, actor: str = "tester", outside: Outside | None = None) -> fm.Coordinator:
        return fm.Coordinator(
            f"{self.root}/_control",
            actor=actor,
            storage_options=self.options,
            lease_ttl=2,
            outside=outside,
        )


@pytest.fixture
def bucket(endpoint: str) -> Bucket:
    name = f"lake-{uuid.uuid4().hex[:8]}"
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    urllib.request.urlopen(request).close()
    return Bucket(f"s3://{name}", options_for(endpoint))


class BucketEngine(ArrowEngine):
    """Runs without Spark on tables in a bucket."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def source(self) -> Sources:
        return arrow_sources(self._options)

    def sink(
        self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None
    ) -> ArrowSink:
        return ArrowSink(spec, tuple(windows), previous, self._options)


def test_files_are_written_listed_read_and_removed(bucket: Bucket) -> None:
    storage, folder = Storage(bucket.options), f"{bucket.root}/some/folder"
    with pytest.raises(FileNotFoundError):
        storage.names(folder)
    storage.write(f"{folder}/a", b"one")
    storage.write(f"{folder}/a", b"two")
    storage.write(f"{folder}/deep/b", b"")

    assert sorted(storage.names(folder)) == ["a", "deep"]
    assert [(e.name, e.is_folder, e.size) for e in storage.list(folder)] == [
        ("a", False, 3),
        ("deep", True, 0),
    ]
    content, modified_ms = storage.read_timed(f"{folder}/a")
    assert content == b"two"
    assert modified_ms > 0
    with pytest.raises(FileNotFoundError):
        storage.read(f"{folder}/c")
    storage.delete(f"{folder}/c")
    storage.delete(f"{folder}/a")
    assert not storage.exists(f"{folder}/a")
    storage.delete_dir(folder)
    assert not storage.exists(f"{folder}/deep/b")


def test_a_table_is_looked_at_through_its_log(bucket: Bucket) -> None:
    for number in range(3):
        orders = bucket.grow("orders", number)

    log = DeltaLog(orders, Storage(bucket.options))

    assert (log.facts().latest_version, log.facts().feed_enabled) == (2, True)
    assert [commit.rows for commit in log.versions(0, 2)] == [1, 1, 1]


def test_batches_are_planned_recorded_and_finalized_in_a_bucket(bucket: Bucket) -> None:
    orders, customers = bucket.grow("orders", 1), bucket.grow("customers", 1)
    coordinator = bucket.coordinator()
    coordinator.register("dbt", [orders, f"{customers}/"])
    ends = []
    for number in (2, 3):
        batch_id = str(coordinator.create_batch([orders]).batch_id)
        coordinator.record_run("dbt", batch_id, status="RUNNING")
        coordinator.record_run("dbt", batch_id, status="SUCCESS", rows_read=1)
        assert orders in coordinator.finalize_batch(batch_id)
        ends.append(coordinator.frozen_set(batch_id)[orders])
        bucket.grow("orders", number)

    fresh = bucket.coordinator()
    assert ends == [0, 1]
    assert {c.upstream: c.version for c in fresh.checkpoints()} == {orders: 1, customers: 0}
    assert [batch.status for batch in fresh.status()] == ["COMPLETED", "COMPLETED"]
    assert {lag.upstream: lag.versions_behind for lag in fresh.lag()} == {orders: 1, customers: 0}
    assert [finding.text for finding in fresh.verify() if not finding.ok] == []
    published = read_published(
        f"{bucket.root}/_control/watermarks", fresh.storage, "SELECT status FROM t"
    )
    assert published is not None
    assert sorted(published["status"].to_pylist()) == ["COMPLETED"] * 3 + ["NOOP"]


def test_a_pipeline_runs_exactly_once_from_bucket_to_bucket(bucket: Bucket) -> None:
    orders, target = bucket.grow("orders", 1), f"{bucket.root}/copy"
    coordinator = bucket.coordinator(outside=Outside(engine=BucketEngine(bucket.options)))
    coordinator.register("p", [orders])
    dies = True

    def copy(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(inputs[orders], target, mode="append")
        if dies:
            raise ValueError("after the write")

    for number in (2, 3):
        batch_id = str(coordinator.create_batch([orders]).batch_id)
        dies = True
        with pytest.raises(ValueError, match="after the write"):
            coordinator.run_pipeline("p", batch_id, copy)
        dies = False
        coordinator.run_pipeline("p", batch_id, copy)
        coordinator.finalize_batch(batch_id)
        bucket.grow("orders", number)

    assert bucket.ids(target) == [1, 2]
    assert [finding.text for finding in coordinator.verify() if not finding.ok] == []


def test_a_folder_of_parquet_in_a_bucket_is_read_by_time(bucket: Bucket) -> None:
    storage, folder = Storage(bucket.options), f"{bucket.root}/events"

    def add(number: int) -> None:
        at = pa.array([datetime(2026, 1, number, tzinfo=UTC)], pa.timestamp("us", "UTC"))
        content = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": pa.array([number], pa.int64()), "at": at}), content)
        storage.write(f"{folder}/day={number}/0.parquet", content.getvalue().to_pybytes())

    coordinator = bucket.coordinator(outside=Outside(engine=BucketEngine(bucket.options)))
    coordinator.register("p", [fm.Upstream(folder, time_column="at")])
    seen: list[list[int]] = []
    for number in (1, 2):
        add(number)
        batch_id = str(coordinator.create_batch().batch_id)
        coordinator.run_pipeline(
            "p", batch_id, lambda inputs, _: seen.append(inputs[folder]["id"].to_pylist())
        )
        coordinator.finalize_batch(batch_id)

    assert seen == [[1], [2]]
    assert coordinator.create_batch().status == "NOOP"


def register_many(bucket: Bucket, actor: str, count: int) -> None:
    coordinator = bucket.coordinator(actor)
    for number in range(count):
        coordinator.register(f"{actor}_{number}", [f"{bucket.root}/orders"])


def test_processes_that_race_for_the_journal_lose_no_commit(bucket: Bucket) -> None:
    bucket.grow("orders", 1)
    context = multiprocessing.get_context("spawn")
    racers = [context.Process(target=register_many, args=(bucket, who, 5)) for who in ("a", "b")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)

    assert [racer.exitcode for racer in racers] == [0, 0]
    state = bucket.coordinator().look.state()
    assert len(state.pipelines) == 10
    assert [event.seq for event in bucket.coordinator().history()] == list(range(1, state.seq + 1))


def test_a_store_that_cannot_be_reached_is_not_taken_for_an_empty_one() -> None:
    unreachable = options_for(NOBODY) | {"max_retries": "0", "retry_timeout": "1s"}
    coordinator = fm.Coordinator("s3://lake/_control", storage_options=unreachable)

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.look.state()

    assert caught.value.code == "FM-CONTROL-002"
    assert caught.value.retryable
