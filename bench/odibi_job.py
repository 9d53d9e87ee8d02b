"""Runs in odibi's own environment: the incremental job of bench/incremental.py, by odibi.

    python odibi_job.py FOLDER SPARK_CONF_AS_JSON

The first two rounds warm up; then, and after each round that a line of the input asks for, a line
tells the seconds. At the end of the input the rows are counted.
"""

import json
import os
import sys
import time
from pathlib import Path

from odibi.pipeline import PipelineManager  # type: ignore[import-not-found]
from pyspark.sql import SparkSession

ROWS, NEWS = 1_000_000, 10_000
WARM_ROUNDS = 2
FIRST_SECOND, DAY = 1_700_000_000, 86_400
PROJECT = """
project: bench
engine: spark
connections:
  data: {{type: local, base_path: {folder}/data}}
  sys: {{type: local, base_path: {folder}/sys}}
story: {{connection: sys, path: stories}}
system: {{connection: sys, path: _odibi}}
pipelines:
  - pipeline: p
    layer: bronze
    nodes:
      - name: n
        read:
          connection: data
          format: delta
          path: src
          incremental: {{mode: stateful, column: updated_at}}
        write: {{connection: data, format: delta, path: tgt, mode: append}}
"""


def main(folder: str, conf: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("odibi")
    for key, value in json.loads(conf).items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    Path(folder, "odibi.yaml").write_text(PROJECT.format(folder=folder))
    for turn in range(WARM_ROUNDS):
        taken = do_round(spark, folder, turn)
    print(f"\nBENCH {taken}", flush=True)
    turns = WARM_ROUNDS
    for _ in sys.stdin:
        print(f"\nBENCH {do_round(spark, folder, turns)}", flush=True)
        turns += 1
    found = spark.read.format("delta").load(f"{folder}/data/tgt").count()
    if found != ROWS + (turns - 1) * NEWS:
        raise SystemExit(f"odibi wrote {found} rows")


def do_round(spark: SparkSession, folder: str, turn: int) -> float:
    """New rows, then their load; the seconds of the load."""
    grow(spark, f"{folder}/data/src", turn)
    started = time.perf_counter()
    outcome = PipelineManager.from_yaml(f"{folder}/odibi.yaml").run("p")
    if getattr(outcome, "failed", None):
        raise SystemExit(f"odibi failed: {outcome.failed}")
    return time.perf_counter() - started


def grow(spark: SparkSession, path: str, turn: int) -> None:
    count = NEWS if turn else ROWS
    first = ROWS + turn * NEWS if turn else 0
    begin = FIRST_SECOND + turn * DAY
    rows = spark.range(first, first + count).selectExpr(
        "id",
        "id % 100 AS grp",
        "rand(1) AS amount",
        "concat('n', id) AS name",
        f"timestamp_seconds({begin} + id % 80000) AS updated_at",
    )
    rows.coalesce(1 if turn else 4).write.format("delta").mode("append").save(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
