"""The control store: what is known of pipelines, batches and runs, and who may change it.

Readers and writers of state are different types. `events` is what can happen, `rules` what it means and
when it is refused, `journal` keeps it, `published` shows it as tables, `upkeep` keeps the store small.
What operators do stands in `operations`, `resetting`, `rebuild`, `transfer` and `recovery`.
"""

from __future__ import annotations

from floodmark.control.heartbeats import (
    FileHeartbeats,
    Heartbeats,
    Pulse,
    PulseFactory,
    SignsOfLife,
)
from floodmark.control.history import all_events, past_batch
from floodmark.control.publishing import Publisher, TablePublisher
from floodmark.control.refusals import cannot_cancel, no_store, refuse_unfit_place
from floodmark.control.registry import (
    definition_hash,
    known_pipeline,
    refuse_odd_name,
    registration,
    with_baseline,
)
from floodmark.control.store import ControlReader, ControlStore, Decide

__all__ = [
    "ControlReader",
    "ControlStore",
    "Decide",
    "FileHeartbeats",
    "Heartbeats",
    "Publisher",
    "Pulse",
    "PulseFactory",
    "SignsOfLife",
    "TablePublisher",
    "all_events",
    "cannot_cancel",
    "definition_hash",
    "known_pipeline",
    "no_store",
    "past_batch",
    "refuse_odd_name",
    "refuse_unfit_place",
    "registration",
    "with_baseline",
]
