"""The files of a project as one: floodmark.yaml, pipelines/, streams/, and the overlay of `--env`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.config.stream.spellings import normalised_stream
from floodmark.config.text.json_document import read_json
from floodmark.config.text.legacy_keys import normalised_pipeline
from floodmark.config.text.places import (
    NOTHING_DONE,
    KeyPath,
    Place,
    Report,
    choices,
    key_name,
    place_of,
)
from floodmark.config.text.references import ReferenceProblem, Vault, filled
from floodmark.config.text.safety import is_secret_path
from floodmark.config.text.tree import Document, Entry, merged
from floodmark.config.text.yaml_document import read_document
from floodmark.errors import ConfigError
from floodmark.model.names import PIPELINE_NAME
from floodmark.next_steps import command

PROJECT_FILE = "floodmark.yaml"
PIPELINES_FOLDER, STREAMS_FOLDER = "pipelines", "streams"
ENV_VARIABLE = "FLOODMARK_ENV"
MAX_BYTES = 2 << 20
MAX_FILES = 2_000

_ENDINGS = (".yaml", ".yml")
FOLDERS = {PIPELINES_FOLDER: _ENDINGS, STREAMS_FOLDER: (*_ENDINGS, ".json")}
"""Folders beside floodmark.yaml, whose files add to the list of that name."""


@dataclass(frozen=True)
class Layers:
    """What the files of a project say together."""

    written: Document = field(default_factory=Document)
    """As it is written, references and all."""
    files: tuple[Path, ...] = ()

    def filled(self, report: Report) -> Document:
        """With the values of the references that are no secrets; problems go into the report."""
        root = self.written.root
        if root is None or not root.has_references:
            return self.written
        return Document(filled_entry(root, (), Vault(self.files[0].parent), report))


def read_layers(path: Path, env: str | None, report: Report) -> Layers:
    """Every file of a project, merged; what is wrong with a file is added to the report."""
    added = {key: _files_of(path.parent / key, endings, report) for key, endings in FOLDERS.items()}
    files = [path, *(file for found in added.values() for file in found)]
    base = _read(path, report)
    if base is None:
        for each in files[1:]:
            _read(each, report)
        return Layers(files=tuple(files))
    for key, found in added.items():
        base = _with_files(base, key, found, report)
    base = _normalised(base, report)
    if env is not None and (overlay := _overlay_file(path.parent, env, report)):
        files.append(overlay)
        base = _overlaid(base, _read(overlay, report), report)
    return Layers(Document(base), tuple(files))


def shown_path(path: Path) -> str:
    """Relative to the working directory where the path is below it."""
    shown = os.path.relpath(path)
    return os.path.abspath(path) if shown.startswith("..") else shown


# One file ---------------------------------------------------------------------------------------


def _read(path: Path, report: Report) -> Entry | None:
    """The root of a file; None, with errors in the report, if there is nothing to go on with."""
    text = file_text(path, report)
    return None if text is None else document_of(path, text, report).root


def document_of(path: Path, text: str, report: Report) -> Document:
    """What a file says: as JSON by its ending, else as YAML."""
    read = read_json if path.suffix == ".json" else read_document
    return read(text, report, shown_path(path))


def file_text(path: Path, report: Report) -> str | None:
    """The text of a file; None, with the error in the report, if it cannot be read."""
    data = _bytes(path, report)
    if data is None:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        report.add(
            "FM-CONFIG-002",
            "the file is not UTF-8 text",
            place_of(before, len(before))._replace(file=shown_path(path)),
            found=f"byte 0x{data[error.start]:02x}",
            allowed="UTF-8",
        )
        return None


def _bytes(path: Path, report: Report) -> bytes | None:
    try:
        size = path.stat().st_size
        if size <= MAX_BYTES:
            return path.read_bytes()
        why = f"{size:,} bytes; at most {MAX_BYTES:,} are read"
    except OSError as error:
        why = error.strerror or type(error).__name__
    problem = ConfigError(
        "FM-CONFIG-001",
        f"{path.name} cannot be read",
        where=shown_path(path),
        found=why,
        state=NOTHING_DONE,
        next=command("validate"),
    )
    report.found.append((Place(file=shown_path(path)), problem))
    return None


# pipelines/ and streams/ ------------------------------------------------------------------------


def _files_of(folder: Path, endings: tuple[str, ...], report: Report) -> list[Path]:
    try:
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
    except OSError as error:
        found = error.strerror or type(error).__name__
        place = Place(file=shown_path(folder))
        title = f"the folder of {folder.name} cannot be read"
        report.add("FM-CONFIG-001", title, place, found=found)
        names = []
    files = [folder / n for n in names if n.endswith(endings) and not n.startswith(".")]
    if len(files) > MAX_FILES:
        place = Place(file=shown_path(folder))
        found, allowed = f"{len(files):,} files", f"at most {MAX_FILES:,}"
        report.add("FM-CONFIG-002", "too many files", place, found=found, allowed=allowed)
    return files[:MAX_FILES]


def _with_files(base: Entry, key: str, files: list[Path], report: Report) -> Entry:
    """The project with the pipelines or streams of the files after its own."""
    added = [each for file in files for each in _listed(_read(file, report), key, report)]
    own = base.get(key)
    if not base.is_mapping or not files or (own is not None and not own.is_list):
        return base
    if not added and own is None:
        return base
    place = own.place if own is not None else base.place
    return base.having(key, Entry([*(own.value if own is not None else ()), *added], place))


def _listed(root: Entry | None, name: str, report: Report) -> list[Entry]:
    """The pipelines or streams of a file: itself, or the list under its only key."""
    if root is None:
        return []
    listed = root.get(name)
    if listed is None:
        return [root]
    for key in root.value:
        if key != name:
            report.add(
                "FM-CONFIG-003",
                f'unknown key "{key}"',
                root.key_place(key),
                key=key,
                allowed=f"{name} alone; other keys of the project are in floodmark.yaml",
            )
    if not listed.is_list:
        title = f'"{name}" is not a list'
        report.add("FM-CONFIG-004", title, listed.place, key=name, allowed="a list")
        return []
    return list(listed.value)


def _normalised(base: Entry, report: Report) -> Entry:
    for key, normalised in _NORMALISED.items():
        listed = base.get(key)
        if listed is not None and listed.is_list:
            items = [normalised(item, report) for item in listed.value]
            base = base.having(key, Entry(items, listed.place))
    return base


_NORMALISED = {"pipelines": normalised_pipeline, "streams": normalised_stream}


# Overlays ---------------------------------------------------------------------------------------


def _overlay_file(root: Path, env: str, report: Report) -> Path | None:
    """The one file of an environment; None, with an error, if there is none or more than one."""
    places = [
        path
        for ending in _ENDINGS
        for path in (root / "env" / f"{env}{ending}", root / f"env.{env}{ending}")
        if PIPELINE_NAME.fullmatch(env)
    ]
    found = [path for path in places if path.is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(shown_path(path) for path in found)
        report.found.append((Place(), _no_overlay(f"{env} has more than one file", names, None)))
    else:
        known = choices(environments(root), env) or "no environment is there"
        title = f"there is no environment {env}"
        expected = f"neither env/{env}.yaml nor env.{env}.yaml"
        report.found.append((Place(), _no_overlay(title, expected, known)))
    return None


def environments(root: Path) -> list[str]:
    """The names of the environments that have an overlay."""
    inside = [p.name for p in (root / "env").glob("*")] if (root / "env").is_dir() else []
    beside = [p.name.removeprefix("env.") for p in root.glob("env.*")]
    found = [name for name in (*inside, *beside) if name.endswith(_ENDINGS)]
    return sorted({name.rpartition(".")[0] for name in found})


def _no_overlay(title: str, found: str, allowed: str | None) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-010",
        title,
        found=found,
        allowed=allowed,
        state=NOTHING_DONE,
        next=f"name another one with --env or {ENV_VARIABLE}, or none",
    )


def _overlaid(base: Entry, overlay: Entry | None, report: Report) -> Entry:
    if overlay is None or not base.is_mapping:
        return base
    if not overlay.is_mapping:
        title = "an overlay is a mapping of keys"
        report.add("FM-CONFIG-004", title, overlay.place, allowed="a mapping")
        return base
    return merged(base, _normalised(overlay, report))


# References -------------------------------------------------------------------------------------


def filled_entry(entry: Entry, path: KeyPath, vault: Vault, report: Report) -> Entry:
    """The entry with the values of its references; the same entry where there are none."""
    value = entry.value
    if not entry.has_references or is_secret_path(path):
        return entry
    if entry.keys is not None:
        new = {key: filled_entry(each, (*path, key), vault, report) for key, each in value.items()}
        return Entry(new, entry.place, entry.keys)
    if type(value) is list:
        items = [filled_entry(each, (*path, i), vault, report) for i, each in enumerate(value)]
        return Entry(items, entry.place)
    return Entry(_text_of(entry, path, vault, report), entry.place)


def _text_of(entry: Entry, path: KeyPath, vault: Vault, report: Report) -> str:
    try:
        return filled(entry.value, vault)
    except ReferenceProblem as problem:
        key = key_name(path)
        report.add(problem.code, problem.title, entry.place, key=key, allowed=problem.allowed)
        text: str = entry.value
        return text
