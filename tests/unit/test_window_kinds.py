"""Who may ask which kind of window it is: the model, planning, and the source of the kind.

Whatever else has to know something of a window asks for that, by a property that every kind answers:
so a new kind is one type, its line in the stored form and its folder of sources.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import floodmark

PACKAGE = Path(floodmark.__file__).parent

MAY_ASK = (
    "model/",
    "plan/",
    "sources/",
    "run/nodes/databases.py",  # how rows between two values of a cursor are put aside and read
    "run/nodes/cursor_ranges.py",
    "testing/",  # what plays upstreams, and judges what was read of them
)
MAY_READ_TEXT = {
    "control/recovery.py": "what commits of targets say about their windows",
}
MAY_SHOW_TEXT = {
    "control/published/tables.py": "the published tables",
    "control/rules/plans.py": "what a refused plan says",
    "cli/documents.py": "the JSON of commands",
    "cli/screens.py": "whether a gap, as commands give it, has versions",
    "report/verify.py": "compared with the text that commits carry",
    "config/text/yaml_document.py": "marks of YAML",
}
KINDS = {"version", "time", "cursor", "files", "offsets"}
TYPES = {
    "VersionWindow", "QueryWindow", "TimeWindow", "CursorWindow", "FilesWindow", "AnswerWindow",
    "TimeQuery", "CursorQuery", "EveryRow", "FileList", "WholeAnswer",
}  # fmt: skip
SPELLINGS = {"EVERY_ROW", "FILE_LIST", "WHOLE_ANSWER"}
DECODERS = {"any_mark", "mark_of_text", "decoded_if_any"}
OF_NODES = {"node", "read", "resolved", "each"}
"""What has a `kind` of its own: what a node reads or writes, in config and project."""


def questions(source: str) -> Iterator[str]:
    """Every place of a module that asks which kind a window, a watermark or a query is."""
    for node in ast.walk(ast.parse(source)):
        found = _question(node)
        if found:
            yield f"line {node.lineno}: {found}"  # type: ignore[attr-defined]


def _question(node: ast.AST) -> str | None:
    if isinstance(node, ast.Compare):
        return _compared([node.left, *node.comparators])
    if isinstance(node, ast.Call):
        return _called(node)
    if isinstance(node, ast.Subscript):
        return _looked_up(node.slice)
    if isinstance(node, ast.MatchClass):
        return f"match on {ast.unparse(node.cls)}" if _names(node.cls) & TYPES else None
    if isinstance(node, ast.Match):
        return _looked_up(node.subject)
    return None


def _compared(sides: list[ast.expr]) -> str | None:
    """`.kind` with the name of a kind, a query with its spelling, or a type with a type."""
    text = " and ".join(map(ast.unparse, sides))
    values = {value for side in sides for value in _constants(side)}
    for side in sides:
        for each in ast.walk(side):
            if not isinstance(each, ast.Attribute):
                continue
            if each.attr == "kind" and values & KINDS and _owner(each) not in OF_NODES:
                return f"the kind is compared: {text}"
            if each.attr == "time_column" and values - {None}:
                return f"the spelling of a query is compared: {text}"
            if each.attr in ("column", "format") and _owner(each) == "query":
                return f"the spelling of a query is compared: {text}"
            if (
                each.attr == "query"
                and None in values
                and _owner(each) in ("window", "mark", "upstream")
            ):
                return f"it is asked whether there are versions: {text}"
    if any(_names(side) & (TYPES | SPELLINGS) for side in sides):
        return f"a type or a query is compared: {text}"
    return None


def _called(node: ast.Call) -> str | None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name == "isinstance" and _names(node.args[1]) & TYPES:
        return f"a type is asked for: {ast.unparse(node)}"
    if name == "of" and isinstance(node.func, ast.Attribute) and _names(node.func.value) & TYPES:
        return f"a window is narrowed: {ast.unparse(node)}"
    if name == "get" and node.args:
        return _looked_up(node.args[0])
    return None


def _looked_up(key: ast.expr) -> str | None:
    """A table by kinds is a question too."""
    for each in ast.walk(key):
        is_kind = isinstance(each, ast.Attribute) and each.attr == "kind"
        if is_kind and _owner(each).endswith(("window", "mark", "query")):
            return f"looked up by kind: {ast.unparse(key)}"
    return None


def _constants(node: ast.expr) -> Iterator[object]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant):
            yield each.value


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _owner(attribute: Any) -> str:
    """The last name of what has the attribute: `window` of `run.window.kind`."""
    value = attribute.value
    return value.attr if isinstance(value, ast.Attribute) else ast.unparse(value)


def texts_read(source: str) -> Iterator[str]:
    """Every place that turns the text of a mark into a value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("floodmark.model"):
            for alias in node.names:
                is_of_marks = alias.name == "decoded" and "marks" in str(node.module)
                if alias.name in DECODERS or is_of_marks:
                    yield f"line {node.lineno}: {alias.name}"


def texts_used(source: str) -> Iterator[str]:
    """Every place that takes a mark as the text under which it is published."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in ("start_mark", "end_mark"):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def modules(allowed: tuple[str, ...]) -> dict[str, str]:
    """Every module of the package that is not in one of these places."""
    paths = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in paths.items()
        if not name.startswith(allowed)
    }


def test_nobody_outside_asks_which_kind_it_is() -> None:
    asked = {name: list(questions(text)) for name, text in modules(MAY_ASK).items()}

    assert {name: found for name, found in asked.items() if found} == {}, (
        "ask for what you need to know: a property of Window or Query that every kind answers"
    )


def test_marks_are_read_once_at_the_edge() -> None:
    allowed = ("model/", "sources/cursor/sql/", "sources/cursor/edges.py", *MAY_READ_TEXT)
    read = {name: list(texts_read(text)) for name, text in modules(allowed).items()}

    assert {name: found for name, found in read.items() if found} == {}, (
        "marks come as values: `after_mark` and `through_mark` of a window, `mark` of a watermark"
    )


def test_marks_are_text_only_where_they_are_published() -> None:
    allowed = ("model/", *MAY_SHOW_TEXT)
    used = {name: list(texts_used(text)) for name, text in modules(allowed).items()}

    assert {name: found for name, found in used.items() if found} == {}, (
        "`start_mark` and `end_mark` are for publishing; values are `after_mark` and `through_mark`"
    )


@pytest.mark.parametrize("path", [*MAY_READ_TEXT, *MAY_SHOW_TEXT])
def test_every_exception_is_needed(path: str) -> None:
    text = (PACKAGE / path).read_text(encoding="utf-8")

    assert [*texts_read(text), *texts_used(text)], "take it off the list"


@pytest.mark.parametrize(
    "text",
    [
        'if window.kind == "cursor": pass',
        'if "version" != mark.kind: pass',
        'plain = [w for w in windows if w.kind not in ("cursor", "files")]',
        "isinstance(window, CursorWindow)",
        "isinstance(window, TimeWindow | FilesWindow)",
        "if type(window) is VersionWindow: pass",
        "match window:\n    case AnswerWindow(): pass",
        'match window.kind:\n    case "time": pass',
        "READERS[window.kind]",
        "READERS.get(run.window.kind)",
        "CursorWindow.of(window)",
        "if query == EVERY_ROW: pass",
        'if options.time_column == "*": pass',
        'if upstream.time_column in ("*", "answer"): pass',
        'if window.query.format == "sql": pass',
        "if mark.query is None: pass",
    ],
)
def test_a_question_is_noticed(text: str) -> None:
    assert list(questions(text))


@pytest.mark.parametrize(
    "text",
    [
        'if event.kind == "SNAPSHOT": pass',
        'if batch.kind in ("forward", "seed"): pass',
        'if node.kind == "files": pass',
        "if window.query != mark.query: pass",
        "if options.time_column == other.time_column: pass",
        'document = {"kind": window.kind}',
    ],
)
def test_what_is_no_question_is_left_alone(text: str) -> None:
    assert not list(questions(text))


def test_text_of_marks_is_noticed() -> None:
    assert list(texts_read("from floodmark.model.file_marks import any_mark"))
    assert list(texts_read("from floodmark.model.cursor_marks import decoded"))
    assert list(texts_used("end = window.end_mark"))
