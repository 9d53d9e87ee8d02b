"""What a session reads whose JVM is in a zone with summer time: for a process of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.conninfo import make_conninfo
from tests.support.sessions import SMALL

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model.cursor_marks import mark_of
from floodmark.postgres import connector
from floodmark.sources.cursor import jdbc
from floodmark.sources.cursor.database import SqlReader
from floodmark.sources.cursor.sql.parts import Parts
from floodmark.sources.cursor.sql.queries import Bounds, SqlRelation
from floodmark.sources.files import FileReader, FileRows
from floodmark.sources.files.lists import FileFacts, FileLists
from floodmark.sources.http import Answers, Api, Question

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SWITCHES = {
    "Europe/Berlin": ("2025-03-30 02:00", "2025-10-26 02:00"),
    "America/New_York": ("2025-03-09 02:00", "2025-11-02 01:00"),
}
DDL = "id INT, at TIMESTAMP_NTZ, tz TIMESTAMP"
Rows = list[list[Any]]


def times(zone: str) -> list[datetime]:
    """Wall times around both switches of the year, the skipped and the doubled hour among them."""
    steps = [timedelta(minutes=m, microseconds=m + 1) for m in range(-75, 150, 15)]
    switches = map(datetime.fromisoformat, SWITCHES[zone])
    return [switch + step for switch in switches for step in steps]


def expected(zone: str) -> Rows:
    """Every row as number, wall time, and microseconds of its instant."""
    return [[n, text(at), micros(at)] for n, at in enumerate(times(zone))]


def text(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="microseconds").rstrip("0")


def micros(at: datetime) -> int:
    return (at.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def shown(frame: DataFrame) -> Rows:
    """Without Python's own zone: as text and numbers."""
    columns = ["id", "CAST(at AS STRING)", "unix_micros(tz)"]
    return sorted(list(row) for row in frame.selectExpr(*columns).collect())


def read_everything(
    zone: str, connection: Mapping[str, Any], table: str, folder: str, is_ours: bool
) -> dict[str, Any]:
    """All sources that read times, in one session: one of ours, or one that is handed in."""
    os.environ["TZ"] = zone
    time.tzset()
    import floodmark as fm
    from floodmark.engines.jvm import has_fixed_zone

    theirs = {
        "spark.driver.extraJavaOptions": f"-Duser.timezone={zone}",
        "spark.sql.session.timeZone": zone,
    }
    spark = fm.local_session({**SMALL, **({} if is_ours else theirs)}, connectors=["postgres"])
    before = settings_of(spark)
    found = {
        "fixed": has_fixed_zone(spark),
        **database(spark, jdbc.JdbcConnection("postgres", **connection), table, times(zone)),
        **files(spark, Path(folder), zone),
        "delta": delta(spark, Path(folder) / "delta", times(zone)),
    }
    found["changed_settings"] = {k: v for k, v in settings_of(spark).items() if before.get(k) != v}
    return found


def settings_of(spark: SparkSession) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def database(
    spark: SparkSession, connection: jdbc.JdbcConnection, table: str, ats: list[datetime]
) -> dict[str, Any]:
    query = f"SELECT * FROM {table}"
    relation = SqlRelation("postgres", "at", table=table)
    dsn = make_conninfo(
        host=connection.host,
        port=connection.port,
        dbname=connection.database,
        user=connection.user,
        password=connection.password,
    )
    reader = SqlReader("sql://erp/orders", relation, lambda: connection, connector(dsn))
    half = mark_of(ats[len(ats) // 4])
    probe = jdbc.probe(spark, connection, reader.relation, None, half)
    first = reader.frame(spark, Bounds(None, half))
    rest = reader.frame(spark, Bounds(half, mark_of(ats[-1]), excludes_low=True))
    try:
        jdbc.read(spark, connection, f"SELECT ARRAY[at] AS many FROM {table}").collect()
        refused = ""
    except SourceError as error:
        refused = error.code
    derived = f"SELECT id, at, at::timestamptz AS tz FROM {table}"
    return {
        "derived": shown(jdbc.read(spark, connection, derived)),
        "jdbc": shown(jdbc.read(spark, connection, query)),
        "parts": shown(jdbc.read_in_parts(spark, connection, query, Parts("at", 4))),
        "windows": shown(first) + shown(rest),
        "newest": probe.newest == half,
        "refused": refused,
    }


def files(spark: SparkSession, folder: Path, zone: str) -> dict[str, Rows]:
    """CSV, JSON and Parquet, which carry wall times and instants apart."""
    ats = times(zone)
    lines = [f"{n},{text(at)},{text(at)}Z" for n, at in enumerate(ats)]
    records = [
        json.dumps({"id": n, "at": at.isoformat(), "tz": at.isoformat() + "Z"})
        for n, at in enumerate(ats)
    ]
    contents = {"csv": "id,at,tz\n" + "\n".join(lines), "json": "\n".join(records)}
    found = {}
    for form, content in contents.items():
        (folder / form).mkdir()
        (folder / form / "a").write_text(content)
        found[form] = shown(frame_of(spark, folder / form, form))
    (folder / "parquet").mkdir()
    pq.write_table(arrow(ats, 0), folder / "parquet" / "a")
    found["parquet"] = shown(frame_of(spark, folder / "parquet", "parquet"))
    found["answer"] = shown(answer(spark, folder, "\n".join(records), len(records)))
    return found


def answer(spark: SparkSession, folder: Path, content: str, count: int) -> DataFrame:
    """What a web API has answered, as it is kept for a batch."""
    control, upstream = str(folder / "_control"), "source://api/rows"
    mark = FileLists(control, Storage()).keep_content(upstream, content.encode(), count)
    api = Api("https://api.example.org")
    return Answers(api, Question("rows"), upstream, control, Storage()).frame(spark, mark, DDL)


def frame_of(spark: SparkSession, folder: Path, form: str) -> DataFrame:
    lists = FileLists(str(folder / "_control"), Storage())
    reader = FileReader("files://in", str(folder), "*", form, lists, Storage(), DDL)
    return FileRows(reader).frame(spark, {"a": FileFacts((folder / "a").stat().st_size, 0)})


def arrow(ats: list[datetime], first: int) -> pa.Table:
    instants = [at.replace(tzinfo=UTC) for at in ats]
    return pa.table(
        {
            "id": pa.array(range(first, first + len(ats)), pa.int32()),
            "at": pa.array(ats, pa.timestamp("us")),
            "tz": pa.array(instants, pa.timestamp("us", "UTC")),
        }
    )


def delta(spark: SparkSession, folder: Path, ats: list[datetime]) -> Rows:
    """Two windows of a table by its wall times, cut in the hour that the zone skips."""
    from deltalake import write_deltalake

    import floodmark as fm

    half = len(ats) // 4
    c = fm.Coordinator(str(folder.parent / "control"), spark=spark, actor="tester", schema=None)
    path = str(folder)
    seen: Rows = []

    def step(part: list[datetime], first: int) -> None:
        write_deltalake(path, arrow(part, first), mode="append")
        if not seen:
            c.register("times", [fm.Upstream(path, time_column="at")])
        batch = str(c.create_batch().batch_id)
        c.run_pipeline("times", batch, lambda inputs, _: seen.extend(shown(inputs[path])))
        c.finalize_batch(batch)

    step(ats[:half], 0)
    step(ats[half:], half)
    return seen
