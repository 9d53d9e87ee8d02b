"""How work is done, whatever the work is: by several threads at once, again after a failure, by
processes that know of one another.

Sources, sinks, runs and streams use it; it knows none of them.
"""

from __future__ import annotations

from floodmark.work.pool import Workers
from floodmark.work.process import (
    Process,
    ProcessName,
    ThisProcess,
    command_of,
    is_proven_dead,
    this_process,
    user_name,
)
from floodmark.work.retry import Chance, RetryPolicy, any_number

__all__ = [
    "Chance",
    "Process",
    "ProcessName",
    "RetryPolicy",
    "ThisProcess",
    "Workers",
    "any_number",
    "command_of",
    "is_proven_dead",
    "this_process",
    "user_name",
]
