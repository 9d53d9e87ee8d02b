"""One call of a command: its project, its output, and what becomes of its errors."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.cli import beside
from floodmark.cli.screen import Screen
from floodmark.engines import gateway
from floodmark.errors import ConfigError, ConfigErrors, FloodmarkError
from floodmark.next_steps import command
from floodmark.observe import configure_logging, visible
from floodmark.secrecy import masked

if TYPE_CHECKING:
    from floodmark.coordinator import Outside
    from floodmark.project import Project, Watcher

SCHEMA_VERSION = 1
INTERNAL, INTERRUPTED = 3, 130

Draw = Callable[[Screen], None]


@dataclass(frozen=True)
class Opening:
    """How a command opens its project; another one is for programs that embed the command line."""

    session: Callable[[], Any] | None = None
    """Gives the Spark session; None: the one that the project's settings say."""
    outside: Outside | None = None


class Call:
    """What every verb gets: the options common to all, the project, and the two outputs."""

    def __init__(
        self,
        project: str | None,
        *,
        as_json: bool,
        is_verbose: bool,
        env: str | None = None,
        opening: Opening | None = None,
    ) -> None:
        self.folder = project
        self.env = env
        self._opening = opening or Opening()
        self.as_json = as_json
        self.is_verbose = is_verbose
        self.screen = Screen(sys.stdout)
        self.errors = Screen(sys.stderr)
        self.what_stays = "nothing was changed by this command"
        """What to say about the data if the command is interrupted now."""
        self.next = ""
        self.stop = threading.Event()
        """Set when the command is interrupted while its work goes on beside the main thread."""
        self.stop_seconds = beside.LEAVE_SECONDS
        """How long an interrupt waits for the work to record what became of it."""
        self.on_interrupt: Callable[[], None] = lambda: None

    @cached_property
    def project(self) -> Project:
        """The project of the call, loaded on first use."""
        from floodmark.project import Project

        opening = self._opening
        project = Project.load(
            self.folder, env=self.env, session=opening.session, outside=opening.outside
        )
        project.stop = self.stop
        return project

    @property
    def has_project(self) -> bool:
        """Whether there is a project to work on: one that is named has to be there."""
        from floodmark.config import find_project_file

        if self.folder is not None:
            return True
        try:
            find_project_file()
        except ConfigError:
            return False
        return True

    def checked_project(self, *, connect: bool = False, watcher: Watcher | None = None) -> Project:
        """The project, if nothing is wrong with it; raises every error of it at once."""
        from floodmark.project import Project

        opening = self._opening
        return Project.check(
            self.folder,
            env=self.env,
            connect=connect,
            watcher=watcher,
            session=opening.session,
            outside=opening.outside,
        )

    def short(self, upstream: str) -> str:
        """An upstream relative to the project's root where it lies below it."""
        if not self.has_project:
            return upstream
        root = f"{self.project.root}/"
        return upstream.removeprefix(root) if upstream.startswith(root) else upstream

    def show(self, document: Mapping[str, Any], draw: Draw) -> None:
        """The result: one JSON document, or a screen for people."""
        if self.as_json:
            self.show_text(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2))
        else:
            self._draw(lambda: draw(self.screen))

    def show_text(self, text: str) -> None:
        """The result as it is: a document for other programs."""
        self._draw(lambda: print(text))

    def _draw(self, draw: Callable[[], None]) -> None:
        try:
            draw()
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has seen enough (`| head`): the command ends with its own code.
            _leave_pipe()

    def run(self, action: Callable[[], int], *, is_beside: bool = False) -> int:
        """Do the work; every error ends here as text (or JSON) and an exit code.

        Work that may call Spark or functions of others goes on beside the main thread.
        """
        configure_logging(is_verbose=self.is_verbose)
        try:
            return self._run_beside(action) if is_beside and beside.is_possible() else action()
        except FloodmarkError as error:
            self.show_error(error)
            return error.exit_code
        except KeyboardInterrupt:
            return self._interrupted()
        except BrokenPipeError:
            _leave_pipe()
            return 1
        # The outermost boundary: whatever nobody foresaw becomes a short text and exit code 3.
        except Exception as error:  # noqa: BLE001
            return self._unexpected(error)

    def _run_beside(self, action: Callable[[], int]) -> int:
        """The code of the action; an interrupt ends it in bounded time, a second one at once."""
        work = beside.Beside(action)
        work.begin()
        try:
            return work.outcome()
        except KeyboardInterrupt:
            self.stop.set()
            gateway.end_while_starting()
            # The second interrupt ends the waiting.
            with suppress(KeyboardInterrupt):
                work.has_ended(self.stop_seconds)
            self.on_interrupt()
            raise

    def show_error(self, error: FloodmarkError) -> None:
        """An error as JSON on standard output, or for people on standard error."""
        if self.as_json:
            self.show({"error": error.as_dict()}, lambda _: None)
        else:
            print_error(self.errors, error)
        if self.is_verbose and error.__cause__ is not None:
            print_traceback(self.errors, error)

    def _interrupted(self) -> int:
        error = FloodmarkError(
            "FM-CLI-002",
            "interrupted",
            state=self.what_stays,
            next=self.next or "repeat the command",
            retryable=True,
        )
        self.show_error(error)
        return INTERRUPTED

    def _unexpected(self, error: Exception) -> int:
        if self.is_verbose:
            print_traceback(self.errors, error)
        text = f"{type(error).__name__}: {error}"
        self.show_error(
            FloodmarkError(
                "FM-CLI-001",
                "floodmark itself failed",
                found=masked(text)[:1000],
                where=_last_place(error),
                state="what was journaled stands; the journal and the receipts keep data and "
                "progress together",
                next=command("verify")
                + "; please report this with the output of the same command with --verbose",
            )
        )
        return INTERNAL


def _leave_pipe() -> None:
    """Write to nowhere from here on; Python would complain once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(screen: Screen, error: FloodmarkError) -> None:
    """Code and title, then the labelled lines; several errors of a file one after the other."""
    if isinstance(error, ConfigErrors):
        for each in error.errors:
            print_error(screen, each)
            screen.line()
        screen.line((error.title, "bold red"))
        return
    screen.line((error.code, "bold red"), "  ", (error.title, "bold"))
    for label, text in error.fields():
        first, *more = text.splitlines() or [""]
        screen.line("  ", (f"{label:<8}", "cyan"), " ", first)
        for line in more:
            screen.line(" " * 11, line.strip())


def print_traceback(screen: Screen, error: BaseException) -> None:
    """The whole story, for --verbose."""
    text = masked("".join(traceback.format_exception(error)))
    for line in text.splitlines():
        screen.line(visible(line))


def _last_place(error: BaseException) -> str:
    """Our own last line on the way to an error: a library's line says little about our defect."""
    frames = traceback.extract_tb(error.__traceback__)
    package = os.path.dirname(os.path.dirname(__file__))
    own = [f for f in frames if f.filename.startswith(f"{package}{os.sep}")]
    for frame in (own or list(frames))[-1:]:
        name = os.path.relpath(frame.filename, os.path.dirname(package)) if own else frame.filename
        return f"{name}:{frame.lineno} in {frame.name}"
    return ""
