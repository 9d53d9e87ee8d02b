"""DeltaLog against delta-rs on tables that delta-rs writes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.deltalog import DeltaLog
from floodmark.deltalog import log as log_module

FEED = {"delta.enableChangeDataFeed": "true"}
KINDS = {
    "insert": "insert",
    "delete": "delete",
    "update_preimage": "update",
    "update_postimage": "update",
}


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})


def _append(path: str, n: int) -> None:
    write_deltalake(path, _rows(*range(n, n + 3)), mode="append")


def _overwrite(path: str, n: int) -> None:
    write_deltalake(path, _rows(n, n + 1), mode="overwrite")


def _upsert(path: str, n: int) -> None:
    merge = DeltaTable(path).merge(_rows(n, n + 1, 1_000 + n), "t.id = s.id", "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _insert_only(path: str, n: int) -> None:
    merge = DeltaTable(path).merge(_rows(n, 2_000 + n), "t.id = s.id", "s", "t")
    merge.when_not_matched_insert_all().execute()


def _merge_delete(path: str, n: int) -> None:
    merge = DeltaTable(path).merge(_rows(n, n + 1), "t.id = s.id", "s", "t")
    merge.when_matched_delete().execute()


def _update(path: str, n: int) -> None:
    DeltaTable(path).update(predicate=f"id <= {n}", updates={"v": "'u'"})


def _delete(path: str, n: int) -> None:
    DeltaTable(path).delete(f"id = {n}")


def _delete_all(path: str, n: int) -> None:
    DeltaTable(path).delete()


def _optimize(path: str, n: int) -> None:
    DeltaTable(path).optimize.compact()


def _checkpoint(path: str, n: int) -> None:
    DeltaTable(path).create_checkpoint()


def _property(path: str, n: int) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})


def _transaction(path: str, n: int) -> None:
    marks = CommitProperties(app_transactions=[Transaction("app", DeltaTable(path).version())])
    write_deltalake(path, _rows(n), mode="append", commit_properties=marks)


Step = Callable[[str, int], None]
STEPS: list[Step] = [
    _append,
    _append,
    _overwrite,
    _upsert,
    _insert_only,
    _merge_delete,
    _update,
    _delete,
    _delete_all,
    _optimize,
    _checkpoint,
    _property,
    _transaction,
]


def _feed(path: str, last: int) -> dict[int, Counter[str]]:
    """What delta-rs's own change feed shows, per version and change type."""
    frame = pa.table(DeltaTable(path).load_cdf(starting_version=0, ending_version=last).read_all())
    feed: dict[int, Counter[str]] = {v: Counter() for v in range(last + 1)}
    kinds = frame.column("_change_type").to_pylist()
    for version, kind in zip(frame.column("_commit_version").to_pylist(), kinds, strict=True):
        feed[version][kind] += 1
    return feed


def _check_facts(path: str) -> int:
    table, facts = DeltaTable(path), DeltaLog(path).facts()
    metadata = table.metadata()
    newest = Path(path, "_delta_log", f"{table.version():020d}.json").stat().st_mtime_ns
    assert facts.latest_version == table.version()
    assert facts.table_id == str(metadata.id)
    assert facts.properties == metadata.configuration
    assert facts.schema_json == table.schema().to_json()
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=newest // 1_000_000)
    assert facts.latest_at == at
    return facts.latest_version


def _check_sizes(path: str, last: int) -> None:
    for version in range(last + 1):
        size = DeltaLog(path).snapshot_size(version)
        adds = pa.table(DeltaTable(path, version=version).get_add_actions(flatten=True))
        assert size.files == adds.num_rows
        assert size.bytes == sum(adds.column("size_bytes").to_pylist())
        assert size.rows == sum(adds.column("num_records").to_pylist())


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=1, max_size=9),
    few=st.sampled_from([0, 16]),
)
def test_log_agrees_with_delta_rs(steps: list[tuple[Step, int]], few: int) -> None:
    """With `few` at 0 checkpoints are used wherever there is one."""
    standing, log_module.FEW_COMMITS = log_module.FEW_COMMITS, few
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/a table é"
            write_deltalake(path, _rows(0, 1, 2), configuration=FEED)
            for step, n in steps:
                step(path, n)
                last = _check_facts(path)

            log, feed = DeltaLog(path), _feed(path, last)
            for facts in log.versions(0, last):
                seen = feed[facts.version]
                if facts.operation == "UPDATE":
                    # delta-rs's metrics do not tell what its feed shows; see changes.py.
                    assert facts.rows in (None, sum(seen.values()))
                    assert facts.kinds >= {KINDS[k] for k in seen}
                    continue
                assert facts.rows == sum(seen.values())
                assert facts.kinds == {KINDS[k] for k in seen}
            _check_sizes(path, last)
            assert log.transaction_version("app") == DeltaTable(path).transaction_version("app")
    finally:
        log_module.FEW_COMMITS = standing


def test_cleaned_delta_rs_log_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for n in range(12):
        write_deltalake(path, _rows(n), mode="append", configuration=FEED if n == 0 else None)
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, _rows(99), mode="append")
    before = DeltaLog(path).facts()
    for version in range(9):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()

    after = DeltaLog(path).facts()

    assert after.earliest_version == 9
    assert (after.table_id, after.schema_json) == (before.table_id, before.schema_json)
    assert after.properties == before.properties
    assert DeltaLog(path).snapshot_size(12).rows == 13
