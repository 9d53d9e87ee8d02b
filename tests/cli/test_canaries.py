"""A canary in each place where a secret can be, and in sensitive columns: no artefact holds it.

Every error path that can be reached without Spark is driven through the command line; then what
was printed, logged and stored is searched, tables by their rows as well as by their bytes. Those of
Spark, databases and streams: tests/streaming/test_canaries_with_spark.py.
"""

from __future__ import annotations

import json
import logging
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.cli.conftest import ON_DELTA_RS
from tests.support.canaries import canary, stored, traces
from tests.support.web import Asked, Said, WebServer

from floodmark import secrecy
from floodmark.cli.call import Opening
from floodmark.cli.main import main
from floodmark.coordinator import Outside
from floodmark.errors import FloodmarkError, SinkError
from floodmark.observe.logs import JsonLines, PlainLines
from floodmark.streaming.ledger.batches import DeadLetter
from floodmark.testing import ArrowEngine

NAMES = ("password", "token", "header", "param", "plugin", "database", "jdbc")
"""Where the project has a secret."""


PROJECT = """\
project: canaries
plugins: [own]
connections:
  lake: {type: lake, root: lake}
  basic: {type: http, base_url: URL, attempts: 2, user: me, password: "${env:FM_PASSWORD}"}
  bearer: {type: http, base_url: URL, attempts: 1, token: "${env:FM_TOKEN}"}
  headers: {type: http, base_url: URL, attempts: 1, headers: {X-Api-Key: "${env:FM_HEADER}"}}
  params: {type: http, base_url: URL, attempts: 1, params: {api_key: "${env:FM_PARAM}"}}
  away:
    {type: postgres, host: 127.0.0.1, port: 1, database: d, user: u, password: "${env:FM_DATABASE}"}
  wares: {type: mysql, host: h, database: d, user: u, password: "${env:FM_JDBC}"}
  own: {type: plugin, name: own, options: {token: "${env:FM_PLUGIN}"}}
pipelines:
  - {pipeline: basic, nodes: [{name: a, read: {connection: basic, path: x}, WRITE}]}
  - {pipeline: bearer, nodes: [{name: a, read: {connection: bearer, path: x}, WRITE}]}
  - {pipeline: headers, nodes: [{name: a, read: {connection: headers, path: x}, WRITE}]}
  - {pipeline: params, nodes: [{name: a, read: {connection: params, path: x}, WRITE}]}
  - pipeline: away
    nodes:
      - name: a
        read: {connection: away, table: t, incremental: {cursor: id}}
        WRITE
  - pipeline: own
    nodes:
      - {name: a, read: {connection: own, table: t, schema: id LONG, incremental: {cursor: id}}, WRITE}
  - {pipeline: tells, upstreams: [lake/orders], function: jobs:tells}
  - {pipeline: logs, upstreams: [lake/orders], function: jobs:logs}
"""

OWN = """\
import floodmark as fm


@fm.source("own")
class Own:
    def __init__(self, options):
        self.options = options

    def latest(self):
        raise ValueError(f"no access with {self.options}")

    def read(self, spark, after, through):
        raise ValueError(f"no access with {self.options}")
"""

JOBS = """\
import logging
import os


def everything():
    return " ".join(value for name, value in os.environ.items() if name.startswith("FM_"))


def tells(inputs, run):
    raise ValueError(f"no login with {everything()}")


def logs(inputs, run):
    logging.getLogger("floodmark").warning("no login with %s", everything())
    try:
        tells(inputs, run)
    except ValueError:
        logging.getLogger("floodmark").exception("again")
    return {"login": everything()}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """Refuses everybody, and repeats all that it was sent."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def echo(asked: Asked) -> Said:
        sent = json.dumps([asked.params, dict(asked.headers)], ensure_ascii=False)
        return Said(f"{sent} {asked.params} {dict(asked.headers)}".encode(), status=401)

    with WebServer(echo).running() as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        value = canary(name)
        # A header takes no other letters.
        is_ascii = name in ("token", "header")
        monkeypatch.setenv(f"FM_{name.upper()}", value.replace("ü", "u") if is_ascii else value)
    write = "write: {connection: lake, path: out, mode: append}"
    text = PROJECT.replace("URL", server.url).replace("WRITE", write)
    (tmp_path / "floodmark.yaml").write_text(text)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "jobs.py").write_text(JOBS)
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(tmp_path / "lake/orders"), pa.table({"id": [1]}), configuration=feed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = [
    ["validate", "--connect"],
    ["plan"],
    ["plan", "--json"],
    ["plan", "--freeze"],
    *(["run", name] for name in ("basic", "bearer", "headers", "params", "away", "own")),
    ["run", "tells", "--json"],
    ["run", "logs"],
    ["config"],
    ["history"],
    ["status", "--json"],
    ["doctor"],
    ["verify"],
    ["lag"],
]


def test_no_secret_is_in_anything_that_is_printed_logged_or_stored(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = ""
    for command in COMMANDS:
        main([*command, "--verbose"], ON_DELTA_RS)
        said = capsys.readouterr()
        printed += said.out + said.err

    assert traces(printed, NAMES) == []
    assert "***" in printed
    assert "FM-CONFIG-003" not in printed
    for code in ("FM-SOURCE-031", "FM-SOURCE-045", "FM-SOURCE-051", "FM-RUN-001"):
        assert code in printed
    # The project's own file names them, the environment holds them; nobody else does.
    kept = list(stored(project / "lake"))
    assert [traces(text, NAMES) for text in kept if traces(text, NAMES)] == []
    assert any("no login with ***" in text for text in kept), "the error was not journaled"


@pytest.mark.parametrize("form", [str, repr, json.dumps, urllib.parse.quote_plus, str.upper])
def test_a_secret_is_masked_in_each_form_in_which_it_is_told(form: Any) -> None:
    secret = canary("any")
    if form is not str.upper:
        secrecy.remember(secret)
    text = f"no login with {form(secret)} here"

    masked = secrecy.masked(text)

    assert ("9+any" in urllib.parse.unquote(masked)) == (form is str.upper and "9+any" in text)
    assert secrecy.masked("nothing of it") == "nothing of it"


@pytest.mark.parametrize("length", range(6, 20))
def test_a_secret_that_a_bounded_text_cut_off_is_masked_too(length: int) -> None:
    secrecy.remember("Kanarienvogel-im-Bergwerk")

    assert secrecy.masked("login: " + "Kanarienvogel-im-Bergwerk"[:length]) == "login: ***"


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (
            '{"client_email": "me@x", "private_key": "-----BEGIN\\nKanarienvogel\\n"}',
            "Kanarienvogel",
        ),
        ("?sv=2024&sig=Kanarien%2Fvogel%3D&se=2027", "sig: Kanarien/vogel="),
        ("-----BEGIN KEY-----\nKanarienvogel\n-----END KEY-----", "Kanarienvogel"),
        ("two  spaces Kanarienvogel", "two spaces Kanarienvogel"),
    ],
)
def test_the_secret_part_of_a_secret_is_masked_by_itself(secret: str, told: str) -> None:
    secrecy.remember(secret)

    assert "vogel" not in secrecy.masked(f"no login: {told}")


def test_errors_logs_and_dead_letters_are_masked_wherever_they_are_made() -> None:
    secrecy.remember(canary("x"))
    text = f"refused {canary('x')}"
    error = SinkError("FM-SINK-019", text, where=text, found=text, details={"said": text})
    record = logging.LogRecord("floodmark", logging.INFO, "f", 1, "%s", (text,), None)
    letter = DeadLetter("t", 0, 1, "x", text)

    views = [
        str(error),
        str(error.as_dict()),
        error.in_one_line(),
        PlainLines().format(record),
        JsonLines().format(record),
        letter.detail,
        (letter.message("t", "s").value or b"").decode(),
    ]

    assert [view for view in views if traces(view, ("x",))] == []


# Values of sensitive columns ----------------------------------------------------------------------

SENSITIVE = """\
project: people
connections: {lake: {type: lake, root: lake}}
pipelines:
  - pipeline: people
    nodes:
      - name: load
        read: {connection: lake, path: people}
        columns: {ssn: {sensitive: true}}
        WRITE
"""
SSN = "078-05-1120"


@pytest.mark.parametrize("write", ["merge: {keys: [ssn]}", "mode: append"])
def test_no_value_of_a_sensitive_column_is_in_an_error_or_an_example(
    tmp_path: Path, write: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = SENSITIVE.replace("WRITE", f"write: {{connection: lake, path: out, {write}}}")
    (tmp_path / "floodmark.yaml").write_text(text)
    rows = pa.table({"ssn": [SSN, SSN], "name": ["a", "b"], "at": [datetime.now(UTC)] * 2})
    write_deltalake(str(tmp_path / "lake/people"), rows)

    class Telling(ArrowEngine):
        """Fails as an engine does that shows the row it stumbles over."""

        def sink(self, *arguments: Any) -> Any:
            inner = super().sink(*arguments)
            if write == "mode: append":
                monkeypatch.setattr(inner, "write", _stumble)
            return inner

    opening = Opening(session=lambda: None, outside=Outside(engine=Telling()))
    commands = (["validate"], ["plan"], ["run"], ["history"])

    codes = [main([*each, "--verbose"], opening) for each in commands]

    said = capsys.readouterr()
    assert SSN not in said.out + said.err
    assert (said.out + said.err).count("may still be seen in") == 3
    assert "rows set aside" in said.out
    assert codes[0] == 0
    control = tmp_path / "lake/_control"
    assert [each for each in stored(control) if SSN in each] == []


def _stumble(frame: Any, receipt: object) -> None:
    del receipt
    raise ValueError(f"row {frame.to_pylist()[0]} does not fit")


def test_errors_of_sinks_lose_their_text_where_a_column_is_sensitive() -> None:
    from floodmark.run.nodes.graph import hide_values

    told = FloodmarkError("FM-SINK-030", "a value does not fit", found=f"value {SSN}")
    told.__cause__ = ValueError(SSN)

    hide_values(told)

    assert SSN not in str(told)
    assert told.hides_cause
