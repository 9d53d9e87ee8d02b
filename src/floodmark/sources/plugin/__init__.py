"""Formats and sources that plug-ins add."""

from __future__ import annotations

from floodmark.sources.plugin.cursor import PluginRows
from floodmark.sources.plugin.read import reading_with

__all__ = [
    "PluginRows",
    "reading_with",
]
