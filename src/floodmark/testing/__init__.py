"""For authors of plug-ins: the contracts of sources and sinks, and doubles of the outside.

Plain classes: nothing here needs pytest, Spark or an extra. `Outside(log=MemoryEventLog(),
clock=FrozenClock(), engine=ArrowEngine())` is a coordinator without Spark, whose journal and time
are in memory. See docs/guides/plug-ins.md.
"""

from __future__ import annotations

from floodmark.control.journal import MemoryEventLog
from floodmark.coordinator import Outside
from floodmark.model import FrozenClock
from floodmark.testing.arrow import ArrowEngine
from floodmark.testing.contracts import Contract, ContractError, SinkContract, SourceContract

__all__ = [
    "ArrowEngine",
    "Contract",
    "ContractError",
    "FrozenClock",
    "MemoryEventLog",
    "Outside",
    "SinkContract",
    "SourceContract",
]
