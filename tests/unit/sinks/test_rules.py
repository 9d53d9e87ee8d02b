from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from floodmark.errors import SinkError
from floodmark.model.delta import ChangeKind
from floodmark.model.window import VersionWindow, Window
from floodmark.model.write import CHANGE_COLUMNS, WriteSpec
from floodmark.sinks import rules
from floodmark.sinks.rules import Target

DATA = ("id", "name", "at")
FRAME = (*DATA, *CHANGE_COLUMNS)
EMPTY = Target(exists=False)
OURS = Target(exists=True, table_id="t", columns=DATA, has_rows=True, holds_ours=True)


def spec(mode: Any = "append", **options: Any) -> WriteSpec:
    return WriteSpec(target="/lake/out", mode=mode, name="out", **options)


def feed(*changes: ChangeKind, rows: int | None = 5, versions: int = 2) -> VersionWindow:
    return VersionWindow(
        upstream="/lake/up",
        method="feed",
        after=3,
        through=3 + versions,
        reason="",
        table_id="u",
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=9,
        rows=rows,
        changes=frozenset(changes),
    )


def snapshot(rows: int | None = 5, versions: int = 4) -> VersionWindow:
    return replace(feed(rows=rows), method="snapshot", after=-1, through=versions - 1)


def refused(
    write: WriteSpec,
    *windows: Window,
    columns: tuple[str, ...] = FRAME,
    target: Target = EMPTY,
) -> SinkError:
    with pytest.raises(SinkError) as caught:
        rules.check_write(write, windows, columns, target)
    error = caught.value
    assert error.state is not None
    assert "nothing was written" in error.state
    assert error.next
    return error


def accepted(
    write: WriteSpec,
    *windows: Window,
    columns: tuple[str, ...] = FRAME,
    target: Target = EMPTY,
) -> None:
    rules.check_write(write, windows, columns, target)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "nearest"),
        [
            ({"mode": "merg"}, "merge"),
            ({"mode": "apend"}, "append"),
            ({"changes": "lates"}, "latest"),
            ({"mode": "merge", "keys": ("id",), "missing": "delet"}, "delete"),
            ({"mode": "merge", "keys": ("id",), "deletes": "sofd"}, "soft"),
        ],
    )
    def test_an_unknown_word_is_refused_with_the_nearest(
        self, options: dict[str, Any], nearest: str
    ) -> None:
        error = refused(spec(**options))

        assert error.code == "FM-SINK-005"
        assert error.allowed is not None
        assert f"nearest: {nearest}" in error.allowed

    @pytest.mark.parametrize(
        "options",
        [
            {"mode": "merge"},
            {"mode": "append", "changes": "latest"},
            {"mode": "merge", "keys": ("id", "ID")},
            {"mode": "merge", "keys": ("id",), "changes": "latest"},
            {"mode": "merge", "keys": ("id",), "changes": "log"},
            {"mode": "merge", "keys": ("id",), "missing": "delete", "deletes": "ignore"},
            {"mode": "merge", "keys": ("id",), "allow_full": True},
            {"mode": "append", "keys": ("id",)},
            {"mode": "append", "missing": "keep"},
            {"mode": "append", "deletes": "soft"},
            {"mode": "append", "sequence_by": "at"},
            {"mode": "append", "allow_partial": True},
            {"mode": "overwrite", "allow_full": True},
        ],
    )
    def test_options_that_do_not_go_together_are_refused(self, options: dict[str, Any]) -> None:
        assert refused(spec(**options)).code == "FM-SINK-005"


class TestColumns:
    @pytest.mark.parametrize(
        "options",
        [
            {"mode": "merge", "keys": ("nam",)},
            {"mode": "merge", "keys": ("id",), "sequence_by": "nme"},
            {"mode": "append", "partition_by": ("nane",)},
        ],
    )
    def test_an_unknown_column_is_refused_with_the_nearest(self, options: dict[str, Any]) -> None:
        error = refused(spec(**options))

        assert error.code == "FM-SINK-005"
        assert error.allowed is not None
        assert error.allowed.endswith("nearest: name")

    def test_a_change_column_is_no_key(self) -> None:
        assert refused(spec("merge", keys=("_commit_version",))).code == "FM-SINK-005"

    def test_a_key_may_differ_by_case(self) -> None:
        accepted(spec("merge", keys=("ID",)))

    def test_columns_that_differ_only_by_case_are_refused(self) -> None:
        assert refused(spec(), columns=("id", "ID")).code == "FM-SINK-011"

    @pytest.mark.parametrize(
        ("write", "column"),
        [
            (spec("merge", keys=("id",), deletes="soft"), "is_deleted"),
            (spec("merge", keys=("id",), deletes="soft"), "Deleted_At"),
            (spec(changes="log"), "change_type"),
            (spec(), "__floodmark_x"),
        ],
    )
    def test_columns_that_the_sink_adds_are_refused_in_the_frame(
        self, write: WriteSpec, column: str
    ) -> None:
        assert refused(write, columns=(*FRAME, column)).code == "FM-SINK-011"


class TestChanges:
    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    @pytest.mark.parametrize("kind", ["update", "delete"])
    def test_updates_and_deletes_must_be_spoken_of(self, mode: str, kind: ChangeKind) -> None:
        options = {"allow_partial": True} if mode == "overwrite" else {}

        error = refused(spec(mode, **options), feed("insert", kind))

        assert error.code == "FM-SINK-001"
        assert error.found is not None
        assert kind in error.found

    def test_inserts_alone_need_no_word(self) -> None:
        accepted(spec(), feed("insert"))

    def test_a_window_without_news_has_no_changes(self) -> None:
        accepted(spec(), feed("delete", versions=0))

    @pytest.mark.parametrize(
        "write",
        [spec(changes="latest", keys=("id",)), spec(changes="log"), spec(changes="handled")],
    )
    def test_each_way_of_appending_changes_is_accepted(self, write: WriteSpec) -> None:
        accepted(write, feed("insert", "update", "delete"))

    @pytest.mark.parametrize("write", [spec(changes="latest", keys=("id",)), spec(changes="log")])
    def test_ways_that_need_the_change_columns_are_refused_without(self, write: WriteSpec) -> None:
        assert refused(write, feed("update"), columns=DATA).code == "FM-SINK-001"

    def test_handled_needs_no_change_columns(self) -> None:
        accepted(spec(changes="handled"), feed("update"), columns=DATA)

    def test_a_merge_reads_the_changes_itself(self) -> None:
        accepted(spec("merge", keys=("id",)), feed("update", "delete"))

    def test_a_merge_that_lost_the_change_type_must_say_handled(self) -> None:
        error = refused(spec("merge", keys=("id",)), feed("delete"), columns=DATA)

        assert error.code == "FM-SINK-001"
        accepted(spec("merge", keys=("id",), changes="handled"), feed("delete"), columns=DATA)
        accepted(spec("merge", keys=("id",)), feed("insert"), columns=DATA)

    def test_a_merge_needs_the_version_beside_the_type(self) -> None:
        error = refused(spec("merge", keys=("id",)), columns=(*DATA, "_change_type"))

        assert error.code == "FM-SINK-005"


class TestSnapshots:
    def test_a_snapshot_is_not_appended_to_rows_of_ours(self) -> None:
        assert refused(spec(), snapshot(), target=OURS).code == "FM-SINK-002"
        accepted(spec(allow_full=True), snapshot(), target=OURS)
        accepted(spec(), snapshot(), target=replace(OURS, holds_ours=False))
        accepted(spec(), snapshot(), target=replace(OURS, has_rows=False))
        accepted(spec(), snapshot(versions=0), target=OURS)
        accepted(spec(), feed("insert"), target=OURS)

    def test_changes_do_not_overwrite_a_whole_target(self) -> None:
        assert refused(spec("overwrite"), feed("insert")).code == "FM-SINK-003"
        accepted(spec("overwrite", allow_partial=True), feed("insert"))
        accepted(spec("overwrite"), snapshot())
        accepted(spec("overwrite"), snapshot(), feed("insert", versions=0))

    def test_a_merged_snapshot_must_speak_of_missing_rows(self) -> None:
        write = spec("merge", keys=("id",))

        assert refused(write, snapshot(), target=OURS).code == "FM-SINK-004"
        assert refused(write, snapshot(), feed("insert"), target=OURS).code == "FM-SINK-004"
        accepted(write, snapshot(), target=replace(OURS, has_rows=False))
        accepted(write, snapshot(), target=EMPTY)
        accepted(write, feed("insert"), target=OURS)
        accepted(replace(write, missing="keep"), snapshot(), feed("insert"), target=OURS)

    def test_missing_rows_are_not_deleted_by_a_mixed_batch(self) -> None:
        write = spec("merge", keys=("id",), missing="delete")

        assert refused(write, snapshot(), feed("insert"), target=OURS).code == "FM-SINK-013"
        assert refused(write, snapshot(), feed("insert", rows=None)).code == "FM-SINK-013"

    def test_upstreams_without_news_make_a_frame_whole_only_if_that_is_said(self) -> None:
        write = spec("merge", keys=("id",), missing="delete")

        for quiet in (feed(rows=0), feed("insert", versions=0), snapshot(versions=0)):
            assert refused(write, snapshot(), quiet, target=OURS).code == "FM-SINK-013"
            accepted(replace(write, allow_full=True), snapshot(), quiet, target=OURS)

    def test_missing_acts_only_on_snapshots(self) -> None:
        write = spec("merge", keys=("id",), missing="delete")

        assert rules.deletes_missing(write, [snapshot()])
        assert rules.deletes_missing(write, [snapshot(rows=0)])
        assert not rules.deletes_missing(write, [feed("insert")])
        assert not rules.deletes_missing(write, [snapshot(versions=0)])
        assert not rules.deletes_missing(replace(write, missing="keep"), [snapshot()])


class TestTarget:
    def test_a_target_that_forgets_transactions_is_refused(self) -> None:
        forgets = {"delta.setTransactionRetentionDuration": "interval 1 day"}

        error = refused(spec(), target=replace(OURS, properties=forgets))

        assert error.code == "FM-SINK-010"
        assert error.next is not None
        assert "UNSET TBLPROPERTIES" in error.next

    def test_extra_and_absent_columns_are_named(self) -> None:
        error = refused(spec(), columns=("id", "name", "new"), target=OURS)

        assert error.code == "FM-SINK-011"
        assert error.found == (
            "new columns, not in the target: new; columns of the target that the rows do not have: at"
        )

    def test_order_and_case_of_columns_do_not_matter(self) -> None:
        accepted(spec(), columns=("AT", "Name", "id"), target=OURS)

    def test_soft_deletes_need_their_columns_in_an_old_target(self) -> None:
        write = spec("merge", keys=("id",), deletes="soft")

        error = refused(write, target=OURS)

        assert error.code == "FM-SINK-011"
        assert error.found == "new columns, not in the target: is_deleted, deleted_at"
