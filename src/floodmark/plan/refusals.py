"""Requests that cannot be planned, and what to do instead."""

from __future__ import annotations

from typing import get_args

from floodmark.errors import ConfigError, PlanError
from floodmark.model import Settlement
from floodmark.next_steps import command


def nothing_to_plan(scope: str) -> PlanError:
    return PlanError(
        "FM-PLAN-004",
        "there is nothing to plan",
        found=f"no upstream was named and no pipeline is registered in scope {scope}",
        state="nothing was journaled",
        next="name upstreams, or register pipelines first",
    )


def latest_unknown(upstream: str) -> PlanError:
    return PlanError(
        "FM-PLAN-021",
        f"what is latest in {upstream} cannot be known here",
        found="a baseline of latest, and a format that only Spark looks into",
        allowed="a time as baseline, or a coordinator with a Spark session",
        state="nothing was journaled",
        next="register it once with a session: fm.Coordinator(..., spark=spark)",
    )


def type_unknown(upstream: str) -> PlanError:
    return PlanError(
        "FM-PLAN-021",
        f"of which type the values of {upstream} are cannot be known here",
        found="nothing of it is processed yet, and only Spark looks into its format",
        allowed="a coordinator with a Spark session; or a baseline in floodmark.yaml",
        state="nothing was changed",
        next="say where to begin as baseline of the upstream, then: " + command("run"),
    )


def refuse_unknown_fallback(choice: str | None) -> None:
    """The one weaker rule for watermarks, or none."""
    if choice not in (None, "any_success"):
        raise ConfigError(
            "FM-CONFIG-007",
            f"there is no fallback {choice!r}",
            rule="unknown_choice",
            allowed="any_success, or nothing",
            state="nothing was planned",
            next="correct the call",
        )


def refuse_unknown_settlement(choice: str | None) -> None:
    """A lost range is settled by a snapshot or accepted; raises FM-CONFIG-007."""
    if choice not in (None, *get_args(Settlement)):
        raise ConfigError(
            "FM-CONFIG-007",
            f"on_lost_range is {choice!r}",
            rule="unknown_choice",
            allowed="snapshot, accept, or None",
            state="nothing was read or written",
            next="correct the call",
        )
