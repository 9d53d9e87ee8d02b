"""Incremental data pipelines on Spark that never miss a row and never process one twice."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.config import Node, Pipeline
    from floodmark.config.plugins import format, sink, source  # noqa: A004 fm.format
    from floodmark.coordinator import Coordinator
    from floodmark.engines.spark import local_session
    from floodmark.errors import FloodmarkError
    from floodmark.model import Batch, Metrics, RunResult, Upstream, Window
    from floodmark.project import Project
    from floodmark.sinks import deletes, upserts
    from floodmark.sinks.delta import stream_merge
    from floodmark.stream import Stream
    from floodmark.transforms import transform

__version__ = "0.1.0"

# Loaded on first use: `import floodmark` imports neither Spark nor delta-rs.
_HOMES = {
    "Batch": "floodmark.model.results",
    "Coordinator": "floodmark.coordinator",
    "FloodmarkError": "floodmark.errors",
    "Metrics": "floodmark.model.results",
    "Node": "floodmark.config",
    "Pipeline": "floodmark.config",
    "Project": "floodmark.project",
    "RunResult": "floodmark.model.results",
    "Stream": "floodmark.stream",
    "Upstream": "floodmark.model.upstream",
    "Window": "floodmark.model.window",
    "deletes": "floodmark.sinks",
    "format": "floodmark.config.plugins",
    "local_session": "floodmark.engines.spark",
    "sink": "floodmark.config.plugins",
    "source": "floodmark.config.plugins",
    "stream_merge": "floodmark.sinks.delta",
    "transform": "floodmark.transforms",
    "upserts": "floodmark.sinks",
}

__all__ = [
    "Batch",
    "Coordinator",
    "FloodmarkError",
    "Metrics",
    "Node",
    "Pipeline",
    "Project",
    "RunResult",
    "Stream",
    "Upstream",
    "Window",
    "deletes",
    "format",
    "local_session",
    "sink",
    "source",
    "stream_merge",
    "transform",
    "upserts",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'floodmark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
