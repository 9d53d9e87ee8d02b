"""The jar of local files: made from the sources beside it, and asked for only where it works."""

from __future__ import annotations

import zipfile

import pytest

from floodmark.engines import spawnless


def test_the_jar_was_compiled_from_the_sources_beside_it() -> None:
    with zipfile.ZipFile(spawnless.JAR) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode().replace("\r\n ", "")

    assert f"{spawnless.DIGEST}: {spawnless.digest()}\r\n" in manifest


@pytest.mark.parametrize(
    "conf",
    [{"spark.master": "spark://one:7077"}, {"spark.hadoop.fs.file.impl": "org.example.Files"}],
    ids=["executors elsewhere", "a file system of the user"],
)
def test_it_is_not_asked_for_where_it_cannot_work_or_is_not_wanted(conf: dict[str, str]) -> None:
    assert spawnless.settings(conf) == {}
