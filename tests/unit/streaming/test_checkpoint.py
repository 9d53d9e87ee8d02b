from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.streaming.position.checkpoint import batch_offsets, begin_checkpoint, read_checkpoint

FIXTURES = Path(__file__).parents[2] / "fixtures" / "checkpoints"

META = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
QUERY = "4f0ae41c-7f2c-4ff0-a39c-5d1b0e2fdd10"


def at(*offsets: int) -> Offsets:
    return Offsets.of({("t", number): offset for number, offset in enumerate(offsets)})


def said(offsets: Offsets) -> str:
    return f"v1\n{META}\n{offsets.to_json()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Batches 0 to 2 are planned, 0 and 1 committed."""
    files = {
        "metadata": json.dumps({"id": QUERY}),
        "sources/0/0": "\0v1\n" + at(1, 0).to_json(),
        "offsets/0": said(at(4, 2)),
        "offsets/1": said(at(6, 2)),
        "offsets/2": said(at(6, 9, 3)),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "commits/1": 'v1\n{"nextBatchWatermarkMs":0}',
        "offsets/.0.crc": "crc",
        "offsets/.3.7f9d.tmp": "half a fi",
        "commits/.1.crc": "crc",
    }
    for name, content in files.items():
        write(tmp_path, name, content)
    return tmp_path


def write(folder: Path, name: str, content: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def failure(folder: Path) -> StreamError:
    with pytest.raises(StreamError) as caught:
        read_checkpoint(str(folder), "clicks")
    return caught.value


def test_a_checkpoint_tells_its_query_its_commits_and_its_ends(folder: Path) -> None:
    found = read_checkpoint(str(folder))

    assert found is not None
    assert (found.query_id, found.last_batch, found.last_commit) == (QUERY, 2, 1)
    assert found.pending == 2
    assert found.ends == {1: at(6, 2), 2: at(6, 9, 3)}
    assert found.initial == at(1, 0)


def test_a_batch_begins_where_the_one_before_ends(folder: Path) -> None:
    assert batch_offsets(str(folder), 0) == (at(1, 0), at(4, 2))
    assert batch_offsets(str(folder), 2) == (at(6, 2), at(6, 9, 3))


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "file:{}"])
def test_paths_and_uris_name_the_same_folder(folder: Path, spelling: str) -> None:
    spaced = folder / "a b"
    shutil.copytree(folder, spaced, ignore=shutil.ignore_patterns("a b"))
    location = spelling.format(str(spaced).replace(" ", "%20" if "//" in spelling else " "))

    found = read_checkpoint(location)

    assert found is not None
    assert found.query_id == QUERY


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_or_missing_folder_is_no_checkpoint(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "cp" / "offsets").mkdir(parents=True)

    assert read_checkpoint(str(tmp_path / "cp")) is None


def test_a_query_that_planned_nothing_has_no_batches(tmp_path: Path) -> None:
    write(tmp_path, "metadata", json.dumps({"id": QUERY}))

    found = read_checkpoint(str(tmp_path))

    assert found is not None
    assert (found.last_batch, found.last_commit, found.pending, found.initial) == (None,) * 4


def test_batches_that_spark_removed_are_not_missed(folder: Path) -> None:
    for name in ("offsets/0", "commits/0"):
        (folder / name).unlink()

    found = read_checkpoint(str(folder))

    assert found is not None
    assert (found.last_batch, found.last_commit, found.initial) == (2, 1, None)


def orders(*offsets: int) -> Offsets:
    return Offsets.of({("orders", number): offset for number, offset in enumerate(offsets)})


WRITTEN = {
    "offsets-v1": (2, 2, {1: orders(36, 2, 0), 2: orders(43, 3, 0)}, orders(0, 0, 0)),
    "offsets-v2": (2, 2, {1: orders(36, 2, 0), 2: orders(43, 3, 0)}, orders(0, 0, 0)),
    "commits-v2": (1, 1, {0: orders(43, 3, 0), 1: orders(43, 3, 0)}, orders(0, 0, 0)),
    "in-flight": (1, 0, {0: orders(21, 2, 0), 1: orders(40, 3, 0)}, orders(2, 1, 0)),
}
"""What Spark 4.2 left behind, see tests/streaming/test_written_checkpoints.py."""


@pytest.mark.parametrize("name", WRITTEN)
def test_what_spark_wrote_is_read(name: str) -> None:
    found = read_checkpoint(str(FIXTURES / name))

    assert found is not None
    assert len(found.query_id) == 36
    assert (found.last_batch, found.last_commit, found.ends, found.initial) == WRITTEN[name]


DAMAGED: dict[str, tuple[str, str | bytes | None]] = {
    "no metadata": ("metadata", None),
    "empty metadata": ("metadata", ""),
    "metadata of text": ("metadata", "hello"),
    "metadata cut off": ("metadata", '{"id":"4f0a'),
    "metadata without id": ("metadata", "{}"),
    "metadata with an empty id": ("metadata", '{"id":""}'),
    "metadata with a blank id": ("metadata", '{"id":"  "}'),
    "metadata with a number as id": ("metadata", '{"id":7}'),
    "metadata that is a list": ("metadata", '["id"]'),
    "metadata in Latin-1": ("metadata", b'{"id":"\xe4"}'),
    "metadata of zeros": ("metadata", b"\0" * 60),
    "metadata nested without end": ("metadata", "[" * 100_000),
    "empty offsets": ("offsets/2", ""),
    "offsets without a version": ("offsets/2", f"{META}\n{at(9).to_json()}"),
    "offsets with half a version": ("offsets/2", "v"),
    "offsets of version 0": ("offsets/2", f"v0\n{META}\n{at(9).to_json()}"),
    "offsets of version 01": ("offsets/2", f"v01\n{META}\n{at(9).to_json()}"),
    "offsets with a large V": ("offsets/2", f"V1\n{META}\n{at(9).to_json()}"),
    "offsets with a version only": ("offsets/2", "v1"),
    "offsets with a version and a line end": ("offsets/2", "v1\n"),
    "offsets whose metadata is cut off": ("offsets/2", 'v1\n{"batchWaterm'),
    "offsets whose metadata is a list": ("offsets/2", f"v1\n[]\n{at(9).to_json()}"),
    "offsets that are cut off": ("offsets/2", f'v1\n{META}\n{{"t":{{"0":6,"1"'),
    "offsets that are empty": ("offsets/2", f"v1\n{META}\n"),
    "offsets that name no partition": ("offsets/2", f"v1\n{META}\n{{}}"),
    "offsets that name no partition of a topic": ("offsets/2", f'v1\n{META}\n{{"t":{{}}}}'),
    "offsets of none": ("offsets/2", f"v1\n{META}\n-"),
    "offsets that are negative": ("offsets/2", f'v1\n{META}\n{{"t":{{"0":-1}}}}'),
    "offsets that are text": ("offsets/2", f'v1\n{META}\n{{"t":{{"0":"6"}}}}'),
    "offsets that are fractions": ("offsets/2", f'v1\n{META}\n{{"t":{{"0":6.5}}}}'),
    "offsets too large": ("offsets/2", f'v1\n{META}\n{{"t":{{"0":9223372036854775808}}}}'),
    "offsets of a partition that is no number": ("offsets/2", f'v1\n{META}\n{{"t":{{"x":6}}}}'),
    "offsets of a partition named twice": ("offsets/2", f'v1\n{META}\n{{"t":{{"0":6,"0":7}}}}'),
    "offsets of a source that is a number": ("offsets/2", f"v1\n{META}\n51"),
    "offsets of files": ("offsets/2", f'v1\n{META}\n{{"logOffset":3}}'),
    "offsets of bytes": ("offsets/2", b"v1\n\xff\xfe"),
    "offsets of zeros": ("offsets/2", b"\0" * 200),
    "offsets of the batch before of zeros": ("offsets/1", b"\0" * 200),
    "offsets that are not there": ("offsets/1", None),
    "last offsets that are not there": ("offsets/2", None),
    "version 2 without names": ("offsets/2", f"v2\n{META}\n-"),
    "version 2 with an empty name": ("offsets/2", f"v2\n{META}\n:{at(9).to_json()}"),
    "version 2 of none": ("offsets/2", f"v2\n{META}\n0:-"),
    "a commit that is empty": ("commits/1", ""),
    "a commit of text": ("commits/1", "v1\nhello"),
    "a commit that is cut off": ("commits/1", 'v1\n{"nextBatch'),
    "a commit with a version only": ("commits/1", "v1"),
    "a commit with a line too many": ("commits/1", "v1\n{}\n{}"),
    "a commit of bytes": ("commits/1", b"\xff\xff"),
    "a commit that is not there": ("commits/1", None),
    "a commit of a batch that was not planned": ("commits/3", "v1\n{}"),
    "a commit far ahead": ("commits/9", "v1\n{}"),
    "offsets far ahead": ("offsets/9", said(at(9))),
    "no initial offsets": ("sources/0/0", None),
    "initial offsets that are empty": ("sources/0/0", ""),
    "initial offsets without the zero byte": ("sources/0/0", "v1\n" + at(0).to_json()),
    "initial offsets without a version": ("sources/0/0", "\0" + at(0).to_json()),
    "initial offsets that are cut off": ("sources/0/0", '\0v1\n{"t":{"0"'),
    "initial offsets with a line too many": ("sources/0/0", f"\0v1\n{at(1).to_json()}\n"),
    "initial offsets of wishes": ("sources/0/0", '\0v1\n{"t":{"0":-2}}'),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_an_error_that_names_it(folder: Path, case: str) -> None:
    name, content = DAMAGED[case]
    if content is None:
        (folder / name).unlink()
    else:
        write(folder, name, content)

    if case == "last offsets that are not there":
        # Spark had planned batch 2 and may not have: what is left is whole.
        found = read_checkpoint(str(folder))
        assert found is not None
        assert (found.last_batch, found.last_commit) == (1, 1)
        return
    error = failure(folder)

    assert error.code == "FM-STREAM-030"
    assert (error.where or "").startswith(str(folder))
    assert not error.retryable
    assert (error.next or "").startswith("floodmark stream rewind clicks ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("offsets/2", f"v3\n{META}\n{at(9).to_json()}"),
        ("offsets/2", f"v9999\n{META}\n{at(9).to_json()}"),
        ("offsets/2", f"v1\n{META}\n{at(9).to_json()}\n{at(9).to_json()}"),
        ("offsets/2", f"v1\n{META}"),
        ("offsets/2", f"v2\n{META}\n0:{at(9).to_json()}\n1:{at(9).to_json()}"),
        ("commits/1", "v3\n{}"),
        ("sources/0/0", "\0v2\n" + at(1).to_json()),
    ],
)
def test_a_form_that_is_not_known_is_refused(folder: Path, name: str, content: str) -> None:
    write(folder, name, content)

    error = failure(folder)

    assert error.code == "FM-STREAM-031"
    assert error.allowed
    assert (error.where or "").endswith(name)


@pytest.mark.parametrize("name", ["metadata", "sources/0/0", "offsets/2", "offsets", "commits"])
def test_what_cannot_be_looked_at_is_never_taken_for_missing(folder: Path, name: str) -> None:
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("a file where a folder was")
    else:
        path.unlink()
        path.mkdir()

    error = failure(folder)

    assert (error.code, error.retryable) == ("FM-STREAM-032", True)


def test_a_store_that_nobody_knows_is_never_taken_for_missing() -> None:
    with pytest.raises(StreamError) as caught:
        read_checkpoint("nosuchstore://bucket/checkpoint")

    assert caught.value.code == "FM-STREAM-032"


def test_a_batch_that_was_not_planned_has_no_offsets(folder: Path) -> None:
    with pytest.raises(StreamError) as caught:
        batch_offsets(str(folder), 7)

    assert caught.value.code == "FM-STREAM-030"


def test_a_batch_that_goes_back_is_damaged(folder: Path) -> None:
    write(folder, "offsets/2", said(at(5, 2)))

    with pytest.raises(StreamError) as caught:
        batch_offsets(str(folder), 2)

    assert "ends before it begins" in (caught.value.found or "")


def test_a_checkpoint_begins_with_the_id_of_its_query(tmp_path: Path) -> None:
    location = str(tmp_path / "a" / "b")

    query_id = begin_checkpoint(location)

    found = read_checkpoint(location)
    assert found is not None
    assert (found.query_id, found.last_batch, found.initial) == (query_id, None, None)
    assert begin_checkpoint(location) == query_id


def test_a_checkpoint_with_batches_does_not_begin_again(folder: Path) -> None:
    with pytest.raises(StreamError) as caught:
        begin_checkpoint(str(folder))

    assert "there are batches" in (caught.value.found or "")


def test_a_checkpoint_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StreamError) as caught:
        begin_checkpoint(str(tmp_path / "file" / "checkpoint"))

    assert caught.value.code == "FM-STREAM-032"
