"""Landing: rows that must not be read twice, put aside for one batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from floodmark import failpoints
from floodmark.deltalog import Storage
from floodmark.model import State

log = logging.getLogger("floodmark")

FOLDER = "landing"
RANGES = "ranges"
"""Beside the batches: ranges of tables that delta-rs reads for Spark."""


def ranges_folder(control: str) -> str:
    """Where ranges lie that Spark does not read itself, for every batch that needs them."""
    return f"{control}/{FOLDER}/{RANGES}"


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One try to put rows aside that must be read once: a folder `<number>.<way>.<version>`.

    Older versions of floodmark wrote `<version>`; an open batch may still have such a folder.
    """

    number: int
    way: str
    """How the rows are read: by the query of a first run, or by that of all others."""
    version: str
    """What is read: another one after a correction of the query."""

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.number}.{self.way}.{self.version}" if self.way else self.version

    @classmethod
    def of(cls, folder: str) -> Attempt:
        """The attempt of a folder's name."""
        number, _, rest = folder.partition(".")
        way, _, version = rest.partition(".")
        return cls(int(number), way, version) if version else cls(0, "", folder)

    def reads(self, way: str, version: str) -> bool:
        """Whether it reads the same rows, as far as its name tells."""
        return self.version == version and self.way in (way, "")


def attempt_in_force(
    complete: Sequence[Attempt], way: str, version: str, is_taken: Callable[[], bool]
) -> Attempt | None:
    """The attempt whose rows everybody reads; None if they are to be put aside anew.

    What was corrected since is read anew, unless a write has taken rows: it took those of the newest
    attempt, and all others have to see the same ones.
    """
    same_way = [attempt for attempt in complete if attempt.way in (way, "")]
    newest = max(same_way or complete, default=None)
    if newest is None or newest.reads(way, version):
        return newest
    return newest if is_taken() else None


@dataclass(frozen=True, slots=True)
class LandingFolder:
    """The folder `<control>/landing/<batch>/<pipeline>/<name>`, with Delta tables by number.

    A table there is complete once it shows its receipt, like any other target of a write.
    """

    control: str
    storage: Storage

    def folder(self, batch_id: str, pipeline: str, name: str) -> str:
        """Where the tables of one name are, one for each attempt that made it."""
        return f"{self._root}/{batch_id}/{pipeline}/{name}"

    def numbers(self, folder: str) -> list[int]:
        """The attempts that have left something in a folder, complete or not."""
        return sorted(int(name) for name in self.names(folder) if name.isdigit())

    def sweep(self, state: Callable[[], State]) -> None:
        """Remove what finished batches left; called again it finds nothing.

        Whoever finalizes sweeps all of them, so a crash in between leaves nothing for ever. Ranges
        go once no batch is open: they may serve several.
        """
        names = self.names(self._root)
        found = [name for name in names if name.startswith("batch_")]
        # Asked for after the look: what has landed by then belongs to a batch that it knows.
        open_ones = {batch.batch_id for batch in state().open_batches()} if names else set()
        if RANGES in names and not open_ones:
            self._remove(f"{self._root}/{RANGES}")
        for name in found:
            if name not in open_ones:
                failpoints.reached("landing.before_remove")
                self._remove(f"{self._root}/{name}")

    def batches_with_rows(self, state: State) -> list[str]:
        """The open batches that have put rows aside."""
        open_ones = {batch.batch_id for batch in state.open_batches()}
        return sorted(open_ones.intersection(self._batches()))

    def _remove(self, folder: str) -> None:
        try:
            self.storage.delete_dir(folder)
        except OSError as error:  # the batch is finished all the same; the next sweep tries again
            log.warning("%s cannot be removed: %s", folder, error)

    @property
    def _root(self) -> str:
        return f"{self.control}/{FOLDER}"

    def _batches(self) -> list[str]:
        """The batches that have something there; whatever else is in the folder is not ours."""
        return [name for name in self.names(self._root) if name.startswith("batch_")]

    def names(self, folder: str) -> list[str]:
        """What is in a folder."""
        try:
            return self.storage.names(folder)
        except FileNotFoundError:
            return []


def has_files(folder: str, storage: Storage) -> bool:
    """Whether a folder has files that a reader would read; raises OSError if nobody can look."""
    try:
        names = storage.names(folder)
    except FileNotFoundError:
        return False
    return any(not name.startswith(("_", ".")) for name in names)
