"""Rows that delta-rs reads in the place of Spark, streamed to Parquet files that Spark reads."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from floodmark.deltalog import Storage
from floodmark.sources.frames import escaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PART_BYTES = 1 << 25
"""Rows of so many bytes in memory make one file; the peak is about twice as much."""
_COMPLETE = "_complete.json"


@dataclass(frozen=True)
class Spool:
    """A folder of files that stand for ranges; where executors run elsewhere they must see it.

    Files of a range are the same rows whenever they are made, so they are kept for retries. A
    range is complete once its marker is there, which names the folder of the attempt that wrote it:
    what a killed attempt left is never read.
    """

    storage: Storage
    folder: str | None = None
    """None for a temporary folder of this process."""

    def frame(
        self, spark: SparkSession, name: str, rows: Iterable[pa.Table], schema: StructType
    ) -> DataFrame:
        """The rows as a frame of `spark`; see `files`."""
        files = self.files(name, rows)
        if not files:
            return spark.createDataFrame([], schema)
        # pyarrow writes dates of every age as they are; a session may take them for old calendars.
        reader = spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(*map(escaped, files))

    def files(self, name: str, rows: Iterable[pa.Table]) -> list[str]:
        """The files of a range; `rows` is consumed unless an earlier attempt has kept them."""
        folder = f"{self._root}/{name}"
        files = self._kept(folder)
        if files is None:
            files = self._written(folder, rows)
        return [f"{folder}/{file}" for file in files]

    @cached_property
    def _root(self) -> str:
        if self.folder is not None:
            return self.folder
        made = tempfile.mkdtemp(prefix="floodmark-ranges-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made

    def _kept(self, folder: str) -> list[str] | None:
        try:
            marker = json.loads(self.storage.read(f"{folder}/{_COMPLETE}"))
        except FileNotFoundError:
            return None
        return [str(file) for file in marker["files"]]

    def _written(self, folder: str, rows: Iterable[pa.Table]) -> list[str]:
        attempt = uuid4().hex
        files = []
        for number, part in enumerate(_parts(rows)):
            file = f"{attempt}/{number:05d}.parquet"
            self.storage.write(f"{folder}/{file}", _parquet(part))
            files.append(file)
        self.storage.write(f"{folder}/{_COMPLETE}", json.dumps({"files": files}).encode())
        return files


def _parts(rows: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """The same rows in tables of about PART_BYTES."""
    pending: list[pa.Table] = []
    size = 0
    for table in rows:
        if table.num_rows:
            pending.append(table)
            size += table.nbytes
        if size >= PART_BYTES:
            yield pa.concat_tables(pending)
            pending, size = [], 0
    if pending:
        yield pa.concat_tables(pending)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
