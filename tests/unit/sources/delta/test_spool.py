"""Rows that are streamed to files: bounded in memory, whole or not there at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.deltalog import Storage
from floodmark.sources.delta.spool import Spool

_CHILD = """
import resource, sys
import numpy as np, pyarrow as pa
from deltalake import write_deltalake
from floodmark.deltalog import Storage
from floodmark.sources.delta.delta_rs import streamed_changes
from floodmark.sources.delta.spool import Spool
from tests.support.windows import planned_window
lake, versions = sys.argv[1], int(sys.argv[2])
each = 500_000
numbers = np.arange(each)
for version in range(versions + 1):
    rows = pa.table({"id": numbers + version, "x": numbers * 0.5})
    feed = {"delta.enableChangeDataFeed": "true"} if version == 0 else None
    write_deltalake(lake, rows, mode="append", configuration=feed)
written_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
window = planned_window(lake, "feed", 0, versions)
files = Spool(Storage(), lake + "/_spool").files("range", streamed_changes(window, Storage()))
import pyarrow.parquet as pq
assert sum(pq.read_metadata(file).num_rows for file in files) == versions * each
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak_mb(lake: Path, versions: int) -> int:
    command = [sys.executable, "-c", _CHILD, str(lake), str(versions)]
    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    return int(ended.stdout)


def test_a_range_of_any_length_takes_the_same_memory(tmp_path: Path, full_size: bool) -> None:
    """All at once the larger range takes 48 MB of Arrow per million rows, and twice that to copy."""
    small, large = (4, 100) if full_size else (4, 16)

    growth = peak_mb(tmp_path / "large", large) - peak_mb(tmp_path / "small", small)

    assert growth < 100
    if full_size:
        assert peak_mb(tmp_path / "huge", large) < 2_000


def numbered(*batches: int) -> Iterator[pa.Table]:
    for number in batches:
        yield pa.table({"id": [number]})


def rows(files: list[str]) -> list[int]:
    return [row["id"] for file in files for row in pq.read_table(file).to_pylist()]


def test_a_range_is_kept_for_the_next_attempt(tmp_path: Path) -> None:
    spool = Spool(Storage(), str(tmp_path))
    assert rows(spool.files("range", numbered(1, 2))) == [1, 2]

    def never() -> Iterator[pa.Table]:
        raise AssertionError
        yield

    assert rows(spool.files("range", never())) == [1, 2]
    assert rows(spool.files("other", numbered(3))) == [3]
    assert spool.files("empty", numbered()) == []


def test_an_attempt_that_ended_half_way_is_not_read(tmp_path: Path) -> None:
    spool = Spool(Storage(), str(tmp_path))

    def broken() -> Iterator[pa.Table]:
        yield from numbered(1)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        spool.files("range", broken())

    assert rows(spool.files("range", numbered(1, 2))) == [1, 2]
