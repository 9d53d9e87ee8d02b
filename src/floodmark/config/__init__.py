"""Project files and settings, typed.

`load_settings` turns a floodmark.yaml into `ProjectSettings`, or raises every error of the file at
once, each with its line and column.
"""

from __future__ import annotations

from floodmark.config.functions import load_function
from floodmark.config.load import (
    PROJECT_FILE,
    LoadedFile,
    find_project_file,
    load_file,
    survey_file,
)
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
