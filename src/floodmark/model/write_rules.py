"""What the options of a write need and exclude: the same for a node of a file and for a call.

Checks of files ask before anything runs, the sinks once more before they write.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import get_args

from floodmark.errors import SinkError
from floodmark.model.write import (
    Changes,
    Deletes,
    Missing,
    Strategy,
    WriteMode,
    WriteSpec,
)
from floodmark.model.write_words import option
from floodmark.next_steps import THEN_RETRY

REPLACING = ("overwrite", "replace_where")
"""Modes that take away rows which the frame does not have."""
MODES_OF = {
    "merge": ("merge",),
    "replace_where": ("replace_where",),
    "changes": ("append", "overwrite", "replace_where"),
    "allow_partial": REPLACING,
}
"""The modes that an option of a file is for."""

NOT_WRITTEN = "nothing was written; the target and the watermark are unchanged"


def is_for(mode: str, name: str) -> bool:
    """Whether an option has a meaning in a mode."""
    return mode in MODES_OF[name]


def needs_keys(mode: str, changes: str | None) -> bool:
    """Whether rows are found by key."""
    return mode == "merge" or changes == "latest"


def needs_condition(mode: str) -> bool:
    """Whether a condition has to say which rows are replaced."""
    return mode == "replace_where"


def needs_change_columns(spec: WriteSpec) -> bool:
    """Whether the write works by the kind of change of each row."""
    return spec.changes in ("latest", "log")


def leaves_missing_open(spec: WriteSpec) -> bool:
    """Whether a merge does not say what becomes of rows that a whole table no longer has."""
    return spec.mode == "merge" and spec.strategy == "upsert" and spec.missing is None


def replaced_anew(spec: WriteSpec) -> bool:
    """Whether a full refresh replaces what the target holds.

    Other writes take all rows as they are: a merge that says what becomes of missing ones, a
    condition, keys to be deleted.
    """
    adds_rows = spec.mode == "merge" and spec.strategy != "delete_match"
    return spec.mode in ("append", "overwrite") or (adds_rows and spec.missing is None)


def replaces_by_part(spec: WriteSpec) -> bool:
    """Whether the rows of a batch would replace all others, and nobody says that this is meant."""
    return spec.mode in REPLACING and not spec.allow_partial


def check_options(spec: WriteSpec) -> None:
    """The options exist and go together."""
    _one_of("mode", spec.mode, get_args(WriteMode))
    _one_of("changes", spec.changes, (None, *get_args(Changes)))
    _one_of("missing", spec.missing, (None, *get_args(Missing)))
    _one_of("deletes", spec.deletes, get_args(Deletes))
    _one_of("strategy", spec.strategy, get_args(Strategy))
    if needs_keys(spec.mode, spec.changes) and not spec.keys:
        what = "merge" if spec.mode == "merge" else option(spec, "changes", "latest")
        keys = option(spec, "keys") if spec.is_node else "keys=[...]"
        raise bad_option(f"{what} needs keys", spec, f"{keys}: the columns that identify a row")
    if len({key.lower() for key in spec.keys}) < len(spec.keys):
        raise bad_option("a key is named twice", spec, "each key once", found=", ".join(spec.keys))
    if spec.mode == "merge":
        _check_merge_options(spec)
    else:
        _check_plain_options(spec)


def _check_merge_options(spec: WriteSpec) -> None:
    missing, keep = option(spec, "missing", "delete"), option(spec, "missing", "keep")
    if spec.changes in ("latest", "log"):
        raise bad_option(
            f"{option(spec, 'changes', spec.changes)} is not for merge",
            spec,
            "nothing (a merge reduces the changes of each key itself), or"
            f" {option(spec, 'changes', 'handled')}",
        )
    if spec.missing == "delete" and spec.deletes == "ignore":
        raise bad_option(
            f"{missing} and {option(spec, 'deletes', 'ignore')} contradict each other",
            spec,
            f"{option(spec, 'deletes', 'apply', 'soft')} with {missing}; or {keep}",
        )
    if spec.strategy != "upsert" and spec.missing == "delete":
        raise bad_option(
            f"{missing} has no meaning for strategy {spec.strategy}",
            spec,
            f"strategy upsert with {missing}; or {keep}",
        )
    if spec.created_at and spec.created_at.lower() == (spec.updated_at or "").lower():
        raise bad_option("created_at and updated_at are one column", spec, "two names")
    is_pointless = spec.allow_full and spec.missing != "delete"
    _refuse_flags(
        spec,
        allow_full=is_pointless,
        allow_partial=spec.allow_partial,
        replace_where=spec.replace_where is not None,
    )


def _check_plain_options(spec: WriteSpec) -> None:
    if spec.keys and spec.changes != "latest":
        raise bad_option(
            f"{option(spec, 'keys')} has no meaning for mode {spec.mode}",
            spec,
            f"keys with mode merge, or with {option(spec, 'changes', 'latest')}",
        )
    _refuse_flags(
        spec,
        missing=spec.missing is not None,
        deletes=spec.deletes != "apply",
        sequence_by=spec.sequence_by is not None,
        strategy=spec.strategy != "upsert",
        created_at=spec.created_at is not None,
        updated_at=spec.updated_at is not None,
        allow_full=spec.allow_full and spec.mode != "append",
        allow_partial=spec.allow_partial and not is_for(spec.mode, "allow_partial"),
        replace_where=spec.replace_where is not None and not is_for(spec.mode, "replace_where"),
    )
    if needs_condition(spec.mode) and not (spec.replace_where or "").strip():
        allowed = f"a condition in {option(spec, 'replace_where')}"
        raise bad_option("nothing says which rows are replaced", spec, allowed)


def _refuse_flags(spec: WriteSpec, **given: bool) -> None:
    for name, is_given in given.items():
        if is_given:
            belongs = {
                "allow_full": 'append, or merge with missing="delete"',
                "allow_partial": " or ".join(MODES_OF["allow_partial"]),
                "replace_where": "mode replace_where",
            }.get(name, "merge")
            title = f"{option(spec, name)} has no meaning for mode {spec.mode}"
            raise bad_option(title, spec, f"{option(spec, name)} with {belongs}")


def _one_of(option: str, value: object, allowed: Sequence[str | None]) -> None:
    if value in allowed:
        return
    names = [name for name in allowed if name is not None]
    near = difflib.get_close_matches(str(value), names, n=1)
    raise SinkError(
        "FM-SINK-005",
        f"unknown {option} {value!r}",
        allowed=", ".join(names) + (f"; nearest: {near[0]}" if near else ""),
        state=NOT_WRITTEN,
        next="correct the write, " + THEN_RETRY,
    )


def bad_option(title: str, spec: WriteSpec, allowed: str, found: str | None = None) -> SinkError:
    return SinkError(
        "FM-SINK-005",
        title,
        where=write_name(spec),
        found=found,
        allowed=allowed,
        state=NOT_WRITTEN,
        next="correct the write, " + THEN_RETRY,
    )


def write_name(spec: WriteSpec) -> str:
    """The write as errors name it."""
    return f"write {spec.name!r} to {spec.target}"
