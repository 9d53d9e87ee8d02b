"""Files as targets: written at least once, since nothing in a folder of files tells what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from floodmark import failpoints
from floodmark.errors import SinkError
from floodmark.model import (
    NO_TABLE_ID,
    OnLostTarget,
    Receipt,
    SinkDone,
    Window,
    WriteResult,
    WriteSpec,
)
from floodmark.model.copying import replace
from floodmark.next_steps import THEN_RETRY
from floodmark.sinks import loss, rules
from floodmark.sinks.changes import rows_to_write
from floodmark.sinks.rules import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STEP = "change the rows or the format, " + THEN_RETRY


Save = Callable[["DataFrame", WriteSpec], None]
"""Writes rows into the folder of a target."""


def _by_spark(rows: DataFrame, spec: WriteSpec) -> None:
    writer = rows.write.format(spec.format).mode(spec.mode).options(**dict(spec.writer))
    if spec.partition_by:
        writer = writer.partitionBy(*spec.partition_by)
    writer.save(spec.target)


class FileSink:
    """Writes frames as files of one folder, in a format that Spark writes, or by a function.

    A batch whose write is in the journal is not written again. One that crashed between its files
    and the journal is: its rows are there twice after an append, once after an overwrite.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        spec: WriteSpec,
        windows: tuple[Window, ...],
        previous: SinkDone | None = None,
        save: Save | None = None,
    ) -> None:
        self._spark = spark
        self._save = save or _by_spark
        is_rebuilt = previous is not None and previous.settled == "rebuild"
        self._spec = replace(spec, mode="overwrite") if is_rebuilt else spec
        self._windows = windows
        self._previous = previous

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """What the journal knows of this very write; the files are not looked at."""
        problem = self.loss(receipt)
        if problem is not None:
            raise problem
        known = self._previous
        if known is None or known.seq != receipt.seq or known.target != self._spec.target:
            return None
        return self._result(known.version, already_applied=True)

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `RecoverableSink.loss`: the files are not looked at, only where they are."""
        return loss.moved_on(self._previous, self._spec, receipt)

    def resolved(
        self,
        choice: OnLostTarget,
        receipt: Receipt,  # noqa: ARG002 see RecoverableSink
        next_app_id: str,
    ) -> SinkDone:
        """See `RecoverableSink.resolved`."""
        return loss.moved_on_by(self._previous, self._spec, choice, next_app_id)

    def check(self, frame: DataFrame, receipt: Receipt) -> None:
        """See `Sink.check`."""
        if self.committed(receipt) is None:
            self._admit(frame)

    def write(self, frame: DataFrame, receipt: Receipt) -> WriteResult:
        """Write the rows; how many is not known without reading them again."""
        earlier = self.committed(receipt)
        if earlier is not None:
            return earlier
        self._admit(frame)
        rows = rows_to_write(frame, self._spec)
        failpoints.reached("sink.before_commit")
        self._save(rows, self._spec)
        failpoints.reached("sink.after_commit")
        known = self._previous.version if self._previous else -1
        return self._result(known + 1, already_applied=False)

    def _admit(self, frame: DataFrame) -> None:
        spec = self._spec
        if spec.mode not in ("append", "overwrite"):
            raise rules.misfit(spec, f"mode {spec.mode}", "append or overwrite", _STEP)
        is_ours = self._previous is not None and self._previous.seq is not None
        seen = Target(exists=False, has_rows=is_ours, holds_ours=is_ours)
        rules.check_write(spec, self._windows, frame.columns, seen)
        data = [field for field in frame.schema if field.name in rules.data_columns(frame.columns)]
        kinds = [field.dataType.simpleString() for field in data]
        if spec.format == "text" and kinds != ["string"]:
            raise rules.misfit(spec, f"columns of {', '.join(kinds)}", "one column of text", _STEP)

    def _result(self, version: int, *, already_applied: bool) -> WriteResult:
        return WriteResult(
            self._spec.target, NO_TABLE_ID, version, None, already_applied=already_applied
        )
