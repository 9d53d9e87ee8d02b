"""Verbs about streams: validate, run, status, stop, cleanup, reset, rewind, adopt."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli import screens
from floodmark.cli.call import Call, print_error, print_traceback
from floodmark.cli.metrics import address
from floodmark.cli.screen import Row, Screen, number
from floodmark.cli.verb import at_least, group, seconds, verb
from floodmark.errors import ConfigError, StreamError
from floodmark.model import durations
from floodmark.next_steps import STREAM, command

if TYPE_CHECKING:
    from floodmark.config import LoadedStream
    from floodmark.model.offsets import Offsets
    from floodmark.stream import Stream
    from floodmark.streaming import StreamNumbers, StreamOutcome, StreamStatus
    from floodmark.streaming.ledger.batches import Claim
    from floodmark.streaming.running.watching import BatchDone

_STREAM_HELP = "A JSON or YAML file, or the pipelineId of a stream of the project."
_STATES = "what is committed stays; the next run goes on behind it"

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help=_STREAM_HELP)]
StreamArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STREAM]...", help=f"{_STREAM_HELP} All of the project if omitted."),
]
ServeOption = Annotated[
    str | None,
    typer.Option(
        "--serve",
        metavar="[HOST:]PORT",
        help="Answer /healthz and /metrics meanwhile; on this machine only without HOST.",
    ),
]

StateLossOption = Annotated[
    bool,
    typer.Option(
        "--accept-state-loss",
        help="Open windows and remembered keys of a lost checkpoint may be given up.",
    ),
]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    streams = group("Streams: from Kafka to a table, exactly once.")
    verb(streams, "validate")(validate)
    verb(streams, "run")(run)
    verb(streams, "status")(status)
    verb(streams, "stop")(stop)
    verb(streams, "cleanup")(cleanup)
    verb(streams, "reset")(reset)
    verb(streams, "rewind")(rewind)
    verb(streams, "adopt")(adopt)
    verb(streams, "tables")(tables)
    app.add_typer(streams, name="stream")


def validate(call: Call, stream: StreamArgument) -> int:
    """Check a stream and the schemas it names; nothing is connected to."""
    loaded = stream_named(call, stream).definition
    document: dict[str, Any] = {
        "ok": True,
        "stream": loaded.settings.pipeline_id,
        "limit": loaded.settings.limit,
        "offset_store": loaded.settings.streaming.offsets_in,
        "columns": [{"name": name, "type": _type_of(loaded, name)} for name in loaded.columns],
        "warnings": [warning.as_dict() for warning in loaded.warnings],
        "settings": loaded.settings.to_json(),
    }
    call.show(document, lambda screen: _draw_validated(screen, loaded))
    return 0


def _draw_validated(screen: Screen, loaded: LoadedStream) -> None:
    stream = loaded.settings
    target = f"{stream.load.sink_type} {stream.load.table}"
    screen.line(f"{stream.pipeline_id}: the stream is fine")
    screen.line(f"  kafka {stream.extract.topic} -> {target} ({stream.load.write_mode})")
    screen.line(f"  offsets in the {stream.streaming.offsets_in}, {len(loaded.columns)} columns")
    screens.warnings(screen, loaded.warnings)


def _type_of(loaded: LoadedStream, column: str) -> str | None:
    """As the schemas say it; None for a measure, whose type Spark finds out."""
    field = loaded.table.field(column)
    if field is not None:
        return field.type
    return "timestamp" if column in ("window_start", "window_end") else None


# run --------------------------------------------------------------------------------------------


def run(
    call: Call,
    streams: StreamArguments = None,
    serve: ServeOption = None,
    skip_to_earliest: Annotated[
        bool,
        typer.Option(
            "--skip-to-earliest",
            help="Go on behind records that are gone from Kafka; the loss is recorded.",
        ),
    ] = False,
    accept_state_loss: StateLossOption = False,
) -> int:
    """Run streams until they are done or stopped; SIGTERM and Ctrl-C end them after their batch."""
    from floodmark.stream import run_together
    from floodmark.streaming import StreamNumbers, served

    named = streams_named(call, streams)
    call.what_stays, call.next = _STATES, command("stream", "run", *(streams or ()))
    numbers = [StreamNumbers(stream.id) for stream in named]
    with ExitStack() as stack:
        if serve is not None:
            host, port = address(serve)
            taken = stack.enter_context(_served(served, numbers, host, port))
            call.errors.line(f"health and metrics: http://{host}:{taken}/healthz, /metrics")
        outcomes = run_together(
            named,
            watch=lambda stream: [StreamProgress(call, stream.id)],
            is_stopped=stack.enter_context(stop_on_signals(call)),
            numbers=numbers,
            skip_to_earliest=skip_to_earliest,
            accept_state_loss=accept_state_loss,
        )
    return _show_run(call, outcomes)


@contextmanager
def _served(serve: Any, numbers: Sequence[StreamNumbers], host: str, port: int) -> Iterator[int]:
    with ExitStack() as stack:
        try:
            taken: int = stack.enter_context(serve(numbers, host, port))
        except OSError as error:
            raise ConfigError(
                "FM-CONFIG-020",
                "health and metrics cannot be served",
                where=f"{host}:{port}",
                found=error.strerror or str(error),
                state="nothing was started",
                next=command("stream", "run", STREAM, "--serve", "PORT")
                + ", with a port that is free",
            ) from error
        yield taken


@contextmanager
def stop_on_signals(call: Call) -> Iterator[Any]:
    """Whether SIGTERM or Ctrl-C has come; the second one interrupts at once."""
    seen: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        call.errors.line("stopping after the batch that is under way; once more ends it now")

    before = {each: signal.signal(each, note) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(seen)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class StreamProgress:
    """Tells of one stream on standard error, a line for each batch."""

    def __init__(self, call: Call, stream_id: str) -> None:
        self._screen, self._name = call.errors, stream_id
        self._outbox: int | None = None
        self._is_idle = False

    def claimed(self, claim: Claim) -> None:
        """The stream is taken."""
        begins = "begins" if claim.end_offsets is None else f"goes on after batch {claim.batch_id}"
        self._screen.line(f"{self._name}: {begins} (epoch {claim.epoch})")

    def starting_session(self) -> None:
        """Spark starts."""
        self._screen.line(f"{self._name}: starting Spark ...")

    def committed(self, batch: BatchDone) -> None:
        """A batch is committed."""
        self._is_idle = False
        counts = batch.counts
        letters = "dead letter" if counts.dead_lettered == 1 else "dead letters"
        lost = [f"{counts.dead_lettered:,} {letters}"] if counts.dead_lettered else []
        lost += [f"{counts.dropped:,} dropped"] if counts.dropped else []
        what = f"{counts.written:,} of {counts.received:,} records written"
        told = "was applied before" if batch.is_repeated else ", ".join([what, *lost])
        self._screen.line(
            f"{self._name}: batch {batch.batch_id}: {told} in {durations.shown(batch.seconds)},"
            f" {batch.records_behind:,} behind"
        )

    def waiting(self, error: StreamError, attempt: int, seconds: float) -> None:
        """An attempt failed and is repeated."""
        self._screen.line(
            f"{self._name}: attempt {attempt} failed ({error.code}: {error.found or error.title}),"
            f" the next one in {durations.shown(seconds)}"
        )

    def idle(self, records_behind: int) -> None:
        """There is nothing to read: told once."""
        if not self._is_idle and not records_behind:
            self._screen.line(f"{self._name}: nothing new")
        self._is_idle = True

    def breaker(self, state: str) -> None:
        """The circuit breaker is in another state."""
        self._screen.line(f"{self._name}: circuit breaker {state.replace('_', ' ')}")

    def counted(self, tracked: int | None, outbox: int | None) -> None:
        """Messages that wait are told when their number changes; rows of the tracker are no news."""
        del tracked
        is_news, self._outbox = outbox != self._outbox, outbox
        if outbox and is_news:
            self._screen.line(f"{self._name}: {outbox:,} messages wait for Kafka")


def _show_run(call: Call, outcomes: Sequence[StreamOutcome]) -> int:
    for outcome in outcomes:
        if outcome.unexpected is not None and call.is_verbose:
            print_traceback(call.errors, outcome.unexpected)
    document = {"streams": [_outcome(outcome) for outcome in outcomes]}

    def draw(screen: Screen) -> None:
        rows = [Row([o.stream_id, o.status, *map(number, o.totals.as_tuple())]) for o in outcomes]
        header = ["stream", "status", "batches", "received", "written", "dead letters", "dropped"]
        screen.table(header, rows)
        for outcome in outcomes:
            if outcome.error is not None:
                print_error(call.errors, outcome.error)

    call.show(document, draw)
    for outcome in outcomes:
        if outcome.unexpected is not None:
            raise outcome.unexpected
    return max((outcome.error.exit_code for outcome in outcomes if outcome.error), default=0)


def _outcome(outcome: StreamOutcome) -> dict[str, Any]:
    totals = outcome.totals
    return {
        "stream": outcome.stream_id,
        "status": outcome.status,
        "batches": totals.batches,
        "received": totals.received,
        "written": totals.written,
        "dead_lettered": totals.dead_lettered,
        "dropped": totals.dropped,
        "last_batch_id": totals.last_batch_id,
        "error": outcome.error.as_dict() if outcome.error else None,
    }


# status -----------------------------------------------------------------------------------------


def status(call: Call, streams: StreamArguments = None) -> int:
    """Where streams stand: last batch, rate, lag, dead letters, who runs them."""
    from floodmark.streaming import StreamStatus

    asked, found, refused = streams_named(call, streams), list[StreamStatus](), list[StreamError]()
    for stream in asked:
        try:
            found.append(stream.status())
        except StreamError as error:
            # One whose database is away does not hide the others.
            if len(asked) == 1:
                raise
            refused.append(error)
    document = {
        "streams": [each.as_dict() for each in found],
        "refused": [error.as_dict() for error in refused],
    }

    def draw(screen: Screen) -> None:
        _draw_status(screen, found)
        for error in refused:
            print_error(call.errors, error)

    call.show(document, draw)
    return max((error.exit_code for error in refused), default=0)


def _draw_status(screen: Screen, found: Sequence[StreamStatus]) -> None:
    rows = [
        Row(
            [
                each.stream_id,
                number(each.row.batch_id if each.row else None),
                _ago(each.seconds_since_last_batch),
                number(each.records_last_minute),
                number(each.records_behind),
                number(each.dead_letters),
                number(each.outbox),
            ],
            _note(each),
        )
        for each in found
    ]
    header = ["stream", "batch", "last", "records/min", "behind", "dead letters", "outbox"]
    screen.table(header, rows)


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{durations.shown(seconds)} ago"


def _note(each: StreamStatus) -> str | None:
    if each.row is None:
        return "has not run yet"
    held = "last held by" if each.is_running is False else "held by"
    told = [f"{held} {each.row.holder}, epoch {each.row.epoch}"]
    told += ["not running"] if each.is_running is False else []
    if each.sign is not None and each.sign.is_gone:
        told += [f"no sign of life for {durations.shown(each.sign.seconds_ago)}, and no end"]
    told += [] if each.row.exactly_once else ["exactly once is switched off"]
    told += [f"circuit breaker {each.breaker.replace('_', ' ')}"] if each.breaker else []
    told += [each.brokers] if each.brokers else []
    return "; ".join(told)


def stop(
    call: Call,
    stream: StreamArgument,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long to wait for its end.")
    ] = "60s",
) -> int:
    """End the runner of a stream, on whatever machine it is, after the batch that is under way."""
    each = stream_named(call, stream)
    outcome = each.stop(seconds("--wait", wait))
    document = {
        "stream": each.id,
        "holder": outcome.holder,
        "was_running": outcome.was_running,
        "has_ended": outcome.has_ended,
    }
    ended = (
        "has ended" if outcome.has_ended else f"was asked to end, and has not answered after {wait}"
    )
    text = f"{outcome.holder} {ended}" if outcome.was_running else "no runner is at work"
    call.show(document, lambda screen: screen.line(f"{each.id}: {text}"))
    return 0 if outcome.has_ended else 1


# cleanup and reset ------------------------------------------------------------------------------


def cleanup(
    call: Call,
    streams: StreamArguments = None,
    days: Annotated[
        int, typer.Option("--retention-days", metavar="N", help="What is older is removed.")
    ] = 30,
    letter_days: Annotated[
        int | None,
        typer.Option(
            "--dead-letter-days",
            metavar="N",
            help="Dead letters that are older are removed; without it all are kept.",
        ),
    ] = None,
) -> int:
    """Remove old rows of batch_tracker, and old dead letters if asked; batches stay known."""
    at_least(0, "--retention-days", days)
    if letter_days is not None:
        at_least(0, "--dead-letter-days", letter_days)
    removed, letters = {}, {}
    for each in streams_named(call, streams):
        removed[each.id] = each.cleanup(days)
        if letter_days is not None:
            letters[each.id] = each.cleanup_dead_letters(letter_days)
    document = {
        "removed": removed,
        "retention_days": days,
        "dead_letters_removed": letters,
        "dead_letter_days": letter_days,
    }

    def draw(screen: Screen) -> None:
        for name, count in removed.items():
            screen.line(f"{name}: {count:,} rows older than {days} days removed")
        for name, count in letters.items():
            screen.line(f"{name}: {count:,} dead letters older than {letter_days} days removed")

    call.show(document, draw)
    return 0


def reset(
    call: Call,
    stream: StreamArgument,
    to: Annotated[
        str,
        typer.Option("--to", metavar="OFFSETS", help="earliest, latest, or JSON by partition."),
    ],
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Records may be written again, or skipped.")
    ] = False,
) -> int:
    """Let a stream go on at other offsets; every other runner of it is fenced."""
    each = stream_named(call, stream)
    if not is_sure:
        raise ConfigError(
            "FM-CONFIG-007",
            "a reset may write records again, or skip some",
            rule="needs_yes",
            allowed="--yes",
            state="nothing was changed",
            next=command("stream", "reset", stream, "--to", to, "--yes"),
        )
    before, after = each.reset(to)
    document = {
        "stream": each.id,
        "before": before.as_mapping() if before else None,
        "after": after.as_mapping(),
    }
    call.show(document, lambda screen: screen.line(f"{each.id}: goes on at {after}"))
    return 0


def rewind(call: Call, stream: StreamArgument, accept_state_loss: StateLossOption = False) -> int:
    """Let a stream whose checkpoint and target disagree go on at the end of its target."""
    each = stream_named(call, stream)
    after = each.rewind(accept_state_loss=accept_state_loss)
    return _show_moved(call, each, after)


def adopt(call: Call, stream: StreamArgument) -> int:
    """Let a target that forgot its stream know what the checkpoint has committed."""
    each = stream_named(call, stream)
    return _show_moved(call, each, each.adopt())


def tables(call: Call, stream: StreamArgument) -> int:
    """The SQL that makes the tables of a stream and lets its role in; nothing is connected to."""
    each = stream_named(call, stream)
    statements = each.tables()
    document = {"stream": each.id, "statements": statements}

    def draw(screen: Screen) -> None:
        for statement in statements:
            screen.line(f"{statement};")

    call.show(document, draw)
    return 0


def _show_moved(call: Call, each: Stream, after: Offsets) -> int:
    document = {"stream": each.id, "after": after.as_mapping()}
    call.show(document, lambda screen: screen.line(f"{each.id}: goes on at {after}"))
    return 0


# Which streams ----------------------------------------------------------------------------------


def streams_named(call: Call, names: Sequence[str] | None) -> list[Stream]:
    """The streams of some names; all of the project without any."""
    from floodmark.stream import Stream

    if not names:
        return Stream.all(call.project)
    return [stream_named(call, name) for name in names]


def stream_named(call: Call, name: str) -> Stream:
    """The stream of a file, or of the project; raises ConfigError with every error of it."""
    from floodmark.stream import Stream

    return Stream.load(name, project=call.folder, env=call.env)
