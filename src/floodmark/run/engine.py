"""The engine a run reads and writes with: Spark, or a double that passes the same contracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.deltalog import Storage
from floodmark.errors import RunError
from floodmark.model import DELTA, SinkDone, Window, WriteSpec
from floodmark.sinks import Sink
from floodmark.sources import Source, Sources, SparkAccess

if TYPE_CHECKING:
    from floodmark.sources import Readers
    from floodmark.transforms import Step


class Engine(Protocol):
    """What a run needs of an engine."""

    spark: Any
    """The session that a pipeline's function may use; None without Spark."""

    def source(self) -> Source:
        """What reads the windows of a batch."""

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Sink:
        """What does one write of a run; `previous` is the last one of that name, if any."""

    def transformed(
        self, steps: Sequence[Step], frame: Any, others: Mapping[str, Any], root: Path
    ) -> Any:
        """A frame after the steps of a node, which may name other frames; nothing runs yet.

        Functions of Python steps are looked for below `root`. Raises TransformError.
        """

    def is_lost_file(self, error: BaseException) -> bool:
        """Whether an error means that data files of an upstream are gone."""

    def refuse_without_receipts(self, pipeline: str) -> None:
        """Raise FM-SINK-046 where no write of a Delta table could have its receipt.

        Asked before a run is leased: a function is not called whose writes would be refused.
        """


class SparkEngine:
    """Delta tables through a Spark session. The adapters are imported on first use."""

    def __init__(
        self,
        spark: Any,
        storage: Storage,
        readers: Readers | None = None,
        spool_folder: str | None = None,
    ) -> None:
        self.spark = spark
        self._readers = readers or {}
        self._storage = storage
        self._spool_folder = spool_folder

    def source(self) -> Source:
        access = SparkAccess(self.spark, self._storage, self._readers, self._spool_folder)
        return Sources.on_spark(access)

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Sink:
        if spec.format != DELTA:
            from floodmark.sinks.files import FileSink

            return FileSink(self.spark, spec, tuple(windows), previous)
        from floodmark.sinks.delta import DeltaSink

        return DeltaSink(self.spark, spec, tuple(windows), previous, self._storage.options)

    def transformed(
        self, steps: Sequence[Step], frame: Any, others: Mapping[str, Any], root: Path
    ) -> Any:
        from floodmark.transforms import apply_steps

        return apply_steps(steps, frame, others=others, root=root).frame

    def is_lost_file(self, error: BaseException) -> bool:
        from floodmark.engines.faults import lost_files

        return lost_files(error)

    def refuse_without_receipts(self, pipeline: str) -> None:
        from floodmark.sinks.delta import refuse_without_receipts

        refuse_without_receipts(self.spark, f"pipeline {pipeline}")


def spark_engine(
    spark: Any,
    storage: Storage,
    readers: Readers | None = None,
    spool_folder: str | None = None,
) -> Engine:
    """The engine of a session; raises FM-RUN-004 if there is none.

    `spool_folder` takes rows that Spark cannot read itself; its executors must see it.
    """
    if spark is None:
        raise RunError(
            "FM-RUN-004",
            "a run needs a Spark session",
            state="nothing was read or written",
            next="pass spark=fm.local_session() to fm.Coordinator",
        )
    return SparkEngine(spark, storage, readers, spool_folder)
