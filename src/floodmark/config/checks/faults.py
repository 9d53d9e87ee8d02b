"""What pydantic found wrong, in the words and with the places of the project's files."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from floodmark.config.project.connections import (
    FilesConnection,
    HttpConnection,
    JdbcConnection,
    KafkaConnection,
    LakeConnection,
    PluginConnection,
    PostgresConnection,
    canonical_type,
)
from floodmark.config.project.settings import ProjectSettings
from floodmark.config.text.places import KeyPath, Report, choices, key_name, nearest
from floodmark.config.text.safety import safely_shown
from floodmark.config.text.tree import Document, Entry

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from floodmark.config.checks.findings import Finding

_KINDS = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "too_short": "at least one",
}
OF_KEY = "[key]"
"""The last part of pydantic's path where the key of a mapping is wrong."""
_FAMILIES: dict[str, type[BaseModel]] = {
    "postgres": PostgresConnection,
    "lake": LakeConnection,
    "files": FilesConnection,
    "http": HttpConnection,
    "kafka": KafkaConnection,
    "plugin": PluginConnection,
}


def path_of(loc: KeyPath) -> KeyPath:
    """The path in the file for pydantic's; it names the model of a connection after its name."""
    is_connection = len(loc) > 2 and loc[0] == "connections" and loc[2] != OF_KEY
    return (*loc[:2], *loc[3:]) if is_connection else loc


def described(document: Document, path: KeyPath) -> str:
    """A key path, with the names of the stream, or the pipeline and node, it leads into."""
    if path[:1] == ("streams",):
        stream = document.entry((*path[:2], "pipelineId")) if len(path) > 1 else None
        return f"{key_name(path)} (stream {stream.value})" if stream else key_name(path)
    names = []
    for depth, key in ((2, "pipeline"), (4, "node")):
        entry = document.entry(path[:depth]) if len(path) >= depth else None
        named = entry.get("name" if key == "node" else key) if entry is not None else None
        is_inside = path[:1] == ("pipelines",) and (depth == 2 or path[2:3] == ("nodes",))
        if is_inside and named is not None and isinstance(named.value, str):
            names.append(f"{key} {named.value}")
    return f"{key_name(path)} ({', '.join(names)})" if names else key_name(path)


def add_finding(finding: Finding, document: Document, report: Report) -> None:
    """Note what a rule found, at its place."""
    path = document.known(finding.path)
    place = document.key_place(path) if finding.is_about_key else document.place(path)
    key = described(document, path)
    found, allowed = finding.found, finding.allowed
    if finding.is_warning:
        report.warn(finding.code, finding.title, place, key=key, found=found, allowed=allowed)
        return
    report.add(
        finding.code, finding.title, place, key=key, found=found or None, allowed=allowed or None
    )


def add_fault(
    error: ErrorDetails,
    document: Document,
    written: Document,
    report: Report,
    model: type[BaseModel] = ProjectSettings,
) -> None:
    """Note one error of pydantic's, unless its value was found wrong before."""
    kind, context = error["type"], error.get("ctx", {})
    path = (*path_of(error["loc"]), *context.get("at", ()))
    is_key = path[-1:] == (OF_KEY,)
    path = path[:-1] if is_key else path
    if kind == "extra_forbidden":
        _unknown_key(path, document, report, model)
    elif kind == "missing":
        _missing_key(path, document, report, model)
    elif not _is_noted(report, document, path):
        _wrong_value(error, path, written, report, is_key=is_key)


def _is_noted(report: Report, document: Document, path: KeyPath) -> bool:
    entry = document.entry(path)
    return entry is not None and any(entry.place == place for place, _ in report.found)


def _missing_key(path: KeyPath, document: Document, report: Report, model: type[BaseModel]) -> None:
    entry = document.entry(path[:-1])
    written = entry.value if entry is not None and entry.is_mapping else ()
    if path[-1] in misspelled(written, keys_at(path[:-1], document, model)):
        return  # an error of its own
    report.add(
        "FM-CONFIG-004",
        f'key "{path[-1]}" is missing',
        document.place(path),
        key=described(document, path[:-1]),
    )


def misspelled(written: Iterable[object], known: list[str]) -> set[str]:
    """The known keys that unknown ones among those written probably stand for."""
    unknown = [key for key in written if isinstance(key, str) and key not in known]
    return {meant for key in unknown if (meant := nearest(key, known)) is not None}


def _unknown_key(path: KeyPath, document: Document, report: Report, model: type[BaseModel]) -> None:
    name = str(path[-1])
    report.add(
        "FM-CONFIG-003",
        f'unknown key "{name}"',
        document.key_place(path),
        key=described(document, path),
        allowed=choices(keys_at(path[:-1], document, model), name),
    )


def _wrong_value(
    error: ErrorDetails, path: KeyPath, written: Document, report: Report, *, is_key: bool
) -> None:
    path = written.known(path)  # an upstream that is only a name has no key "name"
    kind, context = error["type"], error.get("ctx", {})
    allowed = context.get("allowed") or _KINDS.get(kind, error["msg"])
    title = context.get("title") or f"{_subject(path)} is not {allowed}"
    if kind == "too_short":
        title = f"{_subject(path)} is empty"
    place = written.key_place(path) if is_key else written.place(path)
    entry = written.entry(path)
    value = path[-1] if is_key else entry.plain() if entry is not None else error["input"]
    report.add(
        context.get("code", "FM-CONFIG-004"),
        title,
        place,
        key=described(written, path),
        found=safely_shown(path, value),
        allowed=str(allowed),
    )


def _subject(path: KeyPath) -> str:
    names = [part for part in path if isinstance(part, str)]
    if not names:
        return "the file"
    return f'"{names[-1]}"' if path[-1] == names[-1] else f'an item of "{names[-1]}"'


# Which keys there are ---------------------------------------------------------------------------


def keys_at(path: KeyPath, document: Document, model: type[BaseModel]) -> list[str]:
    """The keys that the model at a path knows, as they are spelled in the file."""
    kind: Any = model
    entry = document.root
    for depth, part in enumerate(path):
        kind = _inside(_bare(kind), part)
        entry = document.entry(path[: depth + 1])
        if depth == 1 and path[0] == "connections":
            kind = _connection_model(entry)
    kind = _bare(kind)
    return list(by_key(kind)) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def by_key(model: type[BaseModel]) -> dict[str, Any]:
    """The fields of a model by the keys of the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _inside(kind: Any, part: str | int) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = by_key(kind).get(str(part))
        return field.annotation if field is not None else None
    arguments = get_args(kind)
    return arguments[-1] if get_origin(kind) in (list, dict) else None


def _bare(kind: Any) -> Any:
    """A type without its annotations and without None."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif get_origin(kind) in (Union, UnionType):
            kinds = [each for each in get_args(kind) if each is not NoneType]
            if len(kinds) != 1:
                return kind
            kind = kinds[0]
        else:
            return kind


def _connection_model(entry: Entry | None) -> type[BaseModel]:
    said = entry.get("type") if entry is not None else None
    kind = canonical_type(said.value) if said is not None else None
    return _FAMILIES.get(str(kind), JdbcConnection)
