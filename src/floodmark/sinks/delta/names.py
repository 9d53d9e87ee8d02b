"""Targets by catalog name: where their tables are, where a new one is made, and its registration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.deltalog import Storage, absolute, is_delta_table
from floodmark.engines import catalog
from floodmark.engines.spark import goes_with_the_process
from floodmark.errors import SinkError
from floodmark.model import DELTA, SinkDone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE = "nothing was written; the catalog is unchanged"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table of a name is, or will be."""

    path: str
    table_id: str | None = None
    """None where the catalog does not have the name yet."""

    @property
    def is_registered(self) -> bool:
        return self.table_id is not None


@dataclass(frozen=True, slots=True)
class TargetNames:
    """The catalog of a run's session, for targets that are given by name."""

    spark: SparkSession | None
    storage: Storage
    home: str | None = None
    """The schema of the published tables: the only one that is created where it is missing."""
    lake: str = ""
    """The folder beside the control store: new tables of schemas that go with the process go there."""

    def place(self, name: str, known: SinkDone | None) -> Place:
        """Where to write to; `known` is the last write that was made to the name.

        Raises FM-SINK-023 if the name stands for something that cannot be a target, FM-SINK-024 if
        a new table has no place to be made in, FM-SINK-025 if the table has moved. Reads no data.
        """
        spark = self._session(name)
        table = catalog.describe(spark, name)
        if table.what == "missing":
            return Place(self._new_place(spark, name, known))
        if table.what != "delta" or table.managed_by:
            feature = f"commits that only its catalog knows ({table.managed_by})"
            raise _no_target(name, feature if table.what == "delta" else table.found)
        place = Place(absolute(table.location), table.table_id)
        if known and known.table_id == place.table_id and known.target != place.path:
            raise _moved(name, known, place)
        return place

    def register(
        self, name: str, path: str, kind: str = DELTA, options: Mapping[str, str] | None = None
    ) -> None:
        """Make what was just written known by its name; again it changes nothing.

        Raises FM-SINK-024 if the catalog refuses, FM-SINK-025 if the name was taken meanwhile.
        """
        spark = self._session(name)
        with _asking(name, "the rows and their receipt are in the table; a retry finds them there"):
            catalog.register_table(spark, name, path, kind, options)
        table = catalog.describe(spark, name)
        if not _is_that(table, path, kind):
            raise _elsewhere(name, path, table.location or table.found)

    def refresh(self, name: str) -> None:
        """Let the session look again at the files that a name stands for."""
        with _asking(name, "the rows are in the files; a retry finds them there"):
            self._session(name).catalog.refreshTable(catalog.identifier(name))

    def stands_for(self, name: str, path: str, kind: str = DELTA) -> bool:
        """Whether the catalog shows what is at `path` by this name already.

        Raises FM-SINK-025 if the name stands for something else. Without Spark there is no catalog
        to be told, and so nothing to do.
        """
        if self.spark is None:
            return True
        table = catalog.describe(self.spark, name)
        if table.what == "missing":
            self._ensure_schema(self.spark, name)
            return False
        if not _is_that(table, path, kind):
            raise _elsewhere(name, path, table.location or table.found, is_written=False)
        return True

    def _ensure_schema(self, spark: SparkSession, name: str) -> None:
        """A name that YAML asks for gets its schema: it says nothing about where the table is."""
        with _asking(name, _STATE):
            schema = catalog.identifier(catalog.schema_of(spark, name))
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")

    def _session(self, name: str) -> SparkSession:
        if self.spark is None:
            raise _no_target(name, "no Spark session, and so no catalog")
        return self.spark

    def _new_place(self, spark: SparkSession, name: str, known: SinkDone | None) -> str:
        """Where a name that the catalog does not have gets its table, or has it already.

        A local catalog forgets its names with the process, the store does not.
        """
        with _asking(name, _STATE):
            schema = catalog.schema_of(spark, name)
            location = catalog.schema_location(spark, schema)
            if location is None and schema == self.home:
                spark.sql(f"CREATE SCHEMA IF NOT EXISTS {catalog.identifier(schema)}")
                location = catalog.schema_location(spark, schema)
        if location is None:
            raise _no_schema(name, schema)
        if known and is_delta_table(known.target, self.storage):
            return known.target
        # Spark keeps tables under lower-case names, whatever case they were created with.
        table = name.rpartition(".")[2].lower()
        if goes_with_the_process(location):
            return absolute(f"{self.lake}/{schema}/{table}")
        if not location:
            raise _no_place(name, schema)
        return absolute(f"{absolute(location)}/{table}")


def _is_that(table: catalog.Described, path: str, kind: str) -> bool:
    is_table = table.what == ("delta" if kind == DELTA else "other")
    return is_table and table.format == kind and absolute(table.location) == path


NO_CATALOG = TargetNames(None, Storage())
"""For runs without Spark: every name is refused."""


@contextmanager
def _asking(name: str, state: str) -> Iterator[None]:
    """Tell what a catalog refuses as ours; such errors say nothing about the user's frame."""
    from floodmark.engines.faults import engine_errors

    try:
        yield
    except engine_errors() as error:
        raise SinkError(
            "FM-SINK-024",
            f"the catalog does not take the table {name}",
            found=f"{type(error).__name__}: {error}"[:500],
            state=state,
            next="mend what is said above, then run the same command again",
            retryable=True,
        ) from error


def _moved(name: str, known: SinkDone, place: Place) -> SinkError:
    return SinkError(
        "FM-SINK-025",
        f"the target {name} has moved",
        where=name,
        found=f"{place.path}, table id {place.table_id}",
        allowed=f"{known.target}, where it was written last",
        state=_STATE,
        next="put the table back; or go on in the new place:"
        f" run.write(..., {place.path!r}, name={known.write_name!r})",
    )


def _elsewhere(name: str, path: str, found: str, *, is_written: bool = True) -> SinkError:
    return SinkError(
        "FM-SINK-025",
        f"the name {name} was taken by another table{' meanwhile' if is_written else ''}",
        where=path,
        found=found,
        allowed=f"a name that is free, or stands for {path}",
        state="the rows and their receipt are in the table; only the catalog does not name it so"
        if is_written
        else _STATE,
        next=f"drop the other table or give it another name, then retry; or write to {path!r}",
    )


def _no_target(name: str, found: str) -> SinkError:
    return SinkError(
        "FM-SINK-023",
        f"{name} cannot be a target",
        found=found,
        allowed="a Delta table of the session's catalog, or a name that is free; a path with a"
        " slash, or a URI",
        state=_STATE,
        next="write to another name, or to a path",
    )


def _no_schema(name: str, schema: str) -> SinkError:
    return SinkError(
        "FM-SINK-024",
        f"there is no schema {schema} for the table {name}",
        found="the catalog of the session does not have it",
        allowed="a schema that exists; floodmark creates the table, not its schema",
        state=_STATE,
        next=f"CREATE SCHEMA {catalog.identifier(schema)}; in a local session, whose catalog goes"
        " with the process, let the function run that with run.spark.sql before it writes",
    )


def _no_place(name: str, schema: str) -> SinkError:
    return SinkError(
        "FM-SINK-024",
        f"the catalog does not say where the table {name} would be",
        found=f"no location of the schema {schema}",
        allowed="a schema with a location, or a table that exists",
        state=_STATE,
        next=f"create the table once: CREATE TABLE {catalog.identifier(name)} (...) USING delta",
    )


def last_write(sinks: Iterable[SinkDone], name: str) -> SinkDone | None:
    """The last write that was made to a name, by any pipeline; catalogs ignore case."""
    found = [s for s in sinks if s.table and s.table.lower() == name.lower() and s.table_id]
    return max(found, key=lambda sink: sink.seq or 0, default=None)
