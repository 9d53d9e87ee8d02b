"""Sessions that cannot write receipts, by a real server of Spark Connect: no door writes a row."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from deltalake import write_deltalake

from floodmark.engines import java
from floodmark.engines.spark import default_conf

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOME = Path(pyspark.__file__).parent
OF_DELTA = ("spark.jars", "spark.sql.extensions", "spark.sql.catalog.spark_catalog")

COORDINATOR = """
import json, sys
from pathlib import Path
import floodmark as fm
from pyspark.sql import SparkSession
from floodmark.sinks.delta.streams import stream_merge

def answer(act):
    try:
        return str(act())
    except fm.FloodmarkError as error:
        return {"code": error.code, "found": error.found, "next": error.next}

def function(inputs, run):
    Path("called").touch()
    run.table("lake/orders").collect()
    run.write(inputs["lake/orders"], "lake/out", mode="append", changes="log")

remote, settings = json.loads(sys.argv[1])
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = (builder.remote(remote) if remote else builder.master("local[1]")).getOrCreate()
coordinator = fm.Coordinator("control", spark=spark, schema=None)
coordinator.register("copy", ["lake/orders"])
batch = coordinator.create_batch().batch_id
merge = stream_merge("lake/merged", stream="s", keys=["id"])
told = {
    "run": answer(lambda: coordinator.run_pipeline("copy", batch, function)),
    "merge": answer(lambda: merge(spark.range(1), 0)),
    "local": answer(fm.local_session),
    "runs": [run.status for each in coordinator.status() for run in each.runs.values()],
    "receipt": spark.conf.get("spark.databricks.delta.write.txnAppId", "none"),
}
if remote:
    told["rows read"] = coordinator.inputs(batch, "copy")["lake/orders"].count()
print(json.dumps(told))
"""

PROJECT = """\
project: shop
pipelines:
  - pipeline: copy
    upstreams: [lake/orders]
    function: jobs:copy
  - pipeline: nodes
    nodes:
      - name: orders
        read: {path: lake/orders}
        write: {path: lake/out, mode: append, changes: log}
"""

JOBS = """\
from pathlib import Path

def copy(inputs, run):
    Path("called").touch()
    run.write(inputs["lake/orders"], "lake/out", mode="append", changes="log")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server of Spark Connect that has Delta, and ends with the tests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = default_conf()
    settings = {
        **{key: conf[key] for key in OF_DELTA},
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    said = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    process = subprocess.Popen(
        [HOME / "bin/spark-submit", "--class", main, *said],
        env={**os.environ, "JAVA_HOME": str(java.home(java.find())), "SPARK_HOME": str(HOME)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"no server of Spark Connect at port {port}")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    feed = {"delta.enableChangeDataFeed": "true"}
    orders = pa.table({"id": [1, 2]})
    write_deltalake(str(tmp_path / "lake/orders"), orders, configuration=feed)
    (tmp_path / "floodmark.yaml").write_text(PROJECT)
    (tmp_path / "jobs.py").write_text(JOBS)
    return tmp_path


def floodmark(shop: Path, *words: str, **environment: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "floodmark", *words],
        cwd=shop,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    return ran.returncode, ran.stdout


def coordinated(shop: Path, remote: str | None, settings: dict[str, str]) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", COORDINATOR, json.dumps([remote, settings])],
        cwd=shop,
        env={**os.environ, "JAVA_HOME": str(java.home(java.find()))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def nothing_was_done(shop: Path) -> bool:
    written = [shop / "called", *(shop / "lake" / name for name in ("out", "merged", "events"))]
    return not any(path.exists() for path in written)


def test_the_coordinator_refuses_spark_connect_before_the_run_is_leased(
    server: str, shop: Path
) -> None:
    told = coordinated(shop, server, {})

    assert told["run"]["code"] == "FM-SINK-046"
    assert told["run"]["found"] == "a Spark Connect session"
    assert told["merge"]["code"] == "FM-SINK-046"
    assert told["local"]["code"] == "FM-SETUP-013"
    assert told["runs"] == []
    assert told["receipt"] == "none"
    assert told["rows read"] == 2
    assert nothing_was_done(shop)


@pytest.mark.parametrize("names", [(), ("spark.jars",)])
def test_the_coordinator_refuses_a_session_without_delta_before_the_run_is_leased(
    shop: Path, names: tuple[str, ...]
) -> None:
    conf = default_conf()

    told = coordinated(
        shop, None, {"spark.ui.enabled": "false", **{name: conf[name] for name in names}}
    )

    assert told["run"]["code"] == told["merge"]["code"] == "FM-SINK-046"
    assert ("spark_catalog" if names else "txnAppId") in told["run"]["found"]
    assert told["local"]["code"] == "FM-SETUP-005"
    assert told["runs"] == []
    assert nothing_was_done(shop)


@pytest.mark.parametrize("pipeline", ["copy", "nodes"])
def test_a_project_is_not_run_over_spark_connect(shop: Path, server: str, pipeline: str) -> None:
    code, text = floodmark(shop, "run", pipeline, SPARK_REMOTE=server)

    assert code != 0
    assert "FM-SETUP-013" in text
    assert "SPARK_REMOTE" in text
    assert "PySpark" not in text
    assert nothing_was_done(shop)
    history = floodmark(shop, "history")[1]
    assert "PLAN" in history
    assert "LEASE" not in history


def test_a_default_of_spark_connect_gives_a_local_session_all_the_same(shop: Path) -> None:
    code, text = floodmark(shop, "run", "nodes", SPARK_API_MODE="connect")

    assert code == 0, text
    assert (shop / "lake/out/_delta_log").exists()
    assert "Warning" not in text


def test_a_stream_is_not_run_over_spark_connect(shop: Path, server: str) -> None:
    (shop / "schemas").mkdir()
    (shop / "schemas/event.ddl").write_text("id BIGINT NOT NULL")
    stream = {
        "pipelineId": "events",
        "extract": {
            "topic": "events",
            "schemaName": "event",
            "connectionParams": {"kafka.bootstrap.servers": "127.0.0.1:9"},
        },
        "load": {
            "sinkType": "delta",
            "table": "events",
            "path": "lake/events",
            "createTable": True,
        },
        "streamingConfigJson": {"checkpointLocation": "checkpoint", "triggerMode": "availableNow"},
    }
    (shop / "events.json").write_text(json.dumps(stream))

    code, text = floodmark(shop, "stream", "run", "events.json", SPARK_REMOTE=server)

    assert code == 2, text
    assert text.startswith("FM-SETUP-013")
    assert nothing_was_done(shop)
