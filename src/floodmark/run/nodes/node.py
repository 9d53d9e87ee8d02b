"""One node of one run: read, transform, expect, write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from floodmark.config.models import ProjectSettings
from floodmark.config.node_reads import upstream_of
from floodmark.config.nodes import NodeSettings
from floodmark.model.names import connection_of, is_catalog_name
from floodmark.model.receipt import WriteResult
from floodmark.model.window import CURSOR_FORMATS, NOTHING_PROCESSED
from floodmark.model.write import CHANGE_COLUMNS, DELTA, WriteSpec
from floodmark.run.context import Run
from floodmark.run.nodes import expect
from floodmark.run.nodes.databases import began_as_first_run, first_run_write, read_database
from floodmark.run.nodes.outputs import (
    Output,
    committed,
    landed,
    read_by,
    refuse_without_feed,
)
from floodmark.run.nodes.writes import quarantine_of, replaced_anew, write_of
from floodmark.sources.cursors import reader_of
from floodmark.transforms import Step, apply_steps


@dataclass(frozen=True)
class NodeRun:
    """A node with all it needs for one batch."""

    settings: NodeSettings
    project: ProjectSettings
    root: Path
    steps: Sequence[Step]
    run: Run
    inputs: Mapping[str, Any]
    parents: Mapping[str, Output]
    siblings: Mapping[str, NodeSettings]
    children: Sequence[str]
    readers: Sequence[WriteSpec]
    """The writes that its rows go into: its own, or those of the nodes below it."""
    marks: dict[str, tuple[NodeSettings, int]]
    """What checks raise from inside a plan, of all nodes: one without a write fails in another's."""

    def execute(self, metrics: dict[str, object]) -> Output:
        """Do what the node says, and give what the nodes below read; adds to `metrics`.

        1 what it reads, 2 its steps, 3 its checks, 4 its write: only then does anything run.
        """
        # 1.
        source = self._source()
        metrics.update(self._notes())
        # 2.
        made = self._transformed(source)
        spec = write_of(self.settings, self.project)
        if spec is None:
            return self._handed_on(made)
        if self.is_first_run or (replaced_anew(spec) and self._is_loaded_anew(made)):
            spec, made = first_run_write(spec, made)
        if made.whole is not None and not self.run.wrote_before(self.settings.name):
            made = made.whole
        # 3.
        checked = self._checked(made)
        if not _has_log(spec):
            checked = replace(checked, passed=self._kept(checked.passed))
        # 4.
        result = self._write(spec, checked)
        counts = {} if result.already_applied else checked.counts()
        metrics.update(expect.report(self.run, self.settings, counts))
        metrics[f"rows.{self.settings.name}"] = (
            "" if result.rows_written is None else result.rows_written
        )
        if not self.children:
            return checked.passed
        if not _has_log(spec):
            return self._handed_over(checked.passed, made.whole)
        return committed(self.run, self.settings.name, result)

    @cached_property
    def is_first_run(self) -> bool:
        """Whether the node loads everything, by its `first_run_query` if it has one.

        The pipeline has processed nothing of the upstream, and the target is empty, or is to be
        loaded anew.
        """
        upstream = upstream_of(self.settings, self.run.pipeline, self.project)
        spec = write_of(self.settings, self.project)
        if upstream is None or upstream.format not in CURSOR_FORMATS or spec is None:
            return False
        planned = self.run.batch.window_for(
            self.run.pipeline, self.run.window(upstream.name).upstream
        )
        if planned.after_version != NOTHING_PROCESSED or not self.run.batch.is_ordered:
            return False
        has_query = self.settings.write is not None and self.settings.write.first_run_query
        if self.run.loads_anew:
            return bool(has_query) or replaced_anew(spec)
        if not has_query:
            return False
        is_first = self.run.wrote_before(self.settings.name) or self.run.is_empty(spec)
        return is_first or began_as_first_run(self.run, planned.upstream)

    def _is_loaded_anew(self, made: Output) -> bool:
        """Whether the batch loads everything because that was asked for, and these rows are all."""
        run = self.run
        if not run.loads_anew or not run.batch.is_ordered or run.rebuilds:
            return False
        # An upstream that has no news now may have filled the target before.
        begins = all(window.after_version == NOTHING_PROCESSED for window in run.windows)
        return begins and all(window.is_whole for window in made.windows if window.has_news)

    # Input ----------------------------------------------------------------------------------------

    def _source(self) -> Output:
        """The rows that the node is about: what it reads, or those of its first parent."""
        read = self.settings.read
        if read is not None and read.node is not None:
            return self.parents[read.node]
        if read is None:
            return self.parents[self.settings.depends_on[0]]
        upstream = upstream_of(self.settings, self.run.pipeline, self.project)
        assert upstream is not None  # noqa: S101  # what is not run was refused before
        window = self.run.window(upstream.name)
        if window.kind == "cursor":
            return read_database(self.run, window, self.readers, first_run=self.is_first_run)
        return read_by(self.run, window, lambda: self.inputs[upstream.name])

    def _notes(self) -> dict[str, str]:
        """How the rows of a web API were come by: nobody takes an old answer for a new one."""
        upstream = upstream_of(self.settings, self.run.pipeline, self.project)
        if upstream is None or upstream.format != "source":
            return {}
        reader = reader_of(self.run.readers, upstream.name, self.run.pipeline)
        note = getattr(reader, "note", None)
        return {f"source.{self.settings.name}": note} if note else {}

    def _transformed(self, source: Output) -> Output:
        if not self.steps:
            return source
        others = self._others()
        made = self._through(source, others)
        if all(output.whole is None for output in (source, *others.values())):
            return made
        wholes = {name: other.whole or other for name, other in others.items()}
        return replace(made, whole=self._through(source.whole or source, wholes))

    def _through(self, source: Output, others: Mapping[str, Output]) -> Output:
        def make() -> Any:
            frames = {name: other.make() for name, other in others.items()}
            return apply_steps(self.steps, source.make(), others=frames, root=self.root).frame

        above = [source, *others.values()]
        windows = dict.fromkeys(window for output in above for window in output.windows)
        return Output(make, tuple(windows), all(output.is_replayable for output in above))

    def _others(self) -> dict[str, Output]:
        """The other parents, by name, as joins, unions and SQL see them: without change columns.

        The first one, whose rows are the input, is among them if a statement says its name.
        """
        read = self.settings.read
        primary = read.node if read is not None else self.settings.depends_on[0]
        wanted = {name for name in self.parents if name != primary or self._is_said(name)}
        return {name: self._other(name, self.parents[name]) for name in wanted}

    def _is_said(self, name: str) -> bool:
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
        return any(step.sql and word.search(step.sql) for step in self.settings.transform)

    def _other(self, name: str, output: Output) -> Output:
        """A table that is read whole is whole here too, with news or without; it decides nothing."""
        parent = self.siblings[name]
        is_plain = not (parent.write or parent.transform or parent.expect)
        if is_plain and parent.read is not None and parent.read.method == "snapshot":
            upstream = upstream_of(parent, self.run.pipeline, self.project)
            if upstream is not None:
                return Output(lambda: self.run.table(upstream.name), (), is_replayable=True)
        return _without_changes(output)

    # Output ---------------------------------------------------------------------------------------

    def _checked(self, made: Output, suffix: str = "") -> expect.Checked:
        name = f"{self.settings.name}{suffix}"
        checked = expect.checked(self.run, self.settings, made, name, self.readers)
        self.marks.update(checked.marks)
        return checked

    def _handed_on(self, made: Output, suffix: str = "") -> Output:
        """Rows without a write: computed again by every reader, or landed once for all of them."""
        return self._handed_over(self._kept(self._checked(made, suffix).passed, suffix), made.whole)

    def _handed_over(self, output: Output, whole: Output | None) -> Output:
        """The rows with what a first run would see beside them."""
        return replace(output, whole=self._handed_on(whole, ".whole") if whole else None)

    def _kept(self, output: Output, suffix: str = "") -> Output:
        """The rows as the nodes below read them too: landed where a second look may see others."""
        if output.is_replayable or not self.children:
            return output
        return landed(self.run, f"{self.settings.name}{suffix}", output, self.readers)

    def _write(self, spec: WriteSpec, checked: expect.Checked) -> WriteResult:
        if self.children and _has_log(spec) and not self._is_new(spec):
            refuse_without_feed(self.run, spec.name, self._path(spec), list(self.children))
        passed = checked.passed
        try:
            result = self.run.write_spec(spec, passed.make, passed.windows)
        # The boundary to the plan: a check that stopped it is told in the words of the check.
        except Exception as error:
            found = expect.failed_check(error, self.marks)
            if found is None:
                raise
            raise expect.broken(self.run, *found) from error
        if checked.quarantined is not None:
            rejected = checked.quarantined
            self.run.write_spec(quarantine_of(spec), rejected.make, rejected.windows)
        return result

    def _is_new(self, spec: WriteSpec) -> bool:
        """Whether floodmark creates the target; names of a catalog are looked at by the write."""
        return is_catalog_name(spec.target) or not self.run.has_table(spec.target)

    def _path(self, spec: WriteSpec) -> str:
        return self.run.path_of(spec.target)


def _has_log(spec: WriteSpec) -> bool:
    """Whether what a write committed can be read from its target: only Delta has a change feed."""
    return spec.format == DELTA and connection_of(spec.target) is None


def _without_changes(output: Output) -> Output:
    whole = _without_changes(output.whole) if output.whole is not None else None
    return replace(output, make=lambda: _rows_only(output.make()), whole=whole)


def _rows_only(frame: Any) -> Any:
    """The rows that inserts and updates left behind, without the change columns."""
    from floodmark.sinks import changes

    if CHANGE_COLUMNS[0] in frame.columns:
        return changes.upserts(frame)
    return frame.drop(*CHANGE_COLUMNS)
