"""The alert rules and the dashboard name what there is, and every rule fires when it should."""

from __future__ import annotations

import json
import operator
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import promql_parser as promql
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder
from prometheus_client.parser import text_string_to_metric_families

from floodmark.cli import metrics, work
from floodmark.cli.call import Call, Opening
from floodmark.coordinator import Outside
from floodmark.model.clock import FrozenClock
from floodmark.report.metrics import METRICS

from .conftest import add_version

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "docs/monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
LABELS = {metric.name: {"project", *metric.labels} for metric in METRICS}

Command = Callable[..., Any]
MakeCall = Callable[..., Call]
Labels = dict[str, str]
Vector = list[tuple[Labels, float]]


@dataclass(frozen=True)
class Sample:
    name: str
    labels: Labels
    value: float


def samples_of(text: str) -> list[Sample]:
    families = text_string_to_metric_families(text)
    return [Sample(s.name, dict(s.labels), s.value) for f in families for s in f.samples]


# A small part of PromQL ---------------------------------------------------------------------------

ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "-": operator.sub,
    "*": operator.mul,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "==": operator.eq,
}


def evaluate(expr: Any, samples: list[Sample], now: float) -> Vector | float:
    """The value of an expression; as much of the language as the rules use, and no more."""
    match expr:
        case promql.NumberLiteral():
            return float(expr.val)
        case promql.ParenExpr():
            return evaluate(expr.expr, samples, now)
        case promql.VectorSelector():
            assert not expr.matchers.matchers
            return [(s.labels, s.value) for s in samples if s.name == expr.name]
        case promql.Call() if expr.func.name == "time":
            return now
        case promql.Call() if expr.func.name == "absent":
            return [] if evaluate(expr.args[0], samples, now) else [({}, 1.0)]
        case promql.BinaryExpr():
            left = evaluate(expr.lhs, samples, now)
            right = evaluate(expr.rhs, samples, now)
            return combine(str(expr.op), left, right)
    raise NotImplementedError(str(expr))


def combine(op: str, left: Vector | float, right: Vector | float) -> Vector:
    if op in ("and", "unless"):
        assert isinstance(left, list)
        assert isinstance(right, list)
        others = [labels for labels, _ in right]
        return [pair for pair in left if (pair[0] in others) == (op == "and")]
    if op in COMPARISONS:
        assert isinstance(left, list)
        assert isinstance(right, float)
        return [(labels, value) for labels, value in left if COMPARISONS[op](value, right)]
    if isinstance(left, float):
        assert isinstance(right, list)
        return [(labels, ARITHMETIC[op](left, value)) for labels, value in right]
    assert isinstance(right, float)
    return [(labels, ARITHMETIC[op](value, right)) for labels, value in left]


def alerts(samples: list[Sample], now: datetime) -> dict[str, list[Labels]]:
    """The rules that would become pending, with the labels of what they found."""
    found = {}
    for rule in RULES:
        vector = evaluate(promql.parse(rule["expr"]), samples, now.timestamp())
        assert isinstance(vector, list)
        if vector:
            found[rule["alert"]] = [
                {name: value for name, value in labels.items() if name != "project"}
                for labels, _ in vector
            ]
    return found


# Stories ------------------------------------------------------------------------------------------


class Shop:
    """The shop after a run in which `report` failed, looked at whenever it is wanted."""

    def __init__(
        self, folder: Path, make_call: MakeCall, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._make_call = make_call
        self._capsys = capsys
        self.now = datetime.now(UTC)

    def run(self) -> int:
        return work.run(self._make_call())

    def mend(self) -> None:
        report: Any = self._make_call().project.definitions.functions(["report"])["report"]
        report.__globals__["share"] = lambda part, whole: {"share": part}
        assert self.run() == 0

    def pause(self, pipeline: str) -> None:
        self._make_call().project.coordinator.pause(pipeline)

    def samples(self, *, days_later: float = 0) -> list[Sample]:
        self.now = datetime.now(UTC) + timedelta(days=days_later)
        outside = Outside(clock=FrozenClock(self.now))
        call = self._make_call(as_json=False, opening=Opening(outside=outside))
        self._capsys.readouterr()
        assert metrics.metrics(call) == 0
        return samples_of(self._capsys.readouterr().out)

    def alerts(self, *, days_later: float = 0) -> dict[str, list[Labels]]:
        return alerts(self.samples(days_later=days_later), self.now)

    def upstream(self, scope: str, name: str) -> Labels:
        return {"scope": scope, "upstream": str(self.folder / "lake" / name)}


@pytest.fixture
def failing(shop: Path, arrow_call: MakeCall, capsys: pytest.CaptureFixture[str]) -> Shop:
    made = Shop(shop, arrow_call, capsys)
    assert made.run() == 1
    return made


def test_nothing_fires_where_everything_is_fine(failing: Shop) -> None:
    failing.mend()

    assert failing.alerts() == {}
    # Without news nobody has to succeed.
    assert failing.alerts(days_later=3) == {}


def test_a_failure_is_no_alarm_at_once(failing: Shop) -> None:
    assert set(failing.alerts()) == {
        # pending at once for an upstream that never advanced; its `for` gives the retry time
        "FloodmarkUpstreamHeld",
        "FloodmarkPipelineWithoutSuccess",
    }


def test_two_days_and_three_failures_later_the_alarms_name_who_and_what(failing: Shop) -> None:
    failing.run()
    failing.run()

    orders, report = (
        failing.upstream("nightly", "orders"),
        {"scope": "nightly", "pipeline": "report"},
    )
    assert failing.alerts(days_later=2) == {
        "FloodmarkLagHigh": [orders],
        "FloodmarkUpstreamHeld": [orders],
        "FloodmarkBatchStuck": [{"scope": "nightly"}],
        "FloodmarkPipelineFailing": [report],
        "FloodmarkPipelineWithoutSuccess": [report],
    }


def test_a_paused_pipeline_need_not_succeed(failing: Shop) -> None:
    failing.pause("report")

    assert "FloodmarkPipelineWithoutSuccess" not in failing.alerts(days_later=2)


def test_an_upstream_that_nobody_reads_may_lag(failing: Shop) -> None:
    failing.mend()
    failing.pause("solo")
    add_version(failing.folder / "lake/customers", 7, feed=False)

    found = failing.alerts(days_later=2)

    assert found["FloodmarkLagHigh"] == [failing.upstream("nightly", "customers")]


def test_many_versions_behind(failing: Shop) -> None:
    failing.mend()
    log = failing.folder / "lake/orders/_delta_log"
    for version in range(2, 103):
        shutil.copy(log / f"{1:020d}.json", log / f"{version:020d}.json")

    orders = failing.upstream("nightly", "orders")
    assert failing.alerts() == {"FloodmarkVersionsBehind": [orders]}


def test_an_upstream_that_is_gone_and_one_that_went_back(failing: Shop) -> None:
    failing.mend()
    shutil.rmtree(failing.folder / "lake/orders")
    (failing.folder / f"lake/customers/_delta_log/{1:020d}.json").unlink()

    found = failing.alerts()

    assert found == {
        "FloodmarkLagUnknown": [failing.upstream("nightly", "orders")],
        "FloodmarkUpstreamWentBack": [
            failing.upstream("nightly", "customers"),
            failing.upstream("solo", "customers"),
        ],
    }


def test_a_store_that_is_gone(shop: Path, floodmark: Command) -> None:
    assert floodmark("metrics", "--out", "floodmark.prom").code == 4

    samples = samples_of((shop / "floodmark.prom").read_text())

    assert alerts(samples, datetime.now(UTC)) == {"FloodmarkStoreUnreachable": [{}]}


def test_metrics_that_are_absent_or_old(failing: Shop) -> None:
    failing.mend()
    samples = failing.samples()

    assert alerts([], failing.now) == {"FloodmarkMetricsAbsent": [{}]}
    assert alerts(samples, failing.now + timedelta(minutes=16)) == {"FloodmarkMetricsStale": [{}]}


def test_a_journal_that_nobody_folds(failing: Shop) -> None:
    failing.mend()
    samples = [
        Sample(s.name, s.labels, 1_001.0) if s.name == "floodmark_journal_unfolded_events" else s
        for s in failing.samples()
    ]

    assert alerts(samples, failing.now) == {"FloodmarkUpkeepDue": [{}]}


def test_every_rule_has_a_story() -> None:
    told = set(re.findall(r'"(Floodmark\w+)"', Path(__file__).read_text()))

    assert told == {rule["alert"] for rule in RULES}


# Rules and dashboard as files ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_says_how_bad_it_is_and_where_help_is(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    text = (ROOT / page).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)

    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert re.fullmatch(r"[1-9]\d*[mh]", rule["for"])
    assert page.startswith("docs/operations/")
    assert not anchor or anchor in {h.lower().replace(" ", "-") for h in headings}
    named = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    [*selectors] = selectors_of(promql.parse(rule["expr"]))
    assert rule["annotations"]["summary"]
    assert all(set(named) <= LABELS[selector.name] for selector in selectors)


def expressions() -> Iterator[tuple[str, str]]:
    """Every query of the rules and the dashboard, as Prometheus gets it."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert match
            yield variable["name"], f"count by ({match[2]}) ({match[1]})"


def selectors_of(expr: promql.Expr) -> list[Any]:
    found: list[Any] = []

    def look(each: promql.Expr) -> None:
        if isinstance(each, promql.VectorSelector):
            found.append(each)

    promql.walk(expr, look)
    return found


def test_every_name_is_told_by_a_real_store(failing: Shop) -> None:
    told = {sample.name for sample in failing.samples()}

    named = {
        selector.name for _, expr in expressions() for selector in selectors_of(promql.parse(expr))
    }

    assert named <= told
    # The shop has no streams: tests/services/test_stream_signs.py has some.
    assert told == {name for name, labels in LABELS.items() if "pipeline_id" not in labels}


@pytest.mark.parametrize(("where", "expr"), list(expressions()))
def test_a_query_asks_for_labels_that_are_there(where: str, expr: str) -> None:
    parsed = promql.parse(expr)
    selectors = selectors_of(parsed)
    grouped = {
        label for names in re.findall(r"\bby \(([\w, ]+)\)", expr) for label in names.split(", ")
    }

    for selector in selectors:
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked | grouped <= LABELS[selector.name]
    assert selectors


def test_the_dashboard_can_be_imported_anywhere() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    sources = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]}
    legends = {
        (selector.name, label)
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        for selector in selectors_of(promql.parse(target["expr"]))
    }

    assert DASHBOARD["uid"] == "floodmark-batches"
    assert "id" not in DASHBOARD
    assert list(variables) == ["datasource", "project", "scope", "pipeline"]
    assert variables["datasource"]["type"] == "datasource"
    assert sources == {"${datasource}"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__all"}
    assert used == set(variables)
    assert all(label in LABELS[name] for name, label in legends)


def test_the_panels_do_not_overlap() -> None:
    taken = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


# The guide ----------------------------------------------------------------------------------------

QUERIES = re.findall(
    r"^```sql\n(.*?)^```$",
    (ROOT / "docs/guides/monitoring.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


def answer_of(query: str, control: Path) -> list[dict[str, Any]]:
    builder = QueryBuilder()
    for name in set(re.findall(r"gold\.(\w+)", query)):
        builder = builder.register(name, DeltaTable(str(control / name)))
    rows: list[dict[str, Any]] = pa.table(builder.execute(query.replace("gold.", ""))).to_pylist()
    return rows


def test_the_queries_of_the_guide_answer(failing: Shop) -> None:
    answers = [answer_of(query, failing.folder / "lake/_control") for query in QUERIES]

    assert len(answers) == 4
    by_status, newest, costs, per_day = answers
    assert {(r["scope"], r["status"], r["batches"]) for r in by_status} == {
        ("nightly", "FAILED", 1),
        ("solo", "COMPLETED", 1),
    }
    assert {(r["pipeline_name"], r["status"]) for r in newest} == {
        ("daily", "SUCCESS"),
        ("report", "FAILED"),
        ("solo", "SUCCESS"),
    }
    assert {(r["scope"], Path(r["table_name"]).name, r["retries"]) for r in costs} == {
        ("nightly", "customers", 0),
        ("nightly", "orders", 0),
        ("solo", "customers", 0),
    }
    assert all(r["rows_read"] and r["duration_seconds"] for r in costs)
    assert {(r["pipeline_name"], r["runs"], r["failed"]) for r in per_day} == {
        ("daily", 1, 0),
        ("report", 1, 1),
        ("solo", 1, 0),
    }
