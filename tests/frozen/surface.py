"""Every name that scripts, stores and streams of others rely on, read from the code as it is.

    PYTHONPATH=src python -m tests.frozen.surface --record

adds what is new to names.json. It never takes anything out: a name that was shown once stays.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = Path(__file__).parent / "names.json"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
SHOWN_CODE = (
    *sorted((ROOT / "src/floodmark/templates").glob("*/**/*.py")),  # what `init` writes
    *sorted((ROOT / "examples").rglob("*.py")),
)
VARIABLE = re.compile(r"\bFLOODMARK_[A-Z_]*[A-Z]\b")
GROUP = re.compile(r"\"(floodmark\.(?:credentials|secrets|transforms|formats|sources|sinks))\"")
IMPORT = re.compile(r"^\s*from (floodmark[\w.]*) import ([\w, ]+)", re.MULTILINE)

Names = dict[str, Any]


def surface() -> Names:
    """All names by what they belong to."""
    return {
        "commands": commands(),
        "codes": error_codes(),
        "rules": argument_rules(),
        "exit codes": exit_codes(),
        "project keys": project_keys(),
        "public": public(),
        "imports": imports(),
        "decorators": ["format", "sink", "source", "transform"],
        "journal": journal(),
        "words": words(),
        "control tables": control_tables(),
        "stream tables": stream_tables(),
        "receipts": receipts(),
        "stream holder": stream_holder(),
        "metrics": metrics(),
        "failpoints": failpoints(),
        "variables": variables(),
        "package": package(),
        "transforms": transforms(),
    }


def commands() -> Names:
    """Every verb with its arguments and options."""
    import typer.main

    from floodmark.cli.main import build_app

    return dict(_verbs(typer.main.get_command(build_app()), ""))


def _verbs(command: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    parameters = [word for each in command.params for word in (each.opts + each.secondary_opts)]
    yield path or "floodmark", sorted(parameters)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _verbs(inner, f"{path} {name}".strip())


def error_codes() -> list[str]:
    from floodmark.errors import CODES

    return sorted(CODES)


def argument_rules() -> list[str]:
    """The rules of FM-CONFIG-007."""
    from floodmark.errors import ARGUMENT_RULES

    return sorted(ARGUMENT_RULES)


def exit_codes() -> Names:
    """The exit code of each class of errors."""
    from floodmark import errors

    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    ours = [c for c in classes if issubclass(c, errors.FloodmarkError)]
    return {each.__name__: each.exit_code for each in ours}


def project_keys() -> Names:
    """The keys of YAML and JSON files by their path, each with what it takes."""
    from floodmark.config.project.settings import ProjectSettings

    schema = ProjectSettings.model_json_schema(by_alias=True)
    return _shape(schema, schema.get("$defs", {}))


def _accepted(schema: Mapping[str, Any]) -> list[str]:
    """The words that a key takes, or the types where it is no choice of words."""
    branches = [schema, *schema.get("anyOf", ())]
    choices = [str(word) for each in branches for word in each.get("enum", ())]
    choices += [str(each["const"]) for each in branches if "const" in each]
    types = [str(each["type"]) for each in branches if "type" in each]
    return sorted({*choices} or {*types})


def public() -> Names:
    """What `import floodmark as fm` offers: methods and attributes with their arguments."""
    import floodmark

    return {name: _members(getattr(floodmark, name)) for name in floodmark.__all__}


def _members(thing: Any) -> Names:
    if not inspect.isclass(thing):
        return {"()": _arguments(thing)}
    members: Names = {"()": _arguments(thing)}
    for name, member in inspect.getmembers(thing):
        if name.startswith("_") or _is_inherited(thing, name):
            continue
        members[name] = _arguments(member) if callable(member) else []
    fields = getattr(thing, "__dataclass_fields__", {})
    return members | {name: [] for name in fields if not name.startswith("_")}


def _is_inherited(thing: type, name: str) -> bool:
    owner = next((c for c in thing.__mro__ if name in vars(c)), thing)
    return not owner.__module__.startswith("floodmark")


def _arguments(thing: Any) -> list[str]:
    try:
        return [name for name in inspect.signature(thing).parameters if name != "self"]
    except (TypeError, ValueError):
        return []


def imports() -> list[str]:
    """Every import path that the pages, the templates and the examples show."""
    texts = [path.read_text(encoding="utf-8") for path in (*PAGES, *SHOWN_CODE)]
    shown = {
        f"{module}:{name.strip()}"
        for text in texts
        for module, names in IMPORT.findall(text)
        for name in names.split(",")
        if name.strip() and " as " not in name
    }
    return sorted({*shown, "floodmark.cli.main:main"})


def journal() -> Names:
    """The payload of each kind of event: its fields, and which of them are always there."""
    from pydantic import TypeAdapter

    from floodmark.control.events import bodies as events

    bodies = [c for _, c in inspect.getmembers(events, inspect.isclass) if hasattr(c, "kind")]
    schemas = {c.kind: TypeAdapter(c).json_schema() for c in bodies if isinstance(c.kind, str)}
    return {kind: _shape(schema, schema.get("$defs", {})) for kind, schema in schemas.items()}


def _shape(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Names:
    """The fields of an object, through its references, as `a.b[].c`."""
    return dict(sorted(_fields(schema, definitions, "", ())))


def _fields(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str, seen: tuple[str, ...]
) -> Iterator[tuple[str, list[str]]]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from _fields(definitions[name], definitions, path, (*seen, name))
        return
    for each in (
        each for name in ("anyOf", "oneOf", "allOf", "prefixItems") for each in schema.get(name, ())
    ):
        yield from _fields(each, definitions, path, seen)
    for key, value in schema.get("properties", {}).items():
        yield f"{path}.{key}".lstrip("."), _accepted(value)
        yield from _fields(value, definitions, f"{path}.{key}", seen)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _fields(schema[key], definitions, f"{path}{mark}", seen)


def words() -> Names:
    """The values of kind, method and status that tables and JSON publish."""
    from floodmark.model import state, window, write

    named = {
        "window kind": window.WindowKind,
        "window method": window.Method,
        "window status": window.WindowStatus,
        "batch kind": state.BatchKind,
        "batch status": state.BatchStatus,
        "run status": state.RunStatus,
        "write mode": write.WriteMode,
        "write changes": write.Changes,
        "write missing": write.Missing,
        "write deletes": write.Deletes,
        "merge strategy": write.Strategy,
    }
    return {name: sorted(typing.get_args(kind)) for name, kind in named.items()}


def control_tables() -> Names:
    """The published tables with the types of their columns."""
    from floodmark.control.published.tables import TABLES

    return {t.name: {field.name: str(field.type) for field in t.schema} for t in TABLES}


def stream_tables() -> Names:
    """The tables that a stream keeps in its target database."""
    from floodmark.streaming.ledger.tables import TABLES

    return {t.name: {**dict(t.columns), "PRIMARY KEY": t.key} for t in TABLES}


def receipts() -> Names:
    """App ids, and what a commit says about its batch: a changed one doubles rows."""
    from floodmark.model import receipt

    marks = {
        "erp:t": {
            "kind": "cursor",
            "column": "at",
            "format": "sql",
            "table_id": "i",
            "start": None,
            "end": "9",
        }
    }
    return {
        "forward": receipt.forward_app_id("CONTROL", "PIPELINE", "WRITE", 2),
        "again": receipt.again_app_id("CONTROL", "PIPELINE", "WRITE", "replay", "BATCH"),
        "metadata": receipt.commit_metadata(
            "CONTROL", "BATCH", 7, "PIPELINE", {"/t": (1, 2)}, marks=marks
        ),
    }


def stream_holder() -> str:
    """How a process writes itself into the row of its stream: an unread one breaks fencing."""
    from floodmark.streaming.running.holder import process_of

    process = process_of("some-host, process 12")
    return f"{process.host}, process {process.pid}" if process else ""


def metrics() -> Names:
    """Every metric with its labels."""
    from floodmark.report.metrics import METRICS
    from floodmark.streaming.running.metrics import METRICS as STREAM_METRICS

    ours = {metric.name: sorted(metric.labels) for metric in METRICS}
    return ours | {metric.name: ["pipeline_id"] for metric in STREAM_METRICS}


def failpoints() -> list[str]:
    from floodmark.failpoints import every_point

    return sorted(every_point())


def variables() -> list[str]:
    """The environment variables that the product reads."""
    sources = (ROOT / "src").rglob("*.py")
    return sorted({name for path in sources for name in VARIABLE.findall(path.read_text())})


def package() -> Names:
    """What is installed: the command, and the groups in which others register what they add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    return {
        "scripts": project["scripts"],
        "extras": sorted(project["optional-dependencies"]),
        "entry points": sorted({group for text in texts for group in GROUP.findall(text)}),
    }


def transforms() -> Names:
    """The named transforms with their parameters."""
    from floodmark.transforms import standard
    from floodmark.transforms.params import described

    registry = standard()
    return {name: [key for key, *_ in described(registry[name].params)] for name in registry}


def lost(frozen: Any, current: Any, path: str = "") -> Iterator[str]:
    """What was shown once and is not there any more; what is new is fine."""
    if isinstance(frozen, Mapping):
        for key, value in frozen.items():
            inside = f"{path} / {key}" if path else key
            if not isinstance(current, Mapping) or key not in current:
                yield inside
            else:
                yield from lost(value, current[key], inside)
    elif isinstance(frozen, list):
        yield from (f"{path}: {each}" for each in frozen if each not in (current or ()))
    elif frozen != current:
        yield f"{path}: {frozen} is {current} now"


def grown(frozen: Any, current: Any) -> Any:
    """What was frozen, and all that has come since."""
    if isinstance(frozen, Mapping) and isinstance(current, Mapping):
        return {
            key: grown(frozen[key], current.get(key)) if key in frozen else current[key]
            for key in (*frozen, *(key for key in current if key not in frozen))
        }
    if isinstance(frozen, list) and isinstance(current, list):
        return [*frozen, *(each for each in current if each not in frozen)]
    return frozen


def recorded(path: Path = NAMES) -> Names:
    """The names that were recorded."""
    names: Names = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return names


def record(names: Names, path: Path = NAMES) -> None:
    """Add what is new."""
    text = json.dumps(grown(recorded(path), names), indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        sys.exit(__doc__)
    record(surface())
