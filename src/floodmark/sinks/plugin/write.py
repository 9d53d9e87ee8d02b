"""Rows that plug-ins write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark import failpoints
from floodmark.config.plugins import FileFormat, guarded, origin_of
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
from floodmark.next_steps import THEN_RETRY, command
from floodmark.sinks import loss, rules
from floodmark.sinks.changes import rows_to_write
from floodmark.sinks.faults import batch_named
from floodmark.sinks.files import Save
from floodmark.sinks.rules import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def saving_with(plugin: FileFormat) -> Save:
    """What writes files in the format of a plug-in; raises FM-SINK-035 if it has no writer."""
    function = plugin.write
    if function is None:
        raise failed(
            f"format {plugin.name} has no writer",
            plugin.origin,
            "nothing beside its reader",
            f'@fm.format("{plugin.name}", write=a function)',
        )

    def save(rows: DataFrame, spec: WriteSpec) -> None:
        called(function, (rows, spec.target, spec.mode, dict(spec.writer)), spec.target)

    return save


def called(function: Any, arguments: tuple[Any, ...], where: str) -> Any:
    """What a function of a plug-in gives; whatever it raises becomes FM-SINK-035."""

    def failure(found: str) -> SinkError:
        title = f"{origin_of(function)} raised an error"
        return failed(title, where, found, "a function that writes the rows")

    return guarded(function, arguments, failure)


def failed(title: str, where: str, found: str, allowed: str) -> SinkError:
    """A plug-in did not write (FM-SINK-035)."""
    return SinkError(
        "FM-SINK-035",
        title,
        where=where,
        found=found,
        allowed=allowed,
        state="part of the rows may be in the target; the committed watermark stays",
        next="correct the function, " + THEN_RETRY,
    )


class PluginSink:
    """Writes frames by a sink of a plug-in: at least once, exactly once where it knows its receipts.

    A batch whose write is in the journal is not written again. One that crashed between its rows and
    the journal is, unless the sink has seen the receipt.
    """

    def __init__(
        self,
        sink: Any,
        spec: WriteSpec,
        windows: tuple[Window, ...],
        previous: SinkDone | None = None,
    ) -> None:
        self._sink = sink
        self._spec = spec
        self._windows = windows
        self._previous = previous

    def committed(self, receipt: Receipt) -> WriteResult | None:
        """What the journal knows of this very write, or what the sink itself has seen."""
        problem = self.loss(receipt)
        if problem is not None:
            raise problem
        known = self._previous
        is_recorded = known is not None and known.target == self._spec.target
        if known is not None and is_recorded and known.seq == receipt.seq:
            return self._result(known.version, already_applied=True)
        seen = getattr(self._sink, "seen", None)
        if seen is None or not called(seen, (receipt,), self._spec.target):
            return None
        return self._result(self._next_version, already_applied=True)

    def loss(self, receipt: Receipt) -> SinkError | None:
        """See `RecoverableSink.loss`: only the name of the target is looked at."""
        return loss.moved_on(self._previous, self._spec, receipt)

    def resolved(self, choice: OnLostTarget, receipt: Receipt, next_app_id: str) -> SinkDone:
        """See `RecoverableSink.resolved`; what a plug-in has written it cannot take back."""
        known = self._previous
        if choice == "rebuild" and known is not None and known.target == self._spec.target:
            raise loss.unsettled(
                self._spec.target,
                "the sink of a plug-in cannot replace what it has written",
                f"rows up to batch {known.batch_id}",
                command("retry", batch_named(receipt)),
            )
        return loss.moved_on_by(known, self._spec, choice, next_app_id)

    def check(self, frame: DataFrame, receipt: Receipt) -> None:
        """See `Sink.check`."""
        if self.committed(receipt) is None:
            self._admit(frame)

    def _admit(self, frame: DataFrame) -> None:
        is_ours = self._previous is not None and self._previous.seq is not None
        seen = Target(exists=False, has_rows=is_ours, holds_ours=is_ours)
        rules.check_write(self._spec, self._windows, frame.columns, seen)

    def write(self, frame: DataFrame, receipt: Receipt) -> WriteResult:
        """Write the rows; how many the sink does not say."""
        earlier = self.committed(receipt)
        if earlier is not None:
            return earlier
        self._admit(frame)
        rows = rows_to_write(frame, self._spec)
        failpoints.reached("sink.before_commit")
        called(self._sink.write, (rows, receipt), self._spec.target)
        failpoints.reached("sink.after_commit")
        return self._result(self._next_version, already_applied=False)

    @property
    def _next_version(self) -> int:
        return self._previous.version + 1 if self._previous else 0

    def _result(self, version: int, *, already_applied: bool) -> WriteResult:
        return WriteResult(
            self._spec.target, NO_TABLE_ID, version, None, already_applied=already_applied
        )
