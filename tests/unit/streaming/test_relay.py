"""Messages that cannot be sent do not hold up the stream that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from floodmark.errors import StreamError
from floodmark.streaming.outbox.relay import RESTS, Relay, Relayed


@dataclass
class SlowOutbox:
    """Four messages for a broker that does not answer: each attempt takes half a minute."""

    now: float = 0.0
    attempts: list[float] = field(default_factory=list)
    refuses: bool = True

    def waiting(self) -> int:
        return 4 if self.refuses else 0

    def relay(self, producer: object, topics: object, messages: object) -> Relayed:
        del producer, topics, messages
        self.attempts.append(self.now)
        self.now += 30.0
        if self.refuses:
            raise StreamError("FM-STREAM-022", "no")
        return Relayed(4)


def test_after_a_failure_the_relay_rests_longer_than_it_took() -> None:
    outbox = SlowOutbox()
    relay = Relay(outbox, object, lambda: outbox.now)  # type: ignore[arg-type]

    with pytest.raises(StreamError):
        relay.send()
    left = [relay.send() for _ in range(5)]
    outbox.now += 30.0 * RESTS
    with pytest.raises(StreamError):
        relay.send()

    assert left == [4] * 5
    assert outbox.attempts == [0.0, 30.0 + 30.0 * RESTS]


def test_a_relay_that_gets_through_leaves_nothing_and_does_not_rest() -> None:
    outbox = SlowOutbox()
    relay = Relay(outbox, object, lambda: outbox.now)  # type: ignore[arg-type]
    with pytest.raises(StreamError):
        relay.send()
    outbox.now += 30.0 * RESTS
    outbox.refuses = False

    assert [relay.send(), relay.send()] == [0, 0]


def test_a_client_that_failed_is_made_anew() -> None:
    outbox, made = SlowOutbox(), list[object]()

    def client() -> object:
        made.append(object())
        return made[-1]

    relay = Relay(outbox, client, lambda: outbox.now)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(StreamError):
            relay.send()
        outbox.now += 30.0 * RESTS

    assert len(made) == 2
