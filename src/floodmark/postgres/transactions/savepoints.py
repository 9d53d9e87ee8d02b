"""Parts of a transaction that may fail because of a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.postgres.connect import run
from floodmark.postgres.transactions.faults import OF_ROWS, Fault, fault

if TYPE_CHECKING:
    from floodmark.postgres.connect import Cursor


@contextmanager
def savepoint(cursor: Cursor, faults: Collection[Fault] = OF_ROWS) -> Iterator[None]:
    """What the block did is undone if it raises one of the faults; the transaction goes on."""
    import psycopg

    run(cursor, "SAVEPOINT floodmark_rows")
    try:
        yield
    except (psycopg.Error, UnicodeError) as error:
        if fault(error) in faults:
            run(cursor, "ROLLBACK TO SAVEPOINT floodmark_rows")
            run(cursor, "RELEASE SAVEPOINT floodmark_rows")
        raise
    run(cursor, "RELEASE SAVEPOINT floodmark_rows")


def is_of_rows(cursor: Cursor, error: BaseException, without_rows: Callable[[], object]) -> bool:
    """Whether one of the rows is to blame for an error, which a savepoint has undone.

    Where the error does not tell, the same is done without rows: what fails then too is no row's
    fault.
    """
    import psycopg

    kind = fault(error)
    if kind != "unclear":
        return kind == "row"
    try:
        with savepoint(cursor, ("row", "unclear", "lasting")):
            without_rows()
    except psycopg.Error as second:
        if fault(second) == "transient":
            raise
        return False
    return True
