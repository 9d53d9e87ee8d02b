"""Local files of Spark without a process per file: two small classes of Java, compiled in a jar.

Hadoop changes permissions and looks for links by starting `chmod` and `readlink`: on a local disk
some 25 processes for every commit of Delta, a quarter of its time. The jar also leaves out the
settings of YARN, which are sent with every job (docs/decisions/0027).
`python -m floodmark.engines.spawnless.build` compiles the jar again; a test compares it with the
sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

JAR = Path(__file__).with_name("spawnless.jar")
CLASS_PATH = "spark.driver.extraClassPath"
DIGEST = "Floodmark-Sources"
"""The line of the jar's manifest that tells from which sources it was compiled."""

_FILE_SYSTEM = "floodmark.spawnless.SpawnlessFileSystem"
_IMPLEMENTATION = "spark.hadoop.fs.file.impl"


def settings(conf: Mapping[str, str]) -> dict[str, str]:
    """What a session needs to use it, beside `conf`; nothing where it cannot.

    The class path is given when a JVM starts: one that runs already either has the jar or cannot
    use it. Executors on other machines do not have it. Who names a file system keeps that one.
    """
    is_local = conf.get("spark.master", "local").startswith("local")
    if not is_local or _IMPLEMENTATION in conf or not _can_load():
        return {}
    said = conf.get(CLASS_PATH)
    return {
        CLASS_PATH: f"{said}:{JAR}" if said else str(JAR),
        _IMPLEMENTATION: _FILE_SYSTEM,
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "floodmark.spawnless.SpawnlessFs",
    }


def sources(suffix: str) -> list[Path]:
    """The files that the jar is made from, in one order."""
    return sorted(JAR.parent.glob(f"*.{suffix}"))


def digest() -> str:
    """Of all sources together."""
    files = sources("java") + sources("xml")
    return hashlib.sha256(b"".join(source.read_bytes() for source in files)).hexdigest()


def _can_load() -> bool:
    from pyspark import SparkContext

    jvm = SparkContext._jvm  # noqa: SLF001 (pyspark has no other way to ask)
    return jvm is None or not _is_unknown(jvm, _FILE_SYSTEM)


def _is_unknown(jvm: object, name: str) -> bool:
    """A name that py4j finds no class for is taken for a package."""
    from py4j.java_gateway import JavaPackage

    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return isinstance(found, JavaPackage)
