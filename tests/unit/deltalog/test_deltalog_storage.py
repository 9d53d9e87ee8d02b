"""The door to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodmark.deltalog import DeltaLog, Storage, absolute, is_local
from floodmark.deltalog.storage import ObjectFiles
from floodmark.errors import PlanError


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("/lake/orders/", "/lake/orders"),
        ("/lake/./a/../orders", "/lake/orders"),
        ("//lake/orders", "/lake/orders"),
        ("file:///lake/orders/", "/lake/orders"),
        ("file:/lake/orders", "/lake/orders"),
        ("file:///lake/new%20orders%25", "/lake/new orders%"),
        ("/lake/new%20orders", "/lake/new%20orders"),
        ("/lake/été 'x\"", "/lake/été 'x\""),
        ("s3://bucket/orders/", "s3://bucket/orders"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
    ],
)
def test_stored_name_of_a_path(given: str, stored: str) -> None:
    assert absolute(given) == stored
    assert absolute(stored) == stored


def test_relative_paths_are_taken_from_the_base_or_the_working_directory() -> None:
    assert absolute("orders", base="/lake") == "/lake/orders"
    assert absolute("../x", base="/lake/a") == "/lake/x"
    assert absolute("/other", base="/lake") == "/other"
    assert absolute("orders", base="s3://bucket/lake") == "s3://bucket/lake/orders"
    assert absolute("orders") == os.path.join(os.getcwd(), "orders")


def test_symbolic_links_are_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert absolute(tmp_path / "link") == f"{tmp_path}/link"


def test_local_means_no_scheme_or_file() -> None:
    assert all(map(is_local, ("a/b", "/a", "file:///a", "C:/a")))
    assert not any(map(is_local, ("s3://b/a", "dbfs:/a")))


@pytest.fixture(params=["local", "object"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    if request.param == "local":
        return Storage(), str(tmp_path)
    storage = Storage(
        open_root=lambda root, options: ObjectFiles(root, options, url=f"file://{tmp_path}")
    )
    return storage, "store://root"


def test_written_bytes_are_read_back_with_size_and_time(
    store: tuple[Storage, str],
) -> None:
    storage, root = store
    path = f"{root}/a b/é%20'x.bin"

    storage.write(path, b"one")
    storage.write(path, b"three")

    assert storage.read(path) == b"three"
    data, modified_ms = storage.read_timed(path)
    entry = storage.entry(path)
    assert entry is not None
    assert (data, entry.size, entry.modified_ms) == (b"three", 5, modified_ms)
    assert [e.name for e in storage.list(f"{root}/a b")] == ["é%20'x.bin"]
    assert storage.names(f"{root}/a b") == ["é%20'x.bin"]
    with storage.open(path) as file:
        assert file.read() == b"three"


def test_what_is_not_there_is_not_found(store: tuple[Storage, str]) -> None:
    storage, root = store

    assert not storage.exists(f"{root}/nothing")
    for look in (
        storage.names,
        storage.list,
        storage.read,
        storage.read_timed,
        storage.open,
    ):
        with pytest.raises(FileNotFoundError):
            look(f"{root}/nothing")


def test_deleting_twice_is_deleting_once(store: tuple[Storage, str]) -> None:
    storage, root = store
    storage.write(f"{root}/d/x", b"1")
    storage.write(f"{root}/d/e/y", b"2")

    for _ in range(2):
        storage.delete(f"{root}/d/x")
        assert not storage.exists(f"{root}/d/x")
    for _ in range(2):
        storage.delete_dir(f"{root}/d")
        assert not storage.exists(f"{root}/d/e/y")


def test_a_failed_write_leaves_the_old_content_and_no_rubbish(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.mkdir()

    with pytest.raises(IsADirectoryError):
        Storage().write(str(target), b"data")

    assert os.listdir(tmp_path) == ["x"]


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute"):
        Storage().read("a/b")


def test_a_log_is_read_through_either_store(store: tuple[Storage, str]) -> None:
    storage, root = store
    schema = '{\\"type\\":\\"struct\\",\\"fields\\":[]}'
    header = f'{{"protocol":{{}}}}\n{{"metaData":{{"id":"x","schemaString":"{schema}"}}}}\n'
    added = '{"add":{"path":"a","size":7,"dataChange":true,"stats":"{\\"numRecords\\":3}"}}\n'
    storage.write(f"{root}/a t/_delta_log/{0:020d}.json", header.encode())
    storage.write(f"{root}/a t/_delta_log/{1:020d}.json", added.encode())
    log = DeltaLog(f"{root}/a t", storage)

    facts = log.facts()

    entry = storage.entry(f"{root}/a t/_delta_log/{1:020d}.json")
    assert entry is not None
    assert (facts.table_id, facts.latest_version) == ("x", 1)
    assert facts.latest_at.timestamp() * 1_000 == pytest.approx(entry.modified_ms)
    assert log.versions(1, 1)[0].rows == log.snapshot_size(1).rows == 3
    with pytest.raises(PlanError, match="nothing at"):
        DeltaLog(f"{root}/none", storage).facts()
