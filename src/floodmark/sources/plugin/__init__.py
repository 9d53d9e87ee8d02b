"""Formats and sources that plug-ins add."""
