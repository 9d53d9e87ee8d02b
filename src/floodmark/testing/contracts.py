"""What floodmark expects of sources and sinks by plug-in, as suites for their authors.

A suite is a plain class. Subclass it, say how your plug-in is made, and either let a test runner
collect its `test_` methods or call `run()`:

    class TestTickets(SourceContract):
        def source(self):
            return Tickets({"file": self.file})
        ...

    TestTickets().run()    # raises ContractError with everything that does not hold

Each test begins with `begin()`, which makes an empty place. Nothing here needs Spark or pytest:
frames are whatever the plug-in gives and takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar

from floodmark.model import Receipt

CURSOR_TYPES = (int, Decimal, date, str)
"""What `latest()` may give; a datetime is a date, a bool is no int."""


class ContractError(AssertionError):
    """A promise that does not hold."""


def ensure(holds: object, promise: str) -> None:
    """Raise ContractError where a promise does not hold."""
    if not holds:
        raise ContractError(promise)


class Contract(ABC):
    """A suite: its methods that begin with `test_` are the promises."""

    @abstractmethod
    def begin(self) -> None:
        """Make an empty place; called before each test."""

    def setup_method(self) -> None:
        """For pytest, which calls it before each test."""
        self.begin()

    def run(self) -> None:
        """Try every promise; raises ContractError that names each one that does not hold."""
        broken = [f"{name}: {error}" for name, error in self._broken()]
        ensure(not broken, "\n".join(broken))

    def _broken(self) -> Iterator[tuple[str, Exception]]:
        for name in sorted(name for name in dir(self) if name.startswith("test_")):
            self.begin()
            test: Callable[[], None] = getattr(self, name)
            try:
                test()
            # The boundary to somebody's plug-in: whatever it raises breaks the promise.
            except Exception as error:  # noqa: BLE001
                yield name, error


class SourceContract(Contract):
    """The promises of `@fm.source`: `latest()` and `read(spark, start, end)`."""

    values: ClassVar[Sequence[Any]] = (1, 2, 3, 4, 5)
    """Five values of the cursor, in their order."""
    spark: Any = None
    """What `read` gets as its session."""

    @abstractmethod
    def source(self) -> Any:
        """The plug-in over the place, made anew as each process makes it."""

    @abstractmethod
    def add(self, *values: Any) -> None:
        """Add a row for each of these values of the cursor."""

    @abstractmethod
    def cursor_values(self, frame: Any) -> Iterable[Any]:
        """The values of the cursor in a frame that `read` gave."""

    def test_latest_of_an_empty_place_is_none(self) -> None:
        ensure(self.source().latest() is None, "latest() is None where there is no row")

    def test_latest_is_the_newest_value_whatever_came_last(self) -> None:
        first, second, third, *_ = self.values
        self.add(first, third, second)
        latest = self.source().latest()
        ensure(latest == third, f"latest() is the newest value: {third!r}, not {latest!r}")

    def test_latest_has_a_type_of_cursors(self) -> None:
        self.add(self.values[0])
        latest = self.source().latest()
        is_cursor = isinstance(latest, CURSOR_TYPES) and not isinstance(latest, bool)
        ensure(is_cursor, f"latest() is an int, Decimal, date, datetime or str, not {latest!r}")

    def test_a_first_read_has_every_row_through_the_end(self) -> None:
        first, second, third, *_ = self.values
        self.add(first, second, third)
        self._expect(None, second, [first, second])

    def test_a_read_includes_its_start_and_its_end(self) -> None:
        self.add(*self.values)
        _, second, third, fourth, _ = self.values
        self._expect(second, fourth, [second, third, fourth])

    def test_rows_with_one_value_all_come(self) -> None:
        first, second, *_ = self.values
        self.add(first, second, second, second)
        self._expect(second, second, [second, second, second])

    def test_a_range_that_is_read_again_has_the_same_rows(self) -> None:
        first, second, third, fourth, _ = self.values
        self.add(first, second, third)
        self._expect(second, third, [second, third])
        self.add(fourth)
        self._expect(second, third, [second, third])

    def test_a_range_without_rows_is_an_empty_frame(self) -> None:
        first, second, third, *_ = self.values
        self.add(first, third)
        self._expect(second, second, [])

    def _expect(self, start: Any, end: Any, values: Sequence[Any]) -> None:
        """Every row of a range, each once; what lies beside the range is left out by floodmark."""
        frame = self.source().read(self.spark, start, end)
        within = Counter(
            value
            for value in self.cursor_values(frame)
            if (start is None or start <= value) and value <= end
        )
        missing, doubled = Counter(values) - within, within - Counter(values)
        ensure(not missing, f"read({start!r}, {end!r}) lacks {sorted(missing.elements())}")
        ensure(not doubled, f"read({start!r}, {end!r}) doubles {sorted(doubled.elements())}")


class SinkContract(Contract):
    """The promises of `@fm.sink`: `write(frame, receipt)`, and `seen(receipt)` where there is one.

    Without `seen` a batch is written at least once; with it, exactly once.
    """

    app_id = "floodmark/store/orders/out/0"

    @abstractmethod
    def sink(self) -> Any:
        """The plug-in over the place, made anew as each process makes it."""

    @abstractmethod
    def frame(self, *numbers: int) -> Any:
        """A frame as the plug-in gets it, with a row for each of these numbers."""

    @abstractmethod
    def numbers(self) -> Iterable[int]:
        """The numbers of all rows that are in the place."""

    def broken_frame(self, *numbers: int) -> Any:
        """A frame that raises while it is read, or None where none can be made."""
        del numbers
        return None

    def receipt(self, seq: int, app_id: str | None = None) -> Receipt:
        """The receipt of a batch."""
        return Receipt(app_id or self.app_id, seq, "{}")

    def test_rows_of_each_batch_are_added(self) -> None:
        self._write(1, 10, 11)
        self._write(2, 12)
        self._expect(10, 11, 12)

    def test_a_batch_without_rows_changes_nothing(self) -> None:
        self._write(1, 10)
        self._write(2)
        self._expect(10)

    def test_a_batch_is_seen_once_it_is_written(self) -> None:
        if not self.is_exactly_once:
            return
        ensure(not self.sink().seen(self.receipt(1)), "seen() is false before a write")
        self._write(1, 10)
        ensure(self.sink().seen(self.receipt(1)), "seen() is true once the rows are there")

    def test_a_batch_without_rows_is_seen_too(self) -> None:
        if self.is_exactly_once:
            self._write(1)
            ensure(self.sink().seen(self.receipt(1)), "seen() is true for a batch without rows")

    def test_an_earlier_batch_is_seen_and_a_later_one_is_not(self) -> None:
        if not self.is_exactly_once:
            return
        self._write(5, 10)
        ensure(self.sink().seen(self.receipt(4)), "seen() is true for an earlier number")
        ensure(not self.sink().seen(self.receipt(6)), "seen() is false for a later number")

    def test_a_receipt_is_seen_under_its_own_name_only(self) -> None:
        if not self.is_exactly_once:
            return
        self._write(1, 10)
        other = self.receipt(1, f"{self.app_id}/other")
        ensure(not self.sink().seen(other), "seen() is false for another app_id")

    def test_a_write_that_fails_leaves_no_receipt(self) -> None:
        frame = self.broken_frame(10, 11) if self.is_exactly_once else None
        if frame is None:
            return
        try:
            self.sink().write(frame, self.receipt(1))
        except Exception:  # noqa: BLE001  (whatever the frame raises)
            ensure(not self.sink().seen(self.receipt(1)), "a write that failed is not seen")
            self._expect()
        else:
            raise ContractError("write() raises what its frame raises")

    @property
    def is_exactly_once(self) -> bool:
        """Whether the sink has `seen`."""
        return callable(getattr(self.sink(), "seen", None))

    def _write(self, seq: int, *numbers: int) -> None:
        self.sink().write(self.frame(*numbers), self.receipt(seq))

    def _expect(self, *numbers: int) -> None:
        there = sorted(self.numbers())
        ensure(there == sorted(numbers), f"the place holds {sorted(numbers)}, not {there}")
