"""The published tables are a contract: names, types and meanings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import floodmark as fm
from floodmark.control.published.reading import read_published
from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import MAX_TEXT

Append = Callable[..., str]

CONTRACT = {
    "watermarks": {
        "batch_id": "string",
        "table_name": "string",
        "start_version": "int64",
        "end_version": "int64",
        "last_processed_version": "int64",
        "latest_available_version": "int64",
        "start_ts": "timestamp[us, tz=UTC]",
        "end_ts": "timestamp[us, tz=UTC]",
        "cdf_enabled": "bool",
        "update_ts": "timestamp[us, tz=UTC]",
        "updated_by": "string",
        "status": "string",
        "error_message": "string",
        "notes": "string",
        "scope": "string",
        "batch_seq": "int64",
        "batch_kind": "string",
        "batch_date": "date32[day]",
        "kind": "string",
        "method": "string",
        "start_mark": "string",
        "end_mark": "string",
        "upstream_id": "string",
        "schema_fingerprint": "string",
        "rows_read": "int64",
        "duration_seconds": "double",
        "retries": "int64",
    },
    "committed_watermarks": {
        "table_name": "string",
        "last_committed_version": "int64",
        "commit_ts": "timestamp[us, tz=UTC]",
        "updated_by": "string",
        "scope": "string",
        "last_committed_mark": "string",
        "upstream_id": "string",
        "batch_id": "string",
    },
    "pipeline_checkpoints": {
        "pipeline_name": "string",
        "batch_id": "string",
        "processed_ts": "timestamp[us, tz=UTC]",
        "status": "string",
        "rows_read": "int64",
        "rows_written": "int64",
        "metrics": "map<string, string>",
        "error_message": "string",
        "run_id": "string",
        "epoch": "int64",
        "scope": "string",
        "started_ts": "timestamp[us, tz=UTC]",
        "duration_seconds": "double",
        "retries": "int64",
    },
    "pipeline_registry": {
        "pipeline_name": "string",
        "upstream_tables": "list<string>",
        "scope": "string",
        "definition_hash": "string",
        "paused": "bool",
        "updated_ts": "timestamp[us, tz=UTC]",
    },
    "history": {
        "seq": "int64",
        "kind": "string",
        "key": "string",
        "payload": "string",
        "op_id": "string",
        "actor": "string",
        "at": "timestamp[us, tz=UTC]",
        "run_id": "string",
        "batch_id": "string",
        "pipeline_name": "string",
        "status": "string",
        "duration_seconds": "double",
        "records": "int64",
        "error_message": "string",
    },
}


def published(coordinator: fm.Coordinator, table: str, order: str) -> list[dict[str, Any]]:
    path = f"{coordinator.control}/{table}"
    found = read_published(path, Storage(), f"SELECT * FROM t ORDER BY {order}")
    assert found is not None
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("table", CONTRACT)
def test_columns_and_types_are_those_of_the_contract(
    coordinator: fm.Coordinator, grow: Append, table: str
) -> None:
    coordinator.register("p", [grow("a")])

    handle = DeltaTable(f"{coordinator.control}/{table}")

    names = {f.name: _type(f.type) for f in pa.schema(handle.schema())}
    assert names == CONTRACT[table]
    assert (handle.protocol().min_reader_version, handle.protocol().min_writer_version) == (1, 2)


def _type(found: pa.DataType) -> str:
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return f"list<{_type(found.value_type)}>"
    return str(found).replace(" ('key_value')", "").replace("string_view", "string")


def test_a_row_shows_the_prior_version_until_it_is_completed(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    a, b = grow("a", 1), grow("b", 1)
    coordinator.register("p", [a, b])
    first = str(coordinator.create_batch([a, b]).batch_id)
    planned = published(coordinator, "watermarks", "table_name")
    coordinator.record_run("p", first, status="SUCCESS")
    coordinator.finalize_batch(first)
    grow("a", 2)
    second = str(coordinator.create_batch([a]).batch_id)

    done = [r for r in published(coordinator, "watermarks", "table_name") if r["batch_id"] == first]
    next_rows = [
        r for r in published(coordinator, "watermarks", "table_name") if r["batch_id"] == second
    ]

    assert [r["status"] for r in planned] == ["PENDING", "PENDING"]
    assert [r["last_processed_version"] for r in planned] == [-1, -1]
    assert [(r["status"], r["last_processed_version"]) for r in done] == [("COMPLETED", 0)] * 2
    shown = [(r["status"], r["start_version"], r["end_version"]) for r in next_rows]
    assert shown == [("PENDING", 1, 1), ("NOOP", 1, 0)]


def test_watermarks_tell_the_schema_and_are_partitioned_by_the_date_of_the_batch(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    a = grow("a", 1)
    coordinator.register("p", [a])
    coordinator.create_batch([a])

    (row,) = published(coordinator, "watermarks", "table_name")

    assert row["schema_fingerprint"] == DeltaLog(a).facts().schema_fingerprint
    table = DeltaTable(f"{coordinator.control}/watermarks")
    assert table.metadata().partition_columns == ["batch_date"]
    assert row["batch_date"] == row["update_ts"].date()


def test_a_long_error_is_cut_where_it_is_published(
    coordinator: fm.Coordinator, grow: Append
) -> None:
    a = grow("a", 1)
    coordinator.register("p", [a])
    batch_id = str(coordinator.create_batch([a]).batch_id)

    coordinator.record_run("p", batch_id, status="FAILED", error="x" * (2 * MAX_TEXT))

    runs = published(coordinator, "pipeline_checkpoints", "processed_ts")
    (text,) = [run["error_message"] for run in runs if run["status"] == "FAILED"]
    assert len(text) <= MAX_TEXT == 4_000
    assert text.startswith("xxx")


def test_statuses_follow_the_latest_runs(coordinator: fm.Coordinator, grow: Append) -> None:
    a = grow("a", 1)
    coordinator.register("p", [a])
    batch_id = str(coordinator.create_batch([a]).batch_id)
    seen = []
    for status in ("RUNNING", "FAILED", "RUNNING", "SUCCESS"):
        coordinator.record_run("p", batch_id, status=status, error="broken")
        row = published(coordinator, "watermarks", "batch_id")[0]
        seen.append((row["status"], row["error_message"]))
    coordinator.finalize_batch(batch_id)
    coordinator.record_run("p", batch_id, status="SUCCESS")
    runs = published(coordinator, "pipeline_checkpoints", "processed_ts")

    assert seen == [("PENDING", None), ("FAILED", "broken"), ("PENDING", None), ("PENDING", None)]
    assert [r["status"] for r in runs] == ["RUNNING", "FAILED", "RUNNING", "SUCCESS"]
    assert [r["epoch"] for r in runs] == [1, 1, 2, 2]
    times = [r["processed_ts"] for r in runs]
    assert times == sorted(set(times))


def test_cancelled_batches_say_so(coordinator: fm.Coordinator, grow: Append) -> None:
    a = grow("a", 1)
    batch_id = str(coordinator.create_batch([a]).batch_id)

    coordinator.cancel(batch_id)

    assert published(coordinator, "watermarks", "batch_id")[0]["status"] == "CANCELLED"


def test_history_has_one_row_for_every_event(coordinator: fm.Coordinator, grow: Append) -> None:
    a = grow("a", 1)
    coordinator.register("p", [a])
    batch_id = str(coordinator.create_batch([a]).batch_id)
    coordinator.record_run("p", batch_id, status="FAILED", error="broken")
    coordinator.record_run("p", batch_id, status="SUCCESS", rows_written=7)
    coordinator.finalize_batch(batch_id)

    rows = published(coordinator, "history", "seq")

    kinds = ["CREATE", "REGISTER", "PLAN", "LEASE", "FAILED", "LEASE", "SUCCESS", "ADVANCE"]
    assert [r["kind"] for r in rows] == kinds
    assert [r["seq"] for r in rows] == list(range(1, 9))
    failed, success = rows[4], rows[6]
    assert (failed["pipeline_name"], failed["status"]) == ("p", "FAILED")
    assert failed["error_message"] == "broken"
    assert (success["records"], success["batch_id"]) == (7, batch_id)
    assert success["duration_seconds"] >= 0
    assert json.loads(rows[7]["payload"])["upstreams"] == {a: 0}


def test_a_thousand_upstreams_are_planned_in_one_commit(tmp_path: Path) -> None:
    paths = [_hand_written_table(tmp_path / f"t{number}", number) for number in range(1_000)]
    coordinator = fm.Coordinator(str(tmp_path / "_control"), actor="t")
    coordinator.register("all", paths)

    batch = coordinator.create_batch(pipelines=["all"])
    coordinator.record_run("all", str(batch.batch_id), status="SUCCESS")
    advanced = coordinator.finalize_batch(str(batch.batch_id))

    assert len(batch.windows) == len(advanced) == 1_000
    assert [event.kind for event in coordinator.history()].count("PLAN") == 1
    assert [event.kind for event in coordinator.history()].count("ADVANCE") == 1
    assert len(published(coordinator, "committed_watermarks", "table_name")) == 1_000


def _hand_written_table(path: Path, number: int) -> str:
    """The smallest Delta table there is: a protocol and a description, no rows."""
    schema = {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": f"table-{number}",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {"delta.enableChangeDataFeed": "true"},
                "createdTime": 0,
            }
        },
    ]
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("\n".join(json.dumps(action) for action in actions))
    return str(path)
