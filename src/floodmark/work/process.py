"""Processes: who this one is, and what can be told about the others of this machine."""

from __future__ import annotations

import getpass
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, Self

from floodmark.model import Holder

ASK_SECONDS = 10.0
"""How long a program of the system may take to tell of a process."""
_NAME = re.compile(r"(?P<host>.+), process (?P<pid>[0-9]+)")


class Process(Protocol):
    """Who a coordinator is for others, and what it can tell about them."""

    def user(self) -> str:
        """Who runs it, for the records."""

    def holder(self) -> Holder:
        """Who we are, precisely enough for others to tell when we are dead."""

    def is_gone(self, holder: Holder) -> bool:
        """Whether another one is proven dead. No proof means False."""


class ThisProcess:
    """This process of the system, and the others of this host."""

    def user(self) -> str:
        """See `Process.user`."""
        return user_name("unknown")

    def holder(self) -> Holder:
        """See `Process.holder`."""
        return this_process()

    def is_gone(self, holder: Holder) -> bool:
        """See `Process.is_gone`."""
        return is_proven_dead(holder)


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process as ledgers of streams name it; `str()` is what they store."""

    host: str
    pid: int

    @classmethod
    def here(cls) -> Self:
        """This process."""
        return cls(platform.node(), os.getpid())

    @classmethod
    def stored(cls, text: str) -> Self | None:
        """The process that was stored; None if the text is of something else."""
        match = _NAME.fullmatch(text)
        return cls(match["host"], int(match["pid"])) if match else None

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, one of this machine."""
        return self.host == platform.node()


def user_name(otherwise: str) -> str:
    """Who runs this process; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return otherwise


def this_process() -> Holder:
    """Who we are, precisely enough for others to tell when we are dead."""
    return Holder(platform.node(), _boot_id(), os.getpid(), process_start(os.getpid()) or "")


def is_proven_dead(holder: Holder) -> bool:
    """Whether the holder ran on this host, in this boot, and is gone. No proof means False."""
    if (holder.host, holder.boot_id) != (platform.node(), _boot_id()) or not holder.started:
        return False
    started = process_start(holder.pid)
    return not _exists(holder.pid) if started is None else started != holder.started


def process_start(pid: int) -> str | None:
    """When a live process of this host started, as the system tells it; None if it does not."""
    if sys.platform == "linux":
        fields = _stat(pid)
        if fields is None:
            return None
        return "dead" if fields[0] in "ZX" else fields[19]  # state; start in ticks since boot
    try:
        return _told(["ps", "-o", "lstart=", "-p", str(pid)]) or None
    except subprocess.TimeoutExpired:
        return None


def command_of(pid: int) -> str:
    """The command of a process; empty if there is none, or if it has ended and nobody asked how."""
    if sys.platform != "linux":
        state, _, command = _told(["ps", "-o", "stat=,args=", "-p", str(pid)]).partition(" ")
        return "" if state.startswith("Z") else command
    fields = _stat(pid)
    if fields is None or fields[0] == "Z":
        return ""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int) -> list[str] | None:
    """What Linux tells of a process, from its state on; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()  # behind the name, which may hold anything


def _exists(pid: int) -> bool:
    """Whether there is such a process; one that we may not ask counts as there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@cache
def _boot_id() -> str:
    """What tells this boot, and on Linux this process namespace, from every other."""
    if sys.platform == "linux":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return _told(["sysctl", "-n", "kern.boottime"])


def _told(command: Sequence[str]) -> str:
    """What a program of the system prints."""
    asked = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=ASK_SECONDS
    )
    return asked.stdout.strip()
