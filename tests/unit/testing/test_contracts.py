"""The suites for authors of plug-ins: a good plug-in passes, and each broken promise is found."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from floodmark.model.receipt import Receipt
from floodmark.testing import ContractError, SinkContract, SourceContract


class Numbers:
    """A source over a list."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def latest(self) -> int | None:
        return max(self.rows, default=None)

    def read(self, spark: Any, start: int | None, end: int) -> pa.Table:
        del spark
        rows = [n for n in self.rows if (start is None or start <= n) and n <= end]
        return pa.table({"number": pa.array(rows, pa.int64())})


class NumbersContract(SourceContract):
    kind: ClassVar[type[Numbers]] = Numbers

    def begin(self) -> None:
        self.rows: list[int] = []

    def source(self) -> Numbers:
        return self.kind(self.rows)

    def add(self, *values: Any) -> None:
        self.rows += values

    def cursor_values(self, frame: Any) -> Iterable[int]:
        values: list[int] = frame["number"].to_pylist()
        return values


class Board:
    """A sink over a dictionary that keeps its receipts with its rows."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.place = place

    def write(self, frame: Iterable[int], receipt: Receipt) -> None:
        rows = list(frame)
        self.place["rows"] += rows
        self.place["receipts"][receipt.app_id] = receipt.seq

    def seen(self, receipt: Receipt) -> bool:
        return bool(self.place["receipts"].get(receipt.app_id, -1) >= receipt.seq)


class BoardContract(SinkContract):
    kind: ClassVar[type[Any]] = Board

    def begin(self) -> None:
        self.place: dict[str, Any] = {"rows": [], "receipts": {}}

    def sink(self) -> Any:
        return self.kind(self.place)

    def frame(self, *numbers: int) -> Iterable[int]:
        return iter(numbers)

    def broken_frame(self, *numbers: int) -> Iterable[int]:
        def rows() -> Iterable[int]:
            yield from numbers
            raise OSError("the rows ended")

        return rows()

    def numbers(self) -> Iterable[int]:
        rows: list[int] = self.place["rows"]
        return rows


class TestNumbers(NumbersContract):
    """Collected by pytest as it is."""


class TestBoard(BoardContract):
    """Collected by pytest as it is."""


def test_good_plug_ins_keep_every_promise() -> None:
    NumbersContract().run()
    BoardContract().run()


def test_a_sink_without_receipts_is_asked_for_no_more_than_it_promises() -> None:
    class Plain(Board):
        seen = None  # type: ignore[assignment]

    class PlainContract(BoardContract):
        kind = Plain

    PlainContract().run()


class FirstInFirst(Numbers):
    def latest(self) -> int | None:
        return self.rows[-1] if self.rows else None


class ZeroForNothing(Numbers):
    def latest(self) -> int | None:
        return max(self.rows, default=0)


class WithoutStart(Numbers):
    def read(self, spark: Any, start: int | None, end: int) -> pa.Table:
        return super().read(spark, None if start is None else start + 1, end)


class WithoutTies(Numbers):
    def read(self, spark: Any, start: int | None, end: int) -> pa.Table:
        numbers = super().read(spark, start, end)["number"].to_pylist()
        return pa.table({"number": pa.array(sorted(set(numbers)), pa.int64())})


class UpToNow(Numbers):
    def read(self, spark: Any, start: int | None, end: int) -> pa.Table:
        return super().read(spark, start, end).slice(0, len(self.rows) - 2)


class Twice(Numbers):
    def read(self, spark: Any, start: int | None, end: int) -> pa.Table:
        return pa.concat_tables([super().read(spark, start, end)] * 2)


class Floats(Numbers):
    def latest(self) -> Any:
        return float(max(self.rows)) if self.rows else None


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (FirstInFirst, "test_latest_is_the_newest_value_whatever_came_last"),
        (ZeroForNothing, "test_latest_of_an_empty_place_is_none"),
        (WithoutStart, "test_a_read_includes_its_start_and_its_end"),
        (WithoutTies, "test_rows_with_one_value_all_come"),
        (UpToNow, "test_a_range_that_is_read_again_has_the_same_rows"),
        (Twice, "test_a_first_read_has_every_row_through_the_end"),
        (Floats, "test_latest_has_a_type_of_cursors"),
    ],
)
def test_a_source_that_breaks_a_promise_is_told_which(broken: type[Numbers], promise: str) -> None:
    class Suite(NumbersContract):
        kind = broken

    with pytest.raises(ContractError, match=promise):
        Suite().run()


class Overwrites(Board):
    def write(self, frame: Iterable[int], receipt: Receipt) -> None:
        self.place["rows"] = []
        super().write(frame, receipt)


class ForgetsEmpty(Board):
    def write(self, frame: Iterable[int], receipt: Receipt) -> None:
        rows = list(frame)
        if rows:
            super().write(rows, receipt)


class OneForAll(Board):
    def seen(self, receipt: Receipt) -> bool:
        return any(seq >= receipt.seq for seq in self.place["receipts"].values())


class ThisOneOnly(Board):
    def seen(self, receipt: Receipt) -> bool:
        return bool(self.place["receipts"].get(receipt.app_id) == receipt.seq)


class ReceiptFirst(Board):
    def write(self, frame: Iterable[int], receipt: Receipt) -> None:
        self.place["receipts"][receipt.app_id] = receipt.seq
        super().write(frame, receipt)


class InMemory(Board):
    def __init__(self, place: dict[str, Any]) -> None:
        super().__init__({**place, "receipts": {}})


class Swallows(Board):
    def write(self, frame: Iterable[int], receipt: Receipt) -> None:
        with suppress(OSError):
            super().write(frame, receipt)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Overwrites, "test_rows_of_each_batch_are_added"),
        (ForgetsEmpty, "test_a_batch_without_rows_is_seen_too"),
        (OneForAll, "test_a_receipt_is_seen_under_its_own_name_only"),
        (ThisOneOnly, "test_an_earlier_batch_is_seen_and_a_later_one_is_not"),
        (ReceiptFirst, "test_a_write_that_fails_leaves_no_receipt"),
        (InMemory, "test_a_batch_is_seen_once_it_is_written"),
        (Swallows, "write\\(\\) raises what its frame raises"),
    ],
)
def test_a_sink_that_breaks_a_promise_is_told_which(broken: type[Board], promise: str) -> None:
    class Suite(BoardContract):
        kind = broken

    with pytest.raises(ContractError, match=promise):
        Suite().run()
