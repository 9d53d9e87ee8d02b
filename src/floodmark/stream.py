"""A stream from Python: what the commands of `floodmark stream` do, on the same settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.config import LoadedStream, load_stream, stream_of, streams_of
from floodmark.errors import ConfigError
from floodmark.model.arguments import checks_arguments
from floodmark.model.names import choices
from floodmark.next_steps import command

if TYPE_CHECKING:
    from floodmark.config.project import ConnectionModel
    from floodmark.model.offsets import Offsets
    from floodmark.project import Project
    from floodmark.streaming import (
        StreamLedger,
        StreamNumbers,
        StreamOutcome,
        StreamStatus,
        StreamWatcher,
    )
    from floodmark.streaming.access import Access
    from floodmark.streaming.ledger.requests import SignOfLife
    from floodmark.streaming.runner import Runner
    from floodmark.streaming.stopping import StopOutcome

_UNTOUCHED = "nothing was read or written"
DEFAULT_RETENTION_DAYS = 30
DEFAULT_WAIT_SECONDS = 60.0


@checks_arguments
class Stream:
    """One stream from Kafka into a table; each record is in the target exactly once.

    Made by `Stream.load` from a file or a project, or by `Stream.of` from a mapping. Making one
    reads files and connects to nothing.
    """

    def __init__(
        self, loaded: LoadedStream, connections: Mapping[str, ConnectionModel] | None = None
    ) -> None:
        self._loaded = loaded
        self._connections = connections or {}

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        project: Project | str | Path | None = None,
        env: str | None = None,
    ) -> Stream:
        """The stream of a JSON or YAML file, or of a project by its pipelineId.

        `project` is where a name and the connections of a file are looked for: the one of the
        working directory unless said. Raises ConfigError with every error of the file.
        """
        if Path(name).is_file():
            loaded = load_stream(Path(name))
            return cls(loaded, _connections_for(loaded, project, env))
        if str(name).endswith((".json", ".yaml", ".yml")):
            raise ConfigError(
                "FM-CONFIG-001",
                f"there is no file {name}",
                where=str(name),
                state=_UNTOUCHED,
                next="name a file that is there: " + command("stream", "validate", "FILE"),
            )
        return _named(str(name), project, env)

    @classmethod
    def of(
        cls,
        settings: Mapping[str, Any],
        *,
        root: str | Path = ".",
        project: Project | str | Path | None = None,
        env: str | None = None,
    ) -> Stream:
        """A stream from a mapping with the keys of the JSON; its paths and schemas start at `root`.

        `project` has the connections that it names. Raises ConfigError with every error.
        """
        loaded = stream_of(settings, Path(root))
        return cls(loaded, _connections_for(loaded, project, env))

    @classmethod
    def all(
        cls, project: Project | str | Path | None = None, *, env: str | None = None
    ) -> list[Stream]:
        """The streams of a project; raises ConfigError FM-CONFIG-008 if it has none."""
        opened = _opened(project, env)
        streams = streams_of(opened.file).values()
        if not streams:
            raise ConfigError(
                "FM-CONFIG-008",
                "the project has no streams",
                allowed="a file, or streams in the project",
                state=_UNTOUCHED,
                next=command("stream", "run", "FILE"),
            )
        return [cls(loaded, opened.settings.connections) for loaded in streams]

    @property
    def id(self) -> str:
        """Its pipelineId."""
        return self._loaded.settings.pipeline_id

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings with the keys of the JSON, defaults filled in and secrets as references."""
        return self._loaded.settings.to_json()

    @property
    def definition(self) -> LoadedStream:
        """Its settings and schemas as values."""
        return self._loaded

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it writes."""
        return self._loaded.columns

    @property
    def warnings(self) -> tuple[ConfigError, ...]:
        """What is allowed and worth a word."""
        return self._loaded.warnings

    def run(
        self,
        *,
        spark: Any = None,
        watch: Callable[[Stream], Sequence[StreamWatcher]] | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        skip_to_earliest: bool = False,
        accept_state_loss: bool = False,
    ) -> StreamOutcome:
        """Run until the stream is done or stopped; raises what ended it otherwise.

        A session is started unless `spark` is one with the Kafka connector. Called again it goes on
        behind what is committed. `is_stopped` is asked a few times a second; once it says so, or at
        Ctrl-C, the stream ends after the batch under way.
        """
        (outcome,) = run_together(
            [self],
            spark=spark,
            watch=watch,
            is_stopped=is_stopped,
            skip_to_earliest=skip_to_earliest,
            accept_state_loss=accept_state_loss,
        )
        error = outcome.error or outcome.unexpected
        if error is not None:
            raise error
        return outcome

    def status(self) -> StreamStatus:
        """Where it stands, asked of its ledger and of the brokers; raises StreamError."""
        from floodmark.streaming import status_of

        with self._named_errors():
            return status_of(self._access)

    def sign_of_life(self) -> SignOfLife | None:
        """The last sign of life of its runner, wherever that is; None before the first run."""
        from floodmark.streaming import sign_of_life

        with self._named_errors():
            return sign_of_life(self._access)

    def stop(self, wait: float = DEFAULT_WAIT_SECONDS) -> StopOutcome:
        """Ask its runner to end after its batch, wherever it is, and wait for that for some seconds.

        Nothing happens where none runs.
        """
        from floodmark.streaming import stop_runner

        with self._named_errors():
            return stop_runner(self._access, wait)

    def cleanup(self, days: int = DEFAULT_RETENTION_DAYS) -> int:
        """Remove rows of batch_tracker that are older; how many. Batches stay known."""
        with self._ledger() as ledger:
            return ledger.cleanup(days)

    def cleanup_dead_letters(self, days: int) -> int:
        """Remove dead letters that are older; how many. Those that wait for Kafka stay."""
        with self._ledger() as ledger:
            return ledger.cleanup_dead_letters(days)

    def reset(self, to: str) -> tuple[Offsets | None, Offsets]:
        """Let it go on at `to` ("earliest", "latest", or JSON by partition); offsets before and after.

        Records may be written again, or skipped. Every runner is fenced.
        """
        from floodmark.streaming import moved_to

        with self._named_errors():
            return moved_to(self._access, to)

    def rewind(self, *, accept_state_loss: bool = False) -> Offsets:
        """Let it go on at the end of its target where checkpoint and target disagree."""
        from floodmark.streaming import rewound

        with self._named_errors():
            return rewound(self._access, accepts_state_loss=accept_state_loss)

    def adopt(self) -> Offsets:
        """Let a target that forgot its stream know what the checkpoint has committed."""
        from floodmark.streaming import adopted_checkpoint

        with self._named_errors():
            return adopted_checkpoint(self._access)

    def tables(self) -> list[str]:
        """The SQL of its tables and grants, for a role that may not create them."""
        from floodmark.streaming import statements_of

        return statements_of(self._access)

    def runner(
        self,
        session: Callable[[], Any],
        watchers: Sequence[StreamWatcher] = (),
        *,
        skip_to_earliest: bool = False,
        accept_state_loss: bool = False,
    ) -> Runner:
        """What runs it, not yet started; `run` and `run_together` make and start one."""
        from floodmark.streaming import announced, runner_of

        with self._named_errors():
            return runner_of(
                self._access,
                session,
                watcher=announced(self._access, watchers),
                skips_to_earliest=skip_to_earliest,
                accepts_state_loss=accept_state_loss,
            )

    def __repr__(self) -> str:
        load = self._loaded.settings.load
        topic = self._loaded.settings.extract.topic
        return f"Stream {self.id}: kafka {topic} -> {load.sink_type} {load.table}"

    @cached_property
    def _access(self) -> Access:
        from floodmark.streaming import access_of

        return access_of(self._loaded, self._connections)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        from floodmark.streaming import errors_of

        with errors_of(self._loaded):
            yield

    @contextmanager
    def _ledger(self) -> Iterator[StreamLedger[Any]]:
        from floodmark.streaming import ledger_of

        with self._named_errors(), closing(ledger_of(self._access)) as ledger:
            yield ledger


def run_together(
    streams: Sequence[Stream],
    *,
    spark: Any = None,
    watch: Callable[[Stream], Sequence[StreamWatcher]] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    numbers: Sequence[StreamNumbers] | None = None,
    skip_to_earliest: bool = False,
    accept_state_loss: bool = False,
) -> list[StreamOutcome]:
    """Run streams side by side in this process, on one session, each to its end.

    One that fails leaves the others alone: its outcome has the error. `numbers` are filled in while
    they run, for whoever serves them.
    """
    from floodmark.engines.spark import local_session, refuse_connect
    from floodmark.streaming import SharedSession, StreamNumbers
    from floodmark.streaming import run_together as run_all

    if spark is None:
        refuse_connect()
    session = SharedSession(lambda: spark or local_session(connectors=["kafka"]))
    numbers = numbers or [StreamNumbers(stream.id) for stream in streams]
    runners = [
        stream.runner(
            session,
            [counted, *(watch(stream) if watch else ())],
            skip_to_earliest=skip_to_earliest,
            accept_state_loss=accept_state_loss,
        )
        for stream, counted in zip(streams, numbers, strict=True)
    ]
    return run_all(runners, numbers, is_stopped)


def _named(name: str, project: Project | str | Path | None, env: str | None) -> Stream:
    try:
        opened = _opened(project, env)
        streams = streams_of(opened.file)
    except ConfigError as error:
        # One that cannot be read says where it is.
        if error.code != "FM-CONFIG-001" or error.where:
            raise
        raise _no_stream(name, "a file, or a stream of a project; here is no project") from error
    if name not in streams:
        raise _no_stream(name, choices(sorted(streams), name) or "the project has none; or a file")
    return Stream(streams[name], opened.settings.connections)


def _connections_for(
    loaded: LoadedStream, project: Project | str | Path | None, env: str | None
) -> Mapping[str, ConnectionModel]:
    names = (loaded.settings.extract.connection, loaded.settings.load.connection)
    return _opened(project, env).settings.connections if any(names) else {}


def _opened(project: Project | str | Path | None, env: str | None) -> Project:
    from floodmark.project import Project

    return project if isinstance(project, Project) else Project.load(project, env=env)


def _no_stream(name: str, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-008",
        f"there is no stream {name}",
        allowed=allowed,
        state=_UNTOUCHED,
        next=command("stream", "validate", "FILE"),
    )
