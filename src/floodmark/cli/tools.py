"""Verbs around the work: jars, the state of the store, the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.call import Call
from floodmark.cli.screen import Row, Screen, size
from floodmark.cli.verb import verb
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.model.state import State

Group = Annotated[
    str | None, typer.Argument(metavar="GROUP", help="A group of jars; all if omitted.")
]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    jars = _group("The jars that Spark needs, fetched once and checked.")
    verb(jars, "fetch")(jars_fetch)
    verb(jars, "verify")(jars_verify)
    verb(jars, "list")(jars_list)
    app.add_typer(jars, name="jars")
    state = _group("The state of the control store.")
    verb(state, "show")(state_show)
    verb(state, "rebuild")(state_rebuild)
    app.add_typer(state, name="state")
    verb(app, "demo")(demo)


def _group(text: str) -> typer.Typer:
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)


def jars_fetch(call: Call, group: Group = None) -> int:
    """Fetch what is missing; the second time there is nothing to do."""
    from floodmark.engines import jars

    fetched = [jar for name in _groups(group) for jar in jars.fetch(name)]
    document = {"fetched": [jar.filename for jar in fetched], "folder": str(jars.jars_dir())}
    text = f"{len(fetched)} jars fetched" if fetched else "every jar is there"
    call.show(document, lambda screen: screen.line(f"{text}: {jars.jars_dir()}"))
    return 0


def jars_verify(call: Call, group: Group = None) -> int:
    """Compare every jar with its checksum."""
    from floodmark.engines import jars

    names = _groups(group)
    for name in names:
        jars.verify(name)
    count = sum(len(jars.groups()[name]) for name in names)
    document = {"ok": True, "jars": count, "folder": str(jars.jars_dir())}
    call.show(document, lambda screen: screen.line(f"{count} jars match: {jars.jars_dir()}"))
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
        for name in _groups(group)
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


def _groups(group: str | None) -> list[str]:
    from floodmark.engines import jars

    known = list(jars.groups())
    if group is not None and group not in known:
        raise ConfigError(
            "FM-CONFIG-007",
            f"there is no group of jars {group}",
            allowed=", ".join(known),
            state="nothing was fetched",
            next="floodmark jars list",
        )
    return known if group is None else [group]


def state_show(call: Call) -> int:
    """Show what the store knows: pipelines and committed watermarks."""
    coordinator = call.project.coordinator
    state = coordinator.state()
    call.show(_state_document(coordinator.control, state), lambda s: _draw_state(s, call, state))
    return 0


def _state_document(control: str, state: State) -> dict[str, Any]:
    return {
        "control": control,
        "control_id": state.control_id,
        "seq": state.seq,
        "batch_seq": state.batch_seq,
        "pipelines": [
            {"name": p.name, "scope": p.scope, "upstreams": list(p.upstreams)}
            for p in state.pipelines.values()
        ],
        "watermarks": [
            {
                "scope": m.scope,
                "upstream": m.upstream,
                "version": m.version,
                "table_id": m.table_id,
                "batch_id": m.batch_id,
                "advanced_at": m.advanced_at.isoformat(),
                "advanced_by": m.advanced_by,
            }
            for m in state.marks.values()
        ],
        "open_batches": [batch.batch_id for batch in state.open_batches()],
    }


def _draw_state(screen: Screen, call: Call, state: State) -> None:
    screen.line(f"store {state.control_id}: {state.seq} events, {state.batch_seq} batches")
    pipelines = [
        Row([p.name, p.scope], "reads " + ", ".join(map(call.short, p.upstreams)))
        for p in state.pipelines.values()
    ]
    if pipelines:
        screen.line()
        screen.table(["pipeline", "scope"], pipelines)
    marks = [
        Row([call.short(m.upstream), m.scope, str(m.version), f"{m.advanced_at:%Y-%m-%d %H:%M:%S}"])
        for m in state.marks.values()
    ]
    if marks:
        screen.line()
        screen.table(["upstream", "scope", "committed", "at"], marks)


def state_rebuild(call: Call) -> int:
    """Write the published tables anew from the journal."""
    coordinator = call.project.coordinator
    is_complete = coordinator.rebuild_tables()
    document = {"control": coordinator.control, "is_complete": is_complete}
    text = "the published tables are written anew from the journal"
    if not is_complete:
        text += (
            ", as far as it goes: events from before its snapshot are in no table any more, and "
            "rows that only they could bring back were left as they are"
        )
    call.show(document, lambda screen: screen.paragraph(text))
    return 0 if is_complete else 1


def demo(
    call: Call,
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="Where; else ./floodmark-demo.")
    ] = None,
) -> int:
    """Watch a small shop lake being processed, broken and repaired."""
    from floodmark.demo import main

    call.what_stays = "the demo's folder stays as it is; the next demo starts anew"
    return main([folder] if folder else [])
