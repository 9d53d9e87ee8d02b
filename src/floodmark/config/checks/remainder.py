"""What is left of a project beside its errors, so that one of them hides no other.

The smallest part around an error is taken out. Items of lists leave a stub and names a made-up one, so
that everything else keeps its place: a path in the settings is a path in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from floodmark.config.checks.faults import OF_KEY, path_of
from floodmark.config.checks.findings import CIRCLE, RISK, UNKNOWN
from floodmark.config.project.settings import ProjectSettings
from floodmark.config.text.places import KeyPath
from floodmark.config.text.tree import NAMED_LISTS, Document

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

UNNAMED = "unnamed"
_FIRST_RUN = ("write", "first_run_query")


def _node_stub(index: int, node: Any) -> dict[str, str]:
    name = node.get("name") if isinstance(node, dict) else None
    return {"name": name if isinstance(name, str) else f"{UNNAMED}-{index}"}


_STUBS: dict[tuple[str, ...], Callable[[int, Any], Any]] = {
    ("streams",): lambda _index, _stream: None,
    ("pipelines",): lambda index, _pipeline: {"pipeline": f"{UNNAMED}-{index}"},
    ("pipelines", "upstreams"): lambda index, _upstream: f"./{UNNAMED}-{index}",
    ("pipelines", "nodes"): _node_stub,
    ("pipelines", "nodes", "transform"): lambda _index, _step: {"sql": "SELECT * FROM input"},
    ("pipelines", "nodes", "expect"): lambda _index, _check: {"check": "true"},
}
"""Lists whose items are judged one by one, and what stands in the place of a broken one."""


@dataclass(frozen=True)
class Remainder:
    """Settings without errors, and what of the files is not in them."""

    settings: ProjectSettings | None = None
    left_out: frozenset[KeyPath] = frozenset()

    def explains(self, path: KeyPath, code: str) -> bool:
        """Whether a rule may be broken only because a part of the node, or a name, was left out."""
        if not self.left_out or code == CIRCLE:
            return False
        if code == UNKNOWN:
            return _is_about_node(path[4:]) and self._has_lost_names(path[:3])
        parts = {
            gone[4] if len(gone) > 4 else None for gone in self.left_out if gone[:4] == path[:4]
        }
        return None in parts or bool(parts & _needed(path[4:], code))

    def _has_lost_names(self, nodes: KeyPath) -> bool:
        """Whether nodes of a pipeline have names that are not known."""
        return any(gone[:3] == nodes and gone[4:] in ((), ("name",)) for gone in self.left_out)


def without_errors(document: Document, errors: Sequence[ErrorDetails]) -> Remainder:
    """The settings without what has errors; no settings if nothing useful is left."""
    left_out: set[KeyPath] = set()
    while True:
        broken = {_broken_part(details, document) for details in errors}
        if () in broken or broken <= left_out:
            return Remainder()
        left_out |= broken
        try:
            settings = ProjectSettings.model_validate(_without(document, left_out))
        except ValidationError as error:
            errors = error.errors(include_url=False)
        else:
            return Remainder(settings, frozenset(left_out))


def _broken_part(details: ErrorDetails, document: Document) -> KeyPath:
    """The smallest part whose absence takes the error away, as far as that is known."""
    path = path_of(details["loc"])
    path = path[:-1] if path[-1:] == (OF_KEY,) else path
    if details["type"] != "missing":
        path = document.known(path)
    elif not _is_name(path):
        path = path[:-1]
    if path[:1] in (("connections",), ("streams",)):
        return path[:2]  # known as a whole or not at all
    for depth, part in enumerate(path):
        if isinstance(part, int) and _keys(path[:depth]) not in _STUBS:
            return path[:depth]
    return path


def _keys(path: KeyPath) -> tuple[str, ...]:
    return tuple(part for part in path if isinstance(part, str))


def _is_name(path: KeyPath) -> bool:
    """Whether a path leads to the name of the project, a pipeline, or a node."""
    if len(path) == 1:
        return path == ("project",)
    is_item = _keys(path[:-1]) in (("pipelines",), ("pipelines", "nodes"))
    return is_item and isinstance(path[-2], int) and path[-1] == NAMED_LISTS[str(path[-3])]


def _without(document: Document, left_out: Collection[KeyPath]) -> Any:
    """The values without what is left out, taken out from the innermost on."""
    data: Any = document.root.plain() if document.root is not None else None
    for path in sorted(left_out, key=len, reverse=True):
        *way, last = path
        around = data
        for part in way:
            around = around[part]
        if _is_name(path):
            around[last] = "-".join([UNNAMED, *map(str, path[-2:-1])])
        elif isinstance(last, int):
            around[last] = _STUBS[_keys(path)](last, around[last])
        else:
            around.pop(last, None)
    if any(path[:1] == ("streams",) and len(path) > 1 for path in left_out):
        data["streams"] = [stream for stream in data["streams"] if stream is not None]
    return data


def _needed(below: KeyPath, code: str) -> set[str | int | None]:
    """The parts of a node that have to be whole for a finding to count."""
    if not below:
        return {"read", "depends_on"}
    is_of_both = below == _FIRST_RUN or code == RISK
    return {"read", "write"} if is_of_both else {below[0]}


def _is_about_node(below: KeyPath) -> bool:
    return below[:1] == ("depends_on",) or below[:2] == ("read", "node")
