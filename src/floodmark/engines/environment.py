"""Whether this machine can run pipelines: Python packages, Java, jars."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from floodmark.engines import jars, java
from floodmark.errors import SetupError
from floodmark.model import Finding, bad, good
from floodmark.next_steps import command


def examine_machine() -> list[Finding]:
    """One finding each for pyspark, Java and the Delta jars; starts no Spark."""
    return [_examine_pyspark(), _examine_java(), _examine_jars()]


def _examine_pyspark() -> Finding:
    try:
        return good("pyspark", f"version {version('pyspark')}")
    except PackageNotFoundError:
        text = "not installed: planning works, running does not"
        return bad("pyspark", text, 'pip install "floodmark[spark]"')


def _examine_java() -> Finding:
    try:
        found = java.find()
    except SetupError as error:
        return bad("java", error.title, error.next)
    return good("java", f"version {found.version} at {found.executable}")


def _examine_jars() -> Finding:
    try:
        absent = jars.missing("delta")
    except OSError as error:
        return bad("jars", f"the cache cannot be read: {error}", "mend its permissions")
    if absent:
        names = ", ".join(jar.filename for jar in absent)
        return bad("jars", f"not fetched yet: {names}", command("jars", "fetch"))
    return good("jars", f"Delta jars in {jars.jars_dir()}")
