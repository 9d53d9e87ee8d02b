"""Rows that a node reads beside the news of a window, compared with what the log says.

A plan counts the rows of its windows. What else a node reads of a table the log tells when it is
read: a table that is looked up, one that is read whole without news of it, and all that a node has to
load that was added later, or whose target is rebuilt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from floodmark.model import Window
from floodmark.model.copying import replace
from floodmark.run.context import Pass
from floodmark.sources import other_rows, rows_in

log = logging.getLogger("floodmark")


def counted(run: Pass, window: Window, make: Callable[[], Any]) -> Callable[[], Any]:
    """What `make` gives, counted once, before anything is made of it.

    Raises FM-SOURCE-064 where the log says another number, until the operator has taken the rows as
    they are read: that is journaled for the pipeline.
    """
    if not window.has_log or window.as_read:
        return make
    guard, is_counted = threading.Lock(), threading.Event()

    def given() -> Any:
        frame = make()
        with guard:
            if not is_counted.is_set():
                _compare(run, window, frame)
                is_counted.set()
        return frame

    return given


def _compare(run: Pass, window: Window, frame: Any) -> None:
    planned = run.reads.rows_by_log(window)
    rows = None if planned is None else rows_in(frame)
    if planned is None or rows is None or rows == planned:
        return
    error = other_rows(replace(window, rows=planned), rows)
    if not run.reads.accepts_lost_rows:
        raise error
    log.warning("%s: %s; accepted as they are read", window.upstream, error.found)
    run.writes.take_as_read(window.upstream, planned, rows)
