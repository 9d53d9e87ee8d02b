from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
import pytest

from floodmark.engines import postgres_server
from floodmark.errors import SetupError
from floodmark.postgres import connector


def test_a_server_of_the_wheel_starts_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = os.environ["PATH"].split(os.pathsep)
    without = [folder for folder in folders if not (Path(folder) / "initdb").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(without))

    with postgres_server.running({"max_connections": "7"}) as server:
        with psycopg.connect(server.dsn) as connection:
            said = connection.execute("SHOW max_connections").fetchone()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn.replace(server.password, "wrong"))
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn, connect_timeout=2)

    assert said == ("7",)


def test_a_server_that_is_killed_comes_back_with_what_was_committed() -> None:
    with postgres_server.running() as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        with psycopg.connect(server.dsn) as open_one:
            open_one.execute("INSERT INTO kept VALUES (2)")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                open_one.execute("SELECT pg_sleep(10)")
            open_one.close()

        server.start()

        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_no_programs_are_said_with_the_way_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "programs_folder", lambda: None)

    with pytest.raises(SetupError) as caught, postgres_server.running():
        pass

    assert caught.value.code == "FM-SETUP-006"


def test_a_missing_driver_is_said_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(SetupError) as caught:
        connector("host=nowhere")

    assert caught.value.code == "FM-SETUP-007"
    assert caught.value.next == "pip install 'floodmark[postgres]'"
