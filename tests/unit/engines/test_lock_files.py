from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def pins(name: str) -> set[str]:
    return set(re.findall(r"^(\S+==\S+)", (ROOT / name).read_text(), re.MULTILINE))


def test_the_demo_installs_a_part_of_the_full_lock() -> None:
    assert pins("requirements-demo.lock") < pins("requirements.lock")


def test_the_locks_name_no_place_to_fetch_from() -> None:
    for name in ("requirements.lock", "requirements-demo.lock"):
        assert not re.search(r"://|--index|--find-links|--extra-index", (ROOT / name).read_text())


def test_the_jar_of_delta_fits_the_package_of_delta() -> None:
    lock = tomllib.loads((ROOT / "src/floodmark/engines/jars.lock").read_text())
    revisions = {row["rev"] for row in lock["delta"] if row["org"] == "io.delta"}

    assert {f"delta-spark=={rev}" for rev in revisions} <= pins("requirements.lock")


def test_the_connector_to_kafka_is_that_of_the_installed_spark() -> None:
    lock = tomllib.loads((ROOT / "src/floodmark/engines/jars.lock").read_text())
    (connector,) = [row for row in lock["kafka"] if row["name"].startswith("spark-sql-kafka")]

    assert f"pyspark=={connector['rev']}" in pins("requirements.lock")


def test_the_jars_of_a_broker_are_of_one_version() -> None:
    lock = tomllib.loads((ROOT / "src/floodmark/engines/jars.lock").read_text())

    assert (
        len({row["rev"] for row in lock["kafka-broker"] if row["org"] == "org.apache.kafka"}) == 1
    )
