"""Secrets with signs in them, and the search for their traces in whatever was left behind."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def canary(name: str) -> str:
    """A secret with signs that quoting, addresses and reports write in another way."""
    return f"Kanarie-{name}'\"\\%&<ü 7/9+{name}"


def traces(text: str, names: Iterable[str]) -> list[str]:
    """The canaries in a text, in whatever form: by the parts that no encoding changes."""
    plain = urllib.parse.unquote(text)
    found = [name for name in names if f"Kanarie-{name}" in plain or f"9+{name}" in plain]
    for name in names:
        for user in ("me:", "u:", ""):
            encoded = base64.b64encode(f"{user}{canary(name)}".encode()).decode()
            found += [f"{name} in base64"] if encoded[4:20] in text else []
    return found


def stored(folder: Path) -> Iterator[str]:
    """Everything that is kept in a folder: files by their bytes, tables by their rows."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes().decode("utf-8", "replace")
        # A write that failed leaves a log without a commit.
        elif path.name == "_delta_log" and DeltaTable.is_deltatable(str(path.parent)):
            table = DeltaTable(str(path.parent))
            rows = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
            yield str(pa.table(rows).to_pylist())
