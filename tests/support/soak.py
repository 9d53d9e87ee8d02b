"""Planners, runners and finalizers as processes on one store, killed and stopped at random.

Every command of every process is written to a diary: invoked, then ok, fail or unknown; an end
that is missing is unknown too. Afterwards the normal commands recover what is open, and the
diaries are judged against the journal and the sinks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import crash, soak_judges
from tests.support.crash import CUSTOMERS, ORDERS, WRITES, Story

from floodmark.control.events.bodies import Planned
from floodmark.coordinator import Coordinator
from floodmark.errors import FloodmarkError
from floodmark.model.results import RunResult
from floodmark.run.context import Run
from floodmark.run.runner import PipelineFunction

if TYPE_CHECKING:
    from tests.support.soak_judges import Facts

TTL_SECONDS = 2.0
PAUSE_SECONDS = 0.2
FEED = "delta.enableChangeDataFeed"
UNKNOWN = frozenset({"FM-CONTROL-014"})


# The clients --------------------------------------------------------------------------------------


class Diary:
    """What one process did, one JSON line for each step, written without a buffer."""

    def __init__(self, root: Path, client: str) -> None:
        self.client = client
        path = root / "diary" / f"{client}.{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._number = 0

    def attempt(self, command: str, call: Callable[[], Facts]) -> Facts | None:
        """Note a command before and after; None if it did not succeed."""
        self._number += 1
        self._note("invoke", command, {})
        try:
            facts = call()
        except FloodmarkError as error:
            ending = "unknown" if error.code in UNKNOWN else "fail"
            self._note(ending, command, {"code": error.code, "text": str(error)[:500]})
            return None
        self._note("ok", command, facts)
        return facts

    def _note(self, kind: str, command: str, facts: Facts) -> None:
        line = {
            "client": self.client,
            "number": self._number,
            "kind": kind,
            "command": command,
            "at": time.monotonic(),
            **facts,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


def _client(root: Path, client: str) -> tuple[Coordinator, Diary, Iterator[None]]:
    """What every client has; the last one yields, with pauses, until it is time to stop."""
    coordinator = Story(root, "append", TTL_SECONDS).coordinator()

    def turns() -> Iterator[None]:
        while not (root / "stop").exists():
            yield
            time.sleep(random.uniform(0, PAUSE_SECONDS))

    return coordinator, Diary(root, client), turns()


def planner(root: Path, client: str) -> None:
    """Plans, and reads the watermarks."""
    coordinator, diary, turns = _client(root, client)

    def plan() -> Facts:
        batch = coordinator.create_batch(on_lost_range="snapshot")
        return {"batch_id": batch.batch_id, "reused": batch.reused}

    for _ in turns:
        diary.attempt("plan", plan)
        diary.attempt("read", lambda: _marks(coordinator))


def runner(root: Path, client: str) -> None:
    """Runs the pipelines of open batches."""
    coordinator, diary, turns = _client(root, client)

    def run(pipeline: str, batch_id: str) -> Facts:
        result = run_batch(coordinator, pipeline, batch_id)
        return {"pipeline": pipeline, "batch_id": batch_id, "repeat": result.is_repeat}

    for _ in turns:
        for batch in coordinator.current_plan():
            for pipeline in random.sample(batch.pipelines, len(batch.pipelines)):
                diary.attempt("run", partial(run, pipeline, str(batch.batch_id)))


def finalizer(root: Path, client: str) -> None:
    """Advances what is ready, and reads the watermarks."""
    coordinator, diary, turns = _client(root, client)

    def finalize(batch_id: str) -> Facts:
        return {"batch_id": batch_id, "advanced": list(coordinator.finalize_batch(batch_id))}

    for _ in turns:
        for batch in coordinator.current_plan():
            diary.attempt("finalize", partial(finalize, str(batch.batch_id)))
        diary.attempt("read", lambda: _marks(coordinator))


def grower(root: Path, client: str) -> None:
    """Adds orders; adds customers and changes them; does to both tables what owners of tables do."""
    _, diary, turns = _client(root, client)

    def grow() -> Facts:
        number = time.time_ns()
        crash.append_rows(root, ORDERS, [(number + i, i + 1) for i in range(5)])
        if number % 3 == 0:
            crash.append_rows(root, CUSTOMERS, [(number, 7)])
        elif number % 3 == 1:
            crash.open_table(root, CUSTOMERS).update({"amount": "amount + 1"})
        if number % 7 == 0:
            # Nobody else writes to the upstreams, so this cannot meet another compaction.
            crash.open_table(root, ORDERS).optimize.compact()
        elif number % 7 == 1:
            crash.open_table(root, ORDERS).alter.set_table_properties(
                {"note": str(number)}, raise_if_not_exists=False
            )
        return {}

    def fault() -> Facts:
        return {"fault": random.choice(FAULTS)(root)}

    for _ in turns:
        diary.attempt("grow", grow)
        if random.random() < 0.15:
            diary.attempt("fault", fault)


def change_without_feed(root: Path) -> str:
    """A change that the feed does not show: only the whole table tells."""
    customers = crash.open_table(root, CUSTOMERS)
    customers.alter.set_table_properties({FEED: "false"})
    crash.open_table(root, CUSTOMERS).update({"amount": "amount + 1"})
    crash.open_table(root, CUSTOMERS).alter.set_table_properties({FEED: "true"})
    return "feed off and on"


def clean_log(root: Path) -> str:
    """Log clean-up that reaches into what is planned; the end of every plan can still be read."""
    coordinator = Story(root, "append", TTL_SECONDS).coordinator()
    plans = coordinator.current_plan()
    ends = [w.end for batch in plans for w in batch.windows if w.upstream.endswith(CUSTOMERS)]
    marks = [c.version for c in coordinator.checkpoints() if c.upstream.endswith(CUSTOMERS)]
    kept = min(ends or marks or [0])
    crash.open_table(root, CUSTOMERS, kept).create_checkpoint()
    for commit in (root / CUSTOMERS / "_delta_log").glob("*.json"):
        if int(commit.stem) < kept:
            commit.unlink()
    return "log cleaned"


FAULTS = (change_without_feed, clean_log)
"""What happens to the customers; they are merged, so the whole table may be read again."""


def operator(root: Path, client: str) -> None:
    """Pauses pipelines now and then, resumes them soon, and keeps the store in shape."""
    coordinator, diary, turns = _client(root, client)

    def operate(operation: Callable[[str], None], pipeline: str) -> Facts:
        operation(pipeline)
        return {"pipeline": pipeline}

    def upkeep() -> Facts:
        coordinator.admin.upkeep()
        return {}

    for _ in turns:
        pipeline = random.choice(list(WRITES))
        if random.random() < 0.1:
            diary.attempt("pause", partial(operate, coordinator.pause, pipeline))
            diary.attempt("upkeep", upkeep)
        diary.attempt("resume", partial(operate, coordinator.resume, pipeline))


def function_of(pipeline: str) -> PipelineFunction:
    """Orders are appended, customers merged."""

    def write_all(inputs: Mapping[str, Any], run: Run) -> None:
        for upstream, target in WRITES[pipeline]:
            write = partial(run.write, inputs[upstream], target, upstreams=upstream)
            if upstream == ORDERS:
                write(mode="append", changes="log")
            else:
                write(mode="merge", keys=["id"], missing="delete")

    return write_all


def run_batch(coordinator: Coordinator, pipeline: str, batch_id: str) -> RunResult:
    """A run that knows what to do where its range is lost."""
    function = function_of(pipeline)
    return coordinator.run_pipeline(pipeline, batch_id, function, on_lost_range="snapshot")


def _marks(coordinator: Coordinator) -> Facts:
    return {"marks": {c.upstream: c.version for c in coordinator.checkpoints()}}


ROLES: Mapping[str, Callable[[Path, str], None]] = {
    **{f"planner-{n}": planner for n in range(1, 5)},
    **{f"runner-{n}": runner for n in range(1, 5)},
    **{f"finalizer-{n}": finalizer for n in range(1, 3)},
    "grower": grower,
    "operator": operator,
}
PLANNERS = [name for name in ROLES if name.startswith("planner")]


# The disturbance ----------------------------------------------------------------------------------


@dataclass
class Soak:
    """One soak in an empty folder; `seed` decides who is killed or stopped, and when."""

    root: Path
    seconds: float
    seed: int
    kills: int = 0
    stops: int = 0
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)
    asleep: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Stopped clients: since when, and until when."""
    absences: list[tuple[str, float, float]] = field(default_factory=list)
    """(client, from, to) in which a client was stopped or dead."""
    problems: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.root / "log"

    def run(self) -> Facts:
        """Prepare, disturb, stop, recover, judge: the numbers, and every problem found."""
        (self.root / "diary").mkdir()
        crash.run(prepare, self.root, log=self.log)
        begin = time.monotonic()
        try:
            self._disturb()
            self._stop()
        finally:
            self._end()
        span = (begin, time.monotonic())
        if crash.run(recover, self.root, log=self.log, timeout=300) != 0:
            self.problems.append(f"recovery failed: {self.log.read_text()[-2000:]}")
        found = crash.result(judge, self.root, self.absences, span, log=self.log)
        found["problems"] = [*self.problems, *found["problems"]]
        return {"seed": self.seed, "kills": self.kills, "stops": self.stops, **found}

    def _disturb(self) -> None:
        rng = random.Random(self.seed)
        for client in ROLES:
            self._start(client)
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            time.sleep(rng.uniform(0.1, 0.7))
            victim = rng.choice([c for c in ROLES if c not in self.asleep])
            if rng.random() < 0.5:
                self._kill(victim)
            else:
                self._sleep(victim, rng.choice((0.2, 1.0, 1.5 * TTL_SECONDS, 3 * TTL_SECONDS)))
            self._wake(time.monotonic())
            self._replace_ended()

    def _start(self, client: str) -> None:
        process = crash.start(ROLES[client], self.root, client, log=self.log)
        self.processes[client] = process

    def _kill(self, client: str) -> None:
        since = time.monotonic()
        self.processes[client].kill()
        self.processes[client].join()
        self.kills += 1
        self._start(client)
        self.absences.append((client, since, time.monotonic()))

    def _sleep(self, client: str, seconds: float) -> None:
        self._signal(client, signal.SIGSTOP)
        now = time.monotonic()
        self.asleep[client] = (now, now + seconds)
        self.stops += 1

    def _wake(self, now: float) -> None:
        for client, (since, until) in list(self.asleep.items()):
            if now >= until:
                self._signal(client, signal.SIGCONT)
                del self.asleep[client]
                self.absences.append((client, since, time.monotonic()))

    def _signal(self, client: str, number: signal.Signals) -> None:
        pid = self.processes[client].pid
        if pid is not None and self.processes[client].is_alive():
            os.kill(pid, number)

    def _replace_ended(self) -> None:
        """A client that ended by itself met an error that is not ours: that is a problem."""
        for client, process in list(self.processes.items()):
            if process.exitcode is not None:
                tail = self.log.read_text()[-2000:]
                self.problems.append(f"{client} ended with {process.exitcode}: {tail}")
                self._start(client)

    def _stop(self) -> None:
        self._wake(float("inf"))
        (self.root / "stop").touch()
        for client, process in self.processes.items():
            process.join(60)
            if process.exitcode != 0:
                tail = self.log.read_text()[-2000:]
                self.problems.append(f"{client} stopped with {process.exitcode}: {tail}")

    def _end(self) -> None:
        for process in self.processes.values():
            process.kill()


def prepare(root: Path) -> None:
    """The lake and the registry."""
    crash.build_lake(root)
    story = Story(root, "append")
    story.register(story.coordinator())


def recover(root: Path) -> None:
    """Everybody takes part again; then the normal commands until there is no news."""
    coordinator = Story(root, "append", TTL_SECONDS).coordinator()
    for pipeline in WRITES:
        coordinator.resume(pipeline)
    while coordinator.create_batch(on_lost_range="snapshot").batch_id is not None:
        for batch in coordinator.current_plan():
            for pipeline in batch.pipelines:
                run_batch(coordinator, pipeline, str(batch.batch_id))
            coordinator.finalize_batch(str(batch.batch_id))


# The judgement ------------------------------------------------------------------------------------


def judge(root: Path, absences: list[tuple[str, float, float]], span: tuple[float, float]) -> Facts:
    """What the diaries, the journal and the sinks say together."""
    coordinator = Story(root, "append").coordinator()
    lines = list(_lines(root))
    done = [line for line in lines if line["kind"] == "ok"]
    events = coordinator.history()
    problems = [
        *(finding.text for finding in coordinator.verify() if not finding.ok),
        *soak_judges.unexpected(lines),
        *soak_judges.unacknowledged(done, events),
        *soak_judges.repeated(events),
        *soak_judges.moved_back(done),
        *soak_judges.starved(done, PLANNERS, absences, span),
        *soak_judges.lost_amounts(root),
    ]
    plans = [line for line in done if line["command"] == "plan"]
    return {
        "batches": sum(isinstance(event.body, Planned) for event in events),
        "events": len(events),
        "commands": len(done),
        "per_second": round(len(done) / (span[1] - span[0]), 1),
        "faults": dict(Counter(line["fault"] for line in done if line["command"] == "fault")),
        "unknown": len({_id(line) for line in lines}) - len(_ended(lines)),
        "failed": dict(Counter(line["code"] for line in lines if line["kind"] == "fail")),
        "planned_or_reused": len(plans),
        "problems": problems,
    }


def _lines(root: Path) -> Iterator[Facts]:
    for path in sorted((root / "diary").iterdir()):
        for text in path.read_text().splitlines():
            yield {**json.loads(text), "process": path.stem}


def _id(line: Facts) -> tuple[str, int]:
    return line["process"], line["number"]


def _ended(lines: list[Facts]) -> set[tuple[str, int]]:
    return {_id(line) for line in lines if line["kind"] in ("ok", "fail")}
