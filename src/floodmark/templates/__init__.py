"""Projects to begin with: `floodmark init`. Every one of them is run or validated by the tests."""

from __future__ import annotations

import json
import shutil
from importlib.resources import as_file, files
from pathlib import Path

from floodmark.config.project import Kind, json_schema
from floodmark.errors import ConfigError
from floodmark.next_steps import command

TEMPLATES = {
    "minimal": "one pipeline: CSV files into a Delta table, merged by key",
    "medallion": "bronze, silver and gold on local disk, with checks and a quarantine",
    "cloud": "the same on an object store, with an overlay per environment",
    "coordinator": "a Python function over exact windows of Delta tables",
}
FIRST_STEPS: dict[str, str] = {
    "minimal": command("run"),
    "medallion": command("run"),
    "cloud": "export LAKE_ROOT=s3://bucket/lake INBOX_ROOT=s3://bucket/inbox",
    "coordinator": "python sample.py",
}
"""What to type first in a new project, as its README says too."""
SCHEMAS: dict[Kind, str] = {"project": "floodmark.schema.json", "pipeline": "pipeline.schema.json"}


def create(template: str, folder: Path) -> list[str]:
    """Write a project into a new or empty folder; returns its files.

    Raises FM-CONFIG-007 for a template that is not there and for a folder that has something in it.
    """
    if template not in TEMPLATES:
        raise _unknown(template)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _taken(folder)
    with as_file(files(__name__).joinpath(template)) as source:
        shutil.copytree(
            source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    _write_schemas(folder)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _write_schemas(folder: Path) -> None:
    """What editors complete and check the YAML by."""
    place = folder / ".floodmark"
    place.mkdir()
    for kind, name in SCHEMAS.items():
        (place / name).write_text(json.dumps(json_schema(kind), indent=1) + "\n", "utf-8")


def _unknown(template: str) -> ConfigError:
    from floodmark.config.text import choices

    return ConfigError(
        "FM-CONFIG-007",
        f"there is no template {template}",
        rule="unknown_template",
        allowed=choices(list(TEMPLATES), template),
        state="nothing was written",
        next=command("init", "--help"),
    )


def _taken(folder: Path) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f"{folder} is not an empty folder",
        rule="folder_in_use",
        allowed="a folder that is empty, or not there yet",
        state="nothing was written",
        next=command("init", "TEMPLATE", "another-folder"),
    )
