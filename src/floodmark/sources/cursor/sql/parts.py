"""A read by several connections at once: each has a stride of one column, and no row is in two.

The strides are cut between the smallest and the largest value, asked for once. The first one has all
that lies below, and rows without a value, the last one all that lies above: whatever is written
between the question and the read is in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from floodmark.model import EXACT, CursorMark, TimeMark, ValueMark, numbered
from floodmark.model.sql_names import SqlDialect, column_name, quoted_for
from floodmark.sources.cursor.sql.literals import literal

_ALIAS = "floodmark_parts"


@dataclass(frozen=True, slots=True)
class Parts:
    """By which column a read is shared, and among how many connections."""

    column: str
    """Written as in SQL; numbers, dates or times, of which the database gives no two types."""
    count: int

    def extent_query(self, dialect: SqlDialect, query: str) -> str:
        """The smallest and the largest value of the column; one row, two columns."""
        column = self._quoted(dialect)
        alias = _ALIAS if dialect == "oracle" else f"AS {_ALIAS}"
        return (
            f"SELECT MIN({column}) AS lowest, MAX({column}) AS highest FROM (\n{query}\n) {alias}"
        )

    def conditions(
        self, dialect: SqlDialect, lowest: CursorMark | None, highest: CursorMark | None
    ) -> list[str]:
        """One condition for each connection; none where one connection is enough.

        Raises ValueError for a column whose values cannot be divided.
        """
        if lowest is None or highest is None:
            return []
        column = self._quoted(dialect)
        cuts = [literal(dialect, cut) for cut in cuts_between(lowest, highest, self.count)]
        if not cuts:
            return []
        first, last = f"({column} < {cuts[0]} OR {column} IS NULL)", f"{column} >= {cuts[-1]}"
        between = [f"{column} >= {low} AND {column} < {high}" for low, high in pairwise(cuts)]
        return [first, *between, last]

    def _quoted(self, dialect: SqlDialect) -> str:
        return quoted_for(dialect, column_name(dialect, self.column))


def cuts_between(lowest: CursorMark, highest: CursorMark, count: int) -> list[CursorMark]:
    """The values between which strides lie, growing, each above the lowest."""
    found = dict.fromkeys(_evenly(lowest, highest, count))
    return [cut for cut in found if cut != lowest]


def _evenly(lowest: CursorMark, highest: CursorMark, count: int) -> Iterator[CursorMark]:
    for position in range(1, count):
        if isinstance(lowest, TimeMark) and isinstance(highest, TimeMark):
            span = highest.number - lowest.number
            yield numbered(lowest.type, lowest.number + span * position // count)
        elif isinstance(lowest.value, int) and isinstance(highest.value, int):
            span = highest.value - lowest.value
            yield ValueMark("int", lowest.value + span * position // count)
        elif isinstance(lowest.value, Decimal) and isinstance(highest.value, Decimal):
            yield ValueMark("decimal", _between(lowest.value, highest.value, position, count))
        else:
            raise ValueError(f"no parts can be made of values such as {lowest.text}")  # noqa: TRY004 - of the column


def _between(lowest: Decimal, highest: Decimal, position: int, count: int) -> Decimal:
    """With no more digits than the column has: finer cuts would not divide better."""
    span = EXACT.subtract(highest, lowest)
    cut = EXACT.add(lowest, EXACT.divide(EXACT.multiply(span, Decimal(position)), Decimal(count)))
    exponent = min(lowest.as_tuple().exponent, highest.as_tuple().exponent, key=int)
    return cut.quantize(Decimal(1).scaleb(int(exponent)), context=EXACT)
