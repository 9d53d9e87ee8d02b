"""What nodes read of databases: put aside once, before anything else uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from floodmark import failpoints
from floodmark.errors import SourceError
from floodmark.model import CursorMark, CursorWindow, Strategy, Window, WriteResult, WriteSpec
from floodmark.model.file_marks import cursor_mark
from floodmark.model.names import short_hash
from floodmark.next_steps import command
from floodmark.run.context import Pass
from floodmark.run.nodes.cursor_ranges import (
    edge_beginning,
    landed_bounds,
    near_bounds,
    older_bounds,
)
from floodmark.run.nodes.outputs import Make, Output, once
from floodmark.sources.cursor import (
    Beginning,
    Bounds,
    CursorReader,
    compared,
    cursor_reader_of,
    told_values,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


FIRST_RUN, LATER_RUN = "first", "later"
"""The ways to read: by the `first_run_query`, or as all other runs do."""


def read_database(
    run: Pass,
    planned: Window,
    readers: Sequence[WriteSpec],
    *,
    first_run: bool,
    keeps_changed: bool = False,
) -> Output:
    """The rows of a window that no window before has applied.

    1 the rows that the window's bounds give are landed, 2 those that the next window will meet
    again are kept as its edge, 3 only then does anybody read them: a retry finds both as they were.
    With `keeps_changed` a row comes again that has changed although its cursor has not.
    """
    window = CursorWindow.of(planned)
    reader = cursor_reader_of(run.reads.readers, window.upstream, run.pipeline)
    # Without a query of its own a first run reads what all runs read. Nodes that share the upstream
    # may differ in what their writes replace: they must not differ in how its rows are read.
    by_own_query = first_run and reader.has_first_run_query
    rows = DatabaseRows(run, reader, window, readers, by_own_query, keeps_changed)
    rows.put_aside()

    def output(make: Make, given: CursorWindow) -> Output:
        return Output(make, (given,), is_replayable=True, has_news=given.has_news)

    is_read_whole = window.reads_every_row
    standing = output(rows.everything, window.whole()) if is_read_whole else None
    first = run.reads.first_window(window)
    if run.reads.rebuilds:
        now = output(lambda: rows.whole(window), window)
    else:
        now = output(rows.fresh, window)
        whole = output(lambda: rows.whole(first), first) if first is not None else None
        now = replace(now, whole=whole)
    return replace(now, standing=standing, is_read_whole=is_read_whole)


def look_up_database(run: Pass, window: Window, readers: Sequence[WriteSpec]) -> Output:
    """All rows of a table or query, landed once for the batch before anybody reads them."""
    reader = cursor_reader_of(run.reads.readers, window.upstream, run.pipeline)

    def land() -> WriteResult:
        name = f"{short_hash(window.upstream)}.lookup"
        version = reader.fingerprint(first_run=False)
        everything = partial(reader.frame, run.spark, None)
        with told_values(window.upstream, run.batch.batch_id):
            return run.landings.land_together(name, LATER_RUN, version, everything, readers=readers)

    written = once(land)

    def make() -> DataFrame:
        frame: DataFrame = run.landings.landed_rows(written())
        return frame

    given = window.whole()
    rows = Output(make, (given,), is_replayable=True, has_news=False)
    return replace(rows, windows=(), standing=rows, is_read_whole=True)


def began_as_first_run(run: Pass, upstream: str) -> bool:
    """Whether an earlier attempt of the batch has put rows of a `first_run_query` aside."""
    reader = cursor_reader_of(run.reads.readers, upstream, run.pipeline)
    version = reader.fingerprint(first_run=True)
    landed = run.landings.has_landed(f"{short_hash(upstream)}.window", FIRST_RUN, version)
    return reader.has_first_run_query and landed


def first_run_write(spec: WriteSpec) -> WriteSpec:
    """The write of a first run: all that the target holds is replaced."""
    changes = spec.changes or "handled"
    if spec.mode == "merge":
        strategy: Strategy = "upsert" if spec.strategy == "delete_match" else spec.strategy
        return replace(spec, changes=changes, missing=None, strategy=strategy, replaces_all=True)
    return replace(
        spec,
        mode="overwrite",
        keys=spec.keys if spec.changes == "latest" else (),
        changes=changes,
        missing=None,
        deletes="apply",
        sequence_by=None,
        allow_full=False,
        allow_partial=True,
        strategy="upsert",
        created_at=None,
        updated_at=None,
        replace_where=None,
        replaces_all=True,
    )


@dataclass(frozen=True)
class DatabaseRows:
    """The rows of one upstream of a database for one run."""

    run: Pass
    reader: CursorReader
    window: CursorWindow
    """As this pass sees it: a rebuild begins at the beginning."""
    readers: Sequence[WriteSpec]
    first_run: bool
    """Whether the `first_run_query` is read: only a node that has the upstream alone has one."""
    keeps_changed: bool = False
    """Whether rows that were applied come again if they have changed: a merge may take them twice."""

    @property
    def planned(self) -> CursorWindow:
        """The window of the batch."""
        window = self.run.batch.window_for(self.run.pipeline, self.window.upstream)
        return CursorWindow.of(window)

    def put_aside(self) -> None:
        """Land the rows of the planned window, and keep its edge; twice is once."""
        if self.planned.has_news and self.planned.is_frozen:
            landed = self._landed
            if self.run.batch.is_ordered and self._has_cursor:
                self._keep_edge(landed)

    # Rows -----------------------------------------------------------------------------------------

    def fresh(self) -> DataFrame:
        """The rows of the window, without those that were applied before; with change columns."""
        window = self.planned
        if not window.has_news or not window.is_frozen:
            return self._shown(self._empty())
        frame = self._rows()
        if self._meets_again and window.method == "lost":
            # What is near the mark is given up; the edge takes it for applied.
            cursor = self.reader.identity(frame.columns).cursor
            assert window.after_mark is not None  # noqa: S101  (what meets rows again begins somewhere)
            frame = frame.where(compared(cursor, window.after_mark, "after"))
        elif self._meets_again:
            from floodmark.sources.cursor import fresh_rows

            edge = self._edge(window.after)
            frame = fresh_rows(frame, edge, self._where, keeps_changed=self.keeps_changed)
        return self._shown(frame)

    def whole(self, first: CursorWindow) -> DataFrame:
        """All rows up to the end of the window, as the window of a first run has them.

        Those of the planned window are the landed ones: so the edge is true for both.
        """
        end = self.planned.through_mark
        if end is None:
            return self._shown(self._empty())
        if self._is_first or not self._has_cursor:
            return self._shown(self._rows())
        if self.planned.has_news:
            frame, part, after = self._rows(), self._bounds, self._landed.target.rpartition("/")[2]
        else:
            frame, part, after = self._applied(end), self._near(end), ""
        older = older_bounds(self.reader, part, first.after_mark)
        if older is None:
            return self._shown(frame)
        rows = self._older(older, after)
        return self._shown(rows.unionByName(frame, allowMissingColumns=True))

    def everything(self) -> DataFrame:
        """All rows of a table without a cursor, with news or without: landed once for the batch."""
        return self._shown(self._rows())

    def _rows(self) -> DataFrame:
        return self._at(self._landed)

    def _older(self, bounds: Bounds, landed_attempt: str) -> DataFrame:
        """What lies before the rows of an attempt, put aside for that attempt."""

        def make() -> DataFrame:
            has_own = self.reader.has_first_run_query
            return self.reader.frame(self.run.spark, bounds, first_run=has_own)

        return self._at(self._land(".".join(filter(None, ("older", landed_attempt))), make))

    def _applied(self, end: CursorMark) -> DataFrame:
        """The rows near the mark that windows before have applied; later ones come later."""
        from floodmark.sources.cursor import applied_rows

        def make() -> DataFrame:
            frame = self.reader.frame(self.run.spark, self._near(end))
            return applied_rows(frame, self._edge(self.planned.through), self._where)

        return self._at(self._land("near", make))

    def _near(self, end: CursorMark) -> Bounds:
        return near_bounds(self.reader, end, self._edge_beginning(self.planned.through))

    def _empty(self) -> DataFrame:
        """No rows, with their columns."""
        mark = self.planned.after_mark
        has_own = self._is_first and self.reader.has_first_run_query
        return self.reader.no_rows(self.run.spark, mark, first_run=has_own)

    def _shown(self, frame: DataFrame) -> DataFrame:
        from floodmark.sources import with_change_columns

        return with_change_columns(frame, self.window)

    # Bounds ---------------------------------------------------------------------------------------

    @property
    def _is_first(self) -> bool:
        return self.planned.is_first

    @property
    def _by_first_query(self) -> bool:
        """Whether the rows are those of the `first_run_query`.

        Of a range that is read once more too, where the query of later runs begins at what the
        target holds now, or needs an earlier mark. Raises FM-SOURCE-030 where there is no other.
        """
        if self.first_run or self.run.batch.is_ordered:
            return self.first_run
        return self.reader.reads_again_by_first_query(has_start=self.planned.after_mark is not None)

    @property
    def _has_cursor(self) -> bool:
        """Without one every window is all rows, and no later window has to know which they were."""
        return not self.planned.reads_every_row

    @property
    def _meets_again(self) -> bool:
        """Whether the window reads rows that windows before it have read."""
        return self.planned.meets_again and self.run.batch.is_ordered

    @cached_property
    def _bounds(self) -> Bounds:
        """Those of the landed rows, as they were when the rows were read."""
        text = self.run.landings.bounds_of(self._landed)
        return self._bounds_now() if text is None else Bounds.decoded(text)

    def _bounds_now(self) -> Bounds:
        """The bounds of rows that are not landed yet, by the settings of today."""
        window = self.planned
        is_after_edge = self._meets_again and window.method != "lost"
        return landed_bounds(
            window,
            self.reader,
            edge=self._edge_beginning(window.after) if is_after_edge else None,
            baseline=cursor_mark(self.run.reads.baseline_of(window)),
            is_first_run=self.first_run,
            is_ordered=self.run.batch.is_ordered,
        )

    def _edge_beginning(self, step: int) -> Beginning | None:
        from floodmark.sources.cursor import beginning_of

        return beginning_of(self._edge(step))

    # Landing and edges ----------------------------------------------------------------------------

    @cached_property
    def _landed(self) -> WriteResult:
        bounds = once(self._bounds_now)

        def make() -> DataFrame:
            between = bounds() if self._has_cursor else None
            frame = self.reader.frame(self.run.spark, between, first_run=self._by_first_query)
            self._refuse_unknowable(frame)
            return frame

        return self._land("window", make, lambda: bounds().encoded() if self._has_cursor else "")

    def _refuse_unknowable(self, frame: DataFrame) -> None:
        """Before rows are put aside, since they are never read again."""
        if self._meets_again and self.planned.method != "lost":
            from floodmark.sources.cursor import refuse_unknowable

            refuse_unknowable(frame, self._edge(self.planned.after), self._where)

    def _land(
        self, part: str, make: Callable[[], DataFrame], bounds: Callable[[], str] = str
    ) -> WriteResult:
        name = f"{short_hash(self.window.upstream)}.{part}"
        way = FIRST_RUN if self._by_first_query else LATER_RUN
        version = self.reader.fingerprint(first_run=self._by_first_query)
        landings, readers = self.run.landings, self.readers
        with told_values(self.window.upstream, self.run.batch.batch_id):
            if not self._has_cursor:
                # Nothing in the plan says which rows these are: all pipelines take those of the
                # first.
                return landings.land_together(name, way, version, make, readers=readers)
            return landings.land_once(name, way, version, make, readers=readers, bounds=bounds)

    def _at(self, written: WriteResult) -> DataFrame:
        frame: DataFrame = self.run.landings.landed_rows(written)
        return frame

    def _keep_edge(self, landed: WriteResult) -> None:

        def make() -> DataFrame:
            from floodmark.sources.cursor import edge_left_by

            frame = self._at(landed)
            identity = self.reader.identity(frame.columns)
            begin = edge_beginning(self.reader, self._bounds)
            is_near = compared(identity.cursor, begin.mark)
            return edge_left_by(frame, identity, is_near, begin).coalesce(1)

        step = self.planned.through
        # One write for each landing: a step may be written again, by a batch that loads all anew.
        made_from = f"{self.run.batch.seq}.{landed.target.rpartition('/')[2]}"
        upstream = self.planned.upstream
        self.run.landings.keep_edge(
            upstream, step, f"edge.{short_hash(upstream)}.{made_from}", make
        )
        failpoints.reached("edge.after_write")

    def _edge(self, step: int) -> DataFrame:
        frame: DataFrame | None = self.run.landings.edge(self.window.upstream, step)
        if frame is None:
            raise self._no_edge(step)
        return frame

    def _no_edge(self, step: int) -> SourceError:
        batch, pipeline = self.run.batch.batch_id, self.run.pipeline
        return SourceError(
            "FM-SOURCE-037",
            "it is not known which rows near the mark were applied",
            where=self._where,
            found=f"the edge of step {step} is gone from the control store, or was never there: the"
            " store was rebuilt, or the pipeline renamed, or others removed its rows and files",
            allowed="the edge that the batch before has left",
            state="nothing was written; the committed watermark stays",
            next="go on strictly after the mark, without late rows: "
            + command("retry", batch, "--on-lost-range", "accept")
            + "; then, to load everything anew: "
            + command("run", "--full-refresh", pipeline),
        )

    @property
    def _where(self) -> str:
        return f"pipeline {self.run.pipeline}, {self.window.upstream}"
