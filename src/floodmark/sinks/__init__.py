"""Sinks: rows and their receipt are committed together, or neither.

A run writes through `Sink`; those that notice a loss are a `RecoverableSink`. Each kind of target has a
folder whose `write` is its sink. `rules` is what every sink refuses, `changes` how rows with change
columns become rows of a target.
"""

from __future__ import annotations

from floodmark.sinks.changes import UPSERTS, deletes, upserts
from floodmark.sinks.loss import target_loss
from floodmark.sinks.origins import Origin, origins_of
from floodmark.sinks.rerun import refuse_harm
from floodmark.sinks.rules import Target
from floodmark.sinks.sink import RecoverableSink, Sink, loss_of

__all__ = [
    "UPSERTS",
    "Origin",
    "RecoverableSink",
    "Sink",
    "Target",
    "deletes",
    "loss_of",
    "origins_of",
    "refuse_harm",
    "target_loss",
    "upserts",
]
