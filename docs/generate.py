# ruff: noqa: INP001
"""Writes the reference pages that follow from the code.

    python docs/generate.py            write the pages of docs/reference that follow from the code
    python docs/generate.py --check    fail if one of them is stale

Codes, meanings and points come from the code; what to do about them from reference/notes.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from floodmark import errors, failpoints
from floodmark.report.metrics import METRICS
from floodmark.transforms import Example, Table, Transform, standard
from floodmark.transforms.params import described
from floodmark.transforms.registry import FAMILIES

REFERENCE = Path(__file__).parent / "reference"
NOTES = REFERENCE / "notes.yaml"

ROOMS: dict[str, tuple[type[errors.FloodmarkError], str]] = {
    "CONFIG": (errors.ConfigError, "A file, an option or an argument is wrong; nothing was done."),
    "SETUP": (errors.SetupError, "Something that has to be installed is not there."),
    "PLAN": (errors.PlanError, "A batch cannot be planned as asked; nothing was journaled."),
    "SOURCE": (errors.SourceError, "An upstream cannot be read exactly; nothing was written."),
    "SINK": (errors.SinkError, "A target cannot be written exactly once."),
    "STREAM": (
        errors.StreamError,
        "A stream cannot go on exactly once; what is committed stays as it is.",
    ),
    "TRANSFORM": (
        errors.TransformError,
        "A step of a node cannot be applied; nothing was written.",
    ),
    "CONTROL": (errors.ControlError, "The control store cannot be used, or protects a guarantee."),
    "RUN": (errors.RunError, "A run failed; it is recorded and can be retried."),
    "CLI": (errors.FloodmarkError, "The command line itself."),
}
SPECIAL_CLASSES: dict[str, type[errors.FloodmarkError]] = {
    "FM-CONTROL-004": errors.UnknownNameError,
    "FM-CONTROL-005": errors.UnknownNameError,
    "FM-CONTROL-007": errors.FencedError,
}
SPECIAL_EXITS = {"FM-CLI-001": 3, "FM-CLI-002": 130}

GENERATED = "<!-- Written by docs/generate.py from the code and notes.yaml; do not edit. -->"


def notes() -> dict[str, dict[str, str]]:
    """The hand-written part: `errors` by code, `failpoints` by name."""
    content: dict[str, dict[str, str]] = yaml.safe_load(NOTES.read_text(encoding="utf-8"))
    return content


def pages() -> dict[Path, str]:
    """Every generated page with its text; raises KeyError for a code or point without a note."""
    written = notes()
    return {
        REFERENCE / "errors.md": _page(_errors(written["errors"])),
        REFERENCE / "failpoints.md": _page(_failpoints(written["failpoints"])),
        REFERENCE / "metrics.md": _page(_metrics()),
        REFERENCE / "project-file.md": _page(_project_file()),
        REFERENCE / "transforms.md": _page(_transforms()),
    }


def stale() -> list[Path]:
    """The pages whose file is missing or says something else."""
    return [path for path, text in pages().items() if not _is_fresh(path, text)]


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name the stale ones; returns the exit code."""
    if arguments == ["--check"]:
        for path in stale():
            sys.stderr.write(f"stale: {path.name}; run: python docs/generate.py\n")
        return 1 if stale() else 0
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


def _errors(todo: Mapping[str, str]) -> Iterator[str]:
    yield "# Errors"
    yield GENERATED
    yield (
        "Every error has a stable code. `str(error)` is the whole text; `error.code`, `title`, "
        "`where`, `found`, `allowed`, `state` (what state the data is in), `next` (the command to "
        "type) and `retryable` are attributes, and with `--json` they are keys. No field is longer "
        f"than {errors.MAX_TEXT:,} characters."
    )
    yield (
        "The exit code is that of the command line. `floodmark validate` reports what it finds "
        "wrong in a project, also FM-PLAN codes, with exit code 2. An error of your own function "
        "is raised unchanged by `run_pipeline`; the command line shows it as FM-RUN-001."
    )
    for room, (kind, text) in ROOMS.items():
        codes = [code for code in errors.CODES if code.split("-")[1] == room]
        yield f"## FM-{room}: {kind.__name__}"
        yield text
        yield "\n".join(_error_table(codes, kind, todo))
        if room == "CONFIG":
            yield (
                "FM-CONFIG-007 has many causes. `error.rule`, the key `rule` with `--json`, says "
                "which one it is; rules are as stable as codes."
            )
            yield "\n".join(_rules())


def _rules() -> Iterator[str]:
    yield "| rule | what is wrong |"
    yield "| --- | --- |"
    for rule, meaning in errors.ARGUMENT_RULES.items():
        yield f"| `{rule}` | {_cell(meaning)} |"


def _error_table(
    codes: list[str], kind: type[errors.FloodmarkError], todo: Mapping[str, str]
) -> Iterator[str]:
    yield "| code | class | exit | meaning | what to do |"
    yield "| --- | --- | --- | --- | --- |"
    for code in codes:
        its_kind = SPECIAL_CLASSES.get(code, kind)
        exit_code = SPECIAL_EXITS.get(code, its_kind.exit_code)
        meaning = errors.CODES[code]
        cells = (f"`{code}`", f"`{its_kind.__name__}`", str(exit_code), meaning, todo[code])
        yield f"| {' | '.join(map(_cell, cells))} |"


def _failpoints(meaning: Mapping[str, str]) -> Iterator[str]:
    yield "# Failpoints"
    yield GENERATED
    yield (
        "A failpoint is a named place where a test may kill the process: "
        "`FLOODMARK_FAILPOINT=name` kills it with SIGKILL the first time the place is reached, "
        "`name:3` the third time. With `FLOODMARK_FAILPOINT_ACTION=raise` it raises instead. "
        "Without the variable a failpoint does nothing. After each of them the ordinary commands "
        "reach the state of an undisturbed run; the crash tests run over this list."
    )
    rows = ["| point | killed here | the next command |", "| --- | --- | --- |"]
    for point in failpoints.every_point():
        left, next_step = meaning[point].split(" => ")
        rows.append(f"| `{point}` | {_cell(left)} | {_cell(next_step)} |")
    yield "\n".join(rows)


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield GENERATED
    yield (
        "What `floodmark metrics` tells ([guide](../guides/monitoring.md)). Every sample has the "
        "label `project` besides those of the table; no label holds an id or a text, so the number "
        "of series follows pipelines and upstreams. Names and labels stay; new ones may come. A "
        "timestamp is in seconds since 1970."
    )
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {_cell(metric.text)} |")
    yield "\n".join(rows)


def _transforms() -> Iterator[str]:
    yield "# Transforms"
    yield GENERATED
    yield (
        "The named transforms of a node's `transform` list ([guide](../guides/transforms.md)). Each "
        "example is run by the tests. Where `name: value` is shown, the value stands for the first "
        "parameter. Unknown parameters are refused, and texts and numbers are never converted."
    )
    by_family: dict[str, list[Transform]] = {family: [] for family in FAMILIES}
    for each in standard().values():
        by_family[each.function.__module__.rpartition(".")[2]].append(each)
    for family, members in by_family.items():
        yield f"## {family.capitalize()}"
        for each in members:
            yield f"### {each.name}"
            yield each.text
            yield "\n".join(_parameters(each))
            yield from _example(each.name, each.example) if each.example else ()


def _parameters(each: Transform) -> Iterator[str]:
    yield "| parameter | default | meaning |"
    yield "| --- | --- | --- |"
    for name, default, text in described(each.params):
        yield f"| `{name}` | {_cell(default)} | {_cell(text)} |"


def _example(name: str, example: Example) -> Iterator[str]:
    step = yaml.safe_dump([{name: example.params}], sort_keys=False, default_flow_style=None)
    # Only YAML 1.1, which PyYAML writes, has to quote this word.
    yield "```yaml\n{}```".format(step.replace("'on':", "on:"))
    yield "\n".join(_rows("input", example.given))
    for other, table in example.others.items():
        yield "\n".join(_rows(other, table))
    yield "\n".join(_rows("gives", example.gives))


def _rows(title: str, table: Table) -> Iterator[str]:
    kinds = (f"`{name}` {kind}" for name, kind in table.columns.items())
    yield f"| {title}: {' | '.join(kinds)} |"
    yield f"| {' | '.join('---' for _ in table.columns)} |"
    for row in table.rows:
        yield f"| {' | '.join(_cell(_value(value)) for value in row)} |"


def _value(value: object) -> str:
    if isinstance(value, str):
        return f"`{value!r}`" if value != value.strip() or not value else value
    words = {"None": "NULL", "True": "true", "False": "false"}
    return words.get(str(value), str(value))


def _project_file() -> Iterator[str]:
    from floodmark.config.project.schema import sections

    yield "# Project file"
    yield GENERATED
    yield (
        "Every key of floodmark.yaml, of the files of pipelines/ and of overlays. Unknown keys are "
        "errors. How the files go together: [project files](../guides/project-files.md)."
    )
    for title, text, keys in sections():
        yield f"## {title}"
        yield text
        rows = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
        rows += [f"| `{key.name}` | {' | '.join(map(_cell, key[1:]))} |" for key in keys]
        yield "\n".join(rows)


def _page(parts: Iterator[str]) -> str:
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _is_fresh(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
