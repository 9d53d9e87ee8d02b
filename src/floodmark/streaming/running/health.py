"""`/healthz` and `/metrics` of running streams over HTTP; on this machine unless told otherwise."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from floodmark.streaming.running.metrics import StreamNumbers, text_of

STALE_SECONDS = 300.0
"""A runner that got through nothing for so long is not healthy."""


def health(
    streams: Sequence[StreamNumbers], stale_seconds: float = STALE_SECONDS
) -> dict[str, Any]:
    """Whether every stream runs and gets through, and what is known of each."""
    found = [_stream(stream, stale_seconds) for stream in streams]
    return {"ok": all(stream["ok"] for stream in found), "streams": found}


def _stream(stream: StreamNumbers, stale_seconds: float) -> dict[str, Any]:
    seen = stream.last_seen_at
    quiet = None if seen is None else stream.clock() - seen
    is_quick = quiet is not None and quiet <= stale_seconds
    return {
        "stream": stream.stream_id,
        "ok": stream.is_running and is_quick and stream.breaker_state != "open",
        "running": stream.is_running,
        "seconds_since_last_progress": quiet,
        "last_batch_id": stream.last_batch_id,
        "records_behind": stream.records_behind,
        "breaker": stream.breaker_state,
        "waiting_for": stream.error,
    }


@contextmanager
def served(
    streams: Sequence[StreamNumbers], host: str, port: int, stale_seconds: float = STALE_SECONDS
) -> Iterator[int]:
    """Answer GET /healthz (200, or 503 where a stream is not well) and GET /metrics; the port.

    Raises OSError where the address is taken.
    """
    server = ThreadingHTTPServer((host, port), _handler(streams, stale_seconds))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="floodmark-health", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def _handler(streams: Sequence[StreamNumbers], stale_seconds: float) -> type[Any]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "floodmark", ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", text_of(streams))
            elif path in ("/healthz", "/health"):
                found = health(streams, stale_seconds)
                text = json.dumps(found, indent=2)
                self._answer(200 if found["ok"] else 503, "application/json", text)
            else:
                self._answer(404, "text/plain; charset=utf-8", "/healthz or /metrics\n")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are no events."""

    return Handler
