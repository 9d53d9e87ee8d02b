"""Tables of databases as targets: `<connection>:<table>`, the connection one of the project's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import SinkError
from floodmark.model.names import connection_of
from floodmark.model.receipt import Ledger
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec
from floodmark.sinks import Sink

if TYPE_CHECKING:
    from floodmark.config.connections import ConnectionModel
    from floodmark.config.references import Vault
    from floodmark.engines.postgres import Connect


@dataclass(frozen=True)
class Databases:
    """The databases of a project. Secrets are looked up when a connection is opened."""

    connections: Mapping[str, ConnectionModel] = field(default_factory=dict)
    vault: Vault | None = None

    def sink(self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None) -> Sink:
        """What does one write to a database; raises FM-SINK-033 for one that cannot be a target."""
        connect = self._connect(spec.target)
        from floodmark.sinks.postgres import PostgresSink

        return PostgresSink(connect, spec, tuple(windows), previous)

    def ledger(self, target: str) -> Ledger | None:
        """The receipts that a target shows; None for one of the lake, whose log tells.

        Raises SinkError where nobody answers: that is not "no receipts".
        """
        if connection_of(target) is None:
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
        from floodmark.engines.postgres import connector_to

        name = connection_of(target) or ""
        connection = self.connections.get(name)
        if self.vault is None or connection is None or connection.type != "postgres":
            raise self._no_database(target, name)
        return connector_to(connection, self.vault)

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
            next="correct the name or add the connection, then run the batch again",
        )


NO_DATABASES = Databases()
"""For coordinators without a project: every such target is refused."""
