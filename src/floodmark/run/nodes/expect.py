"""Expectations of a node: what becomes of rows that do not pass.

A row that breaks several checks has the worst fate of them: fail, quarantine, drop, warn. Counts
come from the one computation of the rows. Where rows are set aside or counted as a whole the frame
is landed first, so that both parts come from the same rows, whatever crashes in between.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from floodmark.config.project import Expectation, NodeSettings
from floodmark.engines.faults import java_errors
from floodmark.errors import RunError
from floodmark.model import WriteSpec
from floodmark.next_steps import then_retry
from floodmark.run.context import Pass
from floodmark.run.nodes import checks
from floodmark.run.nodes.outputs import Output, landed, once, without_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("floodmark")

OBSERVATION_SECONDS = 5.0
REASON, BATCH = "quarantine_reason", "quarantine_batch_id"
"""Columns that a quarantine table has beside those of the rows."""

_FATES = {
    "warn": "warning only; they were written",
    "drop": "they were left out",
    "quarantine": "they were set aside",
}
Marks = Mapping[str, tuple[NodeSettings, int]]
"""What checks that fail inside the plan raise, with their node and number."""


@dataclass
class Checked:
    """The rows of a node after its checks."""

    passed: Output
    quarantined: Output | None = None
    counts: Callable[[], Mapping[int, int | None]] = dict
    """Rows that break each check, by its number; known once the rows were written, else empty."""
    marks: Marks = field(default_factory=dict)


def checked(
    run: Pass, node: NodeSettings, output: Output, name: str, readers: Sequence[WriteSpec]
) -> Checked:
    """The rows that pass, those to set aside, and how to count; nothing runs yet.

    Where they have to land first they do so under `name`, for the writes of `readers`.
    """
    if not node.expect:
        return Checked(output)
    counts_rows = any(check.action != "fail" for check in node.expect)
    must_land = any(c.action == "quarantine" or c.row_count is not None for c in node.expect)
    if must_land or (node.write is None and counts_rows):
        return _landed(run, node, output, name, readers)
    return _in_plan(node, output)


# Inside the plan ----------------------------------------------------------------------------------


def _in_plan(node: NodeSettings, output: Output) -> Checked:
    """Rows are judged while they are written: a check that fails stops the write."""
    token = uuid.uuid4().hex
    marks = {f"floodmark expectation {token} {n}": n for n in _numbers(node.expect, "fail")}
    observed: list[Any] = []

    def make() -> DataFrame:
        frame = checks.flagged(output.make(), node.expect)
        frame = _observed(frame, node.expect, observed)
        return _kept(_guarded(frame, marks), node.expect)

    def counts() -> Mapping[int, int | None]:
        return _observations(observed)

    told = {mark: (node, number) for mark, number in marks.items()}
    return Checked(replace(output, make=make), None, counts, told)


def _guarded(frame: DataFrame, marks: Mapping[str, int]) -> DataFrame:
    """The frame, which raises when a row that breaks one of these checks is computed.

    The condition counts as one that may change from row to row, so that Spark does not move it
    before filters and joins that come first.
    """
    from pyspark.sql import functions as fn

    for mark, number in marks.items():
        stop = fn.raise_error(fn.lit(mark)).cast("boolean")
        here = fn.monotonically_increasing_id() >= 0
        frame = frame.where(fn.when(checks.breaks([number]), stop).otherwise(here))
    return frame


def _observed(frame: DataFrame, expect: Sequence[Expectation], seen: list[Any]) -> DataFrame:
    from pyspark.sql import Observation

    counted = [n for n, check in enumerate(expect) if check.action != "fail"]
    if not counted:
        return frame
    observation = Observation(f"floodmark-{uuid.uuid4().hex}")
    seen[:] = [observation]
    return frame.observe(observation, *checks.sums(counted))


def _observations(seen: Sequence[Any]) -> dict[int, int | None]:
    """What a write that has just ended counted; empty where it did not count."""
    found: dict[str, Any] = {}

    def wait() -> None:
        found.update(seen[0].get)

    # Spark waits for ever for the counts of a plan that it found to be empty before it ran.
    waiting = threading.Thread(target=wait, daemon=True)
    if seen:
        waiting.start()
        waiting.join(OBSERVATION_SECONDS)
    return {int(name.partition("_")[2]): int(count or 0) for name, count in found.items()}


# Landed first -------------------------------------------------------------------------------------


def _landed(
    run: Pass, node: NodeSettings, output: Output, name: str, readers: Sequence[WriteSpec]
) -> Checked:
    def flag() -> DataFrame:
        return checks.flagged(output.make(), node.expect)

    aside = landed(run, name, replace(output, make=flag), readers)
    seen: dict[int, int | None] = {}

    def judge() -> DataFrame:
        frame: DataFrame = aside.make()
        seen.update(checks.counted(frame, node.expect))
        _refuse(run, node, seen)
        return frame

    judged = once(judge)

    def passed() -> DataFrame:
        return _kept(judged(), node.expect)

    def quarantined() -> DataFrame:
        return _reasoned(judged(), node.expect, run.batch.batch_id)

    sets_aside = bool(_numbers(node.expect, "quarantine"))
    aside_for_good = replace(aside, whole=None, standing=None)
    rejected = replace(aside_for_good, make=quarantined) if sets_aside else None
    good = replace(aside_for_good, make=passed)
    return Checked(good, rejected, lambda: dict(seen))


def _refuse(run: Pass, node: NodeSettings, counts: Mapping[int, int | None]) -> None:
    for number, check in enumerate(node.expect):
        if check.action == "fail" and checks.is_broken(check, counts[number]):
            raise broken(run, node, number, _told(check, counts[number]))


def _reasoned(frame: DataFrame, expect: Sequence[Expectation], batch_id: str) -> DataFrame:
    """The rows to set aside, with the checks they break and the batch they came in."""
    from pyspark.sql import functions as fn

    aside = _numbers(expect, "quarantine")
    titles = [fn.when(checks.breaks([n]), fn.lit(checks.title_of(expect[n]))) for n in aside]
    reason = fn.concat_ws("; ", fn.array_compact(fn.array(*titles)))
    rows = frame.where(checks.breaks(aside)).withColumn(REASON, reason)
    return _plain(rows.withColumn(BATCH, fn.lit(batch_id)))


# Both ---------------------------------------------------------------------------------------------


def _kept(frame: DataFrame, expect: Sequence[Expectation]) -> DataFrame:
    gone = [*_numbers(expect, "drop"), *_numbers(expect, "quarantine")]
    rows = frame.where(~checks.breaks(gone)) if gone else frame
    return _plain(rows)


def _plain(frame: DataFrame) -> DataFrame:
    found: DataFrame = without_columns(frame, (checks.BROKEN,))
    return found


def _numbers(expect: Sequence[Expectation], action: str) -> list[int]:
    """The checks of rows with that action."""
    return [n for n, c in enumerate(expect) if c.action == action and c.row_count is None]


def report(run: Pass, node: NodeSettings, counts: Mapping[int, int | None]) -> dict[str, int]:
    """The counts as metrics of the run; what people should look at is logged too."""
    found = {}
    for number, check in enumerate(node.expect):
        count = counts.get(number)
        if count is None:
            continue
        found[f"expect.{node.name}.{checks.title_of(check)}"] = count
        if check.action != "fail" and checks.is_broken(check, count):
            where = f"pipeline {run.pipeline}, node {node.name}"
            log.warning("%s: %s (%s)", where, _told(check, count), _FATES[check.action])
    return found


def _told(check: Expectation, count: int | None) -> str:
    title = checks.title_of(check)
    if check.row_count is not None:
        return f"check {title}: there are {count} rows"
    return f"check {title}: {count} {'row' if count == 1 else 'rows'} failed"


def failed_check(error: BaseException, marks: Marks) -> tuple[NodeSettings, int] | None:
    """The check that stopped a write from inside its plan; None if it was something else."""
    for _, message in java_errors(error) if marks else ():
        for mark, check in marks.items():
            if mark in message:  # the mark is ours, and unique to this frame
                return check
    return None


def broken(run: Pass, node: NodeSettings, number: int, found: str | None = None) -> RunError:
    """The error for a check with action fail that does not hold."""
    check = node.expect[number]
    return RunError(
        "FM-RUN-009",
        f"the rows of node {node.name} do not pass {checks.title_of(check)}",
        where=f"pipeline {run.pipeline}, node {node.name}, expect {number + 1}",
        found=found or "at least one row does not pass",
        allowed="rows that pass, or action warn, drop or quarantine",
        state="nothing was written by this node; a retry skips the nodes that finished",
        next="correct the data or the check, " + then_retry(run.batch.batch_id),
    )
