"""Compiles spawnless.jar; needs a JDK. The same compiler gives the same bytes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from floodmark.engines.spawnless import DIGEST, JAR, digest, sources

_OLDEST_JAVA = "17"
_ANY_DAY = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Write the jar beside its sources."""
    with tempfile.TemporaryDirectory() as folder:
        compile_into(Path(folder))
        write(JAR, Path(folder))


def compile_into(folder: Path) -> None:
    """The classes, compiled against the Hadoop that pyspark brings."""
    hadoop = Path(pyspark.__file__).parent / "jars"
    path = ":".join(str(jar) for jar in sorted(hadoop.glob("hadoop-client-api-*.jar")))
    files = [str(source) for source in sources("java")]
    compiler = shutil.which("javac")
    if compiler is None:
        raise SystemExit(
            "javac is not on the PATH: it comes with a JDK, not with a runtime of Java"
        )
    options = ["--release", _OLDEST_JAVA, "-cp", path, "-d", str(folder)]
    subprocess.run([compiler, *options, *files], check=True, timeout=600)


def write(jar: Path, folder: Path) -> None:
    """All classes of `folder`, settings, and from which sources they are."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        manifest = f"Manifest-Version: 1.0\r\n{DIGEST}: \r\n {digest()}\r\n\r\n"
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _ANY_DAY), manifest)
        for each in sorted(folder.rglob("*.class")):
            name = zipfile.ZipInfo(each.relative_to(folder).as_posix(), _ANY_DAY)
            archive.writestr(name, each.read_bytes())
        for each in sources("xml"):
            archive.writestr(zipfile.ZipInfo(each.name, _ANY_DAY), each.read_bytes())


if __name__ == "__main__":
    main()
