from __future__ import annotations

import hashlib
from pathlib import Path

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


def retrieves(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(_group: str, wanted: tuple[jars.Jar, ...], folder: Path) -> None:
        for jar in wanted:
            (folder / jar.filename).write_bytes(content)

    monkeypatch.setattr(jars, "_retrieve", place)


def test_a_fetched_jar_is_there_once_and_for_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieves(CONTENT, monkeypatch)

    assert jars.fetch("delta") == (JAR,)
    assert jars.fetch("delta") == ()
    assert [path.name for path in folder.iterdir()] == ["thing-1.0.jar"]


def test_a_wrong_jar_is_refused_and_never_reaches_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieves(b"something else", monkeypatch)

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


def test_the_ivy_module_asks_for_exact_versions_without_dependencies() -> None:
    text = jars._ivy_module((JAR,))

    assert 'name="thing" rev="1.0" transitive="false"' in text
    assert "http" not in text


def test_a_proxy_of_the_machine_is_said_in_javas_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "urllib.request.getproxies", lambda: {"https": "http://proxy.example:3128", "no": "x"}
    )

    assert jars._proxy_options() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]


def test_what_only_streams_need_is_fetched_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jars, "groups", lambda: {"delta": (JAR,), "kafka": (), "kafka-broker": ()})

    assert jars.usual_groups() == ("delta",)
