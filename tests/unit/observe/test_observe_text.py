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
