"""Formats and sinks that plug-ins add."""
