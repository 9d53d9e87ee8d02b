"""A merged target is the same wherever its history is cut into batches; on every implementation."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.contract.histories import (
    AT,
    BATCHES,
    VERSIONS,
    Change,
    History,
    drawn,
    left,
    with_rows_older_than_a_delete,
)
from tests.contract.sink_contract import CHANGES, DeltaPlace, Harness, Lake, Place, receipt, window

from floodmark.errors import SinkError
from floodmark.model.window import Window
from floodmark.model.write import WriteSpec

FIELDS = {"history": "long", "id": "long", "value": "string", "n": "long", **CHANGES}
CASES: list[dict[str, Any]] = [
    {"sequence_by": "n", "deletes": "soft"},
    {"sequence_by": "n", "deletes": "apply"},
    {"sequence_by": "n", "deletes": "apply", "strategy": "append_only"},
    {"sequence_by": None, "deletes": "soft"},
]


class CutContract:
    """Subclasses give the fixtures `harness` and `lake`."""

    @pytest.mark.parametrize("options", CASES, ids=lambda o: "-".join(map(str, o.values())))
    def test_any_cut_of_a_history_gives_one_target(
        self, harness: Harness, lake: Lake, options: dict[str, Any], full_size: bool
    ) -> None:
        cases = drawn(3000 if full_size else 300, has_sequence=options["sequence_by"] is not None)
        target = lake / "cut"
        spec = WriteSpec(str(target), "merge", "out", keys=("history", "id"), **options)
        sink = harness.sink(spec, (window("feed", "update", "delete"),))

        for batch in range(BATCHES):
            rows = [
                (h, c.key, c.value, c.n, c.kind, c.version, c.at)
                for h, history in enumerate(cases)
                for c in history.batch(batch)
            ]
            result = sink.write(harness.frame(rows, FIELDS, parts=2), receipt(batch + 1))
            assert result.metrics["ties"] == "0"

        found: dict[tuple[int, int], Any] = {}
        for row in target.rows():
            deleted = (row.get("is_deleted") or False, row.get("deleted_at"))
            found[row["history"], row["id"]] = (row["value"], row["n"], *deleted)
        wrong = [
            (history, key)
            for h, history in enumerate(cases)
            for key in range(1, 3)
            if found.get((h, key)) != shown_of(history, key, options)
            and not is_exception(history, key, options)
        ]
        assert wrong == []
        assert len(cases) > 250

    def test_rows_without_their_versions_are_refused_where_nothing_puts_them_in_order(
        self, harness: Harness, lake: Lake
    ) -> None:
        """A step has left the versions out: one batch of two versions cannot know what two can."""
        target, fields = lake / "lost", {"id": "long", "value": "string"}
        spec = WriteSpec(str(target), "merge", "out", keys=("id",))
        two_versions = (replace(window("feed"), after=5, through=7),)
        one_version = (replace(window("feed"), after=6, through=7),)
        differing, equal = [(1, "a"), (1, "b"), (2, "x")], [(1, "a"), (1, "a"), (2, "x")]

        sink = harness.sink(spec, two_versions)
        with pytest.raises(SinkError) as caught:
            sink.write(harness.frame(differing, fields, parts=2), receipt(1))
        exists = has_table(target)
        sink.write(harness.frame(equal, fields, parts=2), receipt(1))
        found = sorted((row["id"], row["value"]) for row in target.rows())
        tied = harness.sink(spec, one_version).write(harness.frame(differing, fields), receipt(2))
        ordered = replace(spec, sequence_by="value")
        harness.sink(ordered, two_versions).write(harness.frame(differing, fields), receipt(3))

        assert caught.value.code == "FM-SINK-036"
        assert "several versions" in caught.value.title
        assert "sequence_by" in str(caught.value.allowed)
        assert not exists
        assert found == [(1, "a"), (2, "x")]
        assert tied.metrics["ties"] == "1"
        assert {row["value"] for row in target.rows()} == {"b", "x"}


def shown_of(history: History, key: int, options: dict[str, Any]) -> Any:
    change = left(
        history,
        sequence=options["sequence_by"] is not None,
        deletes=options["deletes"],
        strategy=options.get("strategy", "upsert"),
    ).get(key)
    if change is None:
        return None
    deleted = (False, None) if change.is_upsert else (True, change.at)
    return change.value, change.n, *deleted


def is_exception(history: History, key: int, options: dict[str, Any]) -> bool:
    """Only of hard deletes: the target has no trace of them that a late row could be compared with."""
    is_hard = options["deletes"] == "apply" and "strategy" not in options
    return is_hard and key in with_rows_older_than_a_delete(history)


class UnionContract:
    """Subclasses give the fixtures `harness` and `lake`."""

    @pytest.fixture
    def upstreams(self, tmp_path: Path) -> tuple[Window, Window]:
        """Two tables whose versions have the same numbers and lie a few seconds apart."""
        windows = []
        for number, name in enumerate(("shop", "web")):
            path = tmp_path / name
            for version in range(VERSIONS + 1):
                write_deltalake(path, pa.table({"id": [version]}), mode="append")
                at = (AT + timedelta(seconds=60 * version + 10 * number)).timestamp()
                os.utime(path / "_delta_log" / f"{version:020}.json", (at, at))
            facts = replace(window("feed", "update", "delete"), upstream=str(path))
            windows.append(replace(facts, after=0, through=VERSIONS))
        return windows[0], windows[1]

    def rows(self, number: int, *changes: Change, history: int = 0) -> list[tuple[Any, ...]]:
        """Rows as a union of the two tables has them; Spark may move a time by a millisecond."""
        return [
            (history, c.key, c.value, c.n, c.kind, c.version, at + timedelta(milliseconds=1))
            for c in changes
            for at in [AT + timedelta(seconds=60 * c.version + 10 * number)]
        ]

    def test_a_key_of_two_upstreams_needs_a_column_that_puts_its_rows_in_order(
        self, harness: Harness, lake: Lake, upstreams: tuple[Window, Window]
    ) -> None:
        spec = WriteSpec(str(lake / "union"), "merge", "out", keys=("history", "id"))
        apart = [
            *self.rows(0, Change(1, "a", 1, "insert", 1), Change(1, "b", 1, "delete", 4)),
            *self.rows(1, Change(2, "a", 1, "insert", 1)),
        ]
        mixed = [*apart, *self.rows(1, Change(1, "c", 1, "insert", 3))]

        sink = harness.sink(spec, upstreams)
        with pytest.raises(SinkError) as caught:
            sink.write(harness.frame(mixed, FIELDS, parts=2), receipt(1))
        # The folder of a Delta table may be there, for the lock file.
        exists = has_table(lake / "union")
        sink.write(harness.frame(apart, FIELDS, parts=2), receipt(1))

        assert caught.value.code == "FM-SINK-036"
        shown = f"{caught.value.found}".replace('" :', '":').replace('": ', '":')
        assert "shop and " in shown
        assert "/web;" in shown
        assert '"id":1' in shown
        assert not exists
        assert [row["id"] for row in (lake / "union").rows()] == [2]

    def test_equal_values_of_two_upstreams_are_ties_and_the_higher_one_wins_else(
        self, harness: Harness, lake: Lake, upstreams: tuple[Window, Window]
    ) -> None:
        spec = WriteSpec(
            str(lake / "tied"), "merge", "out", keys=("history", "id"), sequence_by="n"
        )
        rows = self.rows(0, Change(1, "a", 7, "insert", 1), Change(1, "b", 7, "insert", 2))
        rows += self.rows(0, Change(2, "new", 9, "insert", 1), Change(3, "x", 1, "insert", 2))
        rows += self.rows(1, Change(1, "c", 7, "insert", 1), Change(2, "old", 8, "insert", 5))

        result = harness.sink(spec, upstreams).write(
            harness.frame(rows, FIELDS, parts=2), receipt(1)
        )

        values = {row["id"]: row["value"] for row in (lake / "tied").rows()}
        assert values[1] in {"b", "c"}
        assert (values[2], values[3]) == ("new", "x")
        assert result.metrics["ties"] == "1"
        assert json.loads(result.metrics["tie_example"]) == {"history": 0, "id": 1}
        assert result.metrics["tie_upstreams"] == ", ".join(w.upstream for w in upstreams)

    def test_a_union_is_one_target_wherever_it_is_cut(
        self, harness: Harness, lake: Lake, upstreams: tuple[Window, Window]
    ) -> None:
        cases = drawn(200)
        pairs = list(zip(map(even, cases), map(odd, cases[1:]), strict=False))
        spec = WriteSpec(
            str(lake / "cut"),
            "merge",
            "out",
            keys=("history", "id"),
            sequence_by="n",
            deletes="soft",
        )
        sink = harness.sink(spec, upstreams)

        for batch in range(BATCHES):
            rows = [
                row
                for h, pair in enumerate(pairs)
                for number, history in enumerate(pair)
                for row in self.rows(number, *history.batch(batch), history=h)
            ]
            sink.write(harness.frame(rows, FIELDS, parts=2), receipt(batch + 1))

        found = {
            (r["history"], r["id"]): (r["value"], r["n"], r["is_deleted"])
            for r in (lake / "cut").rows()
        }
        expected = {
            (h, key): (change.value, change.n, not change.is_upsert)
            for h, (one, two) in enumerate(pairs)
            for key, change in left(
                History(one.versions + two.versions, ()), sequence=True, deletes="soft"
            ).items()
        }
        assert found == expected


def has_table(place: Place) -> bool:
    return (
        Path(str(place), "_delta_log").exists() if isinstance(place, DeltaPlace) else place.exists()
    )


def even(history: History) -> History:
    return numbered(history, 0)


def odd(history: History) -> History:
    return numbered(history, 1)


def numbered(history: History, rest: int) -> History:
    """The history without NULLs, with values that the other upstream does not have."""
    versions = [
        tuple(replace(c, n=2 * c.n + rest) for c in version if c.n is not None)
        for version in history.versions
    ]
    return replace(history, versions=tuple(versions))
