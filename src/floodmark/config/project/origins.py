"""Every value of a project with the place it comes from; secrets by their reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from floodmark.config.load import LoadedProject
from floodmark.config.project.settings import ProjectSettings
from floodmark.config.text.places import KeyPath
from floodmark.config.text.safety import MASK, is_secret_path
from floodmark.config.text.tree import NAMED_LISTS, Document

DEFAULT = "default"


@dataclass(frozen=True)
class Origin:
    """A value as it is written, and where."""

    key: str
    value: Any
    where: str
    """file:line:column, or `default`."""
    reference: str | None = None
    """What a masked secret refers to."""


def origins(file: LoadedProject) -> list[Origin]:
    """Every value that is written in the project's files, then the defaults of the project."""
    root = file.document.root
    report = file.report()
    found = []
    for path, entry in root.leaves() if root is not None else ():
        where, key = report.where(entry.place), named_key(file.document, path)
        value = entry.plain()
        if is_secret_path(path) and isinstance(value, str):
            found.append(Origin(key, MASK, where, reference=value))
        else:
            found.append(Origin(key, value, where))
    return [*found, *_defaults(file)]


def _defaults(file: LoadedProject) -> Iterator[Origin]:
    for name, field in ProjectSettings.model_fields.items():
        value = getattr(file.settings, name)
        key = field.alias or name
        if isinstance(value, str | int) and file.document.entry((key,)) is None:
            yield Origin(key, value, DEFAULT)


def named_key(document: Document, path: KeyPath) -> str:
    """A key path with the names of pipelines and nodes instead of their positions.

    `pipelines[daily].nodes[load].write.mode`
    """
    text = ""
    for depth, part in enumerate(path):
        if isinstance(part, str):
            text += f".{part}" if text else part
            continue
        entry = document.entry(path[: depth + 1])
        named = entry.get(NAMED_LISTS.get(str(path[depth - 1]), "")) if entry is not None else None
        text += f"[{named.value if named is not None else part}]"
    return text
