"""floodmark inside a Spark application that somebody else has started: spark-submit, Databricks.

`job.py run PROJECT [PIPELINE]...` plans, runs and finalizes in the session of the cluster.
`job.py verify PROJECT` checks the guarantees. Ends with the exit codes of the command line.
"""  # noqa: INP001 a file to copy

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import floodmark as fm


def arguments_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="job.py")
    parser.add_argument("verb", choices=["run", "verify"])
    parser.add_argument("project", help="the folder of floodmark.yaml")
    parser.add_argument("pipelines", nargs="*")
    return parser.parse_args(words)


def run(folder: str, pipelines: Sequence[str], session: Callable[[], Any]) -> int:
    """Everything that is new; `session` is asked only if there is something to run."""
    project = fm.Project(fm.Project.load(folder).file, session=session)
    summary = project.run(*pipelines)
    for outcome in summary.outcomes:
        print(outcome.name, outcome.batch_id, outcome.status, outcome.error or "")  # noqa: T201
    for error in summary.refused:
        print(error, file=sys.stderr)  # noqa: T201
    return summary.exit_code


def verify(folder: str) -> int:
    problems = [finding for finding in fm.Project.load(folder).verify() if not finding.ok]
    for finding in problems:
        print(finding.name, finding.text, finding.next or "")  # noqa: T201
    return 1 if problems else 0


def cluster_session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("floodmark").getOrCreate()


def main(words: Sequence[str] | None = None) -> int:
    said = arguments_of(words)
    if said.verb == "verify":
        return verify(said.project)
    return run(said.project, said.pipelines, cluster_session)


if __name__ == "__main__":
    code = main()
    if code:  # a notebook server may take any SystemExit for a failure, also that of 0
        sys.exit(code)
