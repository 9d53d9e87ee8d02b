"""Alert rules and dashboard of streams name metrics that there are; the seed's rules are among them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from floodmark.report import metrics
from floodmark.streaming.running.metrics import METRICS

MONITORING = Path(__file__).resolve().parents[3] / "docs/monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "stream-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "stream-dashboard.json").read_text())
# What a runner tells of itself, and what `floodmark metrics` tells of it from outside.
OUTSIDE = {metric.name for metric in metrics.METRICS if metric.labels == ("pipeline_id",)}
KNOWN = {metric.name for metric in METRICS} | OUTSIDE
NAME = re.compile(r"\b(?:etl|floodmark)_[a-z_]+")


def named(expression: str) -> set[str]:
    promql.parse(expression)  # raises where it is no PromQL
    return set(NAME.findall(expression))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert named(rule["expr"])
    assert named(rule["expr"]) <= KNOWN
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}


def test_the_rules_of_the_seed_are_there() -> None:
    alerts = {rule["alert"] for rule in RULES}

    assert {
        "StreamingPipelineStale",
        "BatchTrackerTableLarge",
        "FrequentDuplicateBatches",
    } <= alerts


def test_a_runner_that_is_gone_raises_an_alarm_without_its_help() -> None:
    rules = {rule["alert"]: named(rule["expr"]) for rule in RULES}

    assert rules["StreamingRunnerGone"] == {"floodmark_stream_runner_gone"} <= OUTSIDE
    assert rules["StreamingRunnerUnknown"] == {"floodmark_stream_runner_known"} <= OUTSIDE


def test_the_dashboard_names_metrics_that_there_are_and_shows_most_of_them() -> None:
    expressions = [
        target["expr"].replace("$pipeline", "x")
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]

    shown = set().union(*map(named, expressions))

    assert shown <= KNOWN
    assert len(KNOWN - shown) <= 2
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
