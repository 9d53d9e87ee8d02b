"""Project files and settings, typed.

`load_file` turns a floodmark.yaml, its pipelines/ and an overlay into `ProjectSettings`, or raises
every error of them at once, each with its file, line and column.
"""

from __future__ import annotations

from floodmark.config.functions import load_function
from floodmark.config.layers import PROJECT_FILE
from floodmark.config.load import LoadedFile, find_project_file, load_file, survey_file
from floodmark.config.models import PipelineSettings, ProjectSettings, RetrySettings

__all__ = [
    "PROJECT_FILE",
    "LoadedFile",
    "PipelineSettings",
    "ProjectSettings",
    "RetrySettings",
    "find_project_file",
    "load_file",
    "load_function",
    "survey_file",
]
