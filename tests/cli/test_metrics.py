"""`floodmark metrics`: printed, written, served; the numbers are those of `lag` and `status`."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from floodmark.cli import work
from floodmark.cli.call import Call

Command = Callable[..., Any]
Golden = Callable[[str, str], None]
Numbers = dict[tuple[str, ...], float]

SECONDS = 60
"""Within this a server has started, on a machine that does much else."""


@pytest.fixture
def ran(shop: Path, arrow_call: Callable[..., Call], capsys: pytest.CaptureFixture[str]) -> Path:
    """`daily` and `solo` have run; `report` failed and holds lake/orders in nightly."""
    assert work.run(arrow_call()) == 1
    capsys.readouterr()
    return shop


def numbers_of(text: str) -> Numbers:
    """(name, label values but the project's) -> value; a sample that comes twice fails."""
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("project") == "shop"
            order = ("scope", "upstream", "pipeline", "status", "version")
            key = (sample.name, *(labels[name] for name in order if name in labels))
            assert key not in found
            found[key] = sample.value
    return found


def known(value: float | None) -> list[float]:
    return [] if value is None else [float(value)]


def at(numbers: Numbers, *key: str) -> list[float]:
    return [numbers[key]] if key in numbers else []


# Numbers ------------------------------------------------------------------------------------------


def test_the_numbers_read_as_promised(shop: Path, floodmark: Command, golden: Golden) -> None:
    floodmark("plan", "--freeze")
    batches = floodmark("status", "--json").document["batches"]
    for batch in batches:
        for pipeline in batch["pipelines"]:
            status = "FAILED" if pipeline["name"] == "report" else "SUCCESS"
            floodmark("record", pipeline["name"], batch["batch_id"], "--status", status)
    floodmark("finalize")

    answer = floodmark("metrics")

    assert (answer.code, answer.err) == (0, "")
    changing = r"^(\w+_(?:seconds|bytes|files)\{.*\}) [1-9][\d.e+-]*$"
    moment = r"^(\w+_seconds\{.*\}) 0\.0*[1-9]\d*(?:e-\d+)?$"
    text = re.sub(changing, r"\1 <number>", answer.out, flags=re.MULTILINE)
    text = re.sub(moment, r"\1 <number>", text, flags=re.MULTILINE)
    golden("metrics", re.sub(r'version="[^"]+"', 'version="<version>"', text))


def test_the_upstreams_are_as_lag_shows_them(ran: Path, floodmark: Command) -> None:
    numbers = numbers_of(floodmark("metrics").out)
    upstreams = floodmark("lag", "--json").document["upstreams"]

    assert {each["versions_behind"] for each in upstreams} == {0, 2}
    for each in upstreams:
        key = (each["scope"], each["upstream"])
        committed = -1 if each["committed"] is None else each["committed"]
        assert numbers["floodmark_upstream_lag_versions", *key] == each["versions_behind"]
        assert numbers["floodmark_upstream_latest_version", *key] == each["latest"]
        assert numbers["floodmark_upstream_committed_version", *key] == committed
        assert numbers["floodmark_upstream_held", *key] == bool(each["held_by"])
        assert numbers["floodmark_upstream_lag_known", *key] == 1
        # `lag` looked later, but not long after.
        age = numbers["floodmark_upstream_lag_seconds", *key]
        assert age <= each["seconds_behind"] <= age + SECONDS


def test_the_runs_are_as_status_shows_them(ran: Path, floodmark: Command) -> None:
    numbers = numbers_of(floodmark("metrics").out)
    document = floodmark("status", "--json").document

    seen = []
    for batch in document["batches"]:
        for run in batch["pipelines"]:
            key = (batch["scope"], run["name"])
            last = "floodmark_pipeline_last_run_"
            assert numbers[f"{last}status", *key, run["status"]] == 1
            assert at(numbers, f"{last}rows_read", *key) == known(run["rows_read"])
            assert at(numbers, f"{last}rows_written", *key) == known(run["rows_written"])
            assert at(numbers, f"{last}duration_seconds", *key) == known(run["duration_seconds"])
            assert numbers[f"{last}retries", *key] == run["retries"]
            failures = document["failures_in_a_row"].get(run["name"], 0)
            assert numbers["floodmark_pipeline_failures_in_a_row", *key] == failures
            has_succeeded = numbers["floodmark_pipeline_last_success_timestamp_seconds", *key] > 0
            assert has_succeeded == (run["status"] == "SUCCESS")
            seen.append((run["name"], run["status"]))
    assert sorted(seen) == [("daily", "SUCCESS"), ("report", "FAILED"), ("solo", "SUCCESS")]
    assert numbers["floodmark_open_batches", "nightly", "FAILED"] == 1
    assert numbers["floodmark_open_batches", "solo", "FAILED"] == 0


def test_stuck_batches_follow_the_option(ran: Path, floodmark: Command) -> None:
    calm = numbers_of(floodmark("metrics").out)
    strict = numbers_of(floodmark("metrics", "--stuck-after", "0s").out)

    assert calm["floodmark_stuck_batches", "nightly"] == 0
    assert strict["floodmark_stuck_batches", "nightly"] == 1
    assert floodmark("metrics", "--stuck-after", "soon").code == 2


def test_the_same_numbers_as_a_document(ran: Path, floodmark: Command) -> None:
    document = floodmark("metrics", "--json").document
    numbers = numbers_of(floodmark("metrics").out)

    assert {each["name"] for each in document["metrics"]} == {key[0] for key in numbers}
    [behind] = [
        each["value"]
        for each in document["metrics"]
        if each["name"] == "floodmark_upstream_lag_versions"
        and each["labels"] == {"scope": "nightly", "upstream": str(ran / "lake/orders")}
    ]
    assert behind == 2.0


# A file -------------------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole(ran: Path, floodmark: Command) -> None:
    (ran / "out").mkdir()
    file = ran / "out/floodmark.prom"
    file.write_text("before\n")

    answer = floodmark("metrics", "--out", str(file))

    assert answer.code == 0
    assert re.fullmatch(r"\d+ samples written to \S+floodmark\.prom\n", answer.out)
    assert numbers_of(file.read_text())[("floodmark_store_up",)] == 1
    assert os.listdir(ran / "out") == ["floodmark.prom"]


def test_a_file_that_cannot_be_written_is_named(ran: Path, floodmark: Command) -> None:
    (ran / "folder").mkdir()

    for place in ("nowhere/floodmark.prom", "folder", "x" * 300):
        answer = floodmark("metrics", "--out", place, "--json")
        assert answer.code == 2
        assert answer.document["error"]["code"] == "FM-CONFIG-020"
        assert answer.document["error"]["where"] == place
    assert os.listdir(ran / "folder") == []
    assert not [name for name in os.listdir(ran) if name.endswith(".tmp")]


def test_a_store_that_is_not_there_is_said_in_the_file_too(shop: Path, floodmark: Command) -> None:
    printed = floodmark("metrics")
    written = floodmark("metrics", "--out", "floodmark.prom")

    assert (printed.code, printed.out, written.code) == (4, "", 4)
    assert "FM-CONTROL-001" in printed.err
    assert "FM-CONTROL-001" in written.err
    numbers = numbers_of((shop / "floodmark.prom").read_text())
    assert numbers[("floodmark_store_up",)] == 0
    assert {key[0] for key in numbers} == {
        "floodmark_build_info",
        "floodmark_metrics_timestamp_seconds",
        "floodmark_store_up",
    }


def test_a_damaged_store_is_no_empty_one(ran: Path, floodmark: Command) -> None:
    newest = max((ran / "lake/_control/_journal/_delta_log").glob("*.json"))
    newest.write_text("")

    answer = floodmark("metrics", "--out", "floodmark.prom")

    assert answer.code == 4
    assert "FM-CONTROL-002" in answer.err
    assert numbers_of((ran / "floodmark.prom").read_text())[("floodmark_store_up",)] == 0


# A server -----------------------------------------------------------------------------------------


@contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "floodmark", "metrics", *arguments],
        cwd=cwd,
        env={**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(stream: IO[str] | None) -> str:
    assert stream
    assert select.select([stream], [], [], SECONDS)[0], "the server said nothing"
    return stream.readline()


def scrape(url: str) -> Numbers:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return numbers_of(answer.read().decode())


def test_a_server_says_where_it_is_and_looks_anew_at_each_scrape(
    ran: Path, floodmark: Command
) -> None:
    with serving("--serve", "0", cwd=ran) as process:
        said = first_line(process.stdout)
        url = said.split()[-1]
        before = scrape(url)
        shutil.move(ran / "lake/_control", ran / "lake/_away")
        gone = scrape(url)
        shutil.move(ran / "lake/_away", ran / "lake/_control")
        after = scrape(url)
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=SECONDS)

    assert re.fullmatch(
        r"metrics of shop are served on this machine only: http://127\.0\.0\.1:\d+/metrics\n", said
    )
    assert before[("floodmark_store_up",)] == 1
    assert before["floodmark_upstream_lag_versions", "nightly", str(ran / "lake/orders")] == 2
    assert gone[("floodmark_store_up",)] == 0
    assert "floodmark_upstream_held" not in {key[0] for key in gone}
    assert set(after) == set(before)
    assert process.returncode == 0
    assert "FM-CONTROL-002" in complaints
    assert "Traceback" not in complaints


def test_a_server_starts_before_there_is_a_store(shop: Path) -> None:
    with serving("--serve", "127.0.0.1:0", cwd=shop) as process:
        assert scrape(first_line(process.stdout).split()[-1])[("floodmark_store_up",)] == 0


def test_a_port_that_is_taken_is_named(ran: Path, floodmark: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        answer = floodmark("metrics", "--serve", str(port), "--json")

    assert answer.code == 2
    assert answer.document["error"]["code"] == "FM-CONFIG-020"
    assert answer.document["error"]["where"] == f"127.0.0.1:{port}"


@pytest.mark.parametrize("address", ["", "http", "-1", "65536", "999999", "a:b", ":80", "::1:80"])
def test_an_odd_address_is_refused(ran: Path, floodmark: Command, address: str) -> None:
    answer = floodmark("metrics", f"--serve={address}", "--json")

    assert answer.code == 2
    assert answer.document["error"]["code"] == "FM-CONFIG-007"


def test_a_file_and_a_server_at_once_are_refused(ran: Path, floodmark: Command) -> None:
    answer = floodmark("metrics", "--serve", "0", "--out", "floodmark.prom")

    assert answer.code == 2
    assert "FM-CONFIG-007" in answer.err
    assert not (ran / "floodmark.prom").exists()


# A fresh process ----------------------------------------------------------------------------------

LOADED = """
import sys
from floodmark.cli.main import main
code = main(sys.argv[2:])
loaded = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
sys.exit(f"loaded: {loaded}" if loaded else code)
"""


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [("metrics", "pyspark,py4j"), ("metrics --help", "prometheus_client,pyarrow,yaml")],
)
def test_it_loads_no_more_than_it_needs(arguments: str, unwanted: str, ran: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LOADED, unwanted, *arguments.split()],
        cwd=ran,
        env={**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (answer.returncode, answer.stderr) == (0, "")
