"""floodmark in Dagster: one op freezes the plan, one per pipeline runs it, one finishes.

Needs floodmark_task.py beside it.
"""  # noqa: INP001 a file to copy

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import floodmark_task

PROJECT = "/srv/shop"
AGAIN = dg.RetryPolicy(max_retries=4, delay=60, backoff=dg.Backoff.EXPONENTIAL)


@contextmanager
def no_retry_after_giving_up() -> Iterator[None]:
    """Dagster retries every error but this one."""
    try:
        yield
    except floodmark_task.GiveUp as error:
        raise dg.Failure(str(error), allow_retries=False) from error


@dg.op(out=dg.DynamicOut(), retry_policy=AGAIN)
def freeze():
    with no_retry_after_giving_up():
        work = floodmark_task.plan(PROJECT)
    for each in work:
        key = re.sub(r"\W", "_", f"{each['pipeline']}_{each['batch']}")
        yield dg.DynamicOutput(each, mapping_key=key)


@dg.op(retry_policy=AGAIN)
def run(work):
    with no_retry_after_giving_up():
        floodmark_task.run_pipeline(PROJECT, work["batch"], work["pipeline"])
    return work["pipeline"]


@dg.op(retry_policy=AGAIN)
def finish(pipelines):  # noqa: ARG001 waits for them
    with no_retry_after_giving_up():
        floodmark_task.finish(PROJECT)


@dg.job
def floodmark_shop():
    finish(freeze().map(run).collect())


defs = dg.Definitions(
    jobs=[floodmark_shop],
    schedules=[dg.ScheduleDefinition(job=floodmark_shop, cron_schedule="*/15 * * * *")],
)
