"""Numbers for monitoring: printed, written into a file, or served."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli import documents
from floodmark.cli.call import Call
from floodmark.cli.look import StuckAfter
from floodmark.cli.screen import Screen
from floodmark.cli.verb import seconds, verb
from floodmark.errors import ConfigError, ControlError, FloodmarkError
from floodmark.next_steps import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.report import Sample

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]+|\[[0-9A-Fa-f:.%]+\]):)?(?P<port>[0-9]{1,5})")

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Replace FILE as a whole, for a textfile collector."
    ),
]
Serve = Annotated[
    str | None,
    typer.Option(
        "--serve",
        metavar="[HOST:]PORT",
        help="Answer scrapes until interrupted; on this machine only without HOST.",
    ),
]


def attach(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "metrics")(metrics)


def metrics(
    call: Call, out: Out = None, serve: Serve = None, stuck_after: StuckAfter = "1d"
) -> int:
    """Print lag, runs and batches in the text format of Prometheus."""
    after = seconds("--stuck-after", stuck_after)
    if serve is not None:
        if out is not None:
            raise _refused("--out and --serve are given", "one of them", rule="one_of_two")
        return _serve(call, *address(serve), after)
    if out is not None:
        return _write(call, out, after)
    samples = [*call.project.coordinator.admin.metrics(after), *_of_streams(call)]
    call.show(documents.metrics(samples), lambda _: print(_text(call, samples), end=""))
    return 0


def _write(call: Call, out: Path, after: float) -> int:
    """A store that cannot be read is told twice: in the file, and by the error."""
    try:
        samples = [*call.project.coordinator.admin.metrics(after), *_of_streams(call)]
    except ControlError:
        _write_file(out, _text(call, [*_out_of_reach(), *_of_streams(call)]))
        raise
    _write_file(out, _text(call, samples))
    document = {"file": str(out), "samples": len(samples)}
    call.show(document, lambda screen: screen.line(f"{len(samples)} samples written to {out}"))
    return 0


def _write_file(out: Path, text: str) -> None:
    from floodmark.storage import write_whole

    try:
        write_whole(out, text)
    except OSError as error:
        raise ConfigError(
            "FM-CONFIG-020",
            "the metrics cannot be written",
            where=str(out),
            found=error.strerror or str(error),
            state="what was there before is still there",
            next=command("metrics", "--out", "FILE") + ", in a folder that can be written",
        ) from error


def _serve(call: Call, host: str, port: int, after: float) -> int:
    from floodmark.report import serve

    everywhere = _everywhere(call)  # loads the project: what is wrong with it ends the command
    try:
        server, thread = serve(lambda: _measure(call, after), everywhere, host, port)
    except OSError as error:
        raise ConfigError(
            "FM-CONFIG-020",
            "the metrics cannot be served",
            where=f"{host}:{port}",
            found=error.strerror or str(error),
            state="nothing was changed",
            next=command("metrics", "--serve", "PORT") + ", with a port that is free",
        ) from error
    try:
        _announce(call, host, server.server_port)
        thread.join()
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        server.shutdown()
        server.server_close()
    return 0


def _measure(call: Call, after: float) -> Sequence[Sample]:
    try:
        samples: Sequence[Sample] = call.project.coordinator.admin.metrics(after)
    except ControlError as error:  # an answer of its own, floodmark_store_up 0; said here as well
        print(f"floodmark: {error.in_one_line()}", file=sys.stderr, flush=True)
        samples = _out_of_reach()
    return [*samples, *_of_streams(call)]


def _of_streams(call: Call) -> list[Sample]:
    """Whether the runners of the project's streams live; one that cannot be asked hides no other."""
    from floodmark.report import RunnerOfStream, runner_samples
    from floodmark.stream import Stream

    samples: list[Sample] = []
    for stream in Stream.all(call.project) if call.project.settings.streams else ():
        try:
            sign = stream.sign_of_life()
        except FloodmarkError as error:  # floodmark_stream_runner_known 0; said here as well
            print(f"floodmark: {error.in_one_line()}", file=sys.stderr, flush=True)
            samples += runner_samples(RunnerOfStream(stream.id, is_known=False))
            continue
        runner = RunnerOfStream(stream.id, is_known=True)
        if sign is not None:
            runner = RunnerOfStream(
                stream.id,
                is_known=True,
                sign_age_seconds=sign.seconds_ago,
                is_gone=sign.is_gone,
                has_ended=sign.has_ended,
            )
        samples += runner_samples(runner)
    return samples


def _announce(call: Call, host: str, port: int) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    is_local = _is_loopback(host)

    def draw(screen: Screen) -> None:
        reach = "on this machine only" if is_local else "to whoever reaches this address"
        screen.line(f"metrics of {call.project.settings.project} are served {reach}: {url}")
        screen.line("end it with Ctrl-C")

    call.show({"url": url, "host": host, "port": port, "is_local": is_local}, draw)
    sys.stdout.flush()


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(text: str) -> tuple[str, int]:
    """Host and port of `--serve`; raises FM-CONFIG-007."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise _refused(
            f"--serve is {text}", "PORT or HOST:PORT, a port of 0 to 65535", rule="address"
        )
    return (match["host"] or LOOPBACK).strip("[]"), int(match["port"])


def _refused(title: str, allowed: str, *, rule: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        title,
        rule=rule,
        allowed=allowed,
        state="nothing was read or written",
        next="correct the option",
    )


def _out_of_reach() -> Sequence[Sample]:
    from floodmark.model import SystemClock
    from floodmark.report import out_of_reach

    return out_of_reach(SystemClock().now())


def _text(call: Call, samples: Sequence[Sample]) -> str:
    from floodmark.report import text_of

    return text_of(samples, _everywhere(call))


def _everywhere(call: Call) -> dict[str, str]:
    """The label of every sample: files of several projects may lie side by side."""
    return {"project": call.project.settings.project}
