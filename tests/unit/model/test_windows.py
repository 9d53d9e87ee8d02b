"""Windows of each kind: how they are stored, shown and read, and that the text stays what it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.control.events.bodies import Planned, Reset, decode, encode
from floodmark.model.copying import replace
from floodmark.model.cursor_marks import ValueMark
from floodmark.model.file_marks import AnswerMark, AnyMark, FilesMark, any_mark, mark_of_text
from floodmark.model.marks import TimeMark
from floodmark.model.query import (
    EVERY_ROW,
    FILE_LIST,
    WHOLE_ANSWER,
    CursorQuery,
    Query,
    TimeQuery,
    query_of,
)
from floodmark.model.upstream import UpstreamOptions
from floodmark.model.window import (
    NOTHING_PROCESSED,
    AnswerWindow,
    CursorWindow,
    FilesWindow,
    TimeWindow,
    VersionWindow,
    Window,
    window_of,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
TABLE = VersionWindow(
    upstream="/lake/orders",
    method="feed",
    after=3,
    through=7,
    reason="change feed",
    table_id="t",
    schema_fingerprint="f",
    feed_enabled=True,
    latest_version=9,
    rows=4,
    changes=frozenset({"insert"}),
)


def window(query: Query, after: AnyMark | None, through: AnyMark | None, **options: Any) -> Window:
    values = {"after": 0, "through": 1, "method": "query", **options}
    return window_of(
        query,
        upstream="u",
        reason="r",
        table_id="t",
        after_mark=after,
        through_mark=through,
        **values,
    )


TIME = window(TimeQuery("at", "parquet"), None, TimeMark("timestamp", AT))
CURSOR = window(CursorQuery("id", "sql"), ValueMark("int", 9), ValueMark("int", 12))
WHOLE = window(EVERY_ROW, None, TimeMark("timestamp", AT))
LIST = window(FILE_LIST, FilesMark("a", 2), FilesMark("b", 5, defaults=1))
ANSWER = window(WHOLE_ANSWER, AnswerMark("x", 3), AnswerMark("y", 4))
EVERY = (TABLE, TIME, CURSOR, WHOLE, LIST, ANSWER)

# As the version before the types wrote them.
_OF_QUERY = (
    '{"upstream":"u","method":"query","after_version":0,"through_version":1,"reason":"r",'
    '"table_id":"t","feed_enabled":false,"schema_fingerprint":"","latest_version":-1,'
)
STORED = {
    TABLE: '{"upstream":"/lake/orders","method":"feed","after_version":3,"through_version":7,'
    '"reason":"change feed","table_id":"t","feed_enabled":true,"schema_fingerprint":"f",'
    '"latest_version":9,"rows":4,"changes":["insert"]}',
    TIME: _OF_QUERY + '"kind":"time","query":{"column":"at","format":"parquet"},'
    '"end_mark":"{\\"type\\":\\"timestamp\\",\\"value\\":\\"2026-01-02T03:04:05.000006Z\\"}"}',
    CURSOR: _OF_QUERY + '"kind":"cursor","query":{"column":"id","format":"sql"},'
    '"start_mark":"{\\"type\\":\\"int\\",\\"value\\":\\"9\\"}",'
    '"end_mark":"{\\"type\\":\\"int\\",\\"value\\":\\"12\\"}"}',
    WHOLE: _OF_QUERY + '"kind":"cursor","query":{"column":"*","format":"sql"},'
    '"end_mark":"{\\"type\\":\\"timestamp\\",\\"value\\":\\"2026-01-02T03:04:05.000006Z\\"}"}',
    LIST: _OF_QUERY + '"kind":"files","query":{"column":"file","format":"files"},'
    '"start_mark":"{\\"type\\":\\"files\\",\\"value\\":\\"a\\",\\"files\\":2}",'
    '"end_mark":"{\\"type\\":\\"files\\",\\"value\\":\\"b\\",\\"files\\":5,\\"defaults\\":1}"}',
    ANSWER: _OF_QUERY + '"kind":"files","query":{"column":"answer","format":"files"},'
    '"start_mark":"{\\"type\\":\\"files\\",\\"value\\":\\"x\\",\\"records\\":3}",'
    '"end_mark":"{\\"type\\":\\"files\\",\\"value\\":\\"y\\",\\"records\\":4}"}',
}


def test_files_that_changed_are_counted_beside_new_ones() -> None:
    mark = FilesMark("b", 5, again=2)

    assert mark_of_text(mark.encoded()).encoded() == mark.encoded()
    assert mark == FilesMark("b", 5)
    assert isinstance(LIST, FilesWindow)
    shown = LIST.rows_text(FilesMark("a", 5), mark)
    assert shown == "0 new files, 2 changed (5 seen in total)"
    assert LIST.rows_text(mark, mark) == "0 new files (5 seen in total)"


@pytest.mark.parametrize("one", EVERY, ids=lambda one: type(one).__name__)
def test_a_window_is_stored_as_it_always_was_and_comes_back(one: Window) -> None:
    plan = Planned("b", 1, "default", (one,), {"p": (one.upstream,)})

    text = encode(plan)

    assert f'"windows":[{STORED[one]}]' in text
    assert decode("PLAN", text) == plan


def test_the_kinds_of_windows_are_their_types() -> None:
    types = [type(one) for one in EVERY]

    assert types == [
        VersionWindow,
        TimeWindow,
        CursorWindow,
        CursorWindow,
        FilesWindow,
        AnswerWindow,
    ]
    assert [one.kind for one in EVERY] == ["version", "time", "cursor", "cursor", "files", "files"]


def test_marks_that_are_none_are_refused_when_they_are_read() -> None:
    broken = json.loads(encode(Planned("b", 1, "default", (CURSOR,), {})))
    broken["windows"][0]["end_mark"] = "12"

    with pytest.raises(ValueError, match="not a mark"):
        decode("PLAN", json.dumps(broken))


def test_a_reset_to_a_value_is_stored_as_it_always_was() -> None:
    reset = Reset(
        "s", "u", 3, "t", query=TimeQuery("at", "delta"), mark=TimeMark("date", AT.date())
    )

    text = encode(reset)

    assert text == (
        '{"scope":"s","upstream":"u","version":3,"table_id":"t",'
        '"query":{"column":"at","format":"delta"},'
        '"mark":"{\\"type\\":\\"date\\",\\"value\\":\\"2026-01-02\\"}"}'
    )
    assert decode("RESET", text) == reset


def test_a_window_shows_itself_by_the_names_that_people_know() -> None:
    assert repr(CURSOR) == (
        "Window(upstream='u', method='query', after_version=0, through_version=1, reason='r',"
        " table_id='t', feed_enabled=False, schema_fingerprint='', latest_version=-1,"
        " start_at=None, end_at=None, bytes=None, rows=None, changes=frozenset(), kind='cursor',"
        " feed_after_version=None, reload=False, query=Query(column='id', format='sql'),"
        ' start_mark=\'{"type":"int","value":"9"}\', end_mark=\'{"type":"int","value":"12"}\','
        " deferred=False, location=None, warning=None, as_read=False)"
    )
    assert (TABLE.start, TABLE.end, TABLE.start_version, TABLE.end_version) == (4, 7, 4, 7)
    assert (CURSOR.start, CURSOR.end, CURSOR.start_version, CURSOR.end_version) == (1, 1, -1, -1)
    assert (TABLE.after_version, TABLE.through_version, TABLE.status) == (3, 7, "PENDING")


@pytest.mark.parametrize(
    "query",
    [TimeQuery("at", "orc"), CursorQuery("id", "source"), EVERY_ROW, FILE_LIST, WHOLE_ANSWER],
)
def test_a_query_is_read_from_its_spelling(query: Query) -> None:
    assert query_of(*query.spelled) == query
    assert UpstreamOptions(time_column=query.column, format=query.format).as_query() == query


@pytest.mark.parametrize("one", EVERY, ids=lambda one: type(one).__name__)
def test_every_kind_answers_what_others_ask(one: Window) -> None:
    whole, first = one.whole(), one.as_first_run(UpstreamOptions())

    assert (whole.after, whole.after_mark, whole.end) == (NOTHING_PROCESSED, None, one.end)
    assert (first.after, first.after_mark, first.is_whole) == (NOTHING_PROCESSED, None, True)
    assert one.is_frozen
    assert list(one.row_versions())
    assert (one.recorded() is None) == (one.query is None)
    assert type(one).of(one) is one


def test_how_a_range_is_shown() -> None:
    def shown(mark: AnyMark | None) -> str:
        return mark.text if mark else "-"

    assert [one.shown_range(shown) for one in EVERY] == [
        "4-7",
        "to 2026-01-02T03:04:05.000006Z",
        "to 12",
        "to 2026-01-02T03:04:05.000006Z",
        "to 5 files",
        "to 4 records",
    ]
    assert [one.shown_end for one in (TABLE, LIST)] == ["version 7", "5 files"]


def test_rows_that_are_accepted_as_they_are_read_are_those_of_the_window() -> None:
    taken = TABLE.taken_as_read(5)

    assert (taken.rows, taken.method, taken.feed_after_version) == (5, "lost", 3)
    assert taken.taken_as_read(6) is taken


def test_what_sets_the_kinds_apart() -> None:
    assert [one.is_landed for one in EVERY] == [False, False, True, True, False, False]
    assert [one.is_replayable for one in EVERY] == [True, False, False, False, True, True]
    assert [one.reads_every_row for one in EVERY] == [False, False, False, True, False, False]
    assert [one.meets_again for one in EVERY] == [False, False, True, False, False, False]
    assert [one.is_counted for one in EVERY] == [True, False, False, False, False, False]
    assert [one.is_whole for one in EVERY] == [False, False, False, True, False, True]
    assert [one.span() is None for one in EVERY] == [False, False, True, True, True, True]
    assert replace(CURSOR, through=0).meets_again is False
    with pytest.raises(TypeError, match="a TimeWindow, not a CursorWindow"):
        CursorWindow.of(TIME)


def test_no_mark_is_none() -> None:
    assert any_mark(None) is None
