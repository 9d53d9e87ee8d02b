"""Tables at the edge: a log of 300,000 files, and 50 million changed rows that Spark refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.harness import Figure, median, spread, step
from bench.tables import FEED_ON

FILES = 300_000
COMMITS = 5
PAIRS = 5
ROWS = 50_000_000
"""Changed rows: four in five were inserted, then a tenth of all was updated (two rows each)."""
_ROWS_AT_ONCE = 1_000_000

_OURS = """
import json, sys, time, uuid
import floodmark as fm
started = time.perf_counter()
batch = fm.Coordinator(sys.argv[1] + "-control" + uuid.uuid4().hex, actor="bench").create_batch(
    [sys.argv[1]]
)
print(json.dumps({"seconds": time.perf_counter() - started}))
assert batch.windows[0].method == "snapshot", batch.windows[0]
"""
_DELTA_RS = """
import json, sys, time
started = time.perf_counter()
from deltalake import DeltaTable
table = DeltaTable(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - started}))
assert table.version() == int(sys.argv[2])
"""
_SPOOL = """
import json, sys, time
from pathlib import Path
import pyarrow.parquet as pq
from bench.harness import own_peak_mb
from floodmark.deltalog import Storage
from floodmark.sources.delta.delta_rs import streamed_changes
from floodmark.sources.delta.spool import Spool
from tests.support.windows import planned_window
table, folder = sys.argv[1:]
window = planned_window(Path(table), "feed", -1, int(Path(table, "last").read_text()))
started = time.perf_counter()
storage = Storage()
files = Spool(storage, folder).files("feed", streamed_changes(window, storage))
taken = time.perf_counter() - started
rows = sum(pq.ParquetFile(file).metadata.num_rows for file in files)
print(json.dumps({"seconds": taken, "peak_mb": own_peak_mb(), "rows": rows}))
"""


def measure(folder: Path) -> list[Figure]:
    """Fresh processes plan, open and read, so that each has its own time and memory."""
    return [*_many_files(folder / "files"), *_many_rows(folder / "rows")]


def _many_files(table: Path) -> list[Figure]:
    with step(f"making a log of {FILES:,} files in {COMMITS} commits"):
        _log_of(table)
    ours, theirs = [], []
    with step(f"planning it, in turn with delta-rs, {PAIRS} times"):
        for _ in range(PAIRS):
            ours.append(_in_child(_OURS, str(table))["seconds"])
            theirs.append(_in_child(_DELTA_RS, str(table), str(COMMITS - 1))["seconds"])
    return [
        Figure(
            f"plan a table of {FILES:,} files / delta-rs opens it",
            median(ours) / median(theirs),
            "times",
            1.5,
            note=f"ours {spread(ours)} s, delta-rs {spread(theirs)} s",
        )
    ]


def _log_of(table: Path) -> None:
    """A log as a writer of many small files leaves it; planning never opens the files."""
    write_deltalake(table, _rows(0, 10), configuration=FEED_ON)
    log = table / "_delta_log"
    first = (log / f"{0:020d}.json").read_text().splitlines()
    add = next(json.loads(line) for line in first if '"add"' in line)["add"]
    for commit in range(COMMITS):
        adds = (
            json.dumps({"add": {**add, "path": f"part-{commit}-{number:06d}.parquet"}})
            for number in range(FILES // COMMITS)
        )
        head = [line for line in first if '"add"' not in line] if commit == 0 else []
        (log / f"{commit:020d}.json").write_text("\n".join([*head, *adds]) + "\n")


def _many_rows(table: Path) -> list[Figure]:
    with step(f"making {ROWS:,} changed rows"):
        _changes_of(table)
    with step("streaming them to files for Spark"):
        found = _in_child(_SPOOL, str(table), str(table.parent / "spool"))
    assert found["rows"] == ROWS, found
    return [
        Figure(
            f"{ROWS:,} changed rows that Spark refuses, peak memory",
            found["peak_mb"],
            "MB",
            2_000,
            note=f"by delta-rs, streamed to Parquet in {found['seconds']:.0f} s",
        )
    ]


def _changes_of(table: Path) -> None:
    inserted = ROWS * 4 // 5
    starts = range(0, inserted, _ROWS_AT_ONCE)
    schema = _rows(0, 1).schema
    batches: Iterator[pa.RecordBatch] = (
        batch for start in starts for batch in _rows(start, _ROWS_AT_ONCE).to_batches()
    )
    write_deltalake(
        table, pa.RecordBatchReader.from_batches(schema, batches), configuration=FEED_ON
    )
    updated = (ROWS - inserted) // 2
    DeltaTable(table).update({"amount": "amount + 1"}, predicate=f"id < {updated}")
    (table / "last").write_text(str(DeltaTable(table).version()))


def _rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array((number % 977 for number in ids), pa.int64()),
            "note": pa.array((f"order {number}" for number in ids), pa.string()),
        }
    )


def _in_child(code: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr)
    found: dict[str, float] = json.loads(run.stdout)
    return found
