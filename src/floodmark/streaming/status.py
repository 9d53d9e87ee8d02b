"""What is known of a stream without running it: its row, its history, how far Kafka is ahead."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from floodmark.errors import FloodmarkError
from floodmark.model.offsets import records
from floodmark.streaming.access import Access
from floodmark.streaming.ledger.batches import StreamRow
from floodmark.streaming.ledger.protocol import History, StreamLedger
from floodmark.streaming.ledger.requests import SignOfLife
from floodmark.streaming.parts import ledger_of, notes_of, outbox_of, source_of
from floodmark.streaming.running.holder import process_of
from floodmark.streaming.stopping import is_elsewhere, runner_here


@dataclass(frozen=True)
class StreamStatus:
    """One stream, as its database and its brokers tell it."""

    stream_id: str
    row: StreamRow | None
    """None before the first run."""
    batches: int = 0
    last_processed_at: datetime | None = None
    seconds_since_last_batch: float | None = None
    records_last_minute: int = 0
    batches_last_minute: int = 0
    records: Mapping[str, int] | None = None
    """Records of the batches that its ledger still knows, by what became of them."""
    dead_letters: int = 0
    outbox: int = 0
    """Messages that wait for Kafka."""
    records_behind: int | None = None
    """None where the brokers could not be asked, or the stream has not begun."""
    brokers: str | None = None
    """Why they could not be asked."""
    is_running: bool | None = None
    """Whether its last holder is at work: here by its process, elsewhere by its signs of life. None
    where a runner of an older floodmark, which gives none, is elsewhere."""
    sign: SignOfLife | None = None
    """The last one of its holder; None before the first run, and after a command moved the stream."""
    breaker: str | None = None
    """closed, half_open or open; None where no runner of this machine and user tells it."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        row = self.row
        return {
            "stream": self.stream_id,
            "has_begun": row is not None and row.end_offsets is not None,
            "last_batch_id": row.batch_id if row else None,
            "last_processed_at": _iso(self.last_processed_at),
            "seconds_since_last_batch": self.seconds_since_last_batch,
            "records_behind": self.records_behind,
            "records_last_minute": self.records_last_minute,
            "batches_last_minute": self.batches_last_minute,
            "batches": self.batches,
            "records": dict(self.records or {}),
            "dead_letters": self.dead_letters,
            "outbox": self.outbox,
            "end_offsets": row.end_offsets.as_mapping() if row and row.end_offsets else None,
            "event_watermark": _iso(row.event_watermark) if row else None,
            "epoch": row.epoch if row else None,
            "holder": row.holder if row else None,
            "is_running": self.is_running,
            "seconds_since_sign_of_life": self.sign.seconds_ago if self.sign else None,
            "has_ended": self.sign.has_ended if self.sign else None,
            "incarnation": row.incarnation if row else None,
            "exactly_once": row.exactly_once if row else None,
            "brokers": self.brokers,
            "breaker": self.breaker,
        }


def status_of(access: Access, *, asks_brokers: bool = True) -> StreamStatus:
    """The status of a stream; raises StreamError if its database cannot be asked.

    Brokers that cannot be asked are told in the answer.
    """
    with closing(ledger_of(access)) as ledger:
        row = ledger.stored()
        sign, history = _sign_of(ledger, row), ledger.history()
    outbox = outbox_of(access).waiting()
    behind, why = _behind(access, row) if asks_brokers else (None, None)
    holder = row.holder if row is not None else None
    pid = runner_here(holder, sign)
    breaker = notes_of(access).breaker_of(pid) if pid is not None else None
    return StreamStatus(
        access.stream.settings.pipeline_id,
        row,
        **{each.name: getattr(history, each.name) for each in fields(History)},
        outbox=outbox,
        records_behind=behind,
        brokers=why,
        is_running=_is_running_elsewhere(sign) if is_elsewhere(holder) else pid is not None,
        breaker=breaker,
        sign=sign,
    )


def sign_of_life(access: Access) -> SignOfLife | None:
    """The last sign of the runner that has a stream, as `StreamStatus.sign`; asks the ledger alone.

    Raises StreamError if that cannot be asked.
    """
    with closing(ledger_of(access)) as ledger:
        return _sign_of(ledger, ledger.stored())


def _sign_of(ledger: StreamLedger[Any], row: StreamRow | None) -> SignOfLife | None:
    if row is None or row.claim_id is None or process_of(row.holder) is None:
        return None
    return ledger.sign_of_life(row.claim_id)


def _is_running_elsewhere(sign: SignOfLife | None) -> bool | None:
    return None if sign is None else not (sign.has_ended or sign.is_gone)


def _behind(access: Access, row: StreamRow | None) -> tuple[int | None, str | None]:
    if row is None or row.end_offsets is None:
        return None, None
    try:
        latest = source_of(access).latest()
        return records(row.end_offsets, row.end_offsets.updated(latest)), None
    except FloodmarkError as error:
        return None, error.in_one_line()
    except ValueError:
        return None, "a topic ends before the offsets that were read"


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
