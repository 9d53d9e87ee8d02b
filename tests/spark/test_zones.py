"""Wall times are read as they are, whatever the zone of the JVM; one JVM a zone, all sources in it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tests.spark import zone_story
from tests.support import crash

from floodmark.engines.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

SOURCES = (
    "jdbc", "derived", "parts", "windows", "csv", "json", "parquet", "answer", "delta",
)  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "is_ours"),
    [
        ("Europe/Berlin", False),
        ("America/New_York", False),
        ("Europe/Berlin", True),
        ("America/New_York", True),
    ],
    ids=["handed_in_berlin", "handed_in_new_york", "ours_in_berlin", "ours_in_new_york"],
)
def test_no_hour_of_the_year_is_moved_or_lost(
    zone: str, is_ours: bool, postgres: PostgresServer, pg_schema: str, tmp_path: Path
) -> None:
    quoted = pg_schema.replace('"', '""')
    table = f'"{quoted}".orders'
    rows = [(n, at, f"{at.isoformat()}Z") for n, at in enumerate(zone_story.times(zone))]
    with psycopg.connect(postgres.dsn, autocommit=True) as database:
        database.execute(f"CREATE TABLE {table} (id int, at timestamp, tz timestamptz)".encode())
        with database.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s)".encode(), rows)
    connection = {
        "host": postgres.host,
        "port": postgres.port,
        "database": postgres.database,
        "user": postgres.user,
        "password": postgres.password,
    }

    found = crash.result(
        zone_story.read_everything, zone, connection, table, str(tmp_path), is_ours,
        log=tmp_path / "log",
    )  # fmt: skip

    wrong = [source for source in SOURCES if found[source] != zone_story.expected(zone)]
    assert wrong == []
    assert found["newest"], "the newest value is the one that is there"
    assert found["changed_settings"] == {}
    assert (found["fixed"], found["refused"]) == (
        (True, "") if is_ours else (False, "FM-SOURCE-060")
    )
