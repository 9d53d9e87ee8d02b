"""Crashes, lost and restored checkpoints and databases: nothing is lost, nothing comes twice.

A model of Spark's loop (plan, run, commit) over one partition, with the target's transaction as the
ledger does it; every start goes through `decide`, and where it stops, the command that it names is
carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets, breaks
from floodmark.streaming.position.checkpoint import Checkpoint
from floodmark.streaming.position.decisions import Start, Stored, adopted, decide

IDS = {"t": "1"}


def at(offset: int) -> Offsets:
    return Offsets.of({("t", 0): offset})


@dataclass(frozen=True)
class Folder:
    """A checkpoint: where each batch ends, and how many are committed."""

    query: str
    initial: int | None = None
    ends: tuple[int, ...] = ()
    commits: int = 0

    def read(self) -> Checkpoint:
        last = len(self.ends) - 1
        ends = {n: at(self.ends[n]) for n in range(max(0, last - 1), last + 1)}
        return Checkpoint(
            "/cp",
            self.query,
            last if self.ends else None,
            self.commits - 1 if self.commits else None,
            ends,
            None if self.initial is None else at(self.initial),
        )


@dataclass(frozen=True)
class Target:
    """A database: its rows, and what it knows of the stream; both come and go together."""

    rows: tuple[int, ...] = ()
    stored: Stored | None = None


@dataclass
class World:
    folder: Folder | None = None
    target: Target = field(default_factory=Target)
    queries: int = 0


class Crash(Exception):
    pass


def counted(steps: int) -> Callable[[], None]:
    """What raises Crash when it is called once more than `steps` times."""
    left = iter(range(steps))

    def step() -> None:
        if next(left, None) is None:
            raise Crash

    return step


class Startup(RuleBasedStateMachine):
    """Runs, crashes and restores in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.latest = 0
        self.old_targets = [Target()]
        self.old_folders: list[Folder | None] = [None]

    @rule(records=st.integers(1, 5))
    def produce(self, records: int) -> None:
        self.latest += records

    @rule(steps=st.integers(0, 14))
    def run_and_crash(self, steps: int) -> None:
        """Start, and die after so many steps."""
        with suppress(Crash):
            self.run(steps)

    @rule()
    def run_to_the_end(self) -> None:
        self.run(10_000)

        assert self.world.target.rows == tuple(range(self.latest))

    @rule()
    def back_up_the_target(self) -> None:
        self.old_targets.append(self.world.target)

    @rule()
    def back_up_the_checkpoint(self) -> None:
        self.old_folders.append(self.world.folder)

    @rule(which=st.integers(0, 20))
    def restore_the_target(self, which: int) -> None:
        self.world.target = self.old_targets[which % len(self.old_targets)]

    @rule(which=st.integers(0, 20))
    def restore_the_checkpoint(self, which: int) -> None:
        self.world.folder = self.old_folders[which % len(self.old_folders)]

    @rule()
    def delete_the_checkpoint(self) -> None:
        self.world.folder = None

    @invariant()
    def rows_are_complete_and_single(self) -> None:
        rows = self.world.target.rows
        assert rows == tuple(range(len(rows)))
        stored = self.world.target.stored
        assert (None if stored is None else stored.end) == (at(len(rows)) if rows else None)

    def run(self, steps: int) -> None:
        step = counted(steps)
        self.start(step)
        self.loop(step)

    def start(self, step: Callable[[], None]) -> None:
        """A checkpoint with the id of its query, then the claim, then Spark."""
        found = self.decided()
        stored = self.world.target.stored
        if found.kind != "resume":
            self.world.queries += 1
            self.world.folder = Folder(f"query-{self.world.queries}")
            step()
            end = None if stored is None else stored.end
            query = self.world.folder.query
            self.world.target = replace(self.world.target, stored=Stored(end, query, None, IDS))
        folder = self.world.folder
        assert folder is not None
        if folder.initial is None:
            step()
            begins = 0 if found.offsets is None else found.offsets.at(("t", 0))
            self.world.folder = replace(folder, initial=begins)

    def decided(self) -> Start:
        """The decision, after the command that an error names."""
        try:
            return self.decision()
        except StreamError as error:
            {"FM-STREAM-034": self.reset, "FM-STREAM-035": self.rewind}[error.code]()
        return self.decision()

    def reset(self) -> None:
        assert self.world.folder is not None
        assert not self.world.target.rows
        if self.world.folder.commits:
            assert adopted(self.world.folder.read(), IDS).query_id == self.world.folder.query
        self.world.folder = None

    def rewind(self) -> None:
        assert self.world.target.stored is not None
        rewound = replace(self.world.target.stored, query_id="none", spark_batch_id=None)
        self.world.target = replace(self.world.target, stored=rewound)

    def decision(self) -> Start:
        found = None if self.world.folder is None else self.world.folder.read()
        return decide("s", found, self.world.target.stored, IDS)

    def loop(self, step: Callable[[], None]) -> None:
        while True:
            folder = self.world.folder
            assert folder is not None
            assert folder.initial is not None
            if len(folder.ends) == folder.commits:
                begin = folder.ends[-1] if folder.ends else folder.initial
                if begin == self.latest:
                    return
                end = min(self.latest, begin + 3)
                step()
                folder = self.world.folder = replace(folder, ends=(*folder.ends, end))
            step()
            self.apply(folder)
            step()
            self.world.folder = replace(folder, commits=folder.commits + 1)

    def apply(self, folder: Folder) -> None:
        """The target's transaction: already applied, refused, or applied."""
        batch = folder.commits
        begin = folder.ends[batch - 1] if batch else folder.initial
        end, stored = folder.ends[batch], self.world.target.stored
        assert begin is not None
        assert stored is not None
        if (stored.query_id, stored.spark_batch_id) == (folder.query, batch):
            assert stored.end == at(end)
            return
        assert stored.query_id == folder.query
        if stored.end is not None:
            assert not breaks(stored.end, at(begin)), "the ledger would refuse the batch"
        rows = (*self.world.target.rows, *range(begin, end))
        self.world.target = Target(rows, Stored(at(end), folder.query, batch, IDS))


Startup.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestStartup = Startup.TestCase
