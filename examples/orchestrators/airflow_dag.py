"""floodmark in Airflow 3: one task freezes the plan, one per pipeline runs it, one finishes.

Put it beside floodmark_task.py in the folder of DAGs. On Airflow 2 `dag` and `task` come from
airflow.decorators.
"""  # noqa: INP001 a file to copy

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import floodmark_task
from airflow.exceptions import AirflowFailException
from airflow.sdk import dag, task

PROJECT = "/srv/shop"
AGAIN = {
    "retries": 4,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
}


@contextmanager
def no_retry_after_giving_up() -> Iterator[None]:
    """Airflow retries every error but this one."""
    try:
        yield
    except floodmark_task.GiveUp as error:
        raise AirflowFailException(str(error)) from error


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
)
def floodmark_shop() -> None:
    """What is new in the upstreams of the shop, into its targets, exactly once."""

    @task(**AGAIN)
    def freeze() -> list[dict[str, str]]:
        with no_retry_after_giving_up():
            return floodmark_task.plan(PROJECT)

    @task(**AGAIN, map_index_template="{{ work.pipeline }}")
    def run(work: dict[str, str]) -> None:
        with no_retry_after_giving_up():
            floodmark_task.run_pipeline(PROJECT, work["batch"], work["pipeline"])

    @task(trigger_rule="all_done")
    def finish() -> None:
        with no_retry_after_giving_up():
            floodmark_task.finish(PROJECT)

    run.expand(work=freeze()) >> finish()


floodmark_shop()
