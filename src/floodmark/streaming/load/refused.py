"""Rows that are not written: why, and the dead letters that they become."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from floodmark.postgres.rows import MisfitError
from floodmark.postgres.transactions import said, sqlstate
from floodmark.streaming.ledger.batches import DeadLetter
from floodmark.streaming.load.target import METADATA

Position = tuple[str, int, int]
"""Topic, partition, offset."""
Originals = Callable[[Sequence[Position]], Mapping[Position, tuple[bytes | None, bytes | None]]]
"""Key and value of some records, as Kafka has them."""

MISFIT = "value"
"""The reason of a dead letter whose value does not fit; others have the server's SQLSTATE."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a row is not written."""

    reason: str
    detail: str
    column: str | None

    @classmethod
    def of_misfit(cls, error: MisfitError) -> Refusal:
        return cls(MISFIT, error.why, error.column)


class Refusals(dict[int, Refusal]):
    """Rows of a frame, from 0, that are not written; told twice, a row is refused once.

    Refusals that are the same are one object: of a flood of rows each takes a hundred bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Refusal, Refusal] = {}

    def __setitem__(self, row: int, refusal: Refusal) -> None:
        super().__setitem__(row, self._known.setdefault(refusal, refusal))

    def misfit(self, error: MisfitError, first: int = 0) -> None:
        """A value of a row, counted from `first`."""
        self[first + error.row - 1] = Refusal.of_misfit(error)

    def server(self, row: int, error: BaseException) -> None:
        """What the server said of a row, without its values."""
        diagnosis = getattr(error, "diag", None)
        constraint = getattr(diagnosis, "constraint_name", None)
        detail = f"{said(error)}; constraint {constraint}" if constraint else said(error)
        self[row] = Refusal(
            sqlstate(error) or MISFIT, detail, getattr(diagnosis, "column_name", None)
        )


def letter_of(records: pa.Table, row: int, refusal: Refusal) -> DeadLetter:
    """The dead letter of one row."""

    def value(name: str) -> Any:
        return records.column(name)[row].as_py() if name in records.schema.names else None

    has_bytes = "_value" in records.schema.names
    return DeadLetter(
        topic=value("_topic"),
        partition=value("_partition"),
        offset=value("_offset"),
        reason=refusal.reason,
        detail=refusal.detail,
        key=value("_key"),
        value=value("_value") if has_bytes else _as_json(records, row),
        column=refusal.column,
        event_time=_time(records, row),
    )


def _time(records: pa.Table, row: int) -> datetime | None:
    """When the record was sent; None for a year that Python does not know, which producers can say."""
    if "_timestamp" not in records.schema.names:
        return None
    try:
        found: datetime | None = records.column("_timestamp")[row].as_py()
    except (ValueError, OverflowError):
        return None
    return found


def _as_json(records: pa.Table, row: int) -> bytes:
    said = {
        name: _plain(records.column(name)[row])
        for name in records.schema.names
        if name not in METADATA
    }
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _plain(value: pa.Scalar) -> Any:
    """A value that JSON has, or its text; dates beyond Python's, and broken UTF-8, included."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        try:
            return str(value.cast(pa.string()).as_py())
        except (ValueError, pa.ArrowInvalid):
            raw = value.as_buffer() if hasattr(value, "as_buffer") else None
            return None if raw is None else raw.to_pybytes().decode("utf-8", "surrogateescape")
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    return base64.b64encode(plain).decode() if isinstance(plain, bytes) else str(plain)


def with_originals(letters: Sequence[DeadLetter], originals: Originals) -> Iterator[DeadLetter]:
    """The same with the bytes that Kafka has, where it has them."""
    if not letters:
        return
    known = {
        (letter.topic, letter.partition, letter.offset): letter
        for letter in letters
        if letter.topic is not None and letter.partition is not None and letter.offset is not None
    }
    found = originals([(str(t), int(p or 0), int(o or 0)) for t, p, o in known])
    for letter in letters:
        at = (str(letter.topic), int(letter.partition or 0), int(letter.offset or 0))
        key, value = found.get(at, (letter.key, letter.value))
        yield replace(letter, key=key, value=value)
