"""Files of a folder or glob, told apart by lists."""

from __future__ import annotations

from floodmark.sources.files.csv import DEFAULTS_VERSION, DELIMITED
from floodmark.sources.files.lists import FileLists
from floodmark.sources.files.probe import FileReader, ReadWith
from floodmark.sources.files.rows import FileRows, unreadable

__all__ = [
    "DEFAULTS_VERSION",
    "DELIMITED",
    "FileLists",
    "FileReader",
    "FileRows",
    "ReadWith",
    "unreadable",
]
