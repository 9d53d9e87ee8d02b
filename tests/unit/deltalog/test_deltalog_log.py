"""DeltaLog on hand-written logs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.errors import FloodmarkError, PlanError, SourceError

Written = Callable[..., Any]
Make = Callable[..., dict[str, Any]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _error(code: str, call: Callable[[], object]) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def _code(call: Callable[[], object]) -> str | None:
    """The code of the typed error that a call raises; None where it answers."""
    try:
        call()
    except FloodmarkError as error:
        return error.code
    return None


def test_facts_of_a_small_table(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header(**{"delta.enableChangeDataFeed": "true", "x": "y"}))
    table.commit(1, add("a"), at_ms=1_700_000_000_123)

    facts = DeltaLog(table.path).facts()

    assert (facts.table_id, facts.latest_version, facts.earliest_version) == (
        "the-id",
        1,
        0,
    )
    assert facts.latest_at == EPOCH + timedelta(milliseconds=1_700_000_000_123)
    assert facts.feed_enabled
    assert facts.properties["x"] == "y"
    assert (facts.min_reader_version, facts.reader_features) == (1, ())


def test_the_newest_metadata_rules(written: Written) -> None:
    table = written()
    table.commit(0, *table.header(**{"delta.enableChangeDataFeed": "true"}))
    table.commit(1, table.header()[1])
    log = DeltaLog(table.path)

    assert not log.facts().feed_enabled
    assert [v.feed_enabled for v in log.versions(0, 1)] == [True, False]


def test_in_commit_timestamp_is_the_commit_time(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header())
    table.commit(1, {"commitInfo": {"inCommitTimestamp": 5_000}}, add("a"), at_ms=9_000)
    log = DeltaLog(table.path)

    assert (
        log.facts().latest_at == log.versions(1, 1)[0].committed_at == EPOCH + timedelta(seconds=5)
    )


def test_reader_features_are_shown(written: Written) -> None:
    table = written()
    features = ["deletionVectors", "catalogManaged"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
    }
    table.commit(0, {"protocol": protocol}, table.header()[1])

    facts = DeltaLog(table.path).facts()

    assert (facts.min_reader_version, facts.reader_features) == (3, tuple(features))


def test_names_that_are_not_of_the_log_are_passed_over(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header(), add("a"))
    for name in (
        "_last_checkpoint",
        f".{0:020d}.json.crc",
        f"{0:020d}.crc",
        f"{7:020d}.json.tmp",
        f"{9:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
        "_commit_1.json.tmp",
        "99.json",
    ):
        (table.folder / name).write_bytes(b"\x00rubbish")
    for folder in ("_sidecars", "_staged_commits"):
        (table.folder / folder).mkdir()
    (table.folder / "_staged_commits" / f"{1:020d}.uuid.json").write_text("{}")

    assert DeltaLog(table.path).facts().latest_version == 0


@pytest.mark.parametrize("name", ["a b", "a%20b", "été", 'it\'s "q"', "x=1;y", "%", "a#b?c"])
def test_odd_path_names(written: Written, add: Make, name: str) -> None:
    table = written(name)
    table.commit(0, *table.header(), add("a", 4))
    log = DeltaLog(str(table.path) + "/")

    assert log.facts().path == str(table.path)
    assert log.versions(0, 0)[0].rows == 4
    assert log.snapshot_size(0).rows == 4


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    error = _error("FM-PLAN-001", DeltaLog(tmp_path / "no").facts)

    assert isinstance(error, PlanError)
    assert str(tmp_path / "no") in error.title
    assert not is_delta_table(tmp_path / "no")


def test_a_folder_or_file_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "folder" / "_delta_log").mkdir(parents=True)
    (tmp_path / "file").write_text("x")

    for name in ("folder", "file"):
        _error("FM-PLAN-002", DeltaLog(tmp_path / name).facts)
        assert not is_delta_table(tmp_path / name)


class _DownStorage(Storage):
    """A store that cannot be asked."""

    def names(self, folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied")


def test_an_outage_is_not_an_answer(written: Written) -> None:
    table = written()
    table.commit(0, *table.header())

    for call in (
        DeltaLog(table.path, _DownStorage()).facts,
        lambda: is_delta_table(table.path, _DownStorage()),
    ):
        assert _error("FM-SOURCE-009", call).retryable


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b'{"add":{"path":"a","da',
        b"\x00\x01\x02\xff",
        b"PAR1\x00",
        b"not json}\n",
        b'{"add":{"path":"a"}}\n{"cut',
        b'[{"add":1}]',
        b'{"add":{"size":"x"}}',
        b'{"add":{"path":"a","size":"x","dataChange":true}}',
        b'{"metaData":{"schemaString":"{}"}}',
        b'{"metaData":{"id":"x","schemaString":"no"}}',
        b'{"txn":{}}',
        b'{"a":' * 100_000 + b"}" * 100_000,
    ],
)
def test_damaged_commits_are_named(written: Written, content: bytes) -> None:
    table = written()
    table.commit(0, *table.header())
    (table.folder / f"{1:020d}.json").write_bytes(content)
    log = DeltaLog(table.path)

    error = _error("FM-SOURCE-008", lambda: log.versions(1, 1))

    assert isinstance(error, SourceError)
    assert f"{1:020d}.json" in str(error)
    for call in (
        log.facts,
        lambda: log.snapshot_size(1),
        lambda: log.find_transaction("a", 1),
    ):
        assert _code(call) in (None, "FM-SOURCE-008")


def test_cut_off_or_empty_newest_commit_stops_facts(written: Written) -> None:
    table = written()
    table.commit(0, *table.header())
    for content in (b"", b'{"commitInfo":{"op'):
        (table.folder / f"{1:020d}.json").write_bytes(content)

        _error("FM-SOURCE-008", DeltaLog(table.path).facts)


def test_a_hole_in_the_log_is_loud(written: Written, add: Make) -> None:
    table = written()
    for version in (0, 1, 2, 4):
        table.commit(version, *(table.header() if version == 0 else [add(str(version))]))

    error = _error("FM-SOURCE-002", DeltaLog(table.path).facts)

    assert error.details["missing"] == "3"


def test_a_listing_that_missed_a_commit_is_taken_again(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header())
    table.commit(1, add("a"))
    table.commit(2, add("b"))

    class RacingStorage(Storage):
        looks = 0

        def names(self, folder: str) -> list[str]:
            self.looks += 1
            hidden = f"{1:020d}.json" if self.looks == 1 else None
            return [n for n in super().names(folder) if n != hidden]

    assert DeltaLog(table.path, RacingStorage()).facts().latest_version == 2


def test_ranges_beyond_or_outside_the_log_are_refused(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header())
    table.commit(1, add("a"))
    log = DeltaLog(table.path)

    _error("FM-SOURCE-001", lambda: log.versions(0, 2))
    _error("FM-SOURCE-001", lambda: log.versions(-1, 1))
    _error("FM-SOURCE-001", lambda: log.snapshot_size(2))
    _error("FM-SOURCE-001", lambda: log.schema_at(2))
    assert log.versions(2, 1) == []


def test_versions_that_arrive_later_are_seen(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header())
    log = DeltaLog(table.path)
    log.facts()
    table.commit(1, add("a"))

    assert [v.version for v in log.versions(0, 1)] == [0, 1]


def test_commits_cleaned_after_the_look_are_named(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header())
    table.commit(1, add("a"))
    log = DeltaLog(table.path)
    log.list()
    os.unlink(table.folder / f"{1:020d}.json")

    error = _error("FM-SOURCE-002", lambda: log.versions(0, 1))

    assert error.details["missing"] == "1"


def _rows(table: Any, version: int) -> tuple[set[str], int | None, int]:
    facts = DeltaLog(table.path).versions(version, version)[0]
    return set(facts.kinds), facts.rows, facts.bytes


def test_files_without_data_change_show_nothing(written: Written, add: Make, remove: Make) -> None:
    table = written()
    table.commit(0, *table.header(), add("a", 3))
    table.commit(1, add("b", 3, dataChange=False), remove("a", dataChange=False))

    assert _rows(table, 1) == (set(), 0, 0)


def test_removed_rows_come_from_the_add_that_brought_them(
    written: Written, add: Make, remove: Make
) -> None:
    table = written()
    table.commit(0, *table.header(), add("a", 3), add("b", None))
    table.commit(1, remove("a"), add("c", 5))
    table.commit(2, remove("b"), remove("c"))

    assert _rows(table, 1) == ({"insert", "delete"}, 8, 20)
    assert _rows(table, 2) == ({"delete"}, None, 20)


def test_removed_rows_prefer_the_removes_own_statistics(
    written: Written, add: Make, remove: Make
) -> None:
    table = written()
    vector = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 2}
    table.commit(0, *table.header())
    table.commit(1, remove("gone", stats='{"numRecords":7}', deletionVector=vector))

    assert _rows(table, 1) == ({"delete"}, 5, 10)


def _vector(name: str, cardinality: int) -> dict[str, Any]:
    return {
        "storageType": "u",
        "pathOrInlineDv": name,
        "offset": 1,
        "cardinality": cardinality,
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("DELETE", None, 2), ({"delete"}, 2, 10)),
        (("DELETE", 2, 5), ({"delete"}, 3, 10)),
        (("RESTORE", 4, None), ({"insert"}, 4, 10)),
        (("RESTORE", None, 4), ({"delete"}, 4, 10)),
        (("RESTORE", 4, 2), ({"insert", "delete"}, None, 10)),
        (("RESTORE", 3, 3), ({"insert", "delete"}, None, 10)),
    ],
)
def test_deletion_vectors_show_the_difference_or_nothing_is_claimed(
    written: Written,
    add: Make,
    remove: Make,
    change: tuple[str, int | None, int | None],
    expected: tuple[set[str], int | None, int],
) -> None:
    operation, before, after = change
    table = written()
    old = {"deletionVector": _vector("o", before)} if before else {}
    new = {"deletionVector": _vector("n", after)} if after else {}
    table.commit(0, *table.header(), add("a", 10, **old))
    info = {"commitInfo": {"operation": operation}}
    table.commit(1, info, remove("a", **old), add("a", 10, **new))

    assert _rows(table, 1) == expected
    assert DeltaLog(table.path).snapshot_size(1).rows == 10 - (after or 0)


def _info(operation: str, **metrics: object) -> dict[str, Any]:
    return {"operation": operation, "operationMetrics": metrics}


def _merged(inserted: int, updated: int, deleted: int) -> dict[str, str]:
    return {
        "numTargetRowsInserted": str(inserted),
        "numTargetRowsUpdated": str(updated),
        "numTargetRowsDeleted": str(deleted),
    }


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (_info("UPDATE", numUpdatedRows="3"), ({"update"}, 6)),
        (_info("DELETE", numDeletedRows="3"), ({"delete"}, 3)),
        (_info("MERGE", **_merged(1, 2, 0)), ({"insert", "update"}, 5)),
        (_info("MERGE", **_merged(0, 0, 4)), ({"delete"}, 4)),
        (_info("UPDATE"), ({"update"}, None)),
        (_info("UPDATE", num_updated_rows=3), ({"update"}, None)),
        (_info("DELETE", num_deleted_rows=3), ({"delete"}, 3)),
        (_info("MERGE"), ({"insert", "update", "delete"}, None)),
        (_info("MERGE", **_merged(0, 0, 0)), ({"insert", "update", "delete"}, None)),
        (_info("NEW THING"), ({"insert", "update", "delete"}, None)),
        ({}, ({"insert", "update", "delete"}, None)),
    ],
)
def test_cdc_files_are_all_there_is_to_see(
    written: Written,
    add: Make,
    remove: Make,
    info: dict[str, Any],
    expected: tuple[set[str], int | None],
) -> None:
    table = written()
    cdc = {"cdc": {"path": "_change_data/x", "size": 99, "dataChange": False}}
    table.commit(0, *table.header(), add("a", 10))
    table.commit(1, {"commitInfo": info}, add("b", 10), remove("a"), cdc)

    assert _rows(table, 1) == (*expected, 99)


def test_a_merge_that_only_copied_rows_shows_nothing(
    written: Written, add: Make, remove: Make
) -> None:
    info = _info("MERGE", **_merged(0, 0, 0))
    table = written()
    table.commit(0, *table.header(), add("a", 10))
    table.commit(1, {"commitInfo": info}, add("b", 10), remove("a"))

    assert _rows(table, 1) == (set(), 0, 0)


def test_commit_details_are_kept(written: Written, add: Make) -> None:
    table = written()
    info = {"operation": "WRITE", "operationMetrics": {"n": 1}, "userMetadata": "mine"}
    txn = {"txn": {"appId": "app", "version": 4}}
    table.commit(0, {"commitInfo": info}, *table.header(), txn, add("a"))

    facts = DeltaLog(table.path).versions(0, 0)[0]

    assert (facts.operation, facts.metrics, facts.user_metadata) == (
        "WRITE",
        {"n": "1"},
        "mine",
    )
    assert (facts.transactions, facts.table_id) == ({"app": 4}, "the-id")


def test_transactions_are_found_newest_first(written: Written, add: Make) -> None:
    table = written()
    table.commit(0, *table.header())
    for version, seq in ((1, 3), (2, 5), (4, 9)):
        table.commit(version, {"txn": {"appId": "app", "version": seq}}, add(str(version)))
    table.commit(3, add("other"), {"txn": {"appId": "other", "version": 1}})
    log = DeltaLog(table.path)

    assert log.transaction_version("app") == 9
    assert log.transaction_version("nobody") is None
    found = log.find_transaction("app", 5)
    assert found is not None
    assert found.version == 2
    assert log.find_transaction("app", 4) is None
    assert log.find_transaction("app", 10) is None


def _checkpoint(table: Any, version: int, actions: list[dict[str, Any]], name: str = "") -> Path:
    """A minimal classic checkpoint: one Parquet row per action."""
    types = {
        "metaData": pa.struct(
            [
                ("id", pa.string()),
                ("schemaString", pa.string()),
                ("partitionColumns", pa.list_(pa.string())),
                ("configuration", pa.map_(pa.string(), pa.string())),
            ]
        ),
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        "add": pa.struct([("path", pa.string()), ("size", pa.int64()), ("stats", pa.string())]),
        "txn": pa.struct([("appId", pa.string()), ("version", pa.int64())]),
        "sidecar": pa.struct([("path", pa.string())]),
    }
    columns = {
        k: pa.array([_cut(a[k], t) if k in a else None for a in actions], t)
        for k, t in types.items()
    }
    target: Path = table.folder / (name or f"{version:020d}.checkpoint.parquet")
    target.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), target)
    return target


def _cut(body: dict[str, Any], kind: pa.DataType) -> dict[str, Any]:
    body = {**body, "configuration": list((body.get("configuration") or {}).items())}
    return {f.name: body.get(f.name) for f in kind}


def _cleaned(
    written: Written, add: Make, names: Callable[[Any, list[dict[str, Any]]], None]
) -> Any:
    """Commits 3 and 4 on a checkpoint at 3; everything older is gone."""
    table = written()
    header = table.header(**{"delta.enableChangeDataFeed": "true"})
    txn = {"txn": {"appId": "app", "version": 7}}
    names(table, [*header, txn, add("a", 3), add("b", 4)])
    table.commit(3, add("b", 4))
    table.commit(4, add("c", 5))
    return table


def _classic(table: Any, actions: list[dict[str, Any]]) -> None:
    _checkpoint(table, 3, actions)


def _two_parts(table: Any, actions: list[dict[str, Any]]) -> None:
    for part, chunk in ((1, actions[:2]), (2, actions[2:])):
        name = f"{3:020d}.checkpoint.{part:010d}.{2:010d}.parquet"
        _checkpoint(table, 3, chunk, name)


def _v2_parquet(table: Any, actions: list[dict[str, Any]]) -> None:
    _checkpoint(table, 3, actions[3:], "_sidecars/side car.parquet")
    top = [*actions[:3], {"sidecar": {"path": "side%20car.parquet"}}]
    _checkpoint(table, 3, top, f"{3:020d}.checkpoint.0a1b.parquet")


def _v2_json(table: Any, actions: list[dict[str, Any]]) -> None:
    _checkpoint(table, 3, actions[3:], "_sidecars/s.parquet")
    top = [
        {"checkpointMetadata": {"version": 3}},
        *actions[:3],
        {"sidecar": {"path": "s.parquet"}},
    ]
    file = table.folder / f"{3:020d}.checkpoint.0a1b.json"
    file.write_text("\n".join(json.dumps(a) for a in top))


@pytest.mark.parametrize("kind", [_classic, _two_parts, _v2_parquet, _v2_json])
def test_cleaned_logs_are_read_from_their_checkpoint(
    written: Written, add: Make, kind: Callable[[Any, list[dict[str, Any]]], None]
) -> None:
    log = DeltaLog(_cleaned(written, add, kind).path)

    facts = log.facts()

    assert (facts.latest_version, facts.earliest_version, facts.table_id) == (
        4,
        3,
        "the-id",
    )
    assert facts.feed_enabled
    assert (log.snapshot_size(4).files, log.snapshot_size(4).rows) == (3, 12)
    assert log.snapshot_size(3).rows == 7
    assert log.transaction_version("app") == 7
    assert log.find_transaction("app", 7) is None
    assert log.schema_at(3)[0] == facts.schema_json
    error = _error("FM-SOURCE-002", lambda: log.versions(1, 4))
    assert error.details["missing"] == "1-2"
    _error("FM-SOURCE-002", lambda: log.snapshot_size(2))
    _error("FM-SOURCE-002", lambda: log.schema_at(2))


def test_an_incomplete_checkpoint_is_not_used(written: Written, add: Make) -> None:
    table = _cleaned(written, add, _two_parts)
    os.unlink(table.folder / f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet")

    _error("FM-SOURCE-002", DeltaLog(table.path).facts)


def test_a_damaged_checkpoint_is_named(written: Written, add: Make) -> None:
    table = _cleaned(written, add, _classic)
    (table.folder / f"{3:020d}.checkpoint.parquet").write_bytes(b"PAR1 cut")

    error = _error("FM-SOURCE-008", DeltaLog(table.path).facts)

    assert "checkpoint.parquet" in str(error)


def test_a_checkpoint_whose_commits_are_all_gone(written: Written, add: Make) -> None:
    table = _cleaned(written, add, _classic)
    for version in (3, 4):
        os.unlink(table.folder / f"{version:020d}.json")

    facts = DeltaLog(table.path).facts()

    assert (facts.latest_version, facts.earliest_version) == (3, 4)


def test_long_logs_are_described_by_their_checksum_or_by_commits(
    written: Written, add: Make
) -> None:
    table = written()
    protocol, metadata = table.header()
    table.commit(0, protocol, metadata)
    for version in range(1, 40):
        table.commit(version, add(str(version)))
    log = DeltaLog(table.path)
    before = log.facts()
    checksum = {"metadata": metadata["metaData"], "protocol": protocol["protocol"]}
    (table.folder / f"{39:020d}.crc").write_text(json.dumps(checksum))

    assert log.facts() == before
    (table.folder / f"{39:020d}.crc").write_text("rubbish")
    assert log.facts() == before
    assert log.snapshot_size(39).files == 39
