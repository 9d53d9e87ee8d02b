"""What sources keep beside the control store: lists of files, and answers of web APIs."""

from __future__ import annotations

from floodmark.deltalog import Entry, Storage


class Scratch:
    """What looks would keep, for as long as somebody only looks: a preview, a report.

    Looks that share a scratch see what the earlier ones would have kept; nothing is written.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        """What would be kept, by its path."""

    def keep(self, storage: Storage) -> None:
        """Keep it after all: what follows is planned from the same answers."""
        for path, data in self.files.items():
            storage.write(path, data)


class Keeping:
    """A storage in which a look with a scratch sees what it would have kept, and leaves nothing behind."""

    def __init__(self, storage: Storage, scratch: Scratch | None = None) -> None:
        self._storage = storage
        self._scratch = scratch

    def with_scratch(self, scratch: Scratch | None) -> Keeping:
        """The same storage for looks that share a scratch; for None it really keeps."""
        return Keeping(self._storage, scratch)

    def exists(self, path: str) -> bool:
        return self._scratched(path) is not None or self._storage.exists(path)

    def read(self, path: str) -> bytes:
        content = self._scratched(path)
        return self._storage.read(path) if content is None else content

    def write(self, path: str, data: bytes) -> None:
        if self._scratch is None:
            self._storage.write(path, data)
        else:
            self._scratch.files[path] = data

    def list(self, folder: str) -> list[Entry]:
        """What is really there; nothing where there is no such folder."""
        try:
            return self._storage.list(folder)
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        if self._scratch is None:
            self._storage.delete(path)

    def _scratched(self, path: str) -> bytes | None:
        return None if self._scratch is None else self._scratch.files.get(path)
