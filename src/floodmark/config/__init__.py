"""Project files and settings, typed.

`load_file` turns a floodmark.yaml, its pipelines/ and an overlay into `ProjectSettings`, or raises
every error of them at once, each with its file, line and column.
"""

from __future__ import annotations

from floodmark.config.load import LoadedFile, find_project_file, load_file, survey_file
from floodmark.config.plugins.functions import load_function
from floodmark.config.project.settings import PipelineSettings, ProjectSettings, RetrySettings
from floodmark.config.text.layers import PROJECT_FILE

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
