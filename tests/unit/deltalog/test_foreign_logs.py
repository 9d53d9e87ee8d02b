"""Logs as Databricks, Delta Live Tables and shallow clones write them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from floodmark.deltalog import DeltaLog, bulk
from floodmark.deltalog.files import location, places
from floodmark.errors import PlanError
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import Method
from floodmark.plan.windows import next_window
from floodmark.sources.delta.probe import probe_delta

Written = Callable[..., Any]
Make = Callable[..., dict[str, Any]]
FEED = {"delta.enableChangeDataFeed": "true"}


def header_without_schema(table: Any) -> list[dict[str, Any]]:
    protocol, metadata = table.header(**FEED)
    bare = {k: v for k, v in metadata["metaData"].items() if k != "schemaString"}
    return [protocol, {"metaData": bare}]


def planned(table: Any, **options: Any) -> Any:
    given = UpstreamOptions(**options)
    log = DeltaLog(table.path)
    return next_window(
        "up", probe_delta(str(table.path), None, None, log.storage, given), None, None, given
    )


@pytest.mark.parametrize(
    ("options", "method", "start"),
    [({}, "snapshot", 0), ({"method": "feed"}, "feed", 0), ({"baseline": 0}, "feed", 1)],
)
def test_a_log_that_begins_without_a_schema_is_planned_in_every_way(
    written: Written, add: Make, options: dict[str, Any], method: Method, start: int
) -> None:
    table = written()
    table.commit(0, *header_without_schema(table))
    table.commit(1, table.header(**FEED)[1], add("a", rows=2))
    table.commit(2, add("b", rows=1))

    window = planned(table, **options)

    assert (window.method, window.start, window.end, window.rows) == (method, start, 2, 3)
    log = DeltaLog(table.path)
    assert log.schema_at(0)[0] == '{"type":"struct","fields":[]}'
    assert log.schema_at(2)[1] == window.schema_fingerprint
    assert [v.version for v in log.versions(0, 2)] == [0, 1, 2]
    assert log.transactions() == {}


def test_a_table_without_columns_is_refused_and_not_called_damaged(written: Written) -> None:
    table = written()
    table.commit(0, *header_without_schema(table))

    with pytest.raises(PlanError) as caught:
        planned(table)

    assert caught.value.code == "FM-PLAN-009"
    assert "has no columns" in str(caught.value)


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview", "catalogOwned"])
def test_a_table_of_a_catalog_is_sent_to_its_catalog(written: Written, feature: str) -> None:
    table = written()
    metadata = table.header()[1]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature]}
    table.commit(0, {"protocol": protocol}, metadata)

    with pytest.raises(PlanError) as caught:
        planned(table)

    assert caught.value.code == "FM-PLAN-009"
    assert "catalog name" in str(caught.value.next)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("part-1.parquet", "{table}/part-1.parquet"),
        ("d=a%20b/p%23%3F%25.parquet", "{table}/d=a b/p#?%.parquet"),
        ("at=10:00/p.parquet", "{table}/at=10:00/p.parquet"),
        ("raw#and?raw.parquet", "{table}/raw#and?raw.parquet"),
        ("/src%20a%23b/p.parquet", "/src a#b/p.parquet"),
        ("file:/src%20a%23b/p.parquet", "/src a#b/p.parquet"),
        ("file:///src%20a%3Fb/p.parquet", "/src a?b/p.parquet"),
        ("file://host/src/p.parquet", "/src/p.parquet"),
        ("s3://bucket/src%20a%23b/p.parquet", "s3://bucket/src a#b/p.parquet"),
    ],
)
def test_a_path_of_the_log_is_a_uri(path: str, where: str) -> None:
    vector = {"storageType": "p", "pathOrInlineDv": path}

    places_of = list(places("/lake/t", [{"path": path, "deletionVector": vector}]))

    assert places_of == [where.format(table="/lake/t")] * 2


def test_an_absolute_path_is_one_of_the_tables_own_store() -> None:
    assert list(places("s3://bucket/t", [{"path": "/other/p%20.parquet"}])) == [
        "s3://bucket/other/p .parquet"
    ]


def test_files_with_odd_names_are_found_where_they_are(
    written: Written, add: Make, tmp_path: Path
) -> None:
    source = tmp_path / "src a#b?c%20d"
    source.mkdir()
    table = written()
    names = ["p%20q.parquet", "r#s.parquet"]
    for name in names:
        (source / name).write_bytes(b"x")
    uris = [(source / name).as_uri() for name in names]
    table.commit(0, *table.header(**FEED), *(add(uri) for uri in uris))

    log = DeltaLog(table.path)

    assert log.lost_snapshot_files(0) == []
    assert log.lost_feed_files(0, 0) == []
    (source / names[1]).unlink()
    assert log.lost_snapshot_files(0) == [str(source / names[1])]


@pytest.mark.parametrize(
    ("added", "removed"),
    [
        ("file:/some/path", "/some/path"),
        ("file:///some/path", "file:/some/path"),
        ("/some/pa%20th", "file:/some/pa%20th"),
    ],
)
def test_one_file_under_two_spellings_is_one_file(
    written: Written, add: Make, remove: Make, added: str, removed: str
) -> None:
    table = written()
    table.commit(0, *table.header(**FEED), add(added, rows=3))
    table.commit(1, remove(removed))

    log = DeltaLog(table.path)

    assert log.snapshot_size(1).files == 0
    assert [(v.kinds, v.rows) for v in log.versions(1, 1)] == [(frozenset(("delete",)), 3)]
    assert location(added) == location(removed)


def test_two_broken_lines_are_not_one_action(written: Written) -> None:
    table = written()
    table.commit(0, *table.header())
    (table.folder / f"{1:020d}.json").write_bytes(b'{"add":{"path":"a"\n"size":1}}\n')

    with pytest.raises(Exception, match="line 1 is not JSON"):
        DeltaLog(table.path).versions(1, 1)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"stats": None},
        {"stats": '{"minValues":{"numRecords":5},"numRecords":3}'},
        {"stats": '{"numRecords":0}'},
        {"dataChange": False},
        {"path": "file:///a%20b"},
    ],
    ids=str,
)
def test_large_commits_are_read_in_columns_and_say_the_same(
    written: Written, add: Make, monkeypatch: pytest.MonkeyPatch, files: dict[str, Any]
) -> None:
    table = written()
    table.commit(0, *table.header(**FEED), {"txn": {"appId": "a", "version": 4}}, add("p", rows=2))
    odd = add("q")
    odd["add"] |= files
    table.commit(1, {"commitInfo": {"operation": "WRITE"}}, odd, add("r", rows=5))
    table.commit(2, add("s", rows=0))

    def answers() -> tuple[Any, ...]:
        log = DeltaLog(table.path)
        return log.versions(0, 2), log.snapshot_size(1), log.snapshot_size(2)

    monkeypatch.setattr(bulk, "MANY_BYTES", 1 << 40)
    by_action = answers()
    monkeypatch.setattr(bulk, "MANY_BYTES", 0)

    assert answers() == by_action


def test_a_log_of_many_files_is_planned_in_the_time_of_delta_rs(
    written: Written, full_size: bool
) -> None:
    """In seconds of the processor: a wall clock would measure the neighbours."""
    table = written()
    each, limit = (60_000, 1.5) if full_size else (12_000, 2.0)
    fields = [
        {"name": f"c{i}", "type": "long", "nullable": True, "metadata": {}} for i in range(100)
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    protocol, metadata = table.header(**FEED)
    metadata["metaData"]["schemaString"] = schema
    table.commit(0, protocol, metadata)
    for version in range(1, 6):
        lines = (_add_line(version, number) for number in range(each))
        (table.folder / f"{version:020d}.json").write_text("\n".join(lines) + "\n")

    def first() -> None:
        log = DeltaLog(table.path)
        assert log.facts().latest_version == 5
        assert log.snapshot_size(5).files == 5 * each

    def following() -> None:
        log = DeltaLog(table.path)
        assert log.facts().latest_version == 5
        assert sum(v.rows or 0 for v in log.versions(1, 5)) == 5 * each * 7

    opened = _processor_seconds(lambda: DeltaTable(table.path))
    assert _processor_seconds(first) <= limit * opened
    assert _processor_seconds(following) <= limit * opened
    # Only the lines of transactions are parsed.
    assert _processor_seconds(lambda: DeltaLog(table.path).transactions()) <= opened / 2


def _add_line(version: int, number: int) -> str:
    name = f"part-{version}-{number:08d}-{uuid.UUID(int=number * 7919)}.c000.snappy.parquet"
    return (
        f'{{"add":{{"path":"p={number % 100}/{name}","partitionValues":{{"p":"{number % 100}"}},'
        f'"size":{number},"modificationTime":1,"dataChange":true,"stats":"{{\\"numRecords\\":7}}"}}}}'
    )


def _processor_seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(3):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)
