"""What passes between a runner and others through the ledger of its stream, from any machine.

Others ask the runner to end; the runner gives signs of life. Both name the claim of the runner, so a
runner that comes later is not taken for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from floodmark.errors import StreamError

LOOK_SECONDS = 2.0
"""How often a runner looks whether it shall end."""
SIGN_SECONDS = 10.0
"""How often a runner gives a sign of life."""
GONE_SECONDS = 60.0
"""A runner without a sign of life for so long, and without an end, is taken for gone."""
JOIN_SECONDS = 10.0
"""How long its end waits for a look that is under way."""

log = logging.getLogger("floodmark.streaming")


@dataclass(frozen=True)
class SignOfLife:
    """The last sign of the runner with a claim, as the ledger has it."""

    seconds_ago: float
    """PostgreSQL: by the clock of the database alone. Delta: this machine's clock against the time
    that the storage gives to the file of the sign."""
    has_ended: bool = False
    """It has said that it has ended: done, or stopped by somebody."""

    @property
    def is_gone(self) -> bool:
        """Whether the runner was killed, cut off or ended by an error: nobody asked it to end."""
        return not self.has_ended and self.seconds_ago > GONE_SECONDS


class Requests(Protocol):
    """What a ledger keeps of runners; none of it touches the position of the stream.

    The first sign of life of a runner comes with its claim.
    """

    def ask_to_stop(self, claim_id: str, by: str) -> None:
        """Ask the runner with this claim to end after its batch; asked twice it is one request."""

    def is_asked_to_stop(self, claim_id: str) -> bool:
        """Whether the runner with this claim shall end."""

    def note_end(self, claim_id: str) -> None:
        """Say that the runner with this claim has ended."""

    def has_ended(self, claim_id: str) -> bool:
        """Whether the runner with this claim said that it has ended."""

    def give_sign(self, claim_id: str) -> None:
        """Say that the runner with this claim is at work; nothing if another one has the stream."""

    def sign_of_life(self, claim_id: str) -> SignOfLife | None:
        """The last sign of the runner with this claim; None if it gave none: an older floodmark."""

    def close(self) -> None:
        """Give back what is held open."""


@dataclass
class Listener:
    """Gives signs of life and looks for requests to the runner of this process, in its own thread."""

    requests: Requests
    stop: threading.Event
    """Set once the runner is asked to end."""
    stream_id: str
    claim_id: str | None = None
    """None until the stream is taken."""
    look_seconds: float = LOOK_SECONDS
    sign_seconds: float = SIGN_SECONDS
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for as long as the block runs; then say that the runner has ended.

        Not where an error ended it that nobody asked for: its signs of life only stop then, which
        others see.
        """
        name = f"requests-{self.stream_id}"
        thread = threading.Thread(target=self._listen, name=name, daemon=True)
        thread.start()
        has_ended = False
        try:
            yield
            has_ended = True
        finally:
            self._is_over.set()
            thread.join(JOIN_SECONDS)
            if not thread.is_alive():
                self._answer(has_ended=has_ended or self.stop.is_set())

    def _listen(self) -> None:
        signed_at = time.monotonic()
        while not self._is_over.wait(self.look_seconds):
            # An outage is told by the batch that meets it; here the next look comes soon.
            with suppress(StreamError):
                if self.claim_id is None:
                    continue
                if time.monotonic() - signed_at >= self.sign_seconds:
                    self.requests.give_sign(self.claim_id)
                    signed_at = time.monotonic()
                # The batch under way may take long: signs go on behind a request.
                if not self.stop.is_set() and self.requests.is_asked_to_stop(self.claim_id):
                    log.info("stream %s: asked to end", self.stream_id)
                    self.stop.set()

    def _answer(self, *, has_ended: bool) -> None:
        with closing(self.requests):
            try:
                if self.claim_id is None:
                    return
                if has_ended or self.requests.is_asked_to_stop(self.claim_id):
                    self.requests.note_end(self.claim_id)
            except StreamError as error:
                log.warning("stream %s: %s", self.stream_id, error.in_one_line())
