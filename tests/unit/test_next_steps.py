"""Next steps: the text is made from parts, and the parts stay."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from floodmark.errors import FloodmarkError, SinkError
from floodmark.next_steps import (
    BATCH,
    RETRY,
    STREAM,
    THEN_RETRY,
    Next,
    aside,
    command,
    filled,
    joined,
    parts_of,
    repeated,
    statement,
)

STEP = "mend it, " + THEN_RETRY + "; or: " + command("retry", BATCH, "--on-lost-range", "accept")


def test_a_step_reads_like_a_text() -> None:
    text = "mend it, then: floodmark retry BATCH; or: floodmark retry BATCH --on-lost-range accept"

    assert (str(STEP), json.dumps(STEP)) == (text, json.dumps(text))


def test_a_step_knows_its_commands() -> None:
    assert STEP.commands == [
        ["floodmark", "retry", "BATCH"],
        ["floodmark", "retry", "BATCH", "--on-lost-range", "accept"],
    ]


def test_a_blank_is_filled_wherever_a_command_has_it() -> None:
    assert filled(STEP, BATCH, "b1") == (
        "mend it, then: floodmark retry b1; or: floodmark retry b1 --on-lost-range accept"
    )


@pytest.mark.parametrize("text", ["retry BATCH", "floodmark stream run"])
def test_words_of_a_text_are_left_alone(text: str) -> None:
    assert filled(filled(text, BATCH, "b1"), STREAM, "s") == text


def test_a_blank_without_a_word_is_left_out() -> None:
    step = command("stream", "run", STREAM, "--serve", "8000")

    assert (step, filled(step, STREAM, "clicks")) == (
        "floodmark stream run --serve 8000",
        "floodmark stream run clicks --serve 8000",
    )


def test_a_word_that_a_shell_would_take_apart_is_quoted() -> None:
    step = command("stream", "reset", "clicks", "--to", '{"t":{"0":5}}')

    assert step == 'floodmark stream reset clicks --to \'{"t":{"0":5}}\''
    assert step.commands[0][-1] == '{"t":{"0":5}}'


def test_what_is_repeated_in_another_way_names_no_command() -> None:
    step = repeated("mend it, " + THEN_RETRY, "then start the stream again")

    assert (step, step.commands) == ("mend it, then start the stream again", [])


def test_what_a_text_is_put_behind_stays_a_step() -> None:
    step = joined([RETRY, statement("SELECT 1")], "; ") + aside("SELECT 2")

    assert step == "floodmark retry BATCH; SELECT 1; SELECT 2"
    assert [type(part).__name__ for part in parts_of(step)] == [
        "Command",
        "str",
        "Statement",
        "Statement",
    ]


@pytest.mark.parametrize(
    ("step", "is_copied"),
    [(RETRY, True), (statement("SELECT 1"), True), ("or: " + RETRY, False), (THEN_RETRY, False)],
)
def test_what_begins_with_a_command_is_to_be_copied(step: Next, is_copied: bool) -> None:
    assert step.is_to_be_copied is is_copied


@pytest.mark.parametrize("again", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))])
def test_a_copy_keeps_its_parts(again: object) -> None:
    assert callable(again)
    assert again(STEP).parts == STEP.parts


def test_an_error_gives_its_commands_through_a_process_boundary() -> None:
    error = SinkError("FM-SINK-005", "no", next=STEP)

    other: FloodmarkError = pickle.loads(pickle.dumps(error))

    assert other.commands == STEP.commands
    assert SinkError("FM-SINK-005", "no", next="mend it").commands == []


def test_machines_get_plain_text() -> None:
    document = SinkError("FM-SINK-005", "no", next=STEP).as_dict()

    assert {type(value) for value in document.values()} == {str, bool}
