"""Folders of files: written at least once."""
