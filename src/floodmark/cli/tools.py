"""Verbs around the work: jars, the demo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from floodmark.cli.call import Call
from floodmark.cli.screen import Row, Screen, size
from floodmark.cli.verb import group, verb
from floodmark.errors import ConfigError
from floodmark.next_steps import command

Group = Annotated[
    str | None,
    typer.Argument(metavar="GROUP", help="A group of jars; those of Kafka only if named."),
]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    jars = group("The jars that Spark needs, fetched once and checked.")
    verb(jars, "fetch")(jars_fetch)
    verb(jars, "verify")(jars_verify)
    verb(jars, "list")(jars_list)
    verb(jars, "archive")(jars_archive)
    app.add_typer(jars, name="jars")
    verb(app, "demo")(demo)


def jars_fetch(call: Call, group: Group = None) -> int:
    """Fetch what is missing; the second time there is nothing to do."""
    from floodmark.engines import jars

    fetched = [jar for name in _groups(group, jars.usual_groups()) for jar in jars.fetch(name)]
    document = {"fetched": [jar.filename for jar in fetched], "folder": str(jars.jars_dir())}
    text = f"{len(fetched)} jars fetched" if fetched else "every jar is there"
    call.show(document, lambda screen: screen.line(f"{text}: {jars.jars_dir()}"))
    return 0


def jars_verify(call: Call, group: Group = None) -> int:
    """Compare every jar with its checksum."""
    from floodmark.engines import jars

    names = _groups(group, jars.usual_groups())
    for name in names:
        jars.verify(name)
    count = sum(len(jars.groups()[name]) for name in names)
    document = {"ok": True, "jars": count, "folder": str(jars.jars_dir())}
    call.show(document, lambda screen: screen.line(f"{count} jars match: {jars.jars_dir()}"))
    return 0


def jars_archive(call: Call) -> int:
    """Make an archive of Spark's classes: local sessions then start in half the time."""
    from floodmark.engines import class_archive, java, spark

    found, class_path = java.find(), spark.class_path()
    if found.version not in class_archive.USED_BY:
        text = f"Java {found.version} would not use an archive: nothing was made"
        call.show({"archive": None}, lambda screen: screen.line(text))
        return 0
    archive = class_archive.place(class_path)
    if not class_archive.is_made(archive):
        call.errors.line("making an archive of Spark's classes: half a minute, once")
        class_archive.make(class_path)
    taken = class_archive.size(archive)
    document = {"archive": str(archive), "bytes": taken}
    call.show(document, lambda screen: screen.line(f"{size(taken)}: {archive}"))
    return 0


def jars_list(call: Call, group: Group = None) -> int:
    """List the jars of the lock, and which of them are there."""
    from floodmark.engines import jars

    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "jar": jar.filename,
            "bytes": jar.bytes,
            "is_present": jar not in jars.missing(name),
        }
        for name in _groups(group, jars.groups())
        for jar in jars.groups()[name]
    ]

    def draw(screen: Screen) -> None:
        table = [
            Row([r["jar"], r["group"], size(r["bytes"]), "there" if r["is_present"] else "missing"])
            for r in rows
        ]
        screen.table(["jar", "group", "bytes", "state"], table)

    call.show({"jars": rows, "folder": str(jars.jars_dir())}, draw)
    return 0


def _groups(group: str | None, unnamed: Iterable[str]) -> list[str]:
    from floodmark.engines import jars

    known = [name for name in jars.groups() if name not in jars.FOR_TESTS]
    if group is not None and group not in known:
        raise ConfigError(
            "FM-CONFIG-007",
            f"there is no group of jars {group}",
            rule="unknown_jars",
            allowed=", ".join(known),
            state="nothing was fetched",
            next=command("jars", "list"),
        )
    return [name for name in unnamed if name in known] if group is None else [group]


def demo(
    call: Call,
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="FOLDER", help="Where; else ./floodmark-demo, or ./floodmark-stream-demo."
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="A stream from Kafka to PostgreSQL instead, killed in a batch."
        ),
    ] = False,
) -> int:
    """Watch a small shop lake being processed, broken and repaired."""
    from floodmark.demo import main

    call.what_stays = "the demo's folder stays as it is; the next demo starts anew"
    return main(folder, is_stream=stream)
