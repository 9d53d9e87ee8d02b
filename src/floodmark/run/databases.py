"""Tables of databases as targets: `<connection>:<table>`, the connection one of the project's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import SinkError
from floodmark.model import DELTA, Ledger, SinkDone, Window, WriteSpec
from floodmark.model.names import connection_of
from floodmark.next_steps import THEN_RETRY
from floodmark.postgres import OpenConnections
from floodmark.sinks import Sink

if TYPE_CHECKING:
    from floodmark.config.plugins import Plugins
    from floodmark.config.project import ConnectionModel, PluginConnection
    from floodmark.config.text import Vault
    from floodmark.deltalog import Storage
    from floodmark.postgres import Connect


@dataclass(frozen=True)
class Databases:
    """The databases of a project, and what its plug-ins write.

    Secrets are looked up when a connection is opened.
    """

    connections: Mapping[str, ConnectionModel] = field(default_factory=dict)
    vault: Vault | None = None
    plugins: Plugins | None = None
    opened: OpenConnections = field(default_factory=OpenConnections, compare=False, repr=False)
    """By one run: see `of_one_run`."""

    def of_one_run(self) -> Databases:
        """The same databases, whose connections can be cancelled apart from those of other runs."""
        return replace(self, opened=OpenConnections())

    def cancel(self) -> None:
        """End the statements that were begun through these databases."""
        self.opened.cancel()

    def writes(self, spec: WriteSpec) -> bool:
        """Whether a write is done here, not by the engine."""
        return connection_of(spec.target) is not None or _is_plugged(spec.format)

    def sink(
        self,
        spec: WriteSpec,
        windows: Sequence[Window],
        previous: SinkDone | None,
        storage: Storage | None = None,
    ) -> Sink:
        """What does one write to a database; raises FM-SINK-033 for one that cannot be a target.

        `storage` is that of the upstreams.
        """
        if connection_of(spec.target) is None:
            return self._file_sink(spec, windows, previous)
        connection = self.connections.get(connection_of(spec.target) or "")
        if connection is not None and connection.type == "plugin":
            return self._plugged_sink(connection, spec, windows, previous)
        connect = self._connect(spec.target)
        from floodmark.sinks.postgres import PostgresSink

        return PostgresSink(connect, spec, tuple(windows), previous, storage=storage)

    def _plugged_sink(
        self,
        connection: PluginConnection,
        spec: WriteSpec,
        windows: Sequence[Window],
        previous: SinkDone | None,
    ) -> Sink:
        from floodmark.config.plugins import SinkClass, plugin_options
        from floodmark.sinks.plugin import PluginSink

        assert self.plugins is not None and self.vault is not None  # noqa: S101, PT018  (a project)
        table = {"table": spec.target.partition(":")[2]}
        options = plugin_options(connection, {**dict(spec.writer), **table}, self.vault)
        sink = self.plugins.find(SinkClass, connection.name)(options)
        return PluginSink(sink, spec, tuple(windows), previous)

    def _file_sink(
        self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None
    ) -> Sink:
        """Files in the format of a plug-in; raises FM-CONFIG-013 if there is none of that name."""
        from floodmark.config.plugins import FileFormat
        from floodmark.sinks.files import FileSink
        from floodmark.sinks.plugin import saving_with

        assert self.plugins is not None  # noqa: S101  (only projects write such formats)
        save = saving_with(self.plugins.find(FileFormat, spec.format))
        return FileSink(None, spec, tuple(windows), previous, save)

    def ledger(self, target: str) -> Ledger | None:
        """The receipts that a target shows; None for one of the lake, whose log tells.

        Raises SinkError where nobody answers: that is not "no receipts".
        """
        connection = self.connections.get(connection_of(target) or "")
        if connection_of(target) is None or (connection and connection.type == "plugin"):
            return None
        connect = self._connect(target)
        from floodmark.sinks.postgres_target import PostgresTarget

        return PostgresTarget(target, None, connect).ledger()

    def is_empty(self, target: str) -> bool:
        """Whether a target is not there, or has no rows; raises SinkError where nobody answers."""
        connect = self._connect(target)
        from floodmark.sinks.postgres_target import PostgresTarget

        return PostgresTarget(target, None, connect).is_empty()

    def _connect(self, target: str) -> Connect:
        from floodmark.postgres import connector_to

        name = connection_of(target) or ""
        connection = self.connections.get(name)
        if self.vault is None or connection is None or connection.type != "postgres":
            raise self._no_database(target, name)
        return self.opened.noting(connector_to(connection, self.vault))

    def _no_database(self, target: str, name: str) -> SinkError:
        known = [n for n, c in self.connections.items() if c.type == "postgres"]
        other = self.connections.get(name)
        return SinkError(
            "FM-SINK-033",
            f"the target names no database that can be written: {name}",
            where=target,
            found=f"a connection of type {other.type}" if other else "no such connection",
            allowed=", ".join(known) or "a connection of type postgres in floodmark.yaml",
            state="nothing was written; the target and the watermark are unchanged",
            next="correct the name or add the connection, " + THEN_RETRY,
        )


def _is_plugged(name: str) -> bool:
    if name == DELTA:
        return False
    from floodmark.config.project import FORMATS

    return name not in FORMATS


NO_DATABASES = Databases()
"""For coordinators without a project: every such target is refused."""
