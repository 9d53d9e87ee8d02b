"""Ctrl-C, by a real terminal and by a signal, at every moment of a run with Spark."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

pytestmark = pytest.mark.spark

MARK = "FLOODMARK_TEST_MARK"
BEGINS_WITHIN_SECONDS = 300
"""Until a moment of a run has come, on a machine that does much else."""
ENDS_WITHIN_SECONDS = 60
JOBS = """
import pathlib, time

HERE = pathlib.Path(__file__).parent

def process(inputs, run):
    frame = inputs["lake/orders"]
    kind = (HERE / "kind").read_text()
    if kind == "job":
        slow = "java_method('java.lang.Thread', 'sleep', 600000L)"
        job = frame.sparkSession.range(0, 2, 1, 2).selectExpr(slow).collect
    elif kind == "worker":
        from pyspark.sql.functions import udf
        job = frame.select(udf(lambda _: time.sleep(600), "long")("id")).collect
    elif kind == "function":
        job = lambda: time.sleep(600)
    elif kind == "busy":
        def job():
            while True:
                pass
    else:
        job = lambda: None
    (HERE / "moment").touch()
    job()
    run.write(frame, "lake/copy", mode="append")
"""
FOREIGN = re.compile(r"Traceback|Exception|py4j|pyspark|\bat (org|java|scala|io)\.|WARN|ERROR|\{\"")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with one pipeline, whose function does what the file `kind` says."""
    orders = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(tmp_path / "lake" / "orders"), orders, configuration=feed)
    (tmp_path / "floodmark.yaml").write_text(
        "project: shop\n"
        "spark: {spark.driver.memory: 1g}\n"
        "pipelines:\n"
        "  - {pipeline: copy, upstreams: [lake/orders], function: 'jobs:process'}\n"
    )
    (tmp_path / "jobs.py").write_text(JOBS)
    return tmp_path


class Running:
    """`floodmark run` with a screen of its own: a terminal that controls it, or a pipe."""

    def __init__(self, shop: Path, kind: str = "", *, on_terminal: bool, stop_at: str = "") -> None:
        (shop / "kind").write_text(kind)
        (shop / "moment").unlink(missing_ok=True)
        self._moment = shop / "moment"
        self.mark = uuid.uuid4().hex
        self.text = b""
        environment = {**os.environ, MARK: self.mark, "TERM": "xterm", "NO_COLOR": ""}
        if stop_at:
            environment |= {"FLOODMARK_FAILPOINT": stop_at, "FLOODMARK_FAILPOINT_ACTION": "stop"}
        ours, theirs = pty.openpty() if on_terminal else os.pipe()
        self._screen: IO[bytes] = os.fdopen(ours, "r+b" if on_terminal else "rb", buffering=0)
        # Who runs tests in the background ignores interrupts, and so would the command.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "floodmark", "run"],
            cwd=shop,
            env=environment,
            stdin=theirs if on_terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # No other thread of ours is at work; the child does nothing but one call.
            preexec_fn=_take_terminal if on_terminal else None,  # noqa: PLW1509
        )
        signal.signal(signal.SIGINT, before)
        os.close(theirs)
        os.set_blocking(ours, False)

    def until(self, has_come: Callable[[], bool], within_seconds: float) -> bool:
        """Read the screen until something has come; whether it has."""
        end = time.monotonic() + within_seconds
        while not (has_it := has_come()) and time.monotonic() < end:
            self._read()
            time.sleep(0.02)
        self._read()
        return has_it

    def until_begun(self) -> None:
        assert self.until(self._moment.exists, BEGINS_WITHIN_SECONDS), self.text.decode()

    def until_shown(self, text: bytes) -> None:
        assert self.until(lambda: text in self.text, BEGINS_WITHIN_SECONDS), self.text.decode()

    def until_stopped(self) -> None:
        def is_stopped() -> bool:
            return f"{self.process.pid} (" in (stat := _stat(self.process.pid)) and ") T " in stat

        assert self.until(is_stopped, BEGINS_WITHIN_SECONDS), self.text.decode()

    def ctrl_c(self) -> None:
        """What a terminal does with the key: an interrupt for every process in its foreground."""
        os.write(self._screen.fileno(), b"\x03")

    def signalled(self) -> None:
        """An interrupt for the process alone; one that is stopped goes on."""
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGCONT)

    def ended(self, within_seconds: float) -> str:
        """What was on the screen, once the command has ended in time and left nothing behind."""
        try:
            assert self.until(self._is_over, within_seconds), self.text.decode()
            assert self.until(lambda: not list(_marked(self.mark)), 5), list(_marked(self.mark))
        finally:
            for pid in _marked(self.mark):
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self._screen.close()
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\^C", "", self.text.decode())

    def _is_over(self) -> bool:
        return self.process.poll() is not None

    def _read(self) -> None:
        try:
            self.text += self._screen.read() or b""
        except OSError:  # a terminal without a process
            return


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""


def _marked(mark: str) -> Iterator[int]:
    """The processes that were started by a command, or by what it started."""
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (each / "environ").read_bytes():
                yield int(each.name)
        except OSError:  # ended meanwhile, or of somebody else
            continue


def assert_interrupted(running: Running, *, says: str, or_says: str = "") -> None:
    text = running.ended(ENDS_WITHIN_SECONDS)

    assert running.process.returncode == 130, text
    assert not FOREIGN.search(text), text
    *_, last = text.partition("FM-CLI-002  interrupted\n")
    assert [line.split()[0] for line in last.splitlines() if line[2:3].strip()] == [
        "state",
        "next",
        "again",
    ], text
    told = " ".join(last.split())
    assert says in told or (or_says and or_says in told), text


def assert_completed(shop: Path, orders: int = 3) -> None:
    """The same command does what is left, and every row is there once."""
    running = Running(shop, on_terminal=False)
    text = running.ended(BEGINS_WITHIN_SECONDS)

    assert running.process.returncode == 0, text
    assert not FOREIGN.search(text), text
    rows = DeltaTable(str(shop / "lake" / "copy")).to_pyarrow_table().column("id").to_pylist()
    assert sorted(rows) == list(range(1, orders + 1))


def test_the_key_of_a_terminal_ends_a_run_at_any_moment(shop: Path) -> None:
    starting = Running(shop, on_terminal=True)
    starting.until_shown(b"starting Spark")
    starting.until(lambda: len(list(_marked(starting.mark))) > 1, BEGINS_WITHIN_SECONDS)
    starting.ctrl_c()
    assert_interrupted(starting, says="stands with its ranges")
    for kind in ("job", "worker", "busy"):
        running = Running(shop, kind, on_terminal=True)
        running.until_begun()
        time.sleep(1)  # the job has begun as well
        running.ctrl_c()
        assert_interrupted(running, says="floodmark retry batch_")
    assert_completed(shop)


def test_a_signal_for_the_process_alone_ends_a_run_at_any_moment(shop: Path) -> None:
    planning = Running(shop, on_terminal=False, stop_at="plan.after_discover")
    planning.until_stopped()
    planning.signalled()
    assert_interrupted(planning, says="stands with its ranges")
    function = Running(shop, "function", on_terminal=False)
    function.until_begun()
    function.signalled()
    assert_interrupted(function, says="floodmark retry batch_")
    for order, moment in enumerate(
        ("sink.before_commit", "sink.after_commit", "run.after_success"), 4
    ):
        # Until the main thread sees the signal, the work may finish its batch: this is the next.
        write_deltalake(shop / "lake/orders", pa.table({"id": [order]}), mode="append")
        running = Running(shop, on_terminal=False, stop_at=moment)
        running.until_stopped()
        running.signalled()
        assert_interrupted(running, says="floodmark retry batch_", or_says="next floodmark run")
    assert_completed(shop, orders=6)


def test_a_second_key_ends_a_run_at_once(shop: Path) -> None:
    running = Running(shop, "job", on_terminal=True, stop_at="run.after_lease")
    running.until_stopped()
    # Nobody lets go of anything while the process is stopped: both keys arrive one after the other.
    running.process.send_signal(signal.SIGCONT)
    running.until_begun()
    running.ctrl_c()
    running.until(lambda: False, 0.3)
    running.ctrl_c()
    assert_interrupted(running, says="floodmark retry batch_")
    assert_completed(shop)
