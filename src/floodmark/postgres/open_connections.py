"""The connections that a run has opened, so that whoever gives the run up can end what they do."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from floodmark.postgres.connect import Connect, Connection

CANCEL_SECONDS = 5


class OpenConnections:
    """Remembers what is opened for as long as somebody uses it. Safe to share between threads."""

    def __init__(self) -> None:
        self._open: WeakSet[Connection] = WeakSet()
        self._guard = threading.Lock()

    def noting(self, connect: Connect) -> Connect:
        """The same opener, whose connections can be cancelled."""

        def opened() -> Connection:
            connection = connect()
            with self._guard:
                self._open.add(connection)
            return connection

        return opened

    def cancel(self) -> None:
        """End the statements that run; their threads get an error, their transactions roll back.

        Saves time only: the lease is what keeps a late function from recording anything. A server
        that does not answer is not waited for.
        """
        with self._guard:
            known = list(self._open)
        for connection in known:
            if not connection.closed:
                with suppress(Exception):
                    connection.cancel_safe(timeout=CANCEL_SECONDS)
