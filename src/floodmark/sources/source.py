"""What the flow asks of a source, what each kind of window brings to it, and who reads an upstream.

`Any` stands for the engine's frame: a Spark DataFrame, or an Arrow table without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model import NOTHING_PROCESSED, Settlement, TableFacts, TimeFacts, Window
from floodmark.sources.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

W = TypeVar("W", bound=Window)
W_contra = TypeVar("W_contra", bound=Window, contravariant=True)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LookSpec:
    """How somebody looks for what is new in an upstream."""

    now: datetime
    settle_seconds: float | None = None
    """How far the end of a window stays behind `now`; None for the default of its column."""
    spark: SparkSession | None = None
    """The session, where one is at hand: some upstreams only Spark can ask."""
    scratch: Scratch | None = None
    """Where that goes which the look has to keep; None: beside the control store, for a run."""


@runtime_checkable
class Looker(Protocol[W_contra]):
    """Finds out what is new in an upstream that has no versions."""

    def look(self, window: W_contra, spec: LookSpec) -> TimeFacts | None:
        """What is new after the start of a window, as far as it is settled; see `TimeFacts`.

        None if only Spark could tell, and there is no session. Raises SourceError where nobody
        answers, which is never taken for "no news"; FM-SOURCE-007 if the column is not there or not
        of the type of its marks.
        """


class KindSource(Protocol[W_contra]):
    """Reads frozen windows of one kind."""

    def check(self, window: W_contra) -> TableFacts:
        """Prove that the window can be read exactly, before anything is read.

        Raises SourceError (FM-SOURCE-*) if the table is another one, part of the range is gone,
        the feed does not cover it or the schema moved; the run then fails and writes nothing.
        """

    def read(self, window: W_contra) -> Any:
        """The rows of the window with the three change columns; empty, with schema, for a NOOP."""

    def table(self, window: W_contra, at_version: int) -> Any:
        """The whole upstream as of `at_version`, without change columns; -1 gives it empty."""


@runtime_checkable
class Resolver(Protocol[W]):
    """Goes on where a planned range is lost, for kinds that notice a loss."""

    def resolved(self, window: W, choice: Settlement) -> W | None:
        """The same range read in another way, if it is lost as it was planned; None if it is not.

        Asks for every data file. snapshot: the whole table at the window's end, FM-SOURCE-010 if
        that is gone too. accept: what is left at the end of the range, which may be nothing.
        """


class Source(KindSource[Window], Resolver[Window], Looker[Window], Protocol):
    """What the flow reads with: windows of every kind.

    A kind that notices no loss has none to resolve; only windows without versions are looked at.
    """


class Reader(Protocol):
    """Reads one upstream that a node of the project describes; which kind it is, its windows tell."""

    def facts(self) -> TableFacts:
        """What can be told without a look."""

    def look(self, window: Any, spec: LookSpec) -> TimeFacts | None:
        """See `Looker.look`; windows are of the reader's kind."""

    def examine(self, spec: LookSpec) -> None:
        """Ask what a first run would ask; raises what it would, and keeps nothing."""


Readers = Mapping[tuple[str, str], Reader]
"""The readers of a project, by pipeline and stored name of the upstream."""


def reader_of(readers: Readers, upstream: str, pipeline: str | None = None) -> Reader:
    """The reader of an upstream, of one pipeline or any; raises FM-SOURCE-035 if there is none."""
    for (reads, name), reader in readers.items():
        if name == upstream and pipeline in (None, reads):
            return reader
    raise SourceError(
        "FM-SOURCE-035",
        "only its project can read this upstream",
        where=upstream,
        found="no node of this project reads it",
        allowed="the project whose nodes read it, with its connections",
        state="nothing was read or written; the committed watermark stays",
        next="run the command in the folder of the project; or put the node back",
    )


def first_of(readers: Readers, pipelines: Iterable[str]) -> Readers:
    """The readers, those of these pipelines first: another one may read the same table otherwise."""
    chosen = set(pipelines)
    return dict(sorted(readers.items(), key=lambda reader: reader[0][0] not in chosen))


@dataclass(frozen=True)
class SparkAccess:
    """By what the sources on Spark reach their upstreams."""

    spark: SparkSession
    storage: Storage
    readers: Readers = field(default_factory=dict)
    spool_folder: str | None = None
    """Takes rows that Spark cannot read itself; its executors must see it."""


def facts_without_versions(
    upstream: str, table_id: str | None = None, *, fingerprint: str = "", files: int = 0
) -> TableFacts:
    """An upstream as a table without versions: its name tells it from others, or the id given."""
    return TableFacts(
        path=upstream,
        table_id=table_id or f"folder:{upstream}",
        latest_version=NOTHING_PROCESSED,
        latest_at=_EPOCH,
        earliest_version=0,
        feed_enabled=False,
        schema_json="",
        schema_fingerprint=fingerprint,
        properties={"files": str(files)} if files else {},
    )
