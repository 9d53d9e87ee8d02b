"""Edges: which rows near a mark of a database were applied, kept from one batch to the next."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from floodmark import failpoints
from floodmark.deltalog import DeltaLog, Storage, files_below, is_delta_table
from floodmark.errors import SourceError
from floodmark.model import Window
from floodmark.model.names import short_hash
from floodmark.run.landed import UNREADABLE, newest_of_ours

log = logging.getLogger("floodmark")

FOLDER = "edges"


@dataclass(frozen=True, slots=True)
class Edges:
    """The folder `<control>/edges/<pipeline>/<hash of the upstream>/<step>`, Delta tables.

    A step's table is written before the rows of its window are, and read by the window that
    follows. It is replaced if the rows of the window are read anew. Others may look after it: it is
    read as it was left, whatever they have done since.
    """

    control: str
    storage: Storage

    def path(self, pipeline: str, upstream: str, step: int) -> str:
        """Where the edge is that the windows up to a step have left."""
        return f"{self._folder(pipeline, upstream)}/{step}"

    def has(self, pipeline: str, upstream: str, step: int) -> bool:
        """Whether there is one that can be read."""
        return self.version(pipeline, upstream, step) is not None

    def version(self, pipeline: str, upstream: str, step: int) -> int | None:
        """The version at which an edge is as it was left; None if there is none any more."""
        path = self.path(pipeline, upstream, step)
        if not is_delta_table(path, self.storage):
            return None
        table = DeltaLog(path, self.storage)
        try:
            return newest_of_ours(path, table).readable_version(table, proves_files=True)
        except SourceError as error:
            if error.code not in UNREADABLE:
                raise
            return None

    def sweep(self, pipeline: str, windows: Iterable[Window]) -> None:
        """Remove what lies before the windows of a run that has succeeded."""
        for window in windows:
            if window.is_landed:
                folder = self._folder(pipeline, window.upstream)
                for step in self._steps(folder):
                    if step < window.after:
                        failpoints.reached("edge.before_remove")
                        self._remove(f"{folder}/{step}")

    def follow(self, pipeline: str, new_name: str) -> None:
        """Copy what a pipeline has left to another name, in the place of whatever is there.

        Called again it does the same: nothing reads the copy before the journal has the name.
        """
        old, new = self._of(pipeline), self._of(new_name)
        self.storage.delete_dir(new)
        for path in files_below(old, self.storage):
            self.storage.write(f"{new}/{path}", self.storage.read(f"{old}/{path}"))

    def files_of(self, pipelines: Iterable[str]) -> Iterator[str]:
        """The files of all edges that these pipelines have left, from the control store on."""
        for pipeline in pipelines:
            for path in files_below(self._of(pipeline), self.storage):
                yield f"{FOLDER}/{pipeline}/{path}"

    def forget(self, pipeline: str) -> None:
        """Remove all that a pipeline of a name that is no longer used has left."""
        self._remove(self._of(pipeline))

    def _of(self, pipeline: str) -> str:
        return f"{self.control}/{FOLDER}/{pipeline}"

    def _folder(self, pipeline: str, upstream: str) -> str:
        return f"{self._of(pipeline)}/{short_hash(upstream)}"

    def _steps(self, folder: str) -> list[int]:
        try:
            return [int(name) for name in self.storage.names(folder) if name.isdigit()]
        except FileNotFoundError:
            return []

    def _remove(self, folder: str) -> None:
        try:
            self.storage.delete_dir(folder)
        except OSError as error:  # it is never read again; the next sweep tries again
            log.warning("%s cannot be removed: %s", folder, error)
