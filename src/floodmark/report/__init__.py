"""What people and machines are told: lag, checks of the guarantees, warnings, metrics. It only looks."""

from __future__ import annotations

from floodmark.report.doctor import examine_store, examine_target, examine_upstream
from floodmark.report.exposition import serve, text_of
from floodmark.report.gaps import gaps_of
from floodmark.report.lag import is_above, lag_of
from floodmark.report.metrics import (
    METRICS,
    RunnerOfStream,
    Sample,
    measure,
    out_of_reach,
    runner_samples,
)
from floodmark.report.published import examine_tables
from floodmark.report.verify import verify_store
from floodmark.report.watch import failures_in_a_row, stuck_batches

__all__ = [
    "METRICS",
    "RunnerOfStream",
    "Sample",
    "examine_store",
    "examine_tables",
    "examine_target",
    "examine_upstream",
    "failures_in_a_row",
    "gaps_of",
    "is_above",
    "lag_of",
    "measure",
    "out_of_reach",
    "runner_samples",
    "serve",
    "stuck_batches",
    "text_of",
    "verify_store",
]
