"""What a batch decides once for all of its pipelines: whoever says it first, in any process."""

from __future__ import annotations

import json
from dataclasses import dataclass

from floodmark.deltalog import create_table
from floodmark.errors import ControlError
from floodmark.model import WriteResult
from floodmark.next_steps import then_retry
from floodmark.run.landing import Attempt, LandingFolder

FOLDER = ".shared"
"""Beside the folders of the pipelines: none of them can have such a name."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The folder `<control>/landing/<batch>/.shared/<name>`: which landed rows all pipelines read.

    A claim is an empty Delta table whose first commit names the rows: of several writers exactly
    one makes that commit, on object stores too.
    """

    landing: LandingFolder
    batch_id: str
    name: str

    def attempts(self) -> list[Attempt]:
        """The attempts that have been claimed."""
        return [Attempt.of(each) for each in self.landing.names(self._folder)]

    def claimed(self, attempt: Attempt) -> WriteResult:
        """The landed rows of a claim; raises ControlError FM-CONTROL-002 if others damaged it."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        options = self.landing.storage.options
        try:
            table = DeltaTable(self._path(attempt), storage_options=options)
            rows = json.loads(table.metadata().description or "")
            path = f"{self.landing.control}/{rows['rows']}"
            return WriteResult(path, rows["table_id"], rows["version"], None, already_applied=True)
        except (DeltaError, OSError, ValueError, KeyError) as error:
            raise self._failed("read", error) from error

    def claim(self, attempt: Attempt, landed: WriteResult) -> WriteResult:
        """Name the rows that everybody reads; returns those of another pipeline if it was first.

        Raises ControlError FM-CONTROL-002 if the control store cannot be written.
        """
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        rows = landed.target.removeprefix(f"{self.landing.control}/")
        content = {"rows": rows, "table_id": landed.table_id, "version": landed.version}
        try:
            create_table(
                self._path(attempt),
                pa.schema([pa.field("none", pa.string())]),
                self.landing.storage,
                name="a claim of floodmark",
                description=json.dumps(content),
            )
        except (DeltaError, OSError) as error:
            raise self._failed("written", error) from error
        return self.claimed(attempt)

    def _failed(self, done: str, error: Exception) -> ControlError:
        return ControlError(
            "FM-CONTROL-002",
            f"the control store cannot be {done}",
            where=self._folder,
            found=f"{type(error).__name__}: {error}",
            state="nothing was written to a target; the watermarks stay where they are",
            next="mend what is named, " + then_retry(self.batch_id),
            retryable=True,
        )

    def _path(self, attempt: Attempt) -> str:
        return f"{self._folder}/{attempt.folder}"

    @property
    def _folder(self) -> str:
        return self.landing.folder(self.batch_id, FOLDER, self.name)
