"""What the modules of a project and installed packages add: functions, formats, sources and sinks."""

from __future__ import annotations

from floodmark.config.plugins.functions import load_function, load_module
from floodmark.config.plugins.registry import (
    FileFormat,
    Plugins,
    SinkClass,
    SourceClass,
    format,  # noqa: A004 fm.format
    guarded,
    origin_of,
    plugin_options,
    plugins_in,
    sink,
    source,
)

__all__ = [
    "FileFormat",
    "Plugins",
    "SinkClass",
    "SourceClass",
    "format",
    "guarded",
    "load_function",
    "load_module",
    "origin_of",
    "plugin_options",
    "plugins_in",
    "sink",
    "source",
]
