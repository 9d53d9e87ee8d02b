"""Where the data files of a table lie, from the actions that name them."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from floodmark.deltalog.commit import Action, Commit

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_LENGTH = 20
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/]*")


def feed_files(commit: Commit) -> list[Action]:
    """The files that the change feed reads for a commit: its change files, else its data files."""
    changes = list(commit.named("cdc"))
    if changes:
        return changes
    return [
        file
        for name in ("add", "remove")
        for file in commit.named(name)
        if file.get("dataChange", True)
    ]


def places(table: str, files: Iterable[Action]) -> Iterator[str]:
    """The paths or URIs of data files and of the deletion vectors that belong to them."""
    for file in files:
        yield _place(table, location(file["path"]))
        vector = file.get("deletionVector")
        if vector and vector.get("storageType") == "u":
            yield _place(table, _vector_name(vector["pathOrInlineDv"]))
        elif vector and vector.get("storageType") == "p":
            yield _place(table, location(vector["pathOrInlineDv"]))


def file_location(table: str, path: str) -> str:
    """The path or URI of a data file that a table's log names; in a clone it is another table's.

    >>> file_location("/lake/clone", "file:///lake/t/a.parquet")
    '/lake/t/a.parquet'
    """
    return _place(table, location(path))


def location(path: str) -> str:
    """A path of the log as the store knows it: without escapes, and local ones without `file:`.

    The log writes paths as URIs, so `#` and `?` are characters of a name like any other once the
    escapes are gone. Two spellings of one file give one location.

    >>> location("file:///lake/a%23b.parquet")
    '/lake/a#b.parquet'
    """
    if path.startswith("file:"):
        path = path.removeprefix("file:")
        if path.startswith("//"):
            path = "/" + path[2:].partition("/")[2]
    return unquote(path) if "%" in path else path


def _place(table: str, where: str) -> str:
    if _URI.match(where):
        return where
    if not where.startswith("/"):
        return f"{table}/{where}"
    root = _URI.match(table)  # an absolute path is one of the table's own store
    return f"{root[0]}{where}" if root else where


def _vector_name(text: str) -> str:
    """The file of a vector by its id: a folder's name, then a UUID in Z85."""
    folder, encoded = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    raw = base64.b85decode(encoded.translate(str.maketrans(_Z85, _B85)))
    name = f"deletion_vector_{uuid.UUID(bytes=raw)}.bin"
    return f"{folder}/{name}" if folder else name
