"""Projects built in Python: the same models, rules and hashes as from files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from floodmark.config.checks.faults import add_fault
from floodmark.config.load import LoadedProject, loaded_from
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.settings import PipelineSettings
from floodmark.config.text.layers import PROJECT_FILE, Layers
from floodmark.config.text.places import Report
from floodmark.config.text.tree import PYTHON, Document, python_entry


class Node(NodeSettings):
    """A node, with the keys of a file: `fm.Node("load", read={...}, write={...})`.

    Raises ConfigError, all errors at once.
    """

    def __init__(self, name: str, **keys: Any) -> None:
        _checked(super().__init__, NodeSettings, {"name": name, **keys})


class Pipeline(PipelineSettings):
    """A pipeline, with the keys of a file: `fm.Pipeline("daily", nodes=[fm.Node(...)])`.

    Raises ConfigError, all errors at once.
    """

    def __init__(self, pipeline: str, **keys: Any) -> None:
        _checked(super().__init__, PipelineSettings, {"pipeline": pipeline, **keys})


def built(
    root: Path, project: str, pipelines: Sequence[PipelineSettings], **keys: Any
) -> LoadedProject:
    """What `load_project` gives for files that say the same; `root` is where relative paths start.

    Raises ConfigError, all errors at once. References are filled in as they are from files.
    """
    said = {"project": project, **keys, "pipelines": list(pipelines)}
    report = Report(PYTHON)
    layers = Layers(Document(python_entry(said)), (root.absolute() / PROJECT_FILE,))
    return loaded_from(layers, report)


def _checked(make: Callable[..., None], model: type[BaseModel], said: dict[str, Any]) -> None:
    try:
        make(**said)
    except ValidationError as error:
        document = Document(python_entry(said))
        report = Report(PYTHON)
        for details in error.errors(include_url=False):
            add_fault(details, document, document, report, model)
        report.raise_if_any()
        raise
