"""A second login at a broker has an end, whatever the broker does; a real one is asked in test_secured."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

from floodmark.engines import kafka_refusals
from floodmark.engines.kafka_refusals import is_login_refused

if TYPE_CHECKING:
    import pytest


class Dripping(threading.Thread):
    """A broker that promises a long answer and sends a byte of it now and then."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))

    def run(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.server.accept()
            connection.recv(1_000)
            connection.sendall((100_000).to_bytes(4, "big"))
            while True:
                time.sleep(0.05)
                connection.sendall(b"x")


def test_a_broker_that_answers_little_by_little_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_refusals, "LOGIN_SECONDS", 0.5)
    broker = Dripping()
    broker.start()
    began = time.monotonic()

    found = is_login_refused(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.server.getsockname()[1]}",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reader",
            "sasl.password": "word",
        }
    )

    broker.server.close()
    assert not found
    assert time.monotonic() - began < 10
