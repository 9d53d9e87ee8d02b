"""The jars that Spark needs beside its own, by name and checksum from `jars.lock`.

They are fetched once, by name, with the Ivy that ships inside pyspark, into the cache; Spark gets
them through `spark.jars`, which saves its own resolve at each start. Two settings serve closed
sites: FLOODMARK_JARS names a folder (filled by `export`) to use instead of the cache, and
FLOODMARK_IVY_SETTINGS an Ivy settings file that knows the site's own repository.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from floodmark.engines import java
from floodmark.engines.cache import cache_dir
from floodmark.errors import SetupError
from floodmark.next_steps import command

FETCH_TIMEOUT_SECONDS = 600

FOR_TESTS = ("h2",)
"""Groups that only tests of floodmark need."""
ON_REQUEST = ("kafka", "kafka-broker", *FOR_TESTS)
"""Groups that are fetched and verified where they are named: those that only streams need, too."""

# Without `bundle` Ivy leaves out jars that are packaged as OSGi bundles.
_IVY_TYPES = ("jar", "bundle")


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    org: str
    name: str
    rev: str
    bytes: int
    sha256: str

    @property
    def filename(self) -> str:
        """What the file is called in the cache."""
        return f"{self.name}-{self.rev}.jar"


@cache
def groups() -> dict[str, tuple[Jar, ...]]:
    """Every group of the lock, by name."""
    import tomllib

    text = files("floodmark.engines").joinpath("jars.lock").read_text()
    return {group: tuple(Jar(**row) for row in rows) for group, rows in tomllib.loads(text).items()}


def usual_groups() -> tuple[str, ...]:
    """The groups that are meant where none is named."""
    return tuple(group for group in groups() if group not in ON_REQUEST)


def jars_dir() -> Path:
    """The folder the jars are in: FLOODMARK_JARS, else `jars` in the cache; may not exist."""
    named = os.environ.get("FLOODMARK_JARS")
    return Path(named) if named else cache_dir() / "jars"


def missing(group: str) -> tuple[Jar, ...]:
    """The jars of `group` that are not there; looks at names only."""
    return tuple(jar for jar in groups()[group] if not (jars_dir() / jar.filename).is_file())


def verify(group: str) -> None:
    """Compare every jar of `group` with its checksum; raises SetupError FM-SETUP-004 on the first
    that differs and FM-SETUP-002 if one is not there. Changes nothing.
    """
    for jar in groups()[group]:
        path = jars_dir() / jar.filename
        if not path.is_file():
            raise _unfetched(f"{path} is not there", group)
        _check(group, jar, path)


def paths(group: str) -> list[Path]:
    """The verified files of `group`, fetched first if any is missing."""
    if missing(group):
        fetch(group)
    verify(group)
    return [jars_dir() / jar.filename for jar in groups()[group]]


def fetch(group: str) -> tuple[Jar, ...]:
    """Fetch what is missing of `group` and return it; nothing to do the second time.

    Each jar is checked in a private folder and then renamed into place, so that a reader never
    sees half a file and two processes may fetch at once. Raises SetupError FM-SETUP-002 if Ivy
    cannot get a jar and FM-SETUP-004 if what came is not what the lock names.
    """
    wanted = missing(group)
    if not wanted:
        return ()
    target = jars_dir()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as folder:
        _retrieve(group, wanted, Path(folder))
        for jar in wanted:
            _check(group, jar, Path(folder) / jar.filename)
            os.replace(Path(folder) / jar.filename, target / jar.filename)
    return wanted


def export(folder: Path) -> list[Path]:
    """Copy the verified jars of every group into `folder`, for a machine without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [group for group in groups() if group not in FOR_TESTS]
    return [Path(shutil.copy2(path, folder)) for group in wanted for path in paths(group)]


def _retrieve(group: str, wanted: tuple[Jar, ...], folder: Path) -> None:
    (folder / "ivy.xml").write_text(_ivy_module(wanted))
    command = [str(java.home(java.find()) / "bin" / "java"), *_proxy_options(), "-jar", _ivy_jar()]
    command += ["-warn", "-cache", str(folder / "ivy-cache"), "-ivy", str(folder / "ivy.xml")]
    if settings := os.environ.get("FLOODMARK_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-types", *_IVY_TYPES, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unfetched(f"no answer within {FETCH_TIMEOUT_SECONDS} s", group) from error
    absent = [jar.filename for jar in wanted if not (folder / jar.filename).is_file()]
    if ran.returncode or absent:
        raise _unfetched(_tail(ran.stdout) or f"Ivy did not retrieve {', '.join(absent)}", group)


def _ivy_module(wanted: tuple[Jar, ...]) -> str:
    from xml.sax.saxutils import quoteattr

    dependencies = "".join(
        f"<dependency org={quoteattr(jar.org)} name={quoteattr(jar.name)} "
        f'rev={quoteattr(jar.rev)} transitive="false" conf="default->default"/>'
        for jar in wanted
    )
    return (
        '<ivy-module version="2.0"><info organisation="floodmark" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> str:
    spec = find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return str(found)
    raise SetupError(
        "FM-SETUP-003",
        "pyspark is not installed",
        state="nothing was fetched",
        next="pip install 'floodmark[spark]'",
    )


def _proxy_options() -> list[str]:
    """The machine's proxy in Java's words: Java does not read HTTPS_PROXY."""
    # Imported here, as in others of this module: commands that need no jars start sooner.
    import urllib.parse
    import urllib.request

    options = []
    for scheme, address in urllib.request.getproxies().items():
        proxy = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
        if scheme in ("http", "https") and proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return options


def _check(group: str, jar: Jar, path: Path) -> None:
    with path.open("rb") as file:
        seen = hashlib.file_digest(file, "sha256").hexdigest()
    if seen != jar.sha256:
        raise SetupError(
            "FM-SETUP-004",
            f"{jar.filename} does not match its checksum",
            where=str(path),
            found=f"sha256 {seen}, {path.stat().st_size} bytes",
            allowed=f"sha256 {jar.sha256}, {jar.bytes} bytes",
            state="the jar was not given to Spark",
            next=f"rm '{path}', then: " + command("jars", "fetch", group),
        )


def _unfetched(found: str, group: str) -> SetupError:
    return SetupError(
        "FM-SETUP-002",
        f"jars of the group {group} are missing and could not be fetched",
        where=str(jars_dir()),
        found=found,
        state="nothing was started; what had been fetched before is unchanged",
        next=command("jars", "fetch", group)
        + " (a site without a network: FLOODMARK_JARS=<folder>)",
        retryable=True,
    )


def _tail(output: str, lines: int = 12) -> str:
    kept = [line.strip() for line in output.splitlines() if line.strip(" .\t")]
    return "\n           ".join(kept[-lines:])
