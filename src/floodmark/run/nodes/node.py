"""One node of one run: read, transform, expect, write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from floodmark.config import ResolvedNode
from floodmark.config.project import NodeSettings
from floodmark.errors import RunError
from floodmark.model import WriteResult, WriteSpec
from floodmark.model.names import connection_of, is_catalog_name
from floodmark.model.write_rules import REPLACING, replaced_anew
from floodmark.next_steps import command, then_retry
from floodmark.run.context import Pass
from floodmark.run.lookups import not_frozen
from floodmark.run.nodes import expect
from floodmark.run.nodes.combined import (
    Combination,
    Other,
    adds_rows,
    is_only_unioned,
    names_in_sql,
)
from floodmark.run.nodes.databases import (
    began_as_first_run,
    first_run_write,
    look_up_database,
    read_database,
)
from floodmark.run.nodes.outputs import (
    Output,
    commit_loss,
    committed,
    landed,
    looked_up,
    read_by,
    refuse_without_feed,
)
from floodmark.run.nodes.writes import has_log, quarantine_of
from floodmark.sources import reader_of
from floodmark.transforms import Step


@dataclass(frozen=True)
class NodeRun:
    """A node with all it needs for one batch."""

    node: ResolvedNode
    root: Path
    steps: Sequence[Step]
    run: Pass
    inputs: Mapping[str, Any]
    parents: Mapping[str, Output]
    children: Sequence[str]
    readers: Sequence[WriteSpec]
    """The writes that its rows go into: its own, or those of the nodes below it."""
    sharers: Sequence[WriteSpec]
    """The writes that the rows of all nodes go into that read the same upstream."""
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
        spec = self.node.spec
        if spec is None:
            return self._handed_on(made)
        if self.is_first_run or (replaced_anew(spec) and self._is_loaded_anew(made)):
            spec = first_run_write(spec)
        if made.whole is not None and not self.run.writes.wrote_before(self.node.name):
            made = replace(made.whole, standing=made.standing, is_read_whole=made.is_read_whole)
        made = self._enough_to_replace(spec, made)
        # 3.
        checked = self._checked(made)
        if not has_log(spec):
            checked = replace(checked, passed=self._kept(checked.passed))
        # 4.
        aside = self._aside(spec, made) if checked.quarantined is not None else None
        result = self._write(spec, checked, aside)
        counts = {} if result.already_applied else checked.counts()
        metrics.update(expect.report(self.run, self.node.settings, counts))
        metrics[f"rows.{self.node.name}"] = (
            "" if result.rows_written is None else result.rows_written
        )
        if not self.children:
            return checked.passed
        if not has_log(spec):
            return self._handed_over(checked.passed, made)
        if self.run.reads.accepts_lost_rows and commit_loss(self.run, result):
            return self._handed_over(self._kept(checked.passed), made)
        return committed(self.run, self.node.name, result, made)

    @cached_property
    def is_first_run(self) -> bool:
        """Whether the node loads everything, by its `first_run_query` if it has one.

        The pipeline has processed nothing of the upstream, and the target is empty, or is to be
        loaded anew.
        """
        upstream = self.node.upstream
        spec = self.node.spec
        if upstream is None or not upstream.has_cursor or spec is None:
            return False
        planned = self.run.batch.window_for(
            self.run.pipeline, self.run.reads.window(upstream.name).upstream
        )
        if not planned.is_first or not self.run.batch.is_ordered:
            return False
        write = self.node.settings.write
        has_query = write is not None and write.first_run_query
        if self.run.reads.loads_anew:
            return bool(has_query) or replaced_anew(spec)
        if not has_query:
            return False
        is_first = self.run.writes.wrote_before(self.node.name) or self.run.writes.is_empty(spec)
        return is_first or began_as_first_run(self.run, planned.upstream)

    def _is_loaded_anew(self, made: Output) -> bool:
        """Whether the batch loads everything because that was asked for, and these rows are all."""
        run = self.run
        if not run.reads.loads_anew or not run.batch.is_ordered or run.reads.rebuilds:
            return False
        # An upstream that has no news now may have filled the target before.
        return run.reads.begins and all(
            window.is_whole for window in made.windows if window.has_news
        )

    def _enough_to_replace(self, spec: WriteSpec, made: Output) -> Output:
        """The rows for a write that takes away those which it does not have.

        Where something that is read by changes has no news, what is new is not all there is.
        Raises FM-RUN-011 where a backfill cannot tell what else there is.
        """
        if spec.mode not in REPLACING or spec.allow_partial:
            return made
        if all(window.has_news and window.is_whole for window in made.windows):
            return made
        standing = made.standing
        if standing is not None and all(window.is_whole for window in standing.windows):
            return _with_rows_of(standing, made)
        if any(window.has_news and not window.is_whole for window in made.windows):
            return made  # refused by the rules of the write
        if made.whole is not None:
            return _with_rows_of(made.whole, made)
        if any(not window.is_first for window in made.windows):
            raise self._would_be_emptied(spec)
        return made

    def _would_be_emptied(self, spec: WriteSpec) -> RunError:
        batch = self.run.batch
        return RunError(
            "FM-RUN-011",
            f"a {batch.kind} would replace all rows of a target by none",
            where=f"pipeline {self.run.pipeline}, node {self.node.name}, {spec.target}",
            found=f"mode {spec.mode}, and batch {batch.batch_id} has nothing of what the node reads",
            allowed="merge or append; or method: snapshot in the read of the node",
            state="nothing was written by this node; a retry skips the nodes that finished",
            next="change the node, "
            + then_retry(batch.batch_id)
            + f"; or give the {batch.kind} up: "
            + command("cancel", batch.batch_id),
        )

    # Input ----------------------------------------------------------------------------------------

    def _source(self) -> Output:
        """The rows that the node is about: what it reads, or those of its first parent."""
        if self.node.input_node is not None:
            return self.parents[self.node.input_node]
        upstream = self.node.upstream
        assert upstream is not None  # noqa: S101  # what is not run was refused before
        if self.node.is_lookup:
            return self._looked_up(upstream.name)
        window = self.run.reads.window(upstream.name)
        if window.is_landed:
            return read_database(
                self.run,
                window,
                self.sharers,
                first_run=self.is_first_run,
                keeps_changed=all(spec.is_upsert for spec in self.readers),
            )
        read = self.node.settings.read
        is_asked_for = read is not None and read.method == "snapshot"
        is_read_whole = window.is_read_whole(as_asked=is_asked_for)
        name = upstream.name
        return read_by(
            self.run,
            window,
            lambda: self.inputs[name],
            is_read_whole=is_read_whole,
            # What goes to a database is fetched in pieces, of which Spark tells no observation.
            is_observed=all(connection_of(spec.target) is None for spec in self.readers),
        )

    def _looked_up(self, name: str) -> Output:
        run = self.run
        window = run.reads.lookups.get(name) or run.reads.lookups.get(run.reads.stored_name(name))
        if window is None:
            raise not_frozen(run, name)
        if window.is_landed:
            return look_up_database(run, window, self.readers)
        return looked_up(run, window)

    def _notes(self) -> dict[str, str]:
        """How the rows of a web API were come by: nobody takes an old answer for a new one."""
        upstream = self.node.upstream
        if upstream is None or not upstream.has_cursor:
            return {}
        reader = reader_of(self.run.reads.readers, upstream.name, self.run.pipeline)
        note = getattr(reader, "note", None)
        return {f"source.{self.node.name}": note} if note else {}

    def _transformed(self, source: Output) -> Output:
        if not self.steps:
            return source
        primary = self.node.input_node
        others = {
            name: Other(
                output,
                adds_rows(self.node.settings, name),
                keeps_changes=is_only_unioned(self.node.settings, name),
            )
            for name, output in self.parents.items()
            if name != primary
        }
        is_said = primary is not None and bool(names_in_sql(self.node.settings, [primary]))
        return Combination(source, others, primary if is_said else None, self._applied).output()

    def _applied(self, frame: Any, others: Mapping[str, Any]) -> Any:
        return self.run.reads.transformed(self.steps, frame, others, self.root)

    # Output ---------------------------------------------------------------------------------------

    def _checked(self, made: Output, suffix: str = "") -> expect.Checked:
        name = f"{self.node.name}{suffix}"
        checked = expect.checked(self.run, self.node.settings, made, name, self.readers)
        self.marks.update(checked.marks)
        return checked

    def _handed_on(self, made: Output, suffix: str = "") -> Output:
        """Rows without a write: computed again by every reader, or landed once for all of them."""
        return self._handed_over(self._kept(self._checked(made, suffix).passed, suffix), made)

    def _handed_over(self, output: Output, made: Output) -> Output:
        """The rows with what a first run, and what other nodes would see, beside them."""
        whole, standing = made.whole, made.standing
        return replace(
            output,
            whole=self._handed_on(whole, ".whole") if whole else None,
            standing=self._handed_on(standing, ".standing") if standing else None,
            has_news=made.has_news,
            is_read_whole=made.is_read_whole,
        )

    def _kept(self, output: Output, suffix: str = "") -> Output:
        """The rows as the nodes below read them too: landed where a second look may see others."""
        if output.is_replayable or not self.children:
            return output
        return landed(self.run, f"{self.node.name}{suffix}", output, self.readers)

    def _aside(self, spec: WriteSpec, made: Output) -> WriteSpec:
        """Where the rows go that do not pass."""
        is_anew = self.is_first_run or self._is_loaded_anew(made)
        return quarantine_of(spec, replaces=self.run.reads.loads_anew and is_anew)

    def _write(
        self, spec: WriteSpec, checked: expect.Checked, aside: WriteSpec | None
    ) -> WriteResult:
        if self.children and has_log(spec) and not self._is_new(spec):
            refuse_without_feed(self.run, spec.name, self._path(spec), list(self.children))
        passed, rejected = checked.passed, checked.quarantined
        try:
            if aside is not None and rejected is not None:
                # Before the target has its rows: both are written or neither.
                self.run.writes.check(aside, rejected.make, rejected.windows)
            result = self.run.writes.write(spec, passed.make, passed.windows, passed.counts)
        # The boundary to the plan: a check that stopped it is told in the words of the check.
        except Exception as error:
            found = expect.failed_check(error, self.marks)
            if found is None:
                raise
            raise expect.broken(self.run, *found) from error
        if aside is not None and rejected is not None:
            self.run.writes.write(aside, rejected.make, rejected.windows, rejected.counts)
        return result

    def _is_new(self, spec: WriteSpec) -> bool:
        """Whether floodmark creates the target; names of a catalog are looked at by the write."""
        return is_catalog_name(spec.target) or not self.run.reads.has_table(spec.target)

    def _path(self, spec: WriteSpec) -> str:
        return self.run.reads.path_of(spec.target)


def _with_rows_of(every: Output, made: Output) -> Output:
    """The same output with other rows: all there are, though what is news stays what it was."""
    return replace(
        made,
        make=every.make,
        windows=every.windows,
        is_replayable=every.is_replayable,
        counts=every.counts,
    )
