"""Parts of a transaction that may fail because of a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.engines.postgres import run
from floodmark.streaming.faults import fault

if TYPE_CHECKING:
    from floodmark.engines.postgres import Cursor


@contextmanager
def savepoint(cursor: Cursor) -> Iterator[None]:
    """What the block did is undone if it raises; the transaction goes on."""
    import psycopg

    run(cursor, "SAVEPOINT floodmark_rows")
    try:
        yield
    except (psycopg.Error, UnicodeError) as error:
        if fault(error) == "row":
            run(cursor, "ROLLBACK TO SAVEPOINT floodmark_rows")
            run(cursor, "RELEASE SAVEPOINT floodmark_rows")
        raise
    run(cursor, "RELEASE SAVEPOINT floodmark_rows")
