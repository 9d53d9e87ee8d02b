"""Project files and settings, typed: the door of this room.

`load_project` turns a floodmark.yaml, its pipelines/ and an overlay into settings and resolved nodes,
or raises every error of them at once, each with its file, line and column. What single kinds of
settings need stands at the doors of `project`, `stream`, `plugins`, `checks` and `text`.
"""

from __future__ import annotations

from floodmark.config.checks import Finding
from floodmark.config.load import (
    LoadedProject,
    find_project_file,
    load_project,
    survey_project,
)
from floodmark.config.project.origins import Origin, origins
from floodmark.config.project.python_api import Node, Pipeline, built
from floodmark.config.project.resolved import ResolvedNode, ResolvedPipeline, ResolvedRead
from floodmark.config.project.settings import PipelineSettings, ProjectSettings, RetrySettings
from floodmark.config.stream.files import LoadedStream, load_stream, stream_of, streams_of
from floodmark.config.text.layers import PROJECT_FILE

__all__ = [
    "PROJECT_FILE",
    "Finding",
    "LoadedProject",
    "LoadedStream",
    "Node",
    "Origin",
    "Pipeline",
    "PipelineSettings",
    "ProjectSettings",
    "ResolvedNode",
    "ResolvedPipeline",
    "ResolvedRead",
    "RetrySettings",
    "built",
    "find_project_file",
    "load_project",
    "load_stream",
    "origins",
    "stream_of",
    "streams_of",
    "survey_project",
]
