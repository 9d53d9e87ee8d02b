"""What every sink promises; run on each implementation by test_sinks.py."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
from deltalake import DeltaTable

from floodmark import failpoints
from floodmark.deltalog import DeltaLog
from floodmark.errors import SinkError
from floodmark.model.delta import ChangeKind
from floodmark.model.receipt import Receipt, WriteResult, commit_metadata
from floodmark.model.state import OnLostTarget, SinkDone
from floodmark.model.window import Method, VersionWindow, Window
from floodmark.model.write import CHANGE_COLUMNS, WriteSpec
from floodmark.sinks import RecoverableSink, Sink

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
APP = "floodmark/store/pipe/out/0"
Row = dict[str, Any]


class Implementation(Protocol):
    """What the suite asks of an implementation."""

    def sink(
        self, spec: WriteSpec, windows: tuple[Window, ...], previous: SinkDone | None
    ) -> Sink: ...

    def frame(self, rows: list[tuple[Any, ...]], fields: dict[str, str], parts: int = 1) -> Any:
        """A frame; `fields` are Spark's names of types: long, string, timestamp."""


class Harness:
    """An implementation, with the memory of its writes that the control store keeps in life."""

    def __init__(self, implementation: Implementation) -> None:
        self.implementation = implementation
        self.frame = implementation.frame
        self.memory: dict[tuple[str, str], SinkDone] = {}

    def sink(
        self, spec: WriteSpec, windows: tuple[Window, ...] = (), previous: SinkDone | None = None
    ) -> RememberedSink:
        return RememberedSink(self, spec, windows, previous)


class RememberedSink:
    """Each call is that of a new run: it knows the last write the store was told of."""

    def __init__(
        self,
        harness: Harness,
        spec: WriteSpec,
        windows: tuple[Window, ...],
        previous: SinkDone | None,
    ) -> None:
        self._harness, self._spec, self._windows = harness, spec, windows
        self._previous = previous

    def committed(self, receipt: Receipt) -> WriteResult | None:
        return self._sink(receipt).committed(receipt)

    def check(self, frame: Any, receipt: Receipt) -> None:
        self._sink(receipt).check(frame, receipt)

    def write(self, frame: Any, receipt: Receipt) -> WriteResult:
        result = self._sink(receipt).write(frame, receipt)
        done = SinkDone(
            write_name=self._spec.name,
            app_id=receipt.app_id,
            target=result.target,
            table_id=result.table_id,
            version=result.version,
            rows_written=None,
            seq=receipt.seq,
        )
        self._harness.memory[self._spec.target, receipt.app_id] = done
        return result

    def settle(self, choice: OnLostTarget, receipt: Receipt) -> SinkDone:
        """Settle a loss as a run does: the decision is what the store remembers from now on."""
        next_app_id = receipt.app_id.rpartition("/")[0] + "/1"
        done = self._sink(receipt).resolved(choice, receipt, next_app_id)
        self._harness.memory[self._spec.target, done.app_id] = done
        return done

    def _sink(self, receipt: Receipt) -> RecoverableSink:
        key = (self._spec.target, receipt.app_id)
        previous = self._previous or self._harness.memory.get(key)
        sink = self._harness.implementation.sink(self._spec, self._windows, previous)
        assert isinstance(sink, RecoverableSink)
        return sink


PLAIN = {"id": "long", "name": "string", "n": "long"}
CHANGES = dict(zip(CHANGE_COLUMNS, ("string", "long", "timestamp"), strict=True))


def receipt(seq: int, app_id: str = APP) -> Receipt:
    metadata = commit_metadata("store", f"batch_{seq}", seq, "pipe", {"/up": (1, seq)})
    return Receipt(app_id, seq, metadata)


def window(method: Method = "feed", *changes: ChangeKind, rows: int | None = 3) -> Window:
    return VersionWindow(
        upstream="/up",
        method=method,
        after=-1,
        through=3,
        reason="",
        table_id="u",
        feed_enabled=True,
        schema_fingerprint="f",
        latest_version=3,
        end_at=AT,
        rows=rows,
        changes=frozenset(changes),
    )


class Place(Protocol):
    """A target as an independent reader sees it; `str()` of it is what a write names."""

    def exists(self) -> bool: ...

    def rows(self) -> list[Row]: ...

    def history(self) -> list[dict[str, int]]:
        """The receipts of each commit, oldest first."""

    def lose(self) -> None:
        """Somebody takes rows of ours away, so that the target counts as lost."""

    def empty(self) -> None:
        """Somebody deletes every row."""


class Lake(Protocol):
    """Where the targets of one test are."""

    def __truediv__(self, name: str) -> Place: ...


class DeltaPlace:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def rows(self) -> list[Row]:
        rows: list[Row] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return rows

    def history(self) -> list[dict[str, int]]:
        log = DeltaLog(self.path)
        return [dict(c.transactions) for c in log.versions(0, log.facts().latest_version)]

    def lose(self) -> None:
        DeltaTable(self.path).restore(0)

    def empty(self) -> None:
        DeltaTable(self.path).delete()


class DeltaLake:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __truediv__(self, name: str) -> DeltaPlace:
        return DeltaPlace(self._folder / name)


def rows_of(target: Place) -> list[Row]:
    return sorted(target.rows(), key=lambda row: str(row.get("id")))


def names_of(target: Place) -> dict[int | None, str]:
    return {row["id"]: row["name"] for row in rows_of(target)}


def receipts_of(target: Place) -> dict[str, int]:
    """The last receipt of each app id."""
    return {app_id: seq for commit in target.history() for app_id, seq in commit.items()}


class SinkContract:
    """Subclasses give the fixture `harness`, and `lake` where targets are no Delta tables."""

    @pytest.fixture
    def lake(self, tmp_lake: Path) -> Lake:
        return DeltaLake(tmp_lake)

    @pytest.fixture
    def target(self, lake: Lake) -> Place:
        return lake / "out"

    def spec(self, target: object, mode: Any = "append", **options: Any) -> WriteSpec:
        keys = {"keys": ("id",)} if mode == "merge" else {}
        return WriteSpec(target=str(target), mode=mode, name="out", **{**keys, **options})

    def plain(self, harness: Harness, *rows: tuple[Any, ...]) -> Any:
        return harness.frame(list(rows), PLAIN)

    def changed(self, harness: Harness, *rows: tuple[Any, ...], parts: int = 1) -> Any:
        """Rows of (id, name, n, change type, version)."""
        return harness.frame([(*row, AT) for row in rows], {**PLAIN, **CHANGES}, parts)

    def test_an_append_creates_the_table_with_rows_and_receipt_in_one_commit(
        self, harness: Harness, target: Place
    ) -> None:
        sink = harness.sink(self.spec(target))
        assert sink.committed(receipt(1)) is None

        result = sink.write(self.changed(harness, (1, "a", 1, "insert", 0)), receipt(1))

        assert rows_of(target) == [{"id": 1, "name": "a", "n": 1}]
        assert target.history() == [{APP: 1}]
        assert (result.version, result.rows_written, result.already_applied) == (0, 1, False)

    def test_a_second_write_of_one_receipt_changes_nothing(
        self, harness: Harness, target: Place
    ) -> None:
        sink = harness.sink(self.spec(target))
        first = sink.write(self.plain(harness, (1, "a", 1)), receipt(1))

        again = sink.write(self.plain(harness, (2, "b", 1)), receipt(1))

        assert again.already_applied
        assert (again.version, again.rows_written) == (first.version, first.rows_written)
        assert names_of(target) == {1: "a"}
        known = sink.committed(receipt(1))
        assert known is not None
        assert known.already_applied

    def test_empty_frames_leave_their_receipts(self, harness: Harness, lake: Lake) -> None:
        for mode in ("append", "overwrite", "merge"):
            target = lake / mode
            sink = harness.sink(self.spec(target, mode))

            created = sink.write(self.plain(harness), receipt(1))
            written = sink.write(self.plain(harness), receipt(2))

            assert (created.rows_written, written.rows_written) == (0, 0)
            assert receipts_of(target) == {APP: 2}
            assert written.version == 1
            assert rows_of(target) == []

    def test_an_overwrite_replaces_all_rows(self, harness: Harness, target: Place) -> None:
        sink = harness.sink(self.spec(target, "overwrite"), (window("snapshot"),))
        first = sink.write(self.plain(harness, (1, "a", 1), (2, "b", 1)), receipt(1))

        second = sink.write(self.plain(harness, (3, "c", 1)), receipt(2))

        assert names_of(target) == {3: "c"}
        assert second.table_id == first.table_id
        assert second.rows_written == 1

    def test_an_overwrite_that_keeps_others_replaces_only_what_nobody_else_has_written(
        self, harness: Harness, target: Place
    ) -> None:
        ours = harness.sink(self.spec(target, "overwrite", keeps_others=True))
        others = harness.sink(self.spec(target))

        ours.write(self.plain(harness, (1, "a", 1)), receipt(1))
        ours.write(self.plain(harness, (2, "b", 1)), receipt(2))
        assert names_of(target) == {2: "b"}
        others.write(self.plain(harness, (3, "c", 1)), receipt(3, "floodmark/store/other/out/0"))
        ours.write(self.plain(harness, (4, "d", 1)), receipt(4))

        assert names_of(target) == {2: "b", 3: "c", 4: "d"}

    def test_a_merge_applies_the_last_change_of_each_key(
        self, harness: Harness, target: Place
    ) -> None:
        feed = window("feed", "insert", "update", "delete")
        sink = harness.sink(self.spec(target, "merge"), (feed,))
        first = [(1, "a", 1, "insert", 1), (2, "b", 1, "insert", 1), (3, "c", 1, "insert", 1)]
        first += [(9, "x", 1, "insert", 1), (9, "x", 1, "delete", 2)]
        created = sink.write(self.changed(harness, *first), receipt(1))

        merged = sink.write(
            self.changed(
                harness,
                (1, "a", 1, "update_preimage", 3),
                (1, "a2", 2, "update_postimage", 3),
                (2, "b", 1, "delete", 3),
                (3, "c", 1, "delete", 3),
                (3, "c2", 2, "insert", 4),
                # An update that changes the key 4 -> 5; 4 was never in the target.
                (4, "d", 1, "update_preimage", 4),
                (5, "d", 1, "update_postimage", 4),
                (None, "null", 1, "insert", 4),
            ),
            receipt(2),
        )

        assert created.rows_written == 3
        assert names_of(target) == {1: "a2", 3: "c2", 5: "d", None: "null"}
        assert merged.rows_written == 5
        assert merged.metrics["ties"] == "0"

    def test_a_null_key_is_a_key_like_any_other(self, harness: Harness, target: Place) -> None:
        sink = harness.sink(self.spec(target, "merge"))
        sink.write(self.plain(harness, (None, "a", 1), (1, "b", 1)), receipt(1))

        sink.write(self.plain(harness, (None, "a2", 1)), receipt(2))

        assert names_of(target) == {None: "a2", 1: "b"}

    def test_soft_deletes_keep_the_row_and_say_so(self, harness: Harness, target: Place) -> None:
        sink = harness.sink(self.spec(target, "merge", deletes="soft"))
        first = [(1, "a", 1, "insert", 1), (2, "b", 1, "insert", 1)]
        # Came and went within the batch: the same row as if in two batches.
        first += [(3, "c", 1, "insert", 1), (3, "c", 1, "delete", 2)]
        sink.write(self.changed(harness, *first), receipt(1))

        sink.write(self.changed(harness, (1, "a", 1, "delete", 3)), receipt(2))
        deleted = {r["id"]: (r["is_deleted"], r["deleted_at"]) for r in rows_of(target)}
        sink.write(self.changed(harness, (1, "a2", 1, "insert", 4)), receipt(3))

        assert deleted == {1: (True, AT), 2: (False, None), 3: (True, AT)}
        back = rows_of(target)[0]
        assert back == {"id": 1, "name": "a2", "n": 1, "is_deleted": False, "deleted_at": None}

    def test_ignored_deletes_leave_the_last_row(self, harness: Harness, target: Place) -> None:
        sink = harness.sink(self.spec(target, "merge", deletes="ignore"))
        sink.write(self.changed(harness, (1, "a", 1, "insert", 1)), receipt(1))

        sink.write(
            self.changed(
                harness,
                (1, "a", 1, "delete", 2),
                (2, "b", 1, "insert", 2),
                (2, "b", 1, "delete", 3),
            ),
            receipt(2),
        )

        assert names_of(target) == {1: "a", 2: "b"}

    def test_older_rows_do_not_replace_newer_ones(self, harness: Harness, target: Place) -> None:
        sink = harness.sink(self.spec(target, "merge", sequence_by="n"))
        rows = [(1, "a", 5), (2, "b", 5), (3, "c", 5), (4, "d", None), (5, "old", 1)]
        sink.write(self.plain(harness, *rows, (5, "new", 2)), receipt(1))

        sink.write(
            self.changed(
                harness,
                (1, "late", 4, "update_postimage", 9),
                (2, "same", 5, "update_postimage", 9),
                (3, "c", 4, "delete", 9),
                (4, "first", 1, "update_postimage", 9),
            ),
            receipt(2),
        )

        assert names_of(target) == {1: "a", 2: "same", 3: "c", 4: "first", 5: "new"}

    def test_a_replacement_keeps_to_its_condition_and_happens_once(
        self, harness: Harness, target: Place
    ) -> None:
        spec = self.spec(target, "replace_where", replace_where="n >= 2 -- the large ones")
        sink = harness.sink(spec, (window("snapshot"),))
        with pytest.raises(SinkError) as caught:
            sink.write(self.plain(harness, (1, "a", 1), (2, "b", 2)), receipt(1))
        assert caught.value.code == "FM-SINK-034"
        assert not target.exists() or rows_of(target) == []
        sink.write(self.plain(harness, (2, "b", 2), (3, "c", 3)), receipt(1))
        others = harness.sink(self.spec(target))
        others.write(self.plain(harness, (1, "a", 1)), receipt(1, f"{APP}/others"))

        result = sink.write(self.plain(harness, (2, "b2", 2), (4, "d", 4)), receipt(2))
        again = sink.write(self.plain(harness, (5, "e", 5)), receipt(2))

        assert names_of(target) == {1: "a", 2: "b2", 4: "d"}
        assert (result.rows_written, again.already_applied) == (2, True)
        with pytest.raises(SinkError):
            sink.write(self.plain(harness, (2, "b3", 2), (6, "f", None)), receipt(3))
        assert names_of(target) == {1: "a", 2: "b2", 4: "d"}

    def test_strategies_insert_only_what_is_new_or_delete_only_what_is_matched(
        self, harness: Harness, target: Place
    ) -> None:
        harness.sink(self.spec(target, "merge")).write(
            self.plain(harness, (1, "a", 1), (2, "b", 1), (None, "null", 1)), receipt(1)
        )
        frame = self.changed(
            harness, (1, "a2", 2, "insert", 1), (2, "b", 1, "delete", 1), (3, "c", 1, "insert", 1)
        )

        added = harness.sink(self.spec(target, "merge", strategy="append_only"))
        added.write(frame, receipt(1, f"{APP}/added"))
        between = names_of(target)
        matched = self.plain(harness, (None, "any", 0), (3, "any", 0), (7, "any", 0))
        deleted = harness.sink(self.spec(target, "merge", strategy="delete_match"))
        result = deleted.write(matched, receipt(1, f"{APP}/deleted"))

        assert between == {1: "a", 2: "b", 3: "c", None: "null"}
        assert names_of(target) == {1: "a", 2: "b"}
        assert result.rows_written == 2

    def test_ties_are_counted_named_and_not_decided_by_partitions(
        self, harness: Harness, lake: Lake
    ) -> None:
        rows = [(1, name, 1, "insert", 1) for name in "abcdef"]
        rows += [(2, "z", 1, "insert", 1), (2, "y", 1, "insert", 2)]
        chosen = []

        for number, order in enumerate((rows, rows[::-1])):
            target = lake / str(number)
            frame = self.changed(harness, *order, parts=1 + 2 * number)
            result = harness.sink(self.spec(target, "merge")).write(frame, receipt(1))
            chosen.append(names_of(target))

        assert chosen[0] == chosen[1]
        assert chosen[0][2] == "y"
        assert result.metrics["ties"] == "1"
        assert json.loads(result.metrics["tie_example"]) == {"id": 1}

    def test_missing_rows_of_a_snapshot_are_deleted_or_kept_as_said(
        self, harness: Harness, target: Place
    ) -> None:
        snapshot = (window("snapshot"),)
        first = self.plain(harness, (1, "a", 1), (2, "b", 1))
        harness.sink(self.spec(target, "merge"), snapshot).write(first, receipt(1))
        second = self.plain(harness, (1, "a2", 1))

        with pytest.raises(SinkError) as caught:
            harness.sink(self.spec(target, "merge"), snapshot).write(second, receipt(2))
        keep = harness.sink(self.spec(target, "merge", missing="keep"), snapshot)
        keep.write(second, receipt(2))
        kept = names_of(target)
        delete = harness.sink(self.spec(target, "merge", missing="delete"), snapshot)
        delete.write(second, receipt(3))

        assert caught.value.code == "FM-SINK-004"
        assert kept == {1: "a2", 2: "b"}
        assert names_of(target) == {1: "a2"}

    def test_missing_rows_are_softly_deleted_at_the_time_of_the_snapshot(
        self, harness: Harness, target: Place
    ) -> None:
        spec = self.spec(target, "merge", missing="delete", deletes="soft")
        sink = harness.sink(spec, (window("snapshot"),))
        sink.write(self.plain(harness, (1, "a", 1), (2, "b", 1)), receipt(1))

        sink.write(self.plain(harness, (1, "a", 1)), receipt(2))

        assert {r["id"]: r["deleted_at"] for r in rows_of(target)} == {1: None, 2: AT}

    def test_appended_changes_are_the_latest_or_the_log_as_said(
        self, harness: Harness, lake: Lake
    ) -> None:
        feed = (window("feed", "insert", "update", "delete"),)
        frame = self.changed(
            harness,
            (1, "a", 1, "insert", 1),
            (1, "a", 1, "update_preimage", 2),
            (1, "a2", 1, "update_postimage", 2),
            (2, "b", 1, "update_preimage", 2),
            (3, "c", 1, "delete", 2),
        )
        latest = self.spec(lake / "latest", changes="latest", keys=("id",))
        log = self.spec(lake / "log", changes="log")

        harness.sink(latest, feed).write(frame, receipt(1))
        harness.sink(log, feed).write(frame, receipt(1))

        assert rows_of(lake / "latest") == [{"id": 1, "name": "a2", "n": 1}]
        logged = rows_of(lake / "log")
        assert sorted((r["change_type"], r["change_version"]) for r in logged) == [
            ("delete", 2),
            ("insert", 1),
            ("update_postimage", 2),
            ("update_preimage", 2),
            ("update_preimage", 2),
        ]
        assert {r["change_ts"] for r in logged} == {AT}

    def test_a_refused_write_leaves_no_trace(self, harness: Harness, target: Place) -> None:
        sink = harness.sink(self.spec(target), (window("feed", "delete"),))

        with pytest.raises(SinkError) as caught:
            sink.write(self.changed(harness, (1, "a", 1, "delete", 1)), receipt(1))

        assert caught.value.code == "FM-SINK-001"
        assert not target.exists()

    def test_a_frame_that_does_not_fit_is_refused(self, harness: Harness, target: Place) -> None:
        harness.sink(self.spec(target)).write(self.plain(harness, (1, "a", 1)), receipt(1))
        other = harness.frame([(1, "x")], {"id": "long", "extra": "string"})

        with pytest.raises(SinkError) as caught:
            harness.sink(self.spec(target)).write(other, receipt(2))

        assert caught.value.code == "FM-SINK-011"
        assert caught.value.found == (
            "new columns, not in the target: extra; columns of the target that the rows do not have:"
            " name, n"
        )
        assert len(target.history()) == 1

    def test_names_of_any_kind_are_written_and_merged(
        self, harness: Harness, target: Place
    ) -> None:
        fields = {"Key.x": "long", "select": "string", "a`b": "string", "é": "long"}
        spec = WriteSpec(str(target), "merge", "out", keys=("key.X",), sequence_by="é")
        sink = harness.sink(spec)
        sink.write(harness.frame([(1, "a", "b", 1), (2, "a", "b", 1)], fields), receipt(1))

        sink.write(harness.frame([(1, "c", "d", 2)], fields), receipt(2))

        rows = target.rows()
        assert {r["Key.x"]: (r["select"], r["a`b"]) for r in rows} == {1: ("c", "d"), 2: ("a", "b")}

    def test_a_later_receipt_means_applied_only_if_ours_is_there(
        self, harness: Harness, target: Place
    ) -> None:
        sink = harness.sink(self.spec(target))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(2))
        sink.write(self.plain(harness, (2, "b", 1)), receipt(5))

        known = sink.committed(receipt(2))
        with pytest.raises(SinkError) as caught:
            sink.write(self.plain(harness, (3, "c", 1)), receipt(3))

        assert known is not None
        assert known.version == 0
        assert caught.value.code == "FM-SINK-012"
        assert names_of(target) == {1: "a", 2: "b"}

    def test_a_batch_that_the_store_has_forgotten_is_found_in_the_target(
        self, harness: Harness, target: Place
    ) -> None:
        sink = harness.sink(self.spec(target))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(1))
        before = dict(harness.memory)
        sink.write(self.plain(harness, (2, "b", 1)), receipt(2))
        harness.memory = before  # an older copy of the control store is put back
        same_number = commit_metadata("store", "batch_other", 2, "pipe", {"/up": (1, 9)})

        with pytest.raises(SinkError) as reused:
            sink.write(self.plain(harness, (3, "c", 1)), Receipt(APP, 2, same_number))
        with pytest.raises(SinkError) as later:
            sink.write(self.plain(harness, (3, "c", 1)), receipt(3))

        assert reused.value.code == later.value.code == "FM-SINK-015"
        assert names_of(target) == {1: "a", 2: "b"}

    def test_another_table_in_its_place_is_refused(self, harness: Harness, target: Place) -> None:
        harness.sink(self.spec(target)).write(self.plain(harness, (1, "a", 1)), receipt(1))
        other = SinkDone("out", APP, str(target), "another-id", 0, 1)
        gone = SinkDone("out", APP, str(target) + "-gone", "id", 0, 1)

        for previous in (other, gone):
            spec = self.spec(previous.target)
            with pytest.raises(SinkError) as caught:
                harness.sink(spec, previous=previous).write(
                    self.plain(harness, (2, "b", 1)), receipt(2)
                )
            assert caught.value.code == "FM-SINK-007"
        assert names_of(target) == {1: "a"}

    def test_a_target_that_has_forgotten_our_receipt_is_refused(
        self, harness: Harness, target: Place
    ) -> None:
        sink = harness.sink(self.spec(target))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(1))
        known = harness.memory[str(target), APP]
        harness.memory[str(target), APP] = replace(known, seq=2)

        with pytest.raises(SinkError) as caught:
            sink.write(self.plain(harness, (2, "b", 1)), receipt(3))

        assert caught.value.code == "FM-SINK-017"
        assert names_of(target) == {1: "a"}

    @pytest.mark.parametrize("mode", ["append", "merge"])
    def test_a_rebuilt_target_holds_the_frame_and_nothing_else(
        self, harness: Harness, target: Place, mode: str
    ) -> None:
        sink = harness.sink(self.spec(target, mode))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(1))
        sink.write(self.plain(harness, (2, "b", 1)), receipt(2))
        target.lose()
        frame = self.plain(harness, (1, "a", 1), (2, "b", 1), (3, "c", 1))

        app_id = sink.settle("rebuild", receipt(3)).app_id
        rebuilt = harness.sink(self.spec(target, mode), (window("snapshot"),))
        result = rebuilt.write(frame, receipt(3, app_id))
        again = rebuilt.write(frame, receipt(3, app_id))

        assert names_of(target) == {1: "a", 2: "b", 3: "c"}
        assert len(rows_of(target)) == 3
        assert (result.already_applied, again.already_applied) == (False, True)

    def test_an_accepted_loss_stays_and_later_batches_are_applied(
        self, harness: Harness, target: Place
    ) -> None:
        sink = harness.sink(self.spec(target))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(1))
        sink.write(self.plain(harness, (2, "b", 1)), receipt(2))
        target.empty()

        app_id = sink.settle("accept", receipt(3)).app_id
        sink.write(self.plain(harness, (3, "c", 1)), receipt(3, app_id))

        assert names_of(target) == {3: "c"}

    @pytest.mark.parametrize("mode", ["append", "merge"])
    def test_a_crash_beside_the_commit_is_found_by_the_receipt(
        self, harness: Harness, target: Place, mode: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = harness.sink(self.spec(target, mode))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(1))
        monkeypatch.setenv("FLOODMARK_FAILPOINT_ACTION", "raise")
        frame = self.plain(harness, (2, "b", 1))

        for point, is_there in (("sink.before_commit", False), ("sink.after_commit", True)):
            failpoints.rearm()
            monkeypatch.setenv("FLOODMARK_FAILPOINT", point)
            with pytest.raises(failpoints.FailpointReached):
                sink.write(frame, receipt(2))
            assert (sink.committed(receipt(2)) is not None) == is_there
        monkeypatch.delenv("FLOODMARK_FAILPOINT")
        again = sink.write(frame, receipt(2))

        assert again.already_applied
        assert names_of(target) == {1: "a", 2: "b"}

    def test_threads_keep_their_receipts_apart(self, harness: Harness, lake: Lake) -> None:
        modes = ["append", "merge", "append", "merge"]
        targets = [lake / str(number) for number in range(len(modes))]
        sinks = [
            harness.sink(self.spec(path, mode)) for path, mode in zip(targets, modes, strict=True)
        ]
        frames = [self.plain(harness, (number, "x", 1)) for number in range(len(modes))]

        def work(number: int) -> None:
            for seq in (1, 2):
                sinks[number].write(frames[number], receipt(seq, f"app-{number}"))

        run_together([(work, number) for number in range(len(modes))])

        for number, path in enumerate(targets):
            assert path.history() == [{f"app-{number}": 1}, {f"app-{number}": 2}]

    def test_two_writers_of_one_receipt_leave_one_commit(
        self, harness: Harness, target: Place
    ) -> None:
        results: list[bool] = []
        frames = [self.plain(harness, (1, "a", 1)) for _ in range(3)]

        def work(number: int) -> None:
            sink = harness.sink(self.spec(target))
            results.append(sink.write(frames[number], receipt(1)).already_applied)

        run_together([(work, number) for number in range(3)])

        assert sorted(results) == [False, True, True]
        assert rows_of(target) == [{"id": 1, "name": "a", "n": 1}]


class DeltaSinkContract(SinkContract):
    """What sinks of Delta tables promise beyond that."""

    def test_a_created_table_has_its_feed_partitions_and_metadata(
        self, harness: Harness, target: DeltaPlace
    ) -> None:
        sink = harness.sink(self.spec(target, partition_by=("name",)))

        result = sink.write(self.changed(harness, (1, "a", 1, "insert", 0)), receipt(1))

        log = DeltaLog(target.path)
        facts = log.facts()
        commit = log.versions(0, 0)[0]
        assert facts.feed_enabled
        assert facts.partition_columns == ("name",)
        assert "deletionVectors" not in facts.reader_features
        assert json.loads(commit.user_metadata or "")["floodmark"]["batch_id"] == "batch_1"
        assert result.table_id == facts.table_id

    def test_a_restored_target_is_refused(self, harness: Harness, target: DeltaPlace) -> None:
        sink = harness.sink(self.spec(target))
        sink.write(self.plain(harness, (1, "a", 1)), receipt(1))
        second = sink.write(self.plain(harness, (2, "b", 1)), receipt(2))
        target.lose()
        done = SinkDone("out", APP, str(target), second.table_id, second.version, 1)

        with pytest.raises(SinkError) as again:
            sink.committed(receipt(2))
        with pytest.raises(SinkError) as onward:
            harness.sink(self.spec(target), previous=done).write(
                self.plain(harness, (3, "c", 1)), receipt(3)
            )

        assert again.value.code == onward.value.code == "FM-SINK-009"

    def test_a_target_that_forgets_receipts_is_refused(
        self, harness: Harness, target: DeltaPlace
    ) -> None:
        harness.sink(self.spec(target)).write(self.plain(harness, (1, "a", 1)), receipt(1))
        DeltaTable(target.path).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 1 day"}
        )

        with pytest.raises(SinkError) as caught:
            harness.sink(self.spec(target)).write(self.plain(harness, (2, "b", 1)), receipt(2))

        assert caught.value.code == "FM-SINK-010"
        assert caught.value.next == (
            f"ALTER TABLE delta.`{target}`"
            " UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"
            "; then: floodmark retry BATCH"
        )
        assert names_of(target) == {1: "a"}


def run_together(jobs: list[tuple[Any, int]]) -> None:
    errors: list[BaseException] = []

    def guarded(work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
