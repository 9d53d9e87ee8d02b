"""`schemaName`: the file schemas/NAME.(json|avsc|ddl), read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from floodmark.config.stream.schemas import (
    SchemaProblem,
    StreamField,
    StreamSchema,
    from_avro,
    from_ddl,
    from_json,
)
from floodmark.config.text.json_document import read_json
from floodmark.config.text.layers import file_text, shown_path
from floodmark.config.text.places import Place, Report, choices, key_name, place_of
from floodmark.config.text.tree import Document
from floodmark.config.text.yaml_document import read_document

__all__ = ["SCHEMAS_FOLDER", "StreamField", "StreamSchema", "find_schema", "known_schemas"]

SCHEMAS_FOLDER = "schemas"
ENDINGS = (".json", ".avsc", ".ddl")
UNUSABLE = "FM-CONFIG-022"


def find_schema(name: str, roots: Sequence[Path]) -> Path | None:
    """The file of a schema: the first one below `schemas/` of these folders; None without."""
    for root in roots:
        for ending in ENDINGS:
            path = root / SCHEMAS_FOLDER / f"{name}{ending}"
            if path.is_file():
                return path
    return None


def known_schemas(roots: Sequence[Path]) -> list[str]:
    """The names of the schemas that are there."""
    found = {
        path.name.removesuffix(path.suffix)
        for root in roots
        for path in (root / SCHEMAS_FOLDER).glob("*")
        if path.suffix in ENDINGS
    }
    return sorted(found)


def allowed_schemas(name: str, roots: Sequence[Path]) -> str:
    """What a schemaName may be."""
    known = known_schemas(roots)
    where = f"{SCHEMAS_FOLDER}/{name} with the ending .json, .avsc or .ddl"
    return f"{where}; there is {choices(known, name)}" if known else f"{where}; there is none"


def read_schema(path: Path, report: Report) -> StreamSchema | None:
    """The schema of a file; None, with the error in the report, if it cannot be used."""
    text = file_text(path, report)
    if text is None:
        return None
    shown, document = shown_path(path), Document()
    try:
        if path.suffix == ".ddl":
            return from_ddl(text)
        before = len(report.found)
        is_json = path.suffix == ".json" or text.lstrip()[:1] in ("{", "[")
        document = (read_json if is_json else read_document)(text, report, shown)
        if document.root is None or len(report.found) > before:
            return None
        return from_avro(document.data) if path.suffix == ".avsc" else from_json(document.data)
    except SchemaProblem as problem:
        place = _place(problem, text, document, shown)
        key = key_name(problem.path)
        report.add(UNUSABLE, problem.title, place, key=key, allowed=problem.allowed or None)
        return None


def _place(problem: SchemaProblem, text: str, document: Document, file: str) -> Place:
    if document.root is None:
        return place_of(text, problem.position)._replace(file=file)
    return document.place(problem.path)
