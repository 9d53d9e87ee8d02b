"""Folders of files: written at least once."""

from __future__ import annotations

from floodmark.sinks.files.write import FileSink, Save

__all__ = ["FileSink", "Save"]
