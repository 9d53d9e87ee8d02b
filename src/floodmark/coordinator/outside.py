"""Everything outside of a coordinator, as one value: what it writes to, asks, waits for and runs on."""

from __future__ import annotations

from dataclasses import dataclass, field

from floodmark.control import Publisher, SignsOfLife
from floodmark.control.journal import ControlLog
from floodmark.control.rules import Apply, apply
from floodmark.coordinator.probing import Prober
from floodmark.deltalog import Storage
from floodmark.model import Clock, Ids, RandomIds, SystemClock
from floodmark.observe import Tell, stage
from floodmark.run.engine import Engine
from floodmark.work import Chance, Process, ThisProcess, any_number


@dataclass(frozen=True)
class Outside:
    """What a coordinator acts on and depends on; without arguments that of the product.

    The product, the simulator and the tests build the same `Coordinator`; they differ in this
    value only. What is None follows from the coordinator's other arguments: its control folder,
    its storage options and its Spark session.
    """

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    chance: Chance = any_number
    """How long a commit waits before it tries again."""
    process: Process = field(default_factory=ThisProcess)
    """Who this process is, and whether another one is gone."""
    apply: Apply = apply
    """What an event means for the state; another one may only be quicker."""
    tell: Tell = stage
    """Where each stage of the work is told of: floodmark's log."""
    storage: Storage | None = None
    """Files by their path; None: those that the storage options reach."""
    log: ControlLog | None = None
    """Where events are journaled; None: the Delta table of the control folder."""
    heartbeats: SignsOfLife | None = None
    """Signs of life of runs; None: files of the control folder."""
    publisher: Publisher | None = None
    """What shows the journal to others; None: the tables of the control folder."""
    prober: Prober | None = None
    """What looks at upstreams; None: their logs, files, databases and web APIs themselves."""
    engine: Engine | None = None
    """What runs read and write with; None: the coordinator's Spark session."""
