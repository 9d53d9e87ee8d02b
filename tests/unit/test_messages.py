"""Messages are not data: no code reads a text that was made for people, to decide or to change it.

What a text is made of are values: fields of an error, parts of a next step. Texts of foreign
software may be read where it tells in no other way, in the one place of that software.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "floodmark"
FOREIGN = {
    "deltalog/delta_rs.py": "delta-rs",
    "streaming/records/plain_json.py": "Arrow: the row that a parser stopped at",
}
"""Where the text of an exception is looked into, and whose it is."""
READING = {
    "casefold",
    "count",
    "endswith",
    "find",
    "index",
    "lower",
    "partition",
    "removeprefix",
} | {
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rpartition",
    "rsplit",
    "split",
    "startswith",
    "translate",
    "upper",
}
MATCHING = {"findall", "finditer", "fullmatch", "match", "search", "sub"}
MADE = {"allowed", "found", "next", "title", "where"}
"""Fields of errors and of findings whose texts are made for people."""
COMMAND = re.compile(
    r"\bfloodmark (?:stream|state|jars|run|retry|plan|verify|validate|status|refresh|$|[ ,;])"
)


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text("utf-8"))


def raised(tree: ast.AST) -> set[str]:
    """The names that exceptions have in a file."""
    return {
        node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name
    }


def is_message(node: ast.AST, errors: set[str]) -> bool:
    """A text of an error, or the whole error as a text."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            return attr in MADE and (name in errors or name in {"finding", "failure", "problem"})
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[inner]):
            is_error = isinstance(inner, ast.Name) and inner.id in errors
            return is_error or is_message(inner, errors)
        case _:
            return False


def read(tree: ast.AST) -> Iterator[int]:
    """The lines in which a message is taken apart, matched or looked into."""
    errors = raised(tree) | {"error"}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in READING:
                is_read = is_message(value, errors)
            case ast.Call(func=ast.Attribute(attr=attr), args=arguments) if attr in MATCHING:
                is_read = any(is_message(each, errors) for each in arguments)
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
                is_read = is_message(value, errors)
            case _:
                is_read = False
        if is_read and isinstance(node, ast.expr):
            yield node.lineno


def written(node: ast.AST) -> str:
    return "".join(
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def spelled(tree: ast.AST) -> Iterator[int]:
    """The lines in which a next step spells a command in a text, where nobody finds it again."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="next", value=step):
                pass
            case ast.Assign(targets=[ast.Attribute(attr="next")], value=step):
                pass
            case _:
                continue
        texts = (each for each in ast.walk(step) if isinstance(each, ast.JoinedStr | ast.Constant))
        yield from (each.lineno for each in texts if COMMAND.search(written(each)))


def test_no_code_reads_a_message() -> None:
    places = [(name, line) for name, tree in trees() for line in read(tree) if name not in FOREIGN]

    assert places == []


def test_a_command_of_a_next_step_is_a_value() -> None:
    assert [(name, line) for name, tree in trees() for line in spelled(tree)] == []


@pytest.mark.parametrize("name", FOREIGN)
def test_every_place_of_foreign_software_is_one(name: str) -> None:
    text = (SOURCE / name).read_text("utf-8")

    assert "str(error)" in text


@pytest.mark.parametrize(
    "code",
    [
        "error.next.replace('a', 'b')",
        "found = str(error.found).partition(',')",
        "is_late = 'too late' in error.title",
        "try:\n    pass\nexcept ValueError as gone:\n    number = PATTERN.search(str(gone))",
        "finding.next.startswith('floodmark ')",
    ],
)
def test_a_message_that_is_read_is_noticed(code: str) -> None:
    assert list(read(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["No(next=f'or: floodmark retry {b}')", "e.next = 'floodmark run'"]
)
def test_a_command_that_is_spelled_is_noticed(code: str) -> None:
    assert list(spelled(ast.parse(code)))
