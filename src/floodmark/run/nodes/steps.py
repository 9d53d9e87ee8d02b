"""The steps of a node, read with the transforms that the project knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from floodmark.config.project import NodeSettings
from floodmark.config.project import Step as Written
from floodmark.errors import TransformError
from floodmark.transforms import Registry, Step, parse_steps, problems, standard
from floodmark.transforms.sql import unread


def steps_of(node: NodeSettings, plugins: Sequence[str], root: Path) -> tuple[Step, ...]:
    """The steps, ready to be applied; raises TransformError for the first that cannot be read."""
    return parse_steps(_written(node), _registry(tuple(plugins), root))


def step_problems(node: NodeSettings, plugins: Sequence[str], root: Path) -> list[TransformError]:
    """What is wrong with the steps whatever the columns are; imports the project's plug-ins."""
    try:
        return problems(_written(node), _registry(tuple(plugins), root))
    except TransformError as error:
        return [error]


def unread_sql(node: NodeSettings) -> Iterator[tuple[int, str]]:
    """The steps whose SQL only Spark can judge, by their position, and where reading it ended."""
    for position, step in enumerate(node.transform):
        found = unread(step.sql) if step.sql is not None else None
        if found is not None:
            yield position, found


@lru_cache(maxsize=8)
def _registry(plugins: tuple[str, ...], root: Path) -> Registry:
    known = standard().with_packages()
    return known.with_modules(root, plugins) if plugins else known


def _written(node: NodeSettings) -> list[dict[str, Any]]:
    return [_as_written(step) for step in node.transform]


def _as_written(step: Written) -> dict[str, Any]:
    """A step as a file says it."""
    if step.sql is not None:
        return {"sql": step.sql}
    if step.python is not None:
        return {"python": {"function": step.python.function, "params": step.python.params}}
    return {step.name: step.params}
