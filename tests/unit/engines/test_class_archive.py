"""The archive of classes: named after what Java compares it with, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodmark.engines import class_archive
from floodmark.errors import SetupError


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"classes")
    return jar


def test_without_an_archive_java_is_asked_for_nothing(jar: Path) -> None:
    assert class_archive.options([jar]) == ""


def test_an_archive_is_for_one_class_path_as_it_is_now(jar: Path) -> None:
    before = class_archive.place([jar])

    os.utime(jar, ns=(1, 1))

    assert class_archive.place([jar]) != before
    assert class_archive.place([jar]).parent == before.parent


def test_an_archive_that_was_cut_off_is_none(jar: Path) -> None:
    folder = class_archive.place([jar])
    folder.mkdir(parents=True)
    for name in ("java.jsa", "spark.jsa"):
        (folder / name).write_bytes(b"archive")
    (folder / "sizes").write_text("7 7")
    whole = class_archive.options([jar])

    (folder / "spark.jsa").write_bytes(b"arch")

    assert str(folder / "spark.jsa") in whole
    assert class_archive.options([jar]) == ""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs as Java 17."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    (home / "bin/java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home / "bin/java"


def test_a_java_that_makes_no_archive_is_told_and_leaves_none(jar: Path, script: Path) -> None:
    script.write_text("#!/bin/sh\necho no space left; exit 1\n")

    with pytest.raises(SetupError, match="no space left") as raised:
        class_archive.make([jar])

    assert raised.value.code == "FM-SETUP-012"
    assert class_archive.options([jar]) == ""


def test_a_java_that_does_not_end_is_told_too(
    jar: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(class_archive, "MAKE_TIMEOUT_SECONDS", 0.2)

    with pytest.raises(SetupError, match="no answer within") as raised:
        class_archive.make([jar])

    assert raised.value.code == "FM-SETUP-012"
