"""Nodes that read web APIs: the guide's project on a real server, through crashes and changes."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import crash
from tests.support.node_projects import table_rows
from tests.support.outsides import ALONE
from tests.support.web import Asked, Said, WebServer

from floodmark import failpoints
from floodmark.errors import FloodmarkError
from floodmark.project import Project, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/http.md"
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Shop:
    """An API with rates and orders, and the guide's project that reads it."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.rates: dict[str, str] = {"EUR": "1.100000"}
        self.orders: list[dict[str, Any]] = []
        self.is_busy = 0
        self.server = WebServer(self.answer)
        self.write(cache="0s")

    def write(self, cache: str, attempts: int = 3) -> None:
        (text,) = YAML.findall(GUIDE.read_text())
        text = text.replace("https://example.org/api", self.server.url)
        text = text.replace("cache: 1h", f"cache: {cache}\n    attempts: {attempts}")
        text = text.replace("project: money", "project: money\nlease_ttl: 1s")
        (self.root / "floodmark.yaml").write_text(text)

    def answer(self, asked: Asked) -> Said:
        if asked.headers.get("authorization") != "Bearer geheim-42":
            return Said(b"who are you", status=401)
        if self.is_busy:
            self.is_busy -= 1
            return Said(status=429, headers={"Retry-After": "0"})
        if asked.path == "/latest":
            found = [{"currency": name, "rate": float(rate)} for name, rate in self.rates.items()]
            return Said({"data": {"rates": found}})
        since = asked.params.get("since", "")
        new = sorted(
            (order for order in self.orders if order["updated_at"] >= since[:19]),
            key=lambda order: str(order["updated_at"]),
        )
        at = 2 * (int(asked.params["page"]) - 1)
        return Said({"items": new[at : at + 2]})

    def put(self, number: int, at: str, amount: str = "1.00") -> None:
        self.orders.append({"id": number, "updated_at": at, "amount": float(amount)})

    @property
    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark, outside=ALONE)

    def run(self, *pipelines: str) -> RunSummary:
        summary = self.project.run(*pipelines)
        for error in [*(o.error for o in summary.outcomes if o.error), *summary.refused]:
            raise error
        return summary

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return table_rows(self.root / "lake" / table)

    def ids(self) -> list[int]:
        return [row[0] for row in self.rows("orders")]

    def reasons(self, pipeline: str) -> list[str]:
        return [window.reason for batch in self.project.plan(pipeline) for window in batch.windows]


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("RATES_TOKEN", "geheim-42")
    found = Shop(tmp_path, spark)
    with found.server.running():
        yield found


def refusal(call: Any, *arguments: Any) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        call(*arguments)
    return caught.value


def test_each_row_comes_once_over_pages_ties_and_late_rows(shop: Shop) -> None:
    for number in (1, 2, 3):
        shop.put(number, f"2026-03-0{number}T08:00:00Z")
    shop.is_busy = 1
    shop.run("orders")
    shop.put(4, "2026-03-03T08:00:00Z", "0.10")  # ties with the mark
    shop.put(5, "2026-03-03T07:56:00Z")  # late, within the overlap
    shop.put(6, "2026-03-04T08:00:00.000001Z")
    assert shop.reasons("orders")[0].startswith(
        "rows with updated_at after 2026-03-03T08:00:00.000000Z through"
        " 2026-03-04T08:00:00.000001Z; late ones as far back as the overlap; 4 records on 3 pages"
    )
    shop.run("orders")

    assert shop.ids() == [1, 2, 3, 4, 5, 6]
    assert shop.rows("orders")[3][2] == Decimal("0.10")
    assert isinstance(shop.rows("orders")[3][1], datetime)
    assert shop.reasons("orders")[0].startswith("no news")
    assert shop.run("orders").batches == []


def test_a_retry_sees_the_rows_of_the_first_attempt_whatever_the_api_says_by_then(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.put(1, "2026-03-01T08:00:00Z")
    shop.put(2, "2026-03-02T08:00:00Z")
    failpoints.rearm()
    with monkeypatch.context() as armed:
        armed.setenv("FLOODMARK_FAILPOINT", "landing.after_write")
        armed.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
        with pytest.raises(failpoints.FailpointReached):
            shop.run("orders")
    time.sleep(1.1)  # until the lease of the dead run has run out
    asked = len(shop.server.asked)
    shop.orders[0]["updated_at"] = "2026-03-05T08:00:00Z"  # it moves on
    del shop.orders[1]
    shop.put(3, "2026-03-01T09:00:00Z")
    (batch,) = shop.project.coordinator.look.state().batches
    shop.project.retry(batch)

    assert shop.ids() == [1, 2]
    assert len(shop.server.asked) == asked
    shop.run("orders")
    assert shop.ids() == [1, 1, 2]  # the newer version of 1; 3 came later than the overlap


def test_a_whole_answer_is_a_batch_only_if_it_differs(shop: Shop) -> None:
    shop.run("rates")
    assert shop.rows("rates") == [("EUR", Decimal("1.100000"))]
    assert shop.run("rates").batches == []
    assert shop.reasons("rates")[0].startswith("no news; 1 records at")
    shop.rates = {"USD": "1.0", "SEK": "10.5"}
    assert shop.reasons("rates")[0].startswith("a new answer, 2 records; 2 records at")
    shop.run("rates")

    assert [row[0] for row in shop.rows("rates")] == ["SEK", "USD"]


def test_the_planned_answer_is_the_one_that_is_written(shop: Shop) -> None:
    shop.project.freeze("rates")
    shop.rates = {"USD": "1.0"}
    shop.run("rates")

    assert [row[0] for row in shop.rows("rates")] == ["USD"]
    history = shop.spark.read.format("delta").option("versionAsOf", 0)
    assert [row[0] for row in history.load(str(shop.root / "lake/rates")).collect()] == ["EUR"]


def test_an_answer_from_the_cache_is_named_as_such(shop: Shop) -> None:
    shop.write(cache="1h")
    shop.put(1, "2026-03-01T08:00:00Z")
    shop.run("rates")
    asked = len(shop.server.asked)
    shop.rates = {"USD": "1.0"}

    assert shop.reasons("rates")[0].startswith("no news; from the cache: the answer of 20")
    assert len(shop.server.asked) == asked
    shop.run("orders")
    (run,) = [
        run
        for batch in shop.project.coordinator.look.state().batches.values()
        for run in batch.runs.values()
        if run.pipeline == "orders"
    ]
    assert "1 records on 2 pages at" in str(run.metrics)
    assert "as planned" in str(run.metrics)


def test_nobody_answers_is_an_error_and_never_no_news(shop: Shop) -> None:
    shop.write(cache="0s", attempts=1)
    shop.run("rates")
    shop.server.stop()
    plans = {plan.scope: plan for plan in shop.project.plan_scopes()}

    for scope in ("rates", "orders"):
        error = plans[scope].error
        assert error is not None
        assert (error.code, error.retryable) == ("FM-SOURCE-050", True)
    lags = {lag.upstream: lag for lag in shop.project.coordinator.lag()}
    assert lags["source://rates/latest"].reason == "only planning asks it"
    assert len(shop.project.coordinator.status()) == 1


def test_wrong_credentials_are_told_without_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATES_TOKEN", "falsch-43")

    error = refusal(shop.run, "rates")

    assert error.code == "FM-SOURCE-051"
    assert error.found == "401 Unauthorized: who are you"
    assert "falsch-43" not in str(error)
    files = [path for path in shop.root.rglob("*") if path.is_file()]
    assert not any(b"falsch-43" in path.read_bytes() for path in files)


def test_a_record_that_does_not_fit_the_schema_is_an_error(shop: Shop) -> None:
    shop.orders.append({"id": "one", "updated_at": "2026-03-01T08:00:00Z", "amount": 1})

    assert refusal(shop.run, "orders").code == "FM-RUN-005"
    assert not list((shop.root / "lake/orders").glob("*.parquet"))


def test_in_the_place_of_an_answer_that_is_gone_the_one_of_now_can_be_taken(shop: Shop) -> None:
    shop.project.freeze("rates")
    for path in (shop.root / "lake/_control/files").rglob("*.json"):
        path.unlink()
    error = refusal(shop.run, "rates")
    assert error.code == "FM-SOURCE-053"
    shop.rates = {"USD": "1.0"}
    (batch,) = shop.project.coordinator.look.state().batches
    shop.project.retry(batch, on_lost_range="snapshot")

    assert [row[0] for row in shop.rows("rates")] == ["USD"]


DEATHS = (
    "landing.after_write",
    "sink.after_commit",
    "finalize.before_commit",
    "plan.after_discover",
    "run.after_lease",
    "edge.after_write",
    "sink.before_commit",
    "run.before_done",
    "edge.before_remove",
)
"""The first three are tried in every run of the tests, all of them with --full."""


def test_a_run_that_dies_anywhere_writes_each_row_of_an_api_once(
    shop: Shop, full_size: bool
) -> None:
    for number, point in enumerate(DEATHS if full_size else DEATHS[:3], 1):
        shop.put(number, f"2026-03-{number:02}T08:00:00Z")
        shop.rates = {"EUR": f"1.{number:06}"}
        with crash.armed(point), pytest.raises(failpoints.FailpointReached):
            shop.run("orders")
        with crash.armed(point), contextlib.suppress(failpoints.FailpointReached):
            shop.run("rates")  # a whole answer has no edge, and is put aside by the plan
        time.sleep(0.4)  # until the leases of the dead runs have run out
        shop.run()

        assert shop.ids() == list(range(1, number + 1)), point
        assert shop.rows("rates") == [("EUR", Decimal(shop.rates["EUR"]))], point
    assert [finding.text for finding in shop.project.verify() if not finding.ok] == []
