"""Ids as an argument: what names a store, an operation, a batch and a run."""

from __future__ import annotations

import os
import uuid
from datetime import datetime
from typing import Protocol


class Ids(Protocol):
    """Gives ids; no id is given twice, whoever asks."""

    def store(self) -> str:
        """The id of a control store."""

    def operation(self) -> str:
        """The id by which a commit is found again after its answer was lost."""

    def batch(self, at: datetime) -> str:
        """The id of a batch that is planned at that time."""

    def run(self, at: datetime) -> str:
        """The id of a run that begins at that time."""


class RandomIds:
    """Ids from the random numbers of the system; batches and runs sort by the time of their beginning."""

    def store(self) -> str:
        return uuid.uuid4().hex

    def operation(self) -> str:
        return os.urandom(16).hex()

    def batch(self, at: datetime) -> str:
        return f"batch_{_numbered(at)}"

    def run(self, at: datetime) -> str:
        return f"run_{_numbered(at)}"


def _numbered(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%S%fZ}_{os.urandom(4).hex()}"
