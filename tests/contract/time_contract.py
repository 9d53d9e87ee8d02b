"""What every source of time windows promises; run on each implementation by test_time_sources.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyarrow import orc

from floodmark.deltalog import DeltaLog, Storage
from floodmark.errors import PlanError, SourceError
from floodmark.model.clock import epoch_micros
from floodmark.model.marks import TimeMark, TimeType
from floodmark.model.plan import TimeFacts
from floodmark.model.query import Format, TimeQuery
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import TimeWindow
from floodmark.sources import LookSpec, Source
from floodmark.sources.time.probe import probe_time

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=30)
TYPES: dict[TimeType, pa.DataType] = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
FORMATS: list[tuple[Format, TimeType]] = [
    ("parquet", "timestamp"),
    ("parquet", "timestamp_ntz"),
    ("parquet", "date"),
    ("delta", "timestamp"),
    ("delta", "date"),
    ("orc", "timestamp"),
    ("orc", "date"),
]
Change = tuple[int, str, int, int | None]
"""(id, change type, version, commit time in microseconds)."""


@dataclass(frozen=True)
class Harness:
    """A source, and ways to see the rows of its frames."""

    source: Source
    changes_of: Callable[[Any], list[Change]]
    ids_of: Callable[[Any], list[int]]
    columns_of: Callable[[Any], list[str]]


@dataclass
class Folder:
    """An upstream of one format, with a column `at` of one type; numbers stand for its values."""

    path: Path
    format: Format
    type: TimeType
    files: int = 0

    def value(self, number: int) -> datetime | date:
        """Days after the first of March; times differ by a microsecond more each."""
        at = NOON + timedelta(days=number, microseconds=number)
        if self.type == "date":
            return at.date()
        return at if self.type == "timestamp" else at.replace(tzinfo=None)

    def mark(self, number: int) -> TimeMark:
        return TimeMark(self.type, self.value(number))

    def add(self, *rows: tuple[int, int | None], **more: pa.Array) -> None:
        """(id, number) rows, as one file."""
        values = [None if number is None else self.value(number) for _, number in rows]
        ids = pa.array([i for i, _ in rows], pa.int64())
        table = pa.table({"id": ids, "at": pa.array(values, TYPES[self.type]), **more})
        self.path.mkdir(exist_ok=True)
        self.files += 1
        if self.format == "delta":
            write_deltalake(self.path, table, mode="append")
        elif self.format == "parquet":
            pq.write_table(table, self.path / f"{self.files}.parquet")
        else:
            orc.write_table(table, str(self.path / f"{self.files}.orc"))

    def window(self, after: int, start: int | None, end: int | None, **options: Any) -> TimeWindow:
        found = self.mark(end) if end is not None else None
        is_delta = self.format == "delta"
        table_id = DeltaLog(self.path).facts().table_id if is_delta else f"folder:{self.path}"
        return TimeWindow(
            upstream=str(self.path),
            method="query",
            after=after,
            through=options.pop("through", after + 1),
            reason="",
            table_id=table_id,
            query=TimeQuery(options.pop("column", "at"), self.format),
            after_mark=self.mark(start) if start is not None else None,
            through_mark=found,
            end_at=found.instant if found else None,
            **options,
        )


class TimeSourceContract:
    """The promises."""

    @pytest.fixture(params=FORMATS, ids="-".join)
    def up(self, tmp_path: Path, request: pytest.FixtureRequest) -> Folder:
        """Ids are the numbers of their times; two rows share the time 2."""
        folder = Folder(tmp_path / "up", *request.param)
        folder.add((1, 1), (2, 2))
        folder.add((20, 2), (3, 3), (4, 4))
        return folder

    @pytest.fixture
    def parquet(self, tmp_path: Path) -> Folder:
        folder = Folder(tmp_path / "up", "parquet", "timestamp")
        folder.add((1, 1), (2, 2))
        return folder

    def test_a_window_holds_what_follows_its_start_through_its_end(
        self, harness: Harness, up: Folder
    ) -> None:
        window = up.window(4, 1, 3)
        micros = epoch_micros(up.mark(3).instant)

        found = harness.changes_of(harness.source.read(window))

        assert sorted(found) == [(i, "insert", 5, micros) for i in (2, 3, 20)]

    def test_a_first_window_holds_everything_through_its_end(
        self, harness: Harness, up: Folder
    ) -> None:
        frame = harness.source.read(up.window(-1, None, 2))

        assert harness.ids_of(frame) == [1, 2, 20]
        assert harness.columns_of(frame) == [
            "id",
            "at",
            "_change_type",
            "_commit_version",
            "_commit_timestamp",
        ]

    @pytest.mark.parametrize("end", [2, None])
    def test_no_news_is_an_empty_frame_with_its_columns(
        self, harness: Harness, parquet: Folder, end: int | None
    ) -> None:
        frame = harness.source.read(parquet.window(0, end, end, through=0))

        assert (harness.ids_of(frame), len(harness.columns_of(frame))) == ([], 5)

    def test_the_whole_upstream_on_either_side_of_a_window(
        self, harness: Harness, up: Folder
    ) -> None:
        window = up.window(0, 1, 3)
        sides = [harness.ids_of(harness.source.table(window, at)) for at in (-1, 0, 1)]

        assert sides == [[], [1], [1, 2, 3, 20]]

    def test_a_look_finds_what_is_new_and_settled(self, harness: Harness, up: Folder) -> None:
        up.add((5, None), (99, 90))
        window = up.window(0, 1, None, deferred=True)

        found = harness.source.look(window, LookSpec(LATER))

        assert found == TimeFacts(
            type=up.type, newest=up.mark(4), oldest=up.mark(2), rows=4, waiting=1, nulls=1
        )

    def test_a_look_without_spark_sees_the_same(self, harness: Harness, up: Folder) -> None:
        if up.format == "orc":
            return  # nobody else looks into it
        up.add((5, None), (99, 90))
        options = UpstreamOptions(time_column="at")
        for start in (None, 1, 4):
            window = up.window(0, start, None, deferred=True)
            probe = probe_time(str(up.path), window.after_mark, options, LATER, Storage())
            assert harness.source.look(window, LookSpec(LATER)) == probe.time

    def test_a_window_without_an_end_is_not_read(self, harness: Harness, parquet: Folder) -> None:
        window = parquet.window(-1, None, None, deferred=True)
        for read in (harness.source.check, harness.source.read):
            with pytest.raises(SourceError) as caught:
                read(window)
            assert caught.value.code == "FM-SOURCE-011"

    def test_a_column_of_another_type_or_none_is_refused(
        self, harness: Harness, parquet: Folder
    ) -> None:
        other = replace(parquet, type="date").window(-1, None, 2)
        for window in (other, parquet.window(-1, None, 2, column="gone")):
            with pytest.raises(SourceError) as caught:
                harness.source.check(window)
            assert caught.value.code == "FM-SOURCE-007"

    def test_the_case_of_the_column_does_not_matter(
        self, harness: Harness, parquet: Folder
    ) -> None:
        frame = harness.source.read(parquet.window(-1, None, 1, column="AT"))

        assert harness.ids_of(frame) == [1]

    def test_a_column_of_later_files_is_null_before(
        self, harness: Harness, parquet: Folder
    ) -> None:
        parquet.add((3, 3), more=pa.array(["x"]))

        frame = harness.source.read(parquet.window(-1, None, 3))

        assert harness.ids_of(frame) == [1, 2, 3]
        assert harness.columns_of(frame)[:3] == ["id", "at", "more"]

    def test_a_folder_whose_name_looks_like_a_pattern_is_that_folder(
        self, harness: Harness, tmp_path: Path
    ) -> None:
        folder, other = (Folder(tmp_path / n, "parquet", "timestamp") for n in ("up[1]", "up1"))
        folder.add((1, 1))
        other.add((2, 1))

        frame = harness.source.read(folder.window(-1, None, 1))

        assert harness.ids_of(frame) == [1]

    def test_a_file_that_is_being_copied_is_not_there_yet(
        self, harness: Harness, parquet: Folder
    ) -> None:
        """Spark leaves such names out: a plan that counts them moves past their rows."""
        parquet.add((3, 3))
        copied = parquet.path / "2.parquet"
        copied.rename(parquet.path / "2.parquet._COPYING_")
        window = parquet.window(-1, None, None, deferred=True)

        probe = probe_time(
            str(parquet.path), None, UpstreamOptions(time_column="at"), LATER, Storage()
        )

        assert probe.time == harness.source.look(window, LookSpec(LATER))
        assert probe.time is not None
        assert probe.time.newest == parquet.mark(2)
        assert harness.ids_of(harness.source.read(parquet.window(-1, None, 3))) == [1, 2]

    @pytest.mark.parametrize("name", ["at", "day", "Day"])
    def test_a_column_that_file_and_folder_have_is_refused(self, tmp_path: Path, name: str) -> None:
        """Spark takes the value of the folder for that of the file."""
        inner = Folder(tmp_path / "up" / "day=2026-01-05", "parquet", "timestamp")
        (tmp_path / "up").mkdir()
        inner.add((1, 1), **({} if name == "at" else {name: pa.array(["own"])}))
        if name == "at":
            inner.path.rename(tmp_path / "up" / "AT=2026-01-05")

        with pytest.raises(PlanError) as caught:
            probe_time(
                str(tmp_path / "up"), None, UpstreamOptions(time_column="at"), LATER, Storage()
            )

        assert caught.value.code == "FM-PLAN-025"
        assert f"has a column {name}" in str(caught.value.found)

    def test_another_delta_table_in_the_place_is_refused(
        self, harness: Harness, tmp_path: Path
    ) -> None:
        folder = Folder(tmp_path / "up", "delta", "timestamp")
        folder.add((1, 1))
        window = replace(folder.window(-1, None, 1), table_id="another")

        with pytest.raises(SourceError) as caught:
            harness.source.check(window)

        assert caught.value.code == "FM-SOURCE-003"
