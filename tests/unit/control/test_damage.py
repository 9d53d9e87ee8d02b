"""A damaged, foreign or newer journal is refused with a typed error; nothing is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from floodmark.control.events.bodies import Created, Registered
from floodmark.control.journal.delta import (
    FORMAT_PROPERTY,
    SCHEMA,
    DeltaEventLog,
    events_of,
    table_of,
)
from floodmark.control.journal.journal import FORMAT_VERSION, Journal
from floodmark.deltalog import Storage
from floodmark.errors import ControlError


def event_log(folder: Path) -> DeltaEventLog:
    return DeltaEventLog(str(folder), Storage(None))


def journal(folder: Path) -> Journal:
    return Journal(event_log(folder), actor="tester")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three commits of events."""
    event_log(tmp_path).create()
    writer = journal(tmp_path)
    writer.commit(lambda _: [Created("c")])
    for name in ("P", "Q"):
        writer.commit(lambda _, name=name: [Registered(name, "default", ("/u/a",), "h")])  # type: ignore[misc]
    return tmp_path


def newest_data(store: Path) -> Path:
    return max((store / "_journal").glob("*.parquet"), key=lambda p: p.stat().st_mtime_ns)


def commit_file(store: Path, version: int) -> Path:
    return store / "_journal/_delta_log" / f"{version:020d}.json"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign_kind(path: Path) -> None:
    rows = pq.read_table(path, use_threads=False, pre_buffer=False).to_pylist()
    rows[0]["kind"] = "SURPRISE"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated data file": lambda s: truncate(newest_data(s)),
    "empty data file": lambda s: newest_data(s).write_bytes(b""),
    "binary data file": lambda s: newest_data(s).write_bytes(bytes(range(256)) * 9),
    "missing data file": lambda s: newest_data(s).unlink(),
    "unknown event": lambda s: foreign_kind(newest_data(s)),
    "empty commit": lambda s: commit_file(s, 3).write_text(""),
    "truncated commit": lambda s: truncate(commit_file(s, 3)),
    "missing commit": lambda s: commit_file(s, 2).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_a_typed_error_for_a_fresh_reader(store: Path, damage: str) -> None:
    DAMAGES[damage](store)
    started = time.monotonic()
    with pytest.raises(ControlError) as caught:
        journal(store).state()
    assert caught.value.code in ("FM-CONTROL-002", "FM-CONTROL-010")
    assert caught.value.state
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("damage", [d for d in DAMAGES if "missing" not in d])
def test_damage_is_a_typed_error_for_a_reader_that_was_there_before(
    store: Path, damage: str
) -> None:
    reader = event_log(store)
    early = reader.read(None).position - 1
    DAMAGES[damage](store)
    with pytest.raises(ControlError) as caught:
        reader.read(early)
    assert caught.value.code == "FM-CONTROL-002"


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_written_to_a_damaged_journal(store: Path, damage: str) -> None:
    DAMAGES[damage](store)
    before = sorted(p.name for p in (store / "_journal").rglob("*"))
    with pytest.raises(ControlError):
        journal(store).commit(lambda _: [Registered("R", "default", ("/u/a",), "h")])
    assert sorted(p.name for p in (store / "_journal").rglob("*")) == before


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    configuration = {FORMAT_PROPERTY: str(FORMAT_VERSION + 1)}
    DeltaTable.create(
        f"{tmp_path}/_journal", SCHEMA, configuration=configuration, raise_if_key_not_exists=False
    )
    with pytest.raises(ControlError) as caught:
        journal(tmp_path).state()
    assert caught.value.code == "FM-CONTROL-003"
    assert "upgrade" in (caught.value.next or "")


def test_a_table_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(f"{tmp_path}/_journal", SCHEMA)
    with pytest.raises(ControlError) as caught:
        journal(tmp_path).state()
    assert caught.value.code == "FM-CONTROL-002"


def test_a_missing_store_is_not_there(tmp_path: Path) -> None:
    assert not event_log(tmp_path / "none").exists()


def test_creating_a_store_twice_uses_the_first(store: Path) -> None:
    event_log(store).create()
    assert journal(store).state().control_id == "c"


def test_rows_that_no_version_wrote_are_a_value_error(store: Path) -> None:
    events = journal(store).events()
    rows = table_of(events).to_pylist()
    rows[0]["payload"] = json.dumps({"nonsense": 1})
    with pytest.raises(ValueError, match="control_id"):
        events_of(pa.Table.from_pylist(rows, schema=SCHEMA))
