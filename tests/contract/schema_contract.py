"""Columns that come, and rows from before they came; on every implementation."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable
from tests.contract.sink_contract import AT, CHANGES, DeltaPlace, Harness, Lake, receipt, window

from floodmark.errors import SinkError
from floodmark.model.write import WriteSpec

OLD = {"id": "long", "m": "string", "v": "long"}
NEW = {"id": "long", "gate": "string", "m": "string", "v": "long"}
WRITES: list[dict[str, Any]] = [
    {"mode": "append"},
    {"mode": "merge", "keys": ("id",)},
    {"mode": "overwrite"},
    {"mode": "replace_where", "replace_where": "m <> 'z'"},
]


def spec_of(place: object, **options: Any) -> WriteSpec:
    return WriteSpec(**{"target": str(place), "name": "out", "adds_columns": True, **options})


def widened(harness: Harness, place: Any, **options: Any) -> list[Any]:
    """The rows of a target after a write with a new column."""
    sink = harness.sink(spec_of(place, **options))
    sink.write(harness.frame([(1, "a", 1), (2, "b", 2)], OLD), receipt(1))
    sink.write(harness.frame([(2, "g2", "b", 3), (4, None, "b", 4)], NEW), receipt(2))
    return sorted((row["id"], row["m"], row["v"], row["gate"]) for row in place.rows())


def expected(options: dict[str, Any]) -> list[Any]:
    kept = {"append": [(1, "a", 1, None), (2, "b", 2, None)], "merge": [(1, "a", 1, None)]}
    return [*kept.get(options["mode"], []), (2, "b", 3, "g2"), (4, "b", 4, None)]


class SchemaContract:
    """Subclasses give the fixtures `harness` and `lake`."""

    @pytest.mark.parametrize("write", WRITES[1:], ids=lambda w: w["mode"])
    def test_new_columns_are_added_by_every_mode(
        self, harness: Harness, lake: Lake, write: dict[str, Any]
    ) -> None:
        assert widened(harness, lake / "wide", **write) == expected(write)

    def test_rows_from_before_a_column_have_null_there_and_that_is_told(
        self, harness: Harness, lake: Lake
    ) -> None:
        place = lake / "wide"
        widened(harness, place, mode="merge", keys=("id",))
        late = harness.frame([(2, "b", 5), (7, "a", 7)], OLD)

        merged = harness.sink(spec_of(place, mode="merge", keys=("id",))).write(late, receipt(3))
        appending = harness.sink(spec_of(place, mode="append"))
        appended = appending.write(
            harness.frame([(8, "a", "d")], {"id": "long", "m": "string", "door": "string"}),
            receipt(1, "floodmark/store/pipe/other/0"),
        )

        rows = {row["id"]: (row["v"], row["gate"], row["door"]) for row in place.rows()}
        assert rows == {
            1: (1, None, None),
            2: (5, None, None),
            4: (4, None, None),
            7: (7, None, None),
            8: (None, None, "d"),
        }
        assert merged.metrics["null_columns"] == "gate"
        assert set(appended.metrics["null_columns"].split(", ")) == {"gate", "v"}

    def test_a_refused_write_adds_no_column(self, harness: Harness, lake: Lake) -> None:
        place = lake / "wide"
        merge = {"mode": "merge", "keys": ("id",), "deletes": "soft"}
        harness.sink(spec_of(place, **merge)).write(harness.frame([(1, "a", 1)], OLD), receipt(1))
        unknown = harness.frame([(2, "g", "b", 2, "upsert", 1, AT)], {**NEW, **CHANGES})

        with pytest.raises(Exception, match=r"not a change type|upsert"):
            harness.sink(spec_of(place, **merge), (window("feed", "update"),)).write(
                unknown, receipt(2)
            )

        assert "gate" not in place.rows()[0]

    def test_what_write_would_refuse_is_refused_by_check_and_nothing_is_written(
        self, harness: Harness, lake: Lake
    ) -> None:
        place = lake / "wide"
        sink = harness.sink(spec_of(place, mode="append", adds_columns=False))
        old, new = harness.frame([(1, "a", 1)], OLD), harness.frame([(2, "g", "b", 2)], NEW)

        sink.check(old, receipt(1))
        sink.write(old, receipt(1))
        with pytest.raises(SinkError) as caught:
            sink.check(new, receipt(2))
        sink.check(new, receipt(1))  # it is there already: there is nothing left to refuse

        assert (caught.value.code, len(place.rows())) == ("FM-SINK-011", 1)


class DeltaSchemaContract(SchemaContract):
    """For sinks that write Delta tables."""

    @pytest.mark.parametrize("write", [WRITES[0], *WRITES[1:2], WRITES[3]], ids=lambda w: w["mode"])
    def test_new_columns_are_added_to_a_partitioned_table(
        self, harness: Harness, lake: Lake, write: dict[str, Any]
    ) -> None:
        place = lake / "wide"

        rows = widened(harness, place, partition_by=("m",), **write)

        assert rows == expected(write)
        assert isinstance(place, DeltaPlace)
        assert DeltaTable(place.path).metadata().partition_columns == ["m"]
