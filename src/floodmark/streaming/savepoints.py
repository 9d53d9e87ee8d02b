"""Parts of a transaction that may fail because of a row."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.postgres import run
from floodmark.streaming.faults import Fault, fault

if TYPE_CHECKING:
    from floodmark.postgres import Cursor

_OF_A_ROW: tuple[Fault, ...] = ("row",)


@contextmanager
def savepoint(cursor: Cursor, faults: Collection[Fault] = _OF_A_ROW) -> Iterator[None]:
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
