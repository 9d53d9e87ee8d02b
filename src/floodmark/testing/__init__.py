"""For authors of plug-ins: the contracts of sources and sinks, and doubles of the outside.

Plain classes: nothing here needs pytest, Spark or an extra. See docs/guides/plug-ins.md.
"""

from __future__ import annotations

from floodmark.model.clock import FrozenClock
from floodmark.testing.contracts import Contract, ContractError, SinkContract, SourceContract

__all__ = [
    "Contract",
    "ContractError",
    "FrozenClock",
    "SinkContract",
    "SourceContract",
]
