"""What is left of a project without its errors, so that one of them hides no other.

The smallest part around an error is left out. Nodes keep their places, and what has no usable name
gets one, so that the rest still says what the file says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


@dataclass(frozen=True)
class Sound:
    """Settings without errors, and what of the files is not in them."""

    settings: ProjectSettings | None = None
    positions: tuple[int, ...] = ()
    """Where each pipeline stands in the files."""
    left_out: frozenset[KeyPath] = frozenset()
    """Paths in the files."""


def sound_part(document: Document, errors: Sequence[ErrorDetails]) -> Sound:
    """The settings without what has errors; without settings if nothing useful is left."""
    left_out: set[KeyPath] = set()
    while True:
        found = {_to_leave_out(details, document, left_out) for details in errors}
        if () in found or found <= left_out:
            return Sound()
        left_out |= found
        try:
            settings = ProjectSettings.model_validate(_without(document.data, (), left_out))
        except ValidationError as error:
            errors = error.errors(include_url=False)
        else:
            paths = [("pipelines", index) for index in range(len(settings.pipelines))]
            positions = [written_path(path, left_out)[1] for path in paths]
            return Sound(settings, tuple(map(int, positions)), frozenset(left_out))


def _to_leave_out(
    details: ErrorDetails, document: Document, left_out: Collection[KeyPath]
) -> KeyPath:
    """The smallest part whose absence takes the error away, as far as that is known."""
    path = written_path(path_of(details["loc"]), left_out)
    path = path[:-1] if path[-1:] == (OF_KEY,) else path
    if details["type"] == "missing":
        return path if _is_name(path) else _whole(path[:-1])
    return _whole(document.known(path))


def _whole(path: KeyPath) -> KeyPath:
    """A connection or a stream is known as a whole or not at all."""
    return path[:2] if path[:1] in (("connections",), ("streams",)) else path


def _name_key(path: KeyPath) -> str | None:
    """The key that names the thing at a path: the project, a pipeline, a node."""
    if not path:
        return "project"
    is_item = len(path) in (2, 4) and path[0] == "pipelines" and isinstance(path[-1], int)
    return NAMED_LISTS.get(str(path[-2])) if is_item else None


def _is_name(path: KeyPath) -> bool:
    return path[-1:] == (_name_key(path[:-1]),)


def _is_node(path: KeyPath) -> bool:
    return len(path) == 4 and path[2] == "nodes" and path[0] == "pipelines"


def _without(value: Any, path: KeyPath, left_out: Collection[KeyPath]) -> Any:
    """The value without what is left out; a node that is left out is only a name."""
    if isinstance(value, dict):
        kept = {
            key: _without(each, (*path, key), left_out)
            for key, each in value.items()
            if (*path, key) not in left_out
        }
        return {**_made_up_name(path, left_out), **kept}
    if isinstance(value, list):
        places = [(*path, index) for index in range(len(value))]
        kept_items = zip(places, value, strict=True)
        return [
            _stub(each, place, left_out)
            if _is_node(place) and place in left_out
            else _without(each, place, left_out)
            for place, each in kept_items
            if _is_node(place) or place not in left_out
        ]
    return value


def _made_up_name(path: KeyPath, left_out: Collection[KeyPath]) -> dict[str, str]:
    key = _name_key(path)
    if key is None or (*path, key) not in left_out:
        return {}
    return {key: "-".join([UNNAMED, *map(str, path[-1:])])}


def _stub(node: Any, path: KeyPath, left_out: Collection[KeyPath]) -> dict[str, str]:
    name = node.get("name") if isinstance(node, dict) else None
    is_named = isinstance(name, str) and (*path, "name") not in left_out
    return {"name": str(name) if is_named else f"{UNNAMED}-{path[-1]}"}


# From the settings back to the files ------------------------------------------------------------


def written_path(path: KeyPath, left_out: Collection[KeyPath], known: int = 0) -> KeyPath:
    """The path in the files of something in the settings: items may have been left out before it.

    The first `known` parts are those of the files already.
    """
    if not left_out:
        return path
    found = path[:known]
    for part in path[known:]:
        is_item = isinstance(part, int) and not _is_node((*found, part))
        found = (*found, _position(found, int(part), left_out) if is_item else part)
    return found


def _position(items: KeyPath, index: int, left_out: Collection[KeyPath]) -> int:
    gone = [path[-1] for path in left_out if path[:-1] == items]
    for position in sorted(each for each in gone if isinstance(each, int)):
        index += position <= index
    return index


def is_consequence(path: KeyPath, code: str, left_out: Collection[KeyPath]) -> bool:
    """Whether a rule may be broken only because a part of the node, or a name, was left out."""
    if not left_out or code == CIRCLE:
        return False
    if code == UNKNOWN:
        return _is_about_node(path[4:]) and _has_lost_names(path[:3], left_out)
    parts = {gone[4] if len(gone) > 4 else None for gone in left_out if gone[:4] == path[:4]}
    return None in parts or bool(parts & _needed(path[4:], code))


def _needed(below: KeyPath, code: str) -> set[str | int | None]:
    """The parts of a node that have to be whole for a finding to count."""
    if not below:
        return {"read", "depends_on"}
    is_of_both = below == _FIRST_RUN or code == RISK
    return {"read", "write"} if is_of_both else {below[0]}


def _is_about_node(below: KeyPath) -> bool:
    return below[:1] == ("depends_on",) or below[:2] == ("read", "node")


def _has_lost_names(nodes: KeyPath, left_out: Collection[KeyPath]) -> bool:
    """Whether nodes of a pipeline have names that are not known."""
    return any(gone[:3] == nodes and gone[4:] in ((), ("name",)) for gone in left_out)
