from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from floodmark.engines import jars
from floodmark.errors import SetupError

CONTENT = b"a jar"
JAR = jars.Jar("org", "thing", "1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FLOODMARK_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "groups", lambda: {"delta": (JAR,)})
    (tmp_path / "jars").mkdir()
    return tmp_path / "jars"


class Ivy:
    """Stands in for the program that fetches: remembers how it was called, and puts a jar there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.content = CONTENT
        self.command: list[str] = []
        self.module = ""
        self._run = subprocess.run
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, command: list[str], **options: Any) -> Any:
        if "-ivy" not in command:
            return self._run(command, **options)
        module = Path(command[command.index("-ivy") + 1])
        self.command, self.module = command, module.read_text()
        (module.parent / JAR.filename).write_bytes(self.content)
        return subprocess.CompletedProcess(command, 0, "")


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch) -> Ivy:
    return Ivy(monkeypatch)


def test_a_fetched_jar_is_there_once_and_for_all(folder: Path, ivy: Ivy) -> None:
    assert jars.fetch("delta") == (JAR,)
    assert jars.fetch("delta") == ()
    assert [path.name for path in folder.iterdir()] == ["thing-1.0.jar"]


def test_a_wrong_jar_is_refused_and_never_reaches_the_folder(folder: Path, ivy: Ivy) -> None:
    ivy.content = b"something else"

    with pytest.raises(SetupError) as caught:
        jars.fetch("delta")

    assert caught.value.code == "FM-SETUP-004"
    assert list(folder.iterdir()) == []


def test_a_damaged_jar_is_found_before_it_is_used(folder: Path) -> None:
    (folder / JAR.filename).write_bytes(b"damaged")

    with pytest.raises(SetupError) as caught:
        jars.paths("delta")

    assert caught.value.code == "FM-SETUP-004"


def test_verify_of_an_empty_folder_says_how_to_fill_it() -> None:
    with pytest.raises(SetupError) as caught:
        jars.verify("delta")

    assert caught.value.code == "FM-SETUP-002"
    assert (caught.value.next or "").startswith("floodmark jars fetch delta ")


def test_export_copies_what_another_machine_needs(folder: Path, tmp_path: Path) -> None:
    (folder / JAR.filename).write_bytes(CONTENT)

    assert jars.export(tmp_path / "stick") == [tmp_path / "stick" / JAR.filename]


def test_ivy_is_asked_for_exact_versions_without_dependencies(ivy: Ivy) -> None:
    jars.fetch("delta")

    assert 'name="thing" rev="1.0" transitive="false"' in ivy.module
    assert "http" not in ivy.module


def test_a_proxy_of_the_machine_is_said_in_javas_words(
    ivy: Ivy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "urllib.request.getproxies", lambda: {"https": "http://proxy.example:3128", "no": "x"}
    )

    jars.fetch("delta")

    options = [option for option in ivy.command if option.startswith("-D")]
    assert options == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]


def test_what_only_streams_need_is_fetched_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jars, "groups", lambda: {"delta": (JAR,), "kafka": (), "kafka-broker": ()})

    assert jars.usual_groups() == ("delta",)
