"""Streams that are tortured: driver, connections, database and broker are killed while they run.

`floodmark stream run` is a process of its own, with two streams of one topic, into which numbered
records flow all the while. What is killed when is drawn from a seed.
Afterwards everything runs on in peace until the topic is read, and the judge looks at what is left.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.stream_kinds import KINDS, KindName, Services
from tests.support.stream_records import FIRST_NUMBERS, TOPIC, Flow

import floodmark
from floodmark.engines import kafka_server, postgres_server
from floodmark.model.offsets import Offsets, records

PROGRESS_SECONDS = 180
END_SECONDS = 120
FENCED = 4


class Driver:
    """`floodmark stream run` of all the streams, as a process; what it says goes to a file."""

    def __init__(self, services: Services, number: int) -> None:
        self._said = services.folder / f"driver-{number}.log"
        source = Path(floodmark.__file__).parents[1]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "floodmark", "stream", "run"],
                cwd=services.folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(source),
                    "FLOODMARK_CREDENTIAL_TORTURE": services.postgres.password,
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                # Its group is the driver and its JVM, and nobody else.
                start_new_session=True,
            )

    def kill(self, *, with_jvm: bool = False) -> None:
        """End it at once; the JVM finds out by itself, or is ended with it."""
        if with_jvm:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def ended(self, seconds: float = END_SECONDS) -> int | None:
        """Its exit code; None if it does not end."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self, lines: int = 25) -> str:
        """The end of what it said."""
        return "\n".join(self._said.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Outcome:
    """What a torture did and found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    recovered_seconds: dict[str, float] = field(default_factory=dict)
    """By kind, the longest time from a kill to a batch of every stream."""
    sent: int = 0
    batches: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(
            f"{name} {n} ({self.recovered_seconds[name]:.0f} s)"
            for name, n in sorted(self.kills.items())
        )
        return (
            f"seed {self.seed}: {self.sent} records, {self.batches} batches, kills and the longest"
            f" time to recover: {kills}; {len(self.problems)} problems"
        )


class StreamTorture:
    """Kills for `seconds`, every kind at least once, then judges."""

    def __init__(
        self, folder: Path, seconds: float, seed: int, kind: KindName, kills: tuple[str, ...] = ()
    ) -> None:
        self._folder, self._seconds, self._kind = folder, seconds, KINDS[kind]
        self._random = random.Random(seed)
        self._outcome = Outcome(seed)
        self._drivers = 0
        self._kills: dict[str, Callable[[], None]] = {
            "connections": self._cut_connections,
            "database": self._kill_database,
            "broker": self._kill_broker,
            "driver": self._kill_driver,
            "takeover": self._take_over,
            "checkpoint": self._lose_checkpoint,
        }
        self._wanted = kills or self._kind.kills

    def run(self) -> Outcome:
        """The whole of it; what went wrong is in the outcome."""
        with self._started() as self._services:
            flow = Flow(self._services.kafka.bootstrap, repeats=self._kind.repeats)
            flow.send(FIRST_NUMBERS)
            self._driver = self._new_driver()
            try:
                with flow:
                    self._torture()
                if not self._outcome.problems:
                    self._finish(flow)
            finally:
                self._driver.kill(with_jvm=True)
        return self._outcome

    @contextmanager
    def _started(self) -> Iterator[Services]:
        with ExitStack() as stack:
            kafka = stack.enter_context(kafka_server.running())
            postgres = stack.enter_context(postgres_server.running())
            services = Services(self._folder, kafka, postgres, self._kind)
            services.prepare()
            yield services

    def _torture(self) -> None:
        deadline = time.monotonic() + self._seconds
        self._await_progress("the start")
        waiting: list[str] = []
        while not self._outcome.problems:
            if not waiting:
                if self._outcome.kills and time.monotonic() > deadline:
                    return
                waiting = self._random.sample(self._wanted, len(self._wanted))
            kind = waiting.pop()
            # So that it hits a batch somewhere in its middle.
            time.sleep(self._random.uniform(0, 1.5))
            self._kill(kind)

    def _kill(self, kind: str) -> None:
        outcome, began = self._outcome, time.monotonic()
        outcome.kills[kind] += 1
        self._kills[kind]()
        self._await_progress(f"{kind}, kill {outcome.kills.total()}")
        seconds = time.monotonic() - began
        outcome.recovered_seconds[kind] = max(seconds, outcome.recovered_seconds.get(kind, 0))

    def _finish(self, flow: Flow) -> None:
        """Wait until everything is read, end the driver as a user would, and judge."""
        outcome, services = self._outcome, self._services
        self._await_end()
        if any(target.has_windows for target in self._kind.targets):
            flow.close_windows()
            self._await_end()
        sent = services.sent()
        for target in self._kind.targets:
            if target.closes_windows:
                self._await("the end", partial(services.are_windows_closed, target, sent))
        self._driver.process.terminate()
        code = self._driver.ended()
        if code != 0:
            self._problem(f"the driver ended with {code} when it was told to stop")
        if flow.error is not None:
            self._problem(f"records could not be sent: {flow.error}")
        outcome.sent = len(sent)
        for target in self._kind.targets:
            outcome.batches += len(services.found(target).batches)
            outcome.problems += [f"{target.name}: {p}" for p in services.judged(target, sent)]

    def _await_end(self) -> None:
        services = self._services
        end = services.admin.latest([TOPIC])
        self._await("the end", lambda: all(at == end for _, at in services.stood().values()))

    # Kills --------------------------------------------------------------------------------------

    def _cut_connections(self) -> None:
        self._services.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'floodmark%' AND pid <> pg_backend_pid()"
        )

    def _kill_database(self) -> None:
        self._services.postgres.kill()
        time.sleep(self._random.uniform(0, 2))
        self._services.postgres.start()

    def _kill_broker(self) -> None:
        self._services.kafka.kill()
        time.sleep(self._random.uniform(0, 2))
        self._services.kafka.start()

    def _kill_driver(self) -> None:
        self._driver.kill(with_jvm=self._random.random() < 0.5)
        self._driver = self._new_driver()

    def _lose_checkpoint(self) -> None:
        """With the JVM: one that is dying would write into the folder while it is deleted."""
        self._driver.kill(with_jvm=True)
        self._services.drop_checkpoints()
        self._driver = self._new_driver()

    def _take_over(self) -> None:
        """Pause the driver, let another one go on, and wake the first one: it has to be fenced."""
        paused, self._driver = self._driver, self._stopped_and_replaced()
        self._await_progress("a takeover", epoch_is_new=True)
        paused.process.send_signal(signal.SIGCONT)
        code = paused.ended()
        if code != FENCED:
            self._problem(
                f"a runner that was fenced ended with {code}, not {FENCED}:\n{paused.last_words()}"
            )
        paused.kill(with_jvm=True)

    def _stopped_and_replaced(self) -> Driver:
        self._driver.process.send_signal(signal.SIGSTOP)
        return self._new_driver()

    # Watching -----------------------------------------------------------------------------------

    def _new_driver(self) -> Driver:
        self._drivers += 1
        return Driver(self._services, self._drivers)

    def _await_progress(self, after: str, *, epoch_is_new: bool = False) -> None:
        """Until every stream has committed something since."""
        before = self._services.stood()

        def has_moved() -> bool:
            now = self._services.stood()
            return len(now) == len(self._kind.targets) and all(
                now[name][1] != before.get(name, (0, Offsets()))[1]
                and (not epoch_is_new or now[name][0] > before[name][0])
                for name in now
            )

        self._await(after, has_moved)

    def _await(self, after: str, is_so: Callable[[], bool]) -> None:
        """Until it is so; a problem where the driver ends, or the last of the streams does not move."""
        last, moved_at = self._last(), time.monotonic()
        while not is_so():
            now = self._last()
            if now > last:
                last, moved_at = now, time.monotonic()
            has_ended = self._driver.process.poll() is not None
            if has_ended or time.monotonic() - moved_at > PROGRESS_SECONDS:
                what = "the driver ended by itself" if has_ended else "nothing more was committed"
                self._problem(f"after {after} {what}; it said:\n{self._driver.last_words()}")
                return
            time.sleep(0.2)

    def _last(self) -> int:
        """How many records the stream has committed that is furthest behind."""
        stood = self._services.stood()
        ends = (stood.get(target.name, (0, Offsets()))[1] for target in self._kind.targets)
        return min(records(Offsets(), end) for end in ends)

    def _problem(self, text: str) -> None:
        self._outcome.problems.append(text)
