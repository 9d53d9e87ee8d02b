"""The verbs that keep a control store: what it holds, moving it, mending it, upkeep."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.call import Call
from floodmark.cli.screen import Row, Screen, size
from floodmark.cli.screens import mark_text
from floodmark.cli.verb import group, seconds, verb
from floodmark.errors import ConfigError, UnknownNameError
from floodmark.model import AnyMark, TimeMark
from floodmark.model.names import choices
from floodmark.next_steps import command

if TYPE_CHECKING:
    from floodmark.model import Mark, State, StoreContent, Upkeep

File = Annotated[str, typer.Argument(metavar="FILE")]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    state = group("The state of the control store.")
    verb(state, "show")(state_show)
    verb(state, "export")(state_export)
    verb(state, "import")(state_import)
    verb(state, "rebuild")(state_rebuild)
    verb(state, "reset")(state_reset)
    app.add_typer(state, name="state")
    verb(app, "upkeep")(upkeep)


def state_show(call: Call) -> int:
    """Show what the store knows: pipelines and committed watermarks."""
    coordinator = call.project.coordinator
    state = coordinator.look.state()
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
                "kind": m.kind,
                "version": m.shown_version,
                "mark": m.shown_mark,
                "column": m.column,
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
        Row(
            [call.short(m.upstream), m.scope, _stands_at(m), f"{m.advanced_at:%Y-%m-%d %H:%M:%S}"],
            _told_by(m),
        )
        for m in state.marks.values()
    ]
    if marks:
        screen.line()
        screen.table(["upstream", "scope", "committed", "at"], marks)


def _stands_at(mark: Mark) -> str:
    return str(mark.version) if mark.has_versions else mark_text(mark.mark)


def _told_by(mark: Mark) -> str:
    """All of a value and what it is, where there are no versions."""
    if mark.has_versions:
        return ""
    stand = mark.mark
    return f"{mark.column} ({stand.type}) through {stand.text}" if stand else "no rows yet"


def state_export(call: Call, file: File) -> int:
    """Write every event into one text file."""
    return _show_content(call, call.project.coordinator.admin.export_state(file), "exported")


def state_import(call: Call, file: File) -> int:
    """Make the store of an export, under its old id, where there is none."""
    content = call.project.coordinator.admin.import_state(file)
    return _show_content(call, content, "imported")


def state_rebuild(
    call: Call,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help="With --from-targets: what pipelines wrote."),
    ] = None,
    *,
    from_targets: Annotated[
        bool,
        typer.Option("--from-targets", help="Restore a lost journal from commits of targets."),
    ] = False,
) -> int:
    """Write the published tables anew; or a lost journal, from its targets."""
    if from_targets != bool(targets):
        raise ConfigError(
            "FM-CONFIG-007",
            "--from-targets goes with the targets to read",
            rule="targets_of_rebuild",
            allowed="floodmark state rebuild, or: floodmark state rebuild --from-targets TARGET...",
            state="nothing was changed",
            next="name every table that the pipelines have written",
        )
    if targets:
        return _rebuild_from_targets(call, targets)
    coordinator = call.project.coordinator
    is_complete = coordinator.admin.rebuild_tables()
    document = {"control": coordinator.control, "is_complete": is_complete}
    text = "the published tables are written anew from the journal"
    if not is_complete:
        text += (
            ", as far as it goes: events from before its snapshot are in no table any more, and "
            "rows that only they could bring back were left as they are"
        )
    call.show(document, lambda screen: screen.paragraph(text))
    return 0 if is_complete else 1


def _rebuild_from_targets(call: Call, targets: list[str]) -> int:
    project = call.project
    known = {name: (p.shared_scope, p.upstreams) for name, p in project.pipelines.items()}
    content = project.coordinator.admin.rebuild_from_targets(targets, known)
    return _show_content(call, content, "restored")


def _show_content(call: Call, content: StoreContent, word: str) -> int:
    def draw(screen: Screen) -> None:
        screen.line(f"store {content.control_id} {word}: {content.control}")
        screen.line(
            f"  events: {content.events}, batches: {content.batches}, "
            f"watermarks: {content.watermarks}, pipelines: {', '.join(content.pipelines) or 'none'}"
        )
        for batch_id in content.open_batches:
            screen.line(f"  {batch_id} is open; next: floodmark retry {batch_id}")
        for text in content.not_restored:
            screen.paragraph("not restored: " + call.short(text), indent=2)
        if word == "imported":
            screen.line("  the store it was exported from must not be used any more")

    call.show(asdict(content), draw)
    return 0


def state_reset(
    call: Call,
    *,
    upstream: Annotated[str, typer.Option("--upstream", metavar="U", help="As in floodmark.yaml.")],
    scope: Annotated[
        str | None,
        typer.Option("--scope", metavar="S", help="Needed where several scopes read it."),
    ] = None,
    to_version: Annotated[
        int | None,
        typer.Option("--to-version", metavar="N", help="The next batch starts after N; else at 0."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="ISO", help="Without versions: after this time or day."),
    ] = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> int:
    """Put a watermark elsewhere: marks only, rows in targets stay."""
    coordinator = call.project.coordinator
    name = coordinator.look.stored_name(upstream)
    scope = scope or _only_scope(coordinator.look.state(), name)
    before = coordinator.look.state().marks.get((scope, name))
    after = coordinator.admin.planned_reset(upstream, scope=scope, to_version=to_version, to=to)
    if not is_sure:
        raise ConfigError(
            "FM-CONFIG-007",
            f"a reset of {upstream} needs --yes",
            rule="needs_yes",
            where=f"scope {scope}",
            found=_effect(before, after.version, after.mark),
            state="nothing was changed",
            next="the same command with --yes",
        )
    coordinator.admin.reset(upstream, scope=scope, to_version=to_version, to=to)
    document = {
        "scope": scope,
        "upstream": name,
        "before": before.shown_version if before else -1,
        "after": after.version,
        "before_mark": before.shown_mark if before else None,
        "after_mark": after.shown_mark,
    }
    text = f"{upstream} in scope {scope}: " + _effect(before, after.version, after.mark)
    call.show(document, lambda screen: screen.paragraph(text))
    return 0


def _only_scope(state: State, upstream: str) -> str:
    """The one scope that reads an upstream; raises FM-CONTROL-005 if there is none,
    FM-CONFIG-007 if there are several.
    """
    read = [(p.scope, name) for p in state.pipelines.values() for name in p.upstreams]
    scopes = sorted({scope for scope, name in (*read, *state.marks) if name == upstream})
    if len(scopes) == 1:
        return scopes[0]
    if not scopes:
        known = sorted({name for _, name in (*read, *state.marks)})
        raise UnknownNameError(
            "FM-CONTROL-005",
            f"no pipeline reads {upstream}",
            allowed=choices(known, upstream) or "none yet",
            state="nothing was changed",
            next="name one of them; " + command("state", "show") + " lists them",
        )
    raise ConfigError(
        "FM-CONFIG-007",
        f"say --scope: several scopes read {upstream}",
        rule="needs_scope",
        allowed=", ".join(scopes),
        state="nothing was changed",
        next="the same command with --scope",
    )


def _effect(before: Mark | None, version: int, mark: AnyMark | None) -> str:
    """What a reset means for the rows, in words."""
    if isinstance(mark, TimeMark):
        stood = before.mark if before else None
        return _effect_on_values(stood if isinstance(stood, TimeMark) else None, mark)
    return _effect_on_versions(before.version if before else -1, version)


def _effect_on_values(before: TimeMark | None, after: TimeMark) -> str:
    if before is None or before.number == after.number:
        return f"the next batch starts after {after.text}"
    if after.number > before.number:
        return (
            f"rows after {before.text} through {after.text} will never be processed; "
            + command("gaps")
            + " shows them"
        )
    return (
        f"rows after {after.text} through {before.text} will be processed again; targets keep the"
        " rows they have"
    )


def _effect_on_versions(before: int, after: int) -> str:
    if after > before >= 0:
        return (
            f"versions {before + 1}-{after} will never be processed; "
            + command("gaps")
            + " shows them"
        )
    if after < before:
        start = "the whole table" if after < 0 else f"versions {after + 1}-{before}"
        return f"{start} will be processed again; targets keep the rows they have"
    return f"the next batch starts at version {after + 1}"


def upkeep(
    call: Call,
    retain: Annotated[
        str, typer.Option("--retain", metavar="TIME", help="How long replaced files stay.")
    ] = "7d",
    allow_short: Annotated[
        bool,
        typer.Option("--allow-short-retain", help="Less than 1h: nobody else uses the store."),
    ] = False,
    keep_rows: Annotated[
        str | None,
        typer.Option(
            "--keep-rows", metavar="TIME", help="Move older rows to <control>/archive; else none."
        ),
    ] = None,
) -> int:
    """Fold the journal, join small files, remove what nobody needs."""
    kept = seconds("--retain", retain)
    kept_rows = None if keep_rows is None else seconds("--keep-rows", keep_rows)
    done = call.project.coordinator.admin.upkeep(kept, allow_short=allow_short, keep_rows=kept_rows)
    call.show(asdict(done), lambda screen: _draw_upkeep(screen, done))
    return 0


def _draw_upkeep(screen: Screen, done: Upkeep) -> None:
    joined = ", ".join(f"{table} {count}" for table, count in done.joined.items())
    archived = ", ".join(f"{table} {count}" for table, count in done.archived.items())
    rows = [
        ("journal", f"{done.folded_events} events folded into one"),
        *([("archive", f"rows moved: {archived}")] if archived else []),
        ("tables", f"small files joined: {joined or 'none'}"),
        ("files", f"{done.removed_files} removed, {size(done.removed_bytes)}"),
        ("signs of life", f"{done.removed_heartbeats} of ended runs removed"),
        ("history", f"complete through event {done.history_events}"),
    ]
    for name, text in rows:
        screen.line((f"{name:<14}", "bold"), f" {text}")
