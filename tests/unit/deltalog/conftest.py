"""Hand-written Delta logs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)

Actions = list[dict[str, Any]]


class WrittenLog:
    """A table folder whose log is written by hand, one file at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "_delta_log"
        self.folder.mkdir(parents=True)

    def commit(self, version: int, *actions: dict[str, Any], at_ms: int | None = None) -> Path:
        file = self.folder / f"{version:020d}.json"
        file.write_text("".join(json.dumps(a) + "\n" for a in actions), encoding="utf-8")
        if at_ms is not None:
            os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
        return file

    def header(self, **configuration: str) -> Actions:
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "the-id",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": SCHEMA,
                    "partitionColumns": [],
                    "configuration": configuration,
                }
            },
        ]


def _add(path: str, rows: int | None = 1, **more: Any) -> dict[str, Any]:
    stats = None if rows is None else json.dumps({"numRecords": rows})
    body = {
        "path": path,
        "partitionValues": {},
        "size": 10,
        "dataChange": True,
        "stats": stats,
    }
    return {"add": {**body, **more}}


def _remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "size": 10, **more}}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., WrittenLog]:
    return lambda name="table": WrittenLog(tmp_path / name)


@pytest.fixture
def add() -> Callable[..., dict[str, Any]]:
    return _add


@pytest.fixture
def remove() -> Callable[..., dict[str, Any]]:
    return _remove
