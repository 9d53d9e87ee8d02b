"""The readers of web APIs and plug-ins, built from the connections and the nodes that read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from floodmark.config import LoadedProject, ResolvedRead
from floodmark.config.plugins import Plugins, SourceClass, plugin_options
from floodmark.config.project import (
    HttpConnection,
    IncrementalSettings,
    PluginConnection,
    ReadSettings,
)
from floodmark.config.text import Secret, Vault
from floodmark.deltalog import Storage
from floodmark.errors import ConfigError
from floodmark.model import durations
from floodmark.project.databases import span_of
from floodmark.secrecy import remember
from floodmark.sources.cursor import Rows, SourceReader
from floodmark.sources.http import AnswerReader, Answers, Api, CursorAnswers, Paging, Question
from floodmark.sources.plugin import PluginRows

_NOT_IN_HEADERS = {"\r": "a carriage return", "\n": "a line break", "\0": "a NUL"}


@dataclass(frozen=True)
class SourceReads:
    """Builds readers; asks nobody, and looks up no secret."""

    file: LoadedProject
    vault: Vault
    control: str
    storage: Storage
    plugins: Plugins

    def readers(self) -> dict[tuple[str, str], SourceReader | AnswerReader]:
        """What reads each upstream of a web API or a plug-in, by pipeline and name."""
        found: dict[tuple[str, str], SourceReader | AnswerReader] = {}
        for pipeline in self.file.pipelines:
            for node in pipeline.nodes:
                if node.read is None or node.kind != "source" or node.upstream is None:
                    continue
                name, scope = node.upstream.name, pipeline.settings.shared_scope
                found.setdefault((pipeline.name, name), self._reader(name, node.read, scope))
        return found

    def _reader(
        self, upstream: str, source: ResolvedRead, scope: str
    ) -> SourceReader | AnswerReader:
        read, connection = source.settings, source.connection
        said = read.incremental
        if isinstance(connection, PluginConnection):
            assert said is not None  # noqa: S101  (without, there is no upstream)
            return _by_cursor(upstream, read, said, self._plugged(upstream, connection, read))
        assert isinstance(connection, HttpConnection)  # noqa: S101  (the other kind of source)
        answers = self._answers(upstream, connection, read)
        cache = durations.seconds_of(connection.cache) if connection.cache else 0.0
        if said is None:
            return AnswerReader(upstream, answers, read.ddl, cache)
        rows = CursorAnswers(
            upstream,
            answers,
            said.cursor,
            str(read.ddl),
            parameter=said.parameter,
            kind=said.type,
            on_null_cursor=said.on_null_cursor,  # type: ignore[arg-type]  # one of its words
            cache_seconds=cache,
            scope=scope,
        )
        return _by_cursor(upstream, read, said, rows)

    def _plugged(
        self, upstream: str, connection: PluginConnection, read: ReadSettings
    ) -> PluginRows:
        def make() -> Any:
            options = plugin_options(connection, read.options, self.vault)
            named = {"table": read.table, "path": read.path}
            options |= {name: value for name, value in named.items() if value is not None}
            return self.plugins.find(SourceClass, connection.name)(options)

        said = read.incremental
        is_binary = said is not None and (said.order == "binary" or said.type == "string")
        order = "binary" if is_binary else None
        return PluginRows(upstream, make, read.ddl, order)  # type: ignore[arg-type]  # one of its words

    def _answers(self, upstream: str, connection: HttpConnection, read: ReadSettings) -> Answers:
        paging = read.pagination
        question = Question(
            read.path,
            {name: _plain(value) for name, value in read.params.items()},
            read.records,
            None if paging is None else Paging(**paging.model_dump()),
        )
        api = api_of(connection, self.vault)
        return Answers(api, question, upstream, self.control, self.storage)


def _by_cursor(
    upstream: str, read: ReadSettings, said: IncrementalSettings, rows: Rows
) -> SourceReader:
    what = (read.connection, read.table, read.path, read.params, read.options, read.records)
    return SourceReader(
        upstream,
        rows,
        said.cursor,
        repr(what),
        keys=tuple(said.keys or ()),
        overlap=span_of(said.overlap),
        settle=span_of(said.settle),
        zone=UTC if said.time_zone == "UTC" else ZoneInfo(said.time_zone),
        on_null_cursor=said.on_null_cursor,  # type: ignore[arg-type]  # one of its words
    )


def api_of(connection: HttpConnection, vault: Vault) -> Api:
    """How a web API is reached."""
    return Api(
        connection.base_url,
        _headers(connection, vault),
        lambda: _revealed(connection.params, vault),
        durations.seconds_of(connection.timeout),
        connection.attempts,
        connection.max_megabytes << 20,
    )


def _headers(connection: HttpConnection, vault: Vault) -> Callable[[], Mapping[str, str]]:
    def headers() -> dict[str, str]:
        found = _revealed(connection.headers, vault)
        if connection.token is not None:
            found["Authorization"] = f"Bearer {vault.reveal(connection.token)}"
        elif connection.password is not None:
            found["Authorization"] = _basic(
                connection.user or "", vault.reveal(connection.password)
            )
        for name, value in found.items():
            _refuse_breaks(name, value)
        return found

    return headers


def _basic(user: str, password: str) -> str:
    from base64 import b64encode

    encoded = b64encode(f"{user}:{password}".encode()).decode()
    remember(encoded)
    return f"Basic {encoded}"


def _refuse_breaks(name: str, value: str) -> None:
    """FM-CONFIG-012 for what no header can hold; the value is not shown."""
    signs = [sign for character, sign in _NOT_IN_HEADERS.items() if character in value]
    if signs or not value.isascii():
        raise ConfigError(
            "FM-CONFIG-012",
            f"the value of the header {name} cannot be sent",
            found=f"a value with {' and '.join(signs) or 'a character beyond ASCII'}, not shown",
            allowed="one line of ASCII text; a line break often comes from the end of a mounted file",
            state="nothing was read or written",
            next="correct the secret or the environment variable, then repeat the command",
        )


def _revealed(options: Mapping[str, Any], vault: Vault) -> dict[str, str]:
    return {
        name: vault.reveal(value) if isinstance(value, Secret) else _plain(value)
        for name, value in options.items()
    }


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
