"""Verbs about streams: `floodmark stream validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli import screens
from floodmark.cli.call import Call
from floodmark.cli.screen import Screen
from floodmark.cli.verb import group, verb
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.config.stream_files import LoadedStream

_STREAM_HELP = "A JSON or YAML file, or the pipelineId of a stream of the project."

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help=_STREAM_HELP)]


def attach(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    streams = group("Streams: from Kafka to a table, exactly once.")
    verb(streams, "validate")(validate)
    app.add_typer(streams, name="stream")


def validate(call: Call, stream: StreamArgument) -> int:
    """Check a stream and the schemas it names; nothing is connected to."""
    loaded = stream_named(call, stream)
    document: dict[str, Any] = {
        "ok": True,
        "stream": loaded.settings.pipeline_id,
        "limit": loaded.settings.limit,
        "offset_store": loaded.settings.streaming.offsets_in,
        "columns": [{"name": f.name, "type": f.type} for f in loaded.table.fields],
        "warnings": [warning.as_dict() for warning in loaded.warnings],
        "settings": loaded.settings.to_json(),
    }
    call.show(document, lambda screen: _draw_validated(screen, loaded))
    return 0


def _draw_validated(screen: Screen, loaded: LoadedStream) -> None:
    stream = loaded.settings
    target = f"{stream.load.sink_type} {stream.load.table}"
    screen.line(f"{stream.pipeline_id}: the stream is fine")
    screen.line(f"  kafka {stream.extract.topic} -> {target} ({stream.load.write_mode})")
    screen.line(
        f"  offsets in the {stream.streaming.offsets_in}, {len(loaded.table.fields)} columns"
    )
    screens.warnings(screen, loaded.warnings)


def stream_named(call: Call, name: str) -> LoadedStream:
    """The stream of a file, or of the project; raises ConfigError with every error of it."""
    from floodmark.config.stream_files import load_stream, streams_of

    if Path(name).is_file() or name.endswith((".json", ".yaml", ".yml")):
        return load_stream(Path(name))
    known = streams_of(call.project.file)
    if name in known:
        return known[name]
    from floodmark.model.names import choices

    raise ConfigError(
        "FM-CONFIG-008",
        f"there is no stream {name}",
        allowed=choices(sorted(known), name) or "the project has none; or a file",
        state="nothing was read or written",
        next="floodmark stream validate FILE",
    )
