"""Half a year of monthly files, as a first user had them: every step by a command, none by hand.

Six drops of flights, some of them trouble: a run that is killed, a file with a short line that is
corrected in its place, a correction file with newer and older rows, rows that a check rejects, a new
column in the last month. Then a backfill of one month, and a full refresh. After each step the
targets are compared with pandas, which sees all files at once.
"""

from __future__ import annotations

from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from tests.support import crash

from floodmark.failpoints import FailpointReached
from floodmark.project import Project
from floodmark.project.outcomes import RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.as_users]

PROJECT = """\
project: nyc
lease_ttl: 1s
connections:
  inbox: {type: files, root: data}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: bronze
    nodes:
      - name: flights
        read: {connection: inbox, format: csv, path: flights/*.csv, file_column: source_file}
        write:
          connection: lake
          path: bronze/flights
          mode: append
          on_schema_change: add_columns
          options: {partition_by: month}
  - pipeline: silver
    nodes:
      - name: typed
        read: {connection: lake, path: bronze/flights}
        transform:
          - cast_columns:
              columns: {flight_id: long, distance: int, delay: double, updated_at: timestamp}
        expect:
          - {not_null: flight_id}
          - {check: distance >= 0, action: quarantine}
        write:
          connection: lake
          path: silver/flights
          on_schema_change: add_columns
          merge: {keys: [flight_id], sequence_by: updated_at, deletes: soft}
  - pipeline: facts
    nodes:
      - name: planes
        read: {connection: lake, path: planes, lookup: true}
        transform:
          - select: {columns: [tailnum, seats]}
      - name: carriers
        read: {connection: lake, path: carriers, lookup: true}
      - name: arrivals
        read: {connection: lake, path: bronze/flights}
        transform:
          - join: {with: planes, on: tailnum, how: left}
          - join: {with: carriers, on: carrier, how: inner}
        depends_on: [planes, carriers]
        write: {connection: lake, path: gold/arrivals, mode: append, on_schema_change: add_columns}
  - pipeline: gold
    nodes:
      - name: all_flights
        read: {connection: lake, path: silver/flights, method: snapshot}
      - name: by_carrier
        depends_on: [all_flights]
        transform:
          - sql: >
              SELECT carrier, month, count(*) AS flights, sum(distance) AS distance
              FROM all_flights WHERE NOT is_deleted GROUP BY carrier, month
        write: {connection: lake, path: gold/carrier_month, mode: overwrite}
"""
CARRIERS = ("AA", "B6", "UA")
FLIGHTS_PER_MONTH = 40
COLUMNS = ["flight_id", "month", "carrier", "tailnum", "distance", "delay", "note", "updated_at"]
NOTES = ("", "on time", 'the "late" one', "rain, then snow", 'said "wait", twice')


# The drops ----------------------------------------------------------------------------------------


def drop(month: int) -> pd.DataFrame:
    """The flights of a month as they were first reported; one of them has an impossible distance."""
    numbers = range(FLIGHTS_PER_MONTH)
    return pd.DataFrame(
        {
            "flight_id": [month * 1000 + n for n in numbers],
            "month": month,
            "carrier": [CARRIERS[n % 3] for n in numbers],
            "tailnum": [f"N{n % 7}" for n in numbers],
            "distance": [-1 if n == 5 and month == 4 else 100 + n for n in numbers],
            "delay": [None if n % 9 == 0 else n / 4 for n in numbers],
            "note": [NOTES[n % len(NOTES)] for n in numbers],
            "updated_at": f"2013-{month:02d}-28 12:00:00",
        }
    )


def corrections() -> pd.DataFrame:
    """For three flights of March a newer row, and for one an older row, which must not win."""
    rows = drop(3).iloc[[1, 2, 3, 4]].copy()
    rows["delay"] = 99.5
    rows["updated_at"] = [*["2013-04-02 08:00:00"] * 3, "2013-01-01 00:00:00"]
    return rows


def last_drop() -> pd.DataFrame:
    """June, with a column more."""
    return drop(6).assign(gate=[f"G{n % 5}" for n in range(FLIGHTS_PER_MONTH)])


def put(root: Path, name: str, frame: pd.DataFrame) -> None:
    path = root / "data/flights" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)


def dimension(root: Path, name: str, rows: dict[str, list[Any]]) -> None:
    """A table as somebody else keeps it: without a change feed, replaced as a whole."""
    write_deltalake(str(root / "lake" / name), pa.table(rows), mode="overwrite")


def planes(root: Path, seats: int) -> None:
    numbers = range(6)  # one plane of the seven is not in the register
    dimension(
        root,
        "planes",
        {"tailnum": [f"N{n}" for n in numbers], "seats": [seats + n for n in numbers]},
    )


# What the commands do, and what must come out -----------------------------------------------------


class Nyc:
    """The project, run as a user runs it, and the same worked out by pandas."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.reported: list[pd.DataFrame] = []
        """The drops as they were taken in, in their order."""
        self.seats: list[int] = []
        (root / "floodmark.yaml").write_text(PROJECT)

    def project(self) -> Project:
        return Project.load(self.root, session=lambda: self.spark)

    def takes(self, name: str, frame: pd.DataFrame, *, seats: int) -> None:
        put(self.root, name, frame)
        self.reported.append(frame)
        self.seats.append(seats)

    def run(self, *pipelines: str, **options: Any) -> None:
        succeeded(self.project().run(*pipelines, **options))

    def table(self, name: str, columns: str = "*") -> pd.DataFrame:
        delta = DeltaTable(str(self.root / "lake" / name))
        query = QueryBuilder().register("t", delta).execute(f"SELECT {columns} FROM t")
        return pa.table(query.read_all()).to_pandas()

    # Expected -------------------------------------------------------------------------------------

    def rows(self) -> pd.DataFrame:
        return pd.concat(self.reported, ignore_index=True)

    def silver(self) -> pd.DataFrame:
        sound = self.rows().query("distance >= 0").sort_values("updated_at", kind="stable")
        return sound.drop_duplicates("flight_id", keep="last")

    def check(self) -> None:
        """All targets equal pandas, and the guarantees hold."""
        assert self.keyed("bronze/flights") == counted(self.rows())
        assert self.keyed("silver/flights") == counted(self.silver())
        assert self.seated() == self.expected_seats()
        assert self.grouped() == self.expected_groups()
        rejected = self.rows().query("distance < 0")
        if len(rejected):
            kept = self.table("silver/flights_quarantine", "flight_id")
            assert sorted(kept["flight_id"]) == sorted(rejected["flight_id"])
        problems = [finding.text for finding in self.project().verify() if not finding.ok]
        assert problems == []

    def keyed(self, name: str) -> list[tuple[Any, ...]]:
        return counted(self.table(name))

    def seated(self) -> list[tuple[Any, ...]]:
        facts = self.table("gold/arrivals", "flight_id, updated_at, seats")
        return sorted(_row(r) for r in facts.itertuples(index=False))

    def expected_seats(self) -> list[tuple[Any, ...]]:
        """Each row with the seats that its plane had when the row was taken in."""
        rows: list[tuple[Any, ...]] = []
        for frame, seats in zip(self.reported, self.seats, strict=True):
            numbers = frame["tailnum"].str[1:].astype(int)
            known = [None if n == 6 else seats + n for n in numbers]
            rows += zip(frame["flight_id"].astype(str), frame["updated_at"], known, strict=True)
        return sorted(_row(row) for row in rows)

    def grouped(self) -> list[tuple[Any, ...]]:
        return sorted(_row(r) for r in self.table("gold/carrier_month").itertuples(index=False))

    def expected_groups(self) -> list[tuple[Any, ...]]:
        silver = self.silver()
        silver = silver.assign(month=silver["month"].astype(str))
        groups = silver.groupby(["carrier", "month"])["distance"].agg(["count", "sum"])
        return sorted(_row(r) for r in groups.reset_index().itertuples(index=False))


def counted(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Rows in a form that pandas, Spark and CSV agree on."""
    columns = [*COLUMNS, *(["gate"] if "gate" in frame.columns else [])]
    frame = frame[columns].copy()
    frame["delay"] = pd.to_numeric(frame["delay"])
    frame["updated_at"] = pd.to_datetime(frame["updated_at"], utc=True)
    for name in ("flight_id", "month", "distance"):
        frame[name] = pd.to_numeric(frame[name])
    return sorted(_row(row) for row in frame.itertuples(index=False))


def _row(row: Any) -> tuple[Any, ...]:
    return tuple(map(_text, row))


def _text(value: Any) -> str:
    """The same text for a number whatever its type, and for every way to say that there is none."""
    if pd.isna(value):
        return ""
    return format(float(value), "g") if isinstance(value, Real) else str(value)


def succeeded(summary: RunSummary) -> None:
    for error in [o.error for o in summary.outcomes if o.error] + list(summary.refused):
        raise error


def test_half_a_year_needs_no_repair_by_hand(tmp_path: Path, spark: SparkSession) -> None:
    nyc = Nyc(tmp_path, spark)
    dimension(tmp_path, "carriers", {"carrier": list(CARRIERS), "airline": ["A", "B", "U"]})
    planes(tmp_path, 100)

    # Two months; the planes have no news in the second.
    nyc.takes("2013-01.csv", drop(1), seats=100)
    nyc.run()
    nyc.check()
    nyc.takes("2013-02.csv", drop(2), seats=100)
    nyc.run()
    nyc.check()

    # March: the planes have news, and the run ends in the middle of silver.
    planes(tmp_path, 200)
    nyc.takes("2013-03.csv", drop(3), seats=200)
    with crash.armed("sink.after_commit:2"), pytest.raises(FailpointReached):
        nyc.run(jobs=1)
    nyc.run()
    nyc.check()

    # April has a line that is too short: refused with the file's name, corrected in its place.
    put(tmp_path, "2013-04.csv", drop(4))
    with (tmp_path / "data/flights/2013-04.csv").open("a") as file:
        file.write("4999,4,AA\n")
    summary = nyc.project().run()
    errors = [outcome.error for outcome in summary.outcomes if outcome.error]
    assert errors
    assert "2013-04.csv" in str(errors[0])
    nyc.takes("2013-04.csv", drop(4), seats=200)
    batch = next(b for b in nyc.project().coordinator.status() if b.status == "FAILED")
    succeeded(nyc.project().retry(batch.batch_id, on_lost_range="snapshot"))
    nyc.takes("2013-03-corrections.csv", corrections(), seats=200)
    nyc.run()
    nyc.check()

    # May, and June with a new column.
    nyc.takes("2013-05.csv", drop(5), seats=200)
    nyc.run()
    nyc.takes("2013-06.csv", last_drop(), seats=200)
    nyc.run()
    nyc.check()

    # February once more, from versions before the column; then everything again.
    upstream = str(tmp_path / "lake/bronze/flights")
    succeeded(nyc.project().backfill(upstream, "silver", start=1, end=1))
    nyc.check()
    nyc.run("silver+", full_refresh=True)
    nyc.check()
