"""What the commands show of web APIs: nothing is kept by looking, and nobody waits in silence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.web import Asked, Said, WebServer

from floodmark.cli.main import main
from floodmark.sources.http import api as http

PROJECT = """\
project: money
connections:
  rates: {type: http, base_url: URL, attempts: 2, timeout: 1s}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: rates
    nodes:
      - name: latest
        read: {connection: rates, path: latest}
        write: {connection: lake, path: rates, mode: overwrite}
  - pipeline: orders
    nodes:
      - name: load
        read:
          connection: rates
          path: orders
          schema: id LONG
          incremental: {cursor: id}
        write: {connection: lake, path: orders, mode: append}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with WebServer(lambda asked: Said([{"id": 1}])).running() as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "floodmark.yaml").write_text(PROJECT.replace("URL", server.url))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_asks_and_keeps_nothing(
    project: Path, server: WebServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan"]) == 0
    assert main(["validate", "--connect"]) == 0

    assert "a preview: nothing was written" in capsys.readouterr().out
    assert {asked.path for asked in server.asked} == {"/latest", "/orders"}
    assert [path.name for path in project.iterdir()] == ["floodmark.yaml"]

    assert main(["plan", "--freeze"]) == 0
    assert list((project / "lake/_control/files").rglob("*.json"))


def test_whoever_waits_for_a_web_api_is_told_for_what(
    project: Path,
    server: WebServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(http, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    released = threading.Event()

    def hang(_: Asked) -> Said:
        released.wait(20)
        return Said([])

    server.answer = hang
    try:
        assert main(["plan", "rates"]) == 4
    finally:
        released.set()

    told = capsys.readouterr().err
    place = f"{server.url}/latest"
    assert f"waiting for an answer of {place}: attempt 1 of 2, 1 s at most" in told
    assert (
        f"no answer of {place} (timeout: not done after 1 s): attempt 2 of 2 comes in 0.01 s"
        in told
    )
    assert "FM-SOURCE-050" in told
