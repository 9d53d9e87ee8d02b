"""The story of `floodmark run`: discover, plan, run, finalize, report.

It stands in the room of projects, not of coordinators or runs, since only a project knows which
pipelines there are and which of them write what others read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from floodmark.model import Batch
from floodmark.project.execution import Execution, Functions
from floodmark.project.order import Order, Unit
from floodmark.project.outcomes import BatchOutcome, RunSummary
from floodmark.project.planning import ScopePlanning
from floodmark.project.run_report import RunReport
from floodmark.project.scope_run import ScopeRun


def run_project(
    order: Order, planning: ScopePlanning, execution: Execution, max_versions: int | None = None
) -> RunSummary:
    """Do everything that was new when the run began.

    1 discover what is new for each unit, 2 plan it as a batch, 3 run the pipelines of the batch,
    4 finalize it, which advances the watermarks, 5 report. A unit is the pipelines of one scope
    that are planned together; units come in levels, those that write a table before those that
    read it. An error stops its unit and those that read from it; the others go on.
    """
    report = RunReport(order)
    terms, watcher = execution.terms, execution.watcher

    def process(scope: ScopeRun) -> None:
        """Batch after batch, until the unit is where its upstreams were at the beginning."""
        with report.failure_of(scope):
            while (planned := scope.batch) is not None:
                done: list[BatchOutcome] = []
                # An older batch that a pipeline has not finished comes before the new one.
                for batch, functions in execution.due(planned, scope.functions(planned), done):
                    # 3. Run
                    outcomes = execution.run_pipelines(batch, functions)
                    # 4. Finalize
                    done.append(execution.finalize(batch, outcomes))
                    report.add(scope, done[-1])
                scope.plan_next()

    units: Sequence[Unit] = order.units
    for _ in order.teams:
        scopes = [
            ScopeRun(each, planning, watcher, max_versions, terms.on_lost_range, terms.loads_anew)
            for each in units
        ]
        # 1. Discover: a wrong name is told before anything has run, also one of a later level.
        for scope in scopes:
            with report.refusal_of(scope):
                scope.discover()
        for level in report.levels(scopes):
            # 2. Plan: one after the other, so that the numbers of batches follow the file.
            for scope in level:
                report.discover_again(scope)
                if scope.has_news:
                    with report.refusal_of(scope):
                        scope.plan()
            # Units of one level read nothing of one another.
            execution.workers.each([partial(process, each) for each in level if each.batch])
            report.take(level)
        # A circle of pipelines, or the first write of a function, may leave units behind.
        units = report.units_behind(scopes, planning.definitions)
        if not units:
            break
    # 5. Report
    return report.summary()


def run_batches(execution: Execution, work: Sequence[tuple[Batch, Functions]]) -> RunSummary:
    """Stages 3 to 5 for batches that are planned: what their pipelines owe comes first."""
    for batch, _ in work:
        execution.watcher.planned(batch)
    # A loss policy applies only to the batches that were named.
    for_debts = execution.without_losses()

    def process(planned: Batch, functions: Functions) -> list[BatchOutcome]:
        done: list[BatchOutcome] = []
        for batch, own in execution.due(planned, functions, done):
            chosen = execution if batch is planned else for_debts
            done.append(chosen.finalize(batch, chosen.run_pipelines(batch, own)))
        return done

    finished = execution.workers.each([partial(process, *each) for each in work])
    return RunSummary([outcome for outcomes in finished for outcome in outcomes])
