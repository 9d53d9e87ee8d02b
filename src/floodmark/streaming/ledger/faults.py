"""What a stream says of an error of its database."""

from __future__ import annotations

from floodmark.errors import StreamError
from floodmark.next_steps import STREAM, command
from floodmark.postgres.transactions import fault, said, sqlstate


def database_error(stream_id: str, error: BaseException) -> StreamError:
    """FM-STREAM-005 for an error that ended a transaction."""
    is_transient = fault(error) == "transient"
    look = "look whether the database is there (a stream tries again by itself)"
    mend = look if is_transient else "mend what the database says"
    return StreamError(
        "FM-STREAM-005",
        "the database of a stream did not do what was asked",
        stream=stream_id,
        found=said(error),
        state="nothing of a batch that was under way is written; the stored offsets stand",
        next=mend + "; then: " + command("stream", "run", STREAM),
        retryable=is_transient,
        details={"sqlstate": sqlstate(error)},
    )
