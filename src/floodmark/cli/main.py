"""The entry of the command line."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from types import FrameType
from typing import Annotated, Any

import typer

from floodmark import __version__
from floodmark.cli import beside, files, look, metrics, operate, store, streams, tools, work
from floodmark.cli.call import INTERRUPTED, Call, Opening
from floodmark.cli.verb import EnvOption, JsonOption, ProjectOption, VerboseOption
from floodmark.engines import gateway
from floodmark.errors import ConfigError

_LASTING = {"run", "retry", "backfill", "replay", "metrics", "demo"}
"""Verbs that may go on for long: they keep Python's own ways with memory."""
_COLLECT_AFTER = 100_000
"""New objects until the collector looks for cycles; Python's own 700 suits lasting work."""

HELP = "Incremental data pipelines on Spark that never miss a row and never process one twice."


def main(argv: list[str] | None = None, opening: Opening | None = None) -> int:
    """Run a command; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if argv is None and _LASTING.isdisjoint(arguments):  # the process is ours, and soon over
        _ease_collector()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        app = build_app()
        code = int(app(arguments, prog_name="floodmark", standalone_mode=False, obj=opening) or 0)
    except Exception as error:
        if not _is_usage_error(error):
            raise
        return _usage(error, arguments)
    except KeyboardInterrupt:  # it came before or after the work of the command
        code = INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    if argv is None and code == INTERRUPTED:
        _end_process()
    return code


def _end_process() -> None:
    """Leave nothing behind of what was interrupted, the JVM of Spark least of all."""
    try:
        gateway.end(gateway.STOP_SECONDS)
    except KeyboardInterrupt:
        gateway.end(0.0)
    if beside.is_left_alone():
        beside.leave(INTERRUPTED)


def _ease_collector() -> None:
    """Collect cycles seldom, and not at all at the end: what modules and settings made stays.

    Measured: a fifth of the time of `plan`, whose last collection walks through every module.
    """
    gc.set_threshold(_COLLECT_AFTER, 10, 10)
    atexit.register(gc.freeze)


def build_app() -> typer.Typer:
    """The command line with all its verbs."""
    app = typer.Typer(
        help=HELP,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Plain help: rich would double the time to the first line.
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for room in (work, operate, look, files, metrics, store, streams, tools):
        room.attach(app)
    return app


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
        print(f"floodmark {__version__}")
        raise typer.Exit


def _root(
    project: ProjectOption = None,
    env: EnvOption = None,
    as_json: JsonOption = False,
    is_verbose: VerboseOption = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="The version, and nothing else.",
            is_eager=True,
            callback=lambda value: _print_version(is_asked=value),
        ),
    ] = False,
) -> None:
    # The verbs read these from the context.
    del project, env, as_json, is_verbose, version


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite kill is an interrupt: the run is recorded as failed and says what stays."""
    raise KeyboardInterrupt


def _is_usage_error(error: BaseException) -> bool:
    # By attribute: Typer carries its own copy of Click's exceptions, under a private name.
    return hasattr(error, "format_message") and getattr(error, "exit_code", None) == 2


def _usage(error: Any, arguments: list[str]) -> int:
    context = getattr(error, "ctx", None)
    if context is not None and type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help())
        return 0 if not arguments else 2
    path = context.command_path if context else "floodmark"
    call = Call(None, as_json="--json" in arguments, is_verbose=False)
    call.show_error(
        ConfigError(
            "FM-CONFIG-007",
            error.format_message().rstrip("."),
            rule="command_line",
            where=path,
            state="nothing was read or written",
            next=f"{path} --help",
        )
    )
    return 2
