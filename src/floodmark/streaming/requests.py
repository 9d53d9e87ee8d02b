"""Requests to a runner, through the ledger of its stream: they reach it on whatever machine it is.

A request names the claim of the runner it is meant for, so a runner that comes later does not take
it for its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from floodmark.errors import StreamError

LOOK_SECONDS = 2.0
"""How often a runner looks whether it shall end."""
JOIN_SECONDS = 10.0
"""How long its end waits for a look that is under way."""

log = logging.getLogger("floodmark.streaming")


class Requests(Protocol):
    """What a ledger keeps of requests; none of it touches the position of the stream."""

    def ask_to_stop(self, claim_id: str, by: str) -> None:
        """Ask the runner with this claim to end after its batch; asked twice it is one request."""

    def is_asked_to_stop(self, claim_id: str) -> bool:
        """Whether the runner with this claim shall end."""

    def note_end(self, claim_id: str) -> None:
        """Say that the runner with this claim has ended."""

    def has_ended(self, claim_id: str) -> bool:
        """Whether the runner with this claim said that it has ended."""

    def close(self) -> None:
        """Give back what is held open."""


@dataclass
class Listener:
    """Looks for a request to the runner of this process, in a thread of its own."""

    requests: Requests
    stop: threading.Event
    """Set once the runner is asked to end."""
    stream_id: str
    claim_id: str | None = None
    """None until the stream is taken."""
    look_seconds: float = LOOK_SECONDS
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for as long as the block runs; then answer a request, if there was one."""
        name = f"requests-{self.stream_id}"
        thread = threading.Thread(target=self._listen, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join(JOIN_SECONDS)
            if not thread.is_alive():
                self._answer()

    def _listen(self) -> None:
        while not self._is_over.wait(self.look_seconds):
            # An outage is told by the batch that meets it; here the next look comes soon.
            with suppress(StreamError):
                if self.claim_id is not None and self.requests.is_asked_to_stop(self.claim_id):
                    log.info("stream %s: asked to end", self.stream_id)
                    self.stop.set()
                    return

    def _answer(self) -> None:
        with closing(self.requests):
            try:
                if self.claim_id is not None and self.requests.is_asked_to_stop(self.claim_id):
                    self.requests.note_end(self.claim_id)
            except StreamError as error:
                log.warning("stream %s: %s", self.stream_id, error.in_one_line())
