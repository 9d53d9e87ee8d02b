"""Where the data files of a table lie, from the actions that name them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

from floodmark.deltalog.commit import Action, Commit

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_LENGTH = 20


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
        yield _place(table, unquote(file["path"]))
        vector = file.get("deletionVector")
        if vector and vector.get("storageType") == "u":
            yield _place(table, _vector_name(vector["pathOrInlineDv"]))
        elif vector and vector.get("storageType") == "p":
            yield _place(table, vector["pathOrInlineDv"])


def _place(table: str, path: str) -> str:
    parts = urlsplit(path)
    if parts.scheme == "file":
        return parts.path
    is_absolute = path.startswith("/") or bool(parts.scheme and parts.netloc)
    return path if is_absolute else f"{table}/{path}"


def _vector_name(text: str) -> str:
    """The file of a vector by its id: a folder's name, then a UUID in Z85."""
    folder, encoded = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    raw = base64.b85decode(encoded.translate(str.maketrans(_Z85, _B85)))
    name = f"deletion_vector_{uuid.UUID(bytes=raw)}.bin"
    return f"{folder}/{name}" if folder else name
