"""From a floodmark.yaml to settings, with every error of the file at once."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from floodmark.config.document import Document, read_document
from floodmark.config.models import ProjectSettings
from floodmark.config.places import (
    NOTHING_DONE,
    KeyPath,
    Place,
    Report,
    choices,
    key_name,
    place_of,
    shown,
)
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PROJECT_FILE = "floodmark.yaml"
MAX_BYTES = 1 << 20

_KINDS = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "too_short": "at least one",
}


@dataclass(frozen=True)
class LoadedFile:
    """Valid settings, and where each of them stands in the file."""

    path: Path
    settings: ProjectSettings
    document: Document
    positions: tuple[int, ...]
    """Where each pipeline of the settings stands in the file's list: broken ones may be missing."""

    @property
    def root(self) -> Path:
        """The folder that relative paths start from."""
        return self.path.parent

    def report(self) -> Report:
        """An empty report on this file, for checks that look beyond it."""
        return Report(_shown_path(self.path))

    def place(self, *path: str | int) -> Place:
        """Where a value stands."""
        return self.document.place(path)

    def key(self, *path: str | int) -> str:
        """The key of a value, with the name of its pipeline."""
        return described(self.document.data, path)


def find_project_file(start: Path | None = None) -> Path:
    """The project file at `start` (a folder or the file), or above the working directory.

    Raises FM-CONFIG-001 if there is none.
    """
    if start is not None:
        path = start if start.is_file() else start / PROJECT_FILE
        if not path.is_file():
            raise _missing(f"{_shown_path(path)} is not there")
        return Path(os.path.abspath(path))
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
    raise _missing(f"neither in {here} nor in a folder above it")


def load_file(path: Path) -> LoadedFile:
    """The settings of a project file; reads nothing else.

    Raises ConfigError with its place; several errors come together as ConfigErrors.
    """
    report = Report(_shown_path(path))
    document = read_document(_text(path, report), report)
    report.raise_if_any()
    loaded = _loaded(path, document, report)
    report.raise_if_any()
    assert loaded is not None  # noqa: S101  (nothing is missing without an error in the report)
    return loaded


def survey_file(path: Path) -> tuple[LoadedFile | None, Report]:
    """What is wrong with a project file, and what of it can be checked further all the same.

    Entries with errors are left out of the settings; None if nothing useful is left.
    """
    report = Report(_shown_path(path))
    document = read_document(_text(path, report), report)
    if document.data is None and report.found:
        return None, report
    return _loaded(path, document, report), report


def _loaded(path: Path, document: Document, report: Report) -> LoadedFile | None:
    settings, positions = _settings(document, report)
    _refuse_repeats(document, report)
    return LoadedFile(path, settings, document, positions) if settings else None


def described(data: Any, path: KeyPath) -> str:
    """A key path, with the pipeline's name where the path leads into one."""
    name = key_name(path)
    if len(path) >= 2 and path[0] == "pipelines" and isinstance(path[1], int):
        pipeline = _pipelines(data).get(path[1], {}).get("pipeline")
        if isinstance(pipeline, str):
            return f"{name} (pipeline {pipeline})"
    return name


def _text(path: Path, report: Report) -> str:
    data = _bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        report.add(
            "FM-CONFIG-002",
            "the file is not UTF-8 text",
            place_of(before, len(before)),
            found=f"byte 0x{data[error.start]:02x}",
            allowed="UTF-8",
        )
        report.raise_if_any()
        raise


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _unreadable(path, f"{size:,} bytes; at most {MAX_BYTES:,} are read")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error


def _settings(document: Document, report: Report) -> tuple[ProjectSettings | None, tuple[int, ...]]:
    try:
        settings = ProjectSettings.model_validate(document.data)
        return settings, tuple(range(len(settings.pipelines)))
    except ValidationError as error:
        found = error.errors(include_url=False)
        for details in found:
            if not _is_known(report, document, details["loc"]):
                _add(details, document, report)
        return _without_errors(document.data, [details["loc"] for details in found])


def _is_known(report: Report, document: Document, path: KeyPath) -> bool:
    """Whether the text of a value was found wrong already: its absence is no second error."""
    place = document.values.get(path)
    return place is not None and any(place == other for other, _ in report.found)


def _without_errors(
    data: Any, errors: list[KeyPath]
) -> tuple[ProjectSettings | None, tuple[int, ...]]:
    """The settings as they would be without the keys and pipelines that have errors."""
    if not isinstance(data, dict):
        return None, ()
    broken = {path[:2] if path[:1] == ("pipelines",) else path[:1] for path in errors}
    sound = {i: p for i, p in _pipelines(data).items() if ("pipelines", i) not in broken}
    kept = {key: value for key, value in data.items() if (key,) not in broken}
    try:
        whole = {"project": "unnamed", **kept, "pipelines": list(sound.values())}
        return ProjectSettings.model_validate(whole), tuple(sound)
    except ValidationError:
        return None, ()


def _add(error: ErrorDetails, document: Document, report: Report) -> None:
    kind = error["type"]
    path: KeyPath = error["loc"]
    if kind not in ("extra_forbidden", "missing"):
        path = document.known(path)  # an upstream that is only a name has no key "name"
    key = described(document.data, path)
    if kind == "extra_forbidden":
        _unknown_key(path, key, document, report)
    elif kind == "missing":
        report.add(
            "FM-CONFIG-004",
            f'key "{path[-1]}" is missing',
            document.place(path),
            key=described(document.data, path[:-1]),
        )
    else:
        context = error.get("ctx", {})
        allowed = context.get("allowed") or _KINDS.get(kind, error["msg"])
        title = context.get("title") or f"{_subject(path)} is not {allowed}"
        if kind == "too_short":
            title = f"{_subject(path)} is empty"
        found = shown(error["input"])
        place = document.place(path)
        report.add("FM-CONFIG-004", title, place, key=key, found=found, allowed=str(allowed))


def _subject(path: KeyPath) -> str:
    names = [part for part in path if isinstance(part, str)]
    if not names:
        return "the file"
    return f'"{names[-1]}"' if path[-1] == names[-1] else f'an item of "{names[-1]}"'


def _unknown_key(path: KeyPath, key: str, document: Document, report: Report) -> None:
    name = str(path[-1])
    report.add(
        "FM-CONFIG-003",
        f'unknown key "{name}"',
        document.key_place(path),
        key=key,
        allowed=choices(_keys_at(path[:-1]), name),
    )


def _keys_at(path: KeyPath) -> list[str]:
    """The keys that the model at a path knows, as they are spelled in the file."""
    model: type[BaseModel] = ProjectSettings
    for part in path:
        if isinstance(part, str):
            found = _model_in(_by_key(model)[part])
            model = found or model
    return list(_by_key(model))


def _by_key(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(field: Any) -> type[BaseModel] | None:
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _refuse_repeats(document: Document, report: Report) -> None:
    """Names that are there twice; looks at the raw values, so that other errors do not hide it."""
    names = []
    for position, pipeline in _pipelines(document.data).items():
        path: KeyPath = ("pipelines", position)
        name = pipeline.get("pipeline")
        if isinstance(name, str):
            names.append((name, f"pipeline {name}", (*path, "pipeline")))
        upstreams = [
            (same_path(upstream), f"upstream {upstream}", (*path, "upstreams", index))
            for index, upstream in _upstream_names(pipeline.get("upstreams"))
        ]
        _refuse_second(upstreams, document, report)
    _refuse_second(names, document, report)


def _refuse_second(
    names: list[tuple[str, str, KeyPath]], document: Document, report: Report
) -> None:
    first: dict[str, KeyPath] = {}
    for name, title, path in names:
        if first.setdefault(name, path) != path:
            report.add(
                "FM-CONFIG-005",
                f"{title} is there twice",
                document.place(path),
                key=described(document.data, path),
                found=f"first on line {document.place(first[name]).line}",
                allowed="each name once",
            )


def same_path(path: str) -> str:
    """Spellings of one path as one: `a//b/`, `./a/b` and `a/b`."""
    return path.rstrip("/") if "://" in path else posixpath.normpath(path)


def _pipelines(data: Any) -> dict[int, dict[str, Any]]:
    pipelines = data.get("pipelines") if isinstance(data, dict) else None
    found = enumerate(pipelines if isinstance(pipelines, list) else ())
    return {i: pipeline for i, pipeline in found if isinstance(pipeline, dict)}


def _upstream_names(values: Any) -> Iterator[tuple[int, str]]:
    for position, value in enumerate(values if isinstance(values, list) else ()):
        name = value.get("name") if isinstance(value, dict) else value
        if isinstance(name, str):
            yield position, name


def _shown_path(path: Path) -> str:
    """Relative to the working directory where the path is below it."""
    shown_path = os.path.relpath(path)
    return os.path.abspath(path) if shown_path.startswith("..") else shown_path


def _missing(found: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-001",
        f"there is no {PROJECT_FILE}",
        found=found,
        state=NOTHING_DONE,
        next="change to the project's folder, or name it: floodmark --project DIR ...",
    )


def _unreadable(path: Path, found: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-001",
        f"{PROJECT_FILE} cannot be read",
        where=_shown_path(path),
        found=found,
        state=NOTHING_DONE,
        next="floodmark validate",
    )
