"""A web server of its own for tests: answers as it is told, also badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    """By small letters."""


@dataclass(frozen=True)
class Said:
    """What is answered: bytes as they are, everything else as JSON."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_off: bool = False
    """Whether the connection ends in the middle of the body."""

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class _Quiet(ThreadingHTTPServer):
    """Clients that hang up are part of the tests."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


class WebServer:
    """A server on a free port of this machine; `answer` may be exchanged at any time."""

    def __init__(self, answer: Callable[[Asked], Said]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self._server = _Quiet(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[WebServer]:
        """Answers until the block ends; then nobody does."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join()

    def stop(self) -> None:
        """Answer no more; twice is once."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            """Answers by the function of the server."""

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(parts.path, dict(parse_qsl(parts.query)), headers)
                server.asked.append(asked)
                self._say(server.answer(asked))

            def _say(self, said: Said) -> None:
                content = said.content
                self.send_response(said.status)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if said.breaks_off else content)

            def log_message(self, *_: Any) -> None:
                """Tests look at `asked`."""

        return Handler
