"""Formats and sinks that plug-ins add."""

from __future__ import annotations

from floodmark.sinks.plugin.write import PluginSink, saving_with

__all__ = ["PluginSink", "saving_with"]
