"""What a user asks of a write, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WriteMode = Literal["append", "overwrite", "replace_where", "merge"]
Changes = Literal["latest", "log", "handled"]
Missing = Literal["delete", "keep"]
Deletes = Literal["apply", "soft", "ignore"]
Strategy = Literal["upsert", "append_only", "delete_match"]
"""upsert: update and insert. append_only: insert keys that are not there. delete_match: delete those
that are."""

DELTA = "delta"

CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns every input frame carries and `run.write` drops."""
SOFT_DELETE_COLUMNS = ("is_deleted", "deleted_at")
"""Columns that `deletes="soft"` adds to the target: a boolean and a timestamp."""
RESERVED_PREFIX = "__floodmark_"
"""What the names of columns begin with that a write adds for itself alone."""


HIDDEN_VALUES = "not shown: the pipeline has sensitive columns"


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """One `run.write`: where to, how, and what to do with changes."""

    target: str
    """Absolute path or URI of the Delta table, or `<connection>:<table>` of a database."""
    mode: WriteMode
    name: str
    """The write's name inside the pipeline: part of the receipt's app id."""
    keys: tuple[str, ...] = ()
    changes: Changes | None = None
    missing: Missing | None = None
    deletes: Deletes = "apply"
    sequence_by: str | None = None
    allow_full: bool = False
    allow_partial: bool = False
    partition_by: tuple[str, ...] = ()
    table: str | None = None
    """The name of a catalog by which the target was given; None for a path."""
    strategy: Strategy = "upsert"
    """What a merge does with rows that match and rows that do not."""
    created_at: str | None = None
    """A column of the target that a merge sets when it inserts a row."""
    updated_at: str | None = None
    """A column of the target that a merge sets whenever it writes a row."""
    cluster_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    """Properties that a new target gets, beside floodmark's own."""
    replace_where: str | None = None
    """The condition of the rows that mode replace_where replaces, as Spark SQL."""
    zorder_by: tuple[str, ...] = ()
    """Columns by which OPTIMIZE sorts the files of the target now and then."""
    format: str = DELTA
    """Delta, or a format of files, which keep no receipts."""
    writer: tuple[tuple[str, str], ...] = ()
    """Options of Spark's writer, for files."""
    adds_columns: bool = False
    """Whether columns of the frame that the target does not have are added to it."""
    replaces_all: bool = False
    """Whether a merge starts its target again: every row that is there is replaced."""
    is_node: bool = False
    """Whether a node of a project writes it: its errors then name the keys of the file."""
    hides_values: bool = False
    """Whether no value of a row may be shown as an example: a column is declared sensitive."""
    is_aside: bool = False
    """Whether it holds the rows that checks set aside, which are no part of what a run wrote."""
    allow_single_writer: bool = False
    """Whether Spark may write to S3 with a log store that loses a commit when two write at once: the
    user says that nobody else does."""
    sharers: tuple[tuple[str, str], ...] = ()
    """The other writes of the project into the same target, by pipeline and name: their rows are
    theirs."""
    keeps_others: bool = False
    """Whether an overwrite adds its rows where another write has put rows into the target too."""
    file_rows: int | None = None
    """So many rows a file has at most; None leaves it to the engine."""

    @property
    def is_upsert(self) -> bool:
        """Whether a row that is written twice leaves what it leaves if it is written once."""
        return self.mode == "merge" and self.strategy == "upsert"
