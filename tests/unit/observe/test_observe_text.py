from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import FloodmarkError
from floodmark.observe.logs import JsonLines, PlainLines
from floodmark.observe.text import visible


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    shown = visible(text)

    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve 日本", "naïve 日本"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\nb\t", "a\\nb\\t"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_controls_are_written_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, None) if error else None
    return logging.LogRecord("floodmark", logging.WARNING, "f", 1, message, (), info)


def test_a_log_line_is_one_line_whatever_it_says() -> None:
    assert PlainLines().format(record("a\nb\x1b")) == "floodmark: warning: a\\nb\\x1b"


def test_json_lines_keep_message_and_traceback() -> None:
    event = json.loads(JsonLines().format(record("a\nb", ValueError("x"))))

    assert event["message"] == "a\nb"
    assert event["level"] == "WARNING"
    assert event["traceback"] == ["ValueError: x"]


def test_the_colours_that_a_library_gives_its_errors_are_no_part_of_ours() -> None:
    told = "Generic S3 error\n \x1b[31m↳\x1b[0m no connection"

    error = FloodmarkError("FM-CLI-001", told, found=told, details={"also": told})

    assert "\x1b" not in str(error)
    assert error.found == "Generic S3 error\n ↳ no connection"


STACK = """o2169.load failed
: org.apache.spark.SparkException: [CANNOT_MERGE_SCHEMAS] Failed merging schemas:
"STRUCT<id: INT>"
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.failed(QueryExecutionErrors.scala:2134)
\tat scala.collection.ArrayOps$.foreach$extension(ArrayOps.scala:1324)
\tat jdk.internal.reflect.GeneratedMethodAccessor65.invoke(Unknown Source)
\t... 12 more
Driver stacktrace:
\tat java.base/java.lang.Thread.run(Thr"""


def test_no_error_shows_a_stack_of_java() -> None:
    error = FloodmarkError("FM-CLI-001", "failed", found=STACK, details={"also": STACK})

    shown = STACK.partition("\n\tat ")[0]
    assert error.found == error.details["also"] == shown
    assert "meet me at noon (12:00)" in str(
        FloodmarkError("FM-CLI-001", "failed", found="meet me at noon (12:00)")
    )
