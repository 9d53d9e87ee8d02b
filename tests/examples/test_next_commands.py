"""Every command that an error, a note or a page tells people to type is there, with its options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import typer.main
import yaml

from floodmark.cli.main import build_app

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

COMMAND = re.compile(
    r"(?:^|[`:;,&] ?|\$ |\bor |\bthen |\bsay |\brun )floodmark ([a-z]+)([^;:,`()\n#&]*)"
)
LATER = {"story", "diag", "ui"}
"""Verbs that the pages name as not there yet."""
PROSE = {"claim", "itself", "journal", "function", "expectation", "creates", "staging", "tests"} | {
    "commits",
    "lets",
    "proves",
    "write",
}
"""Words that follow the name where it is no command."""


NAMED = {
    "BATCH": "X",
    "STREAM": "X",
    "RETRY": "floodmark retry X",
    "THEN_RETRY": "then: floodmark retry X",
}
"""Parts of next steps that have names."""
MAKERS = {"command": "floodmark", "then_retry": "then: floodmark retry"}
"""What makes a part of a next step, and what the text of the part begins with."""


def text_of(node: ast.AST) -> str:
    """A string, or a next step, as it is written, with X for what is filled in."""
    if is_made(node):
        return " ".join([MAKERS[node.func.id], *map(text_of, node.args)])
    match node:
        case ast.Constant(value=str() as text):
            written = text
        case ast.JoinedStr(values=values):
            written = "".join(map(text_of, values))
        case ast.BinOp(left=left, right=right):
            written = text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=orelse):
            written = f"{text_of(body)}; {text_of(orelse)}"
        case ast.Name(id=name):
            written = NAMED.get(name, "X")
        case _:
            written = "X"
    return written


def is_made(node: ast.AST) -> TypeGuard[Any]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    return node.func.id in MAKERS


def said_by_errors() -> Iterator[tuple[str, str]]:
    """Every text of the source in which a command stands, whoever shows it."""
    for path in SOURCES:
        for node in whole_texts(ast.parse(path.read_text(encoding="utf-8"))):
            if COMMAND.search(text_of(node)):
                yield f"{path.name}:{node.lineno}", text_of(node)


def whole_texts(node: ast.AST) -> Iterator[Any]:
    """The strings in a tree, not the pieces that they are put together from."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) or is_made(node):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from whole_texts(child)


def said_by_notes() -> Iterator[tuple[str, str]]:
    notes = yaml.safe_load((ROOT / "docs/reference/notes.yaml").read_text(encoding="utf-8"))
    yield from notes["errors"].items()


def problem(words: str, rest: str) -> str | None:
    """What is wrong with a command; None if nothing is."""
    command: Any = typer.main.get_command(build_app())
    for word in [words, *rest.split()]:
        if not hasattr(command, "commands"):
            break
        if word == "X":  # filled in at run time
            return None
        names = word.rstrip(".").split("|")
        if not command.commands.keys() >= set(names):
            return f"no verb {word}"
        command = command.commands[names[0]]
    known = {option for each in command.params for option in each.opts} | {"--help"}
    said = set(re.findall(r"--[a-z-]+", rest))
    if said - known:
        return f"no option {', '.join(sorted(said - known))}"
    needed = [each.opts[0] for each in command.params if each.required and "-" in each.opts[0]]
    left_out = set(needed) - said if said and "--help" not in said else set()
    return f"it needs {', '.join(sorted(left_out))}" if left_out else None


def wrong_commands(text: str) -> list[str]:
    return [
        f"floodmark {verb}{rest}: {found}"
        for verb, rest in COMMAND.findall(text)
        if verb not in LATER | PROSE and (found := problem(verb, rest))
    ]


@pytest.mark.parametrize(("place", "text"), [*said_by_errors(), *said_by_notes()])
def test_what_an_error_says_can_be_typed(place: str, text: str) -> None:
    assert wrong_commands(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_can_be_typed(page: Path) -> None:
    assert wrong_commands(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "floodmark undo",
        "then: floodmark retry X --hard",
        "`floodmark state forget`",
        "floodmark refresh p && floodmark run p --hard",
        "floodmark state reset --yes",
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(text: str) -> None:
    assert wrong_commands(text)


def test_commands_are_found() -> None:
    found = [text for _, text in said_by_errors() if COMMAND.search(text)]

    assert len(found) > 40
