"""Outsides for tests: runs without Spark, processes that are gone, a journal that is folded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from floodmark.control.journal.delta import DeltaEventLog
from floodmark.control.published.projections import Projector
from floodmark.control.upkeep.upkeep import KEEP_WINDOWS, compact
from floodmark.coordinator import Outside
from floodmark.deltalog import Storage
from floodmark.model.state import Holder
from floodmark.testing import ArrowEngine
from floodmark.work import ThisProcess, this_process


@dataclass(frozen=True)
class Alone(ThisProcess):
    """A process to which every other one is gone.

    A crash that is an exception leaves a process behind that is alive, and holds its lease.
    """

    me: Holder = field(default_factory=this_process)

    def holder(self) -> Holder:
        """See `Process.holder`."""
        return self.me

    def is_gone(self, holder: Holder) -> bool:
        """See `Process.is_gone`."""
        return True


ALONE = Outside(process=Alone())
"""A lease that a crash in this process left behind is taken over at once."""
ON_ARROW = Outside(engine=ArrowEngine())
"""Runs through delta-rs."""
AFTER_A_CRASH = replace(ALONE, engine=ArrowEngine())
"""Both."""


def fold_journal(control: str, keep_windows: int = KEEP_WINDOWS) -> bool:
    """Fold the journal of a store now, whether that is due or not; whether it was done."""
    storage = Storage()
    log, projector = DeltaEventLog(control, storage), Projector(control, storage)
    return compact(log, projector, keep_windows=keep_windows)
