"""What sources keep beside the control store: lists of files, and answers of web APIs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from floodmark.deltalog import Entry, Storage

_LOOKED_AT: ContextVar[dict[str, bytes] | None] = ContextVar("looked at", default=None)
"""What a look would have kept, by path; None where things are really kept."""


@contextmanager
def only_looking() -> Iterator[None]:
    """A context in which nothing is kept: a preview, a report."""
    token = _LOOKED_AT.set({})
    try:
        yield
    finally:
        _LOOKED_AT.reset(token)


class Keeping:
    """A storage in which a look sees what it would have kept, and leaves nothing behind."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def exists(self, path: str) -> bool:
        return path in (_LOOKED_AT.get() or {}) or self._storage.exists(path)

    def read(self, path: str) -> bytes:
        seen = _LOOKED_AT.get() or {}
        return seen[path] if path in seen else self._storage.read(path)

    def write(self, path: str, data: bytes) -> None:
        seen = _LOOKED_AT.get()
        if seen is None:
            self._storage.write(path, data)
        else:
            seen[path] = data

    def list(self, folder: str) -> list[Entry]:
        """What is really there; nothing where there is no such folder."""
        try:
            return self._storage.list(folder)
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        if _LOOKED_AT.get() is None:
            self._storage.delete(path)
