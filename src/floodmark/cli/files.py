"""Verbs about the project's files: init, config, schema, graph. None opens the control store."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.call import Call
from floodmark.cli.screen import Screen
from floodmark.cli.verb import verb
from floodmark.errors import ConfigError
from floodmark.next_steps import command

if TYPE_CHECKING:
    from floodmark.config import Origin, ResolvedPipeline


_TEMPLATES = "minimal, medallion, cloud or coordinator."


class SchemaFor(StrEnum):
    """The kinds of files that have a schema."""

    PROJECT = "project"
    PIPELINE = "pipeline"
    STREAM = "stream"
    OVERLAY = "overlay"


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    verb(app, "init")(init)
    verb(app, "config")(config)
    verb(app, "schema")(schema)
    verb(app, "graph")(graph)


def init(
    call: Call,
    template: Annotated[str, typer.Argument(metavar="[TEMPLATE]", help=_TEMPLATES)] = "minimal",
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="New or empty; else here.")
    ] = None,
) -> int:
    """Begin a project from a template that runs as it is."""
    from floodmark.templates import FIRST_STEPS, create

    place = folder or Path()
    found = create(template, place)
    document = {"template": template, "folder": str(place.absolute()), "files": found}

    def draw(screen: Screen) -> None:
        shown = [name for name in found if not name.startswith(".")]
        screen.line(f"{template}: {len(shown)} files in {place.absolute()}")
        for name in shown:
            screen.line(f"  {name}")
        screen.line(
            "next: ",
            ("" if folder is None else f"cd {shlex.quote(str(folder))}; ", "bold"),
            (FIRST_STEPS[template], "bold"),
            "  (README.md has the rest)",
        )

    call.show(document, draw)
    return 0


def config(call: Call) -> int:
    """Print the merged project, and where each value comes from; secrets are masked."""
    from floodmark.config import origins

    file = call.project.file
    found = origins(file)
    document = {
        "project": file.settings.project,
        "env": file.env,
        "files": [str(path.relative_to(file.root)) for path in file.files],
        "values": [_value(origin) for origin in found],
        "merged": file.merged_values(),
    }
    call.show(document, lambda screen: _draw_config(screen, found))
    return 0


def _value(origin: Origin) -> dict[str, Any]:
    found: dict[str, Any] = {"key": origin.key, "value": origin.value, "origin": origin.where}
    return found if origin.reference is None else {**found, "reference": origin.reference}


def _draw_config(screen: Screen, found: list[Origin]) -> None:
    for origin in found:
        value = origin.value if isinstance(origin.value, str) else json.dumps(origin.value)
        secret = f" from {origin.reference}" if origin.reference else ""
        first, *more = value.splitlines() or [""]
        screen.line(f"{origin.key}: ", (first, "bold"), f"{secret}  ", (f"# {origin.where}", "dim"))
        for line in more:
            screen.line("  ", (line, "bold"))


def schema(
    call: Call,
    kind: Annotated[SchemaFor, typer.Option("--for", help="The kind of file.")] = SchemaFor.PROJECT,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it there.")
    ] = None,
) -> int:
    """Print or write the JSON schema of the YAML, for editors."""
    from floodmark.config.project import header, json_schema

    text = json.dumps(json_schema(kind.value), indent=2)
    if out is None:
        call.show_text(text)
        return 0
    _write(out, text)
    line = header(out.name)
    document = {"file": str(out), "for": kind.value, "header": line}

    def draw(screen: Screen) -> None:
        screen.line(f"written: {out}")
        screen.line(f"first line of each YAML file, with the path from there: {line}")

    call.show(document, draw)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "FM-CONFIG-007",
            f"the schema cannot be written to {path}",
            rule="place_of_schema",
            found=error.strerror or type(error).__name__,
            state="nothing was written",
            next=command("schema", "--out", "FILE") + ", in a folder that can be written",
        ) from error


def graph(call: Call) -> int:
    """Show pipelines and nodes, and what comes before each."""
    from floodmark.config.project import parents_of

    pipelines = call.project.file.pipelines
    parents = parents_of(pipelines)
    found = [_pipeline(pipeline, parents[pipeline.name]) for pipeline in pipelines]
    call.show({"pipelines": found}, lambda screen: _draw_graph(screen, found))
    return 0


def _pipeline(pipeline: ResolvedPipeline, parents: list[str]) -> dict[str, Any]:
    settings, order = pipeline.settings, pipeline.graph
    return {
        "name": pipeline.name,
        "scope": settings.shared_scope,
        "tags": sorted(settings.all_tags),
        "definition": settings.definition,
        "after": parents,
        "upstreams": settings.upstreams,
        "function": settings.function,
        "nodes": [
            {"name": name, "step": step, "after": list(order.parents[name])}
            for step, names in enumerate(order.levels(), start=1)
            for name in names
        ],
    }


def _draw_graph(screen: Screen, found: list[dict[str, Any]]) -> None:
    for pipeline in found:
        after = f"  after {', '.join(pipeline['after'])}" if pipeline["after"] else ""
        screen.line((pipeline["name"], "bold"), f"  scope {pipeline['scope']}{after}")
        if pipeline["function"]:
            screen.line(f"  {pipeline['function']}  reads {', '.join(pipeline['upstreams'])}")
        for node in pipeline["nodes"]:
            before = f"  after {', '.join(node['after'])}" if node["after"] else ""
            screen.line(f"  {node['step']}  {node['name']}{before}")
